"""Keys that are bound to services or environments: what they may send, and that they read nothing of others."""

from __future__ import annotations

import hashlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from all_routes import routes_of
from click.testing import CliRunner
from traffic import rag_trace
from waiting import eventually

from ragpulse_collector.cli import cli
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import ApiKey, Binding

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
SECRET = "salaries-of-everyone"
"""In every text of the other service."""
OWN, SHARED, OTHER = 0, 1, 2
"""The traces: of the own service, of both, of the other service."""
IDS = [f"{number + 1:032x}" for number in (OWN, SHARED, OTHER)]
KEYS = [
    {"name": name, "scopes": scopes, "sha256": hashlib.sha256(name.encode()).hexdigest(), **binding}
    for name, scopes, binding in (
        ("ours", ["ingest", "read"], {"services": ["helpdesk"], "environments": ["prod"]}),
        ("everything", ["admin"], {}),
    )
]
ASKED = {
    "GET metrics": {"name": "quality:groundedness"},
    "GET exemplars": {"name": "quality:groundedness"},
    "GET check": {"evaluator": "groundedness", "min": "0.5"},
    "POST scores": {"score": 1.0},
}
"""What a question needs beside the path."""
VOLATILE = {"created_at", "decided_at", "received_at", "elapsed_ms", "from", "to", "t", "u", "policy"}
"""What differs from run to run."""


def ask(url: str, method: str, path: str, key: str, body: Any = None) -> tuple[int, str]:
    """Send a request with a key; returns status and text."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if method == "GET" else json.dumps(body or {}).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url + path, data, headers, method=method), timeout=60
        ) as got:
            return got.status, got.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode("utf-8", "replace")


def post(
    url: str, key: str, spans: list[dict[str, Any]], *, service: str = "helpdesk", environment: str = "prod"
) -> str:
    """Send spans of a service in an environment; returns the answer."""
    named = {"service.name": service, "deployment.environment.name": environment}
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in named.items()]
    body = {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]}]}
    status, answer = ask(url, "POST", "/v1/traces", key, body)
    assert status == 200, answer
    return answer


def secret_trace(number: int) -> list[dict[str, Any]]:
    """A trace of the other service, with texts that nobody else may see."""
    start = time.time_ns() - 60 * 10**9
    made = rag_trace(
        number, query=f"The {SECRET}?", response=f"The {SECRET} are these.", prompt_version=SECRET, start_ns=start
    )
    return json.loads(json.dumps(made).replace("Eiffel Tower", SECRET).replace("towers", "payrolls"))  # type: ignore[no-any-return]


def settled(url: str) -> None:
    """Wait until everything is decided and evaluated."""

    def done() -> bool:
        status = json.loads(ask(url, "GET", "/api/v1/status", "everything")[1])
        by_status = status["evaluations"]["by_status"]
        return bool(by_status) and not status["undecided"]["traces"] and not status["evaluations"]["pending"]

    eventually(done)


def stripped(value: Any) -> Any:
    """An answer without what differs from run to run."""
    if isinstance(value, dict):
        return {name: stripped(one) for name, one in value.items() if name not in VOLATILE}
    return [stripped(one) for one in value] if isinstance(value, list) else value


@pytest.fixture
def mixed(collector: Start) -> Collector:
    """A collector with a trace of each service, and one in which both took part."""
    running = collector(api_keys=KEYS)
    url = running.url
    post(url, "ours", rag_trace(OWN, start_ns=START))
    root, search, answer = rag_trace(SHARED)
    post(url, "ours", [root, answer])
    secret = secret_trace(SHARED)[1]
    post(url, "everything", [{**secret, "traceId": search["traceId"], "spanId": search["spanId"]}], service="payroll")
    post(url, "everything", secret_trace(OTHER), service="payroll")
    post(url, "everything", secret_trace(OTHER + 1), environment="staging")
    settled(url)
    return running


START = time.time_ns() - 30 * 10**9


def test_no_operation_shows_a_bound_key_what_is_not_its_own(mixed: Collector) -> None:
    """Every operation of the table, about every trace: refused, or without a word of the other service."""
    seen: dict[str, list[int]] = {}
    for operation in mixed.components.operations:
        name = f"{operation.method} {operation.path}"
        for trace in IDS:
            given = {**ASKED.get(name, {}), **({"trace_id": trace} if name == "POST scores" else {})}
            path = "/api/v1/" + re.sub(r"\{[^}]+\}", trace, operation.path)
            path += f"?{urlencode(given)}" if operation.method == "GET" and given else ""
            status, text = ask(mixed.url, operation.method, path, "ours", given)
            seen.setdefault(name, []).append(status)
            assert SECRET not in text, name
            assert (status == 403) == (not operation.bound), (name, status, text)
    of_trace = {name for name in seen if "{trace_id}" in name or name == "POST scores"}
    assert {name: found for name, found in seen.items() if name in of_trace} == {
        one: [200, 404, 404] for one in of_trace
    }
    assert {name for name, found in seen.items() if found == [200] * 3} == {
        "GET traces", "GET metrics", "GET exemplars", "GET documents", "GET check"
    }  # fmt: skip
    assert SECRET in ask(mixed.url, "GET", "/api/v1/traces", "everything")[1]


def test_names_of_evaluators_of_other_services_stay_theirs(mixed: Collector) -> None:
    """Whether another service has scores of this name is not told, nor its name."""
    post_score = {"trace_id": IDS[OTHER], "name": SECRET, "score": 1.0}
    assert ask(mixed.url, "POST", "/api/v1/scores", "everything", post_score)[0] == 200
    theirs, near = f"/api/v1/traces?evaluator={SECRET}", f"/api/v1/traces?evaluator={SECRET[:-1]}"
    eventually(lambda: SECRET in ask(mixed.url, "GET", near, "everything")[1])
    assert ask(mixed.url, "GET", theirs, "everything")[0] == 200
    for path in (theirs, near):
        status, text = ask(mixed.url, "GET", path, "ours")
        assert status == 400
        assert "did you mean" not in text
    status, text = ask(mixed.url, "GET", "/api/v1/traces?evaluator=QQQ", "ours")
    assert SECRET not in text


def test_no_other_route_answers_a_bound_key(mixed: Collector) -> None:
    """Pages, exports and Prometheus are refused; nothing but health, the login and OTLP is left."""
    for method, path in routes_of(mixed):
        if not path.startswith("/api/v1/"):
            status, text = ask(mixed.url, method, path, "ours")
            open_ = path in ("/healthz", "/readyz") or path.startswith(("/login", "/static", "/v1/", "/api/public/"))
            assert (status == 403) == (not open_), (method, path, status)
            assert SECRET not in text


def test_a_bound_key_reads_as_if_the_store_held_its_own_data_alone(mixed: Collector, collector: Start) -> None:
    """Lists, facets, neighbours, documents, charts and markers are those of a collector with the own trace alone."""
    alone = collector(api_keys=KEYS)
    post(alone.url, "ours", rag_trace(OWN, start_ns=START))
    settled(alone.url)
    questions = [
        "traces?facets=true", "traces?sort=worst&evaluator=groundedness", "traces?q=the", f"traces/{IDS[OWN]}",
        "metrics?name=requests&step=all&from=-1h", "metrics?name=quality:groundedness&step=all&from=-1h",
        "metrics?name=requests&step=all&from=-1h&group_by=service", "documents", "exemplars?name=latency_p95",
    ]  # fmt: skip
    for question in questions:
        answers = [json.loads(ask(one.url, "GET", f"/api/v1/{question}", "ours")[1]) for one in (mixed, alone)]
        assert stripped(answers[0]) == stripped(answers[1]), question
    status, text = ask(mixed.url, "GET", "/api/v1/traces?where=true", "ours")
    assert status == 400
    assert "where is not for keys that are bound" in text


def test_a_bound_key_sends_its_own_data_alone(collector: Start) -> None:
    """Spans of another service or environment are rejected with the reason, in a body with allowed ones, too."""
    running = collector(api_keys=KEYS)
    assert json.loads(post(running.url, "ours", rag_trace(0))) == {}
    for place in ({"service": "payroll"}, {"environment": "staging"}):
        told = json.loads(post(running.url, "ours", rag_trace(1), **place))["partialSuccess"]
        assert told["rejectedSpans"] == "3"
        assert "outside what the key is bound to" in told["errorMessage"]
    log = {"traceId": IDS[0], "eventName": "gen_ai.evaluation.result", "attributes": []}
    status, answer = ask(
        running.url, "POST", "/v1/logs", "ours", {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    )
    assert (status, json.loads(answer)["partialSuccess"]["rejectedLogRecords"]) == (200, "1")
    stored = running.store.read("SELECT DISTINCT service, environment FROM raw.spans").rows
    assert stored == [("helpdesk", "prod")]


def test_a_bound_key_is_no_admin() -> None:
    """An administrator sees and deletes everything: binding such a key would promise what does not hold."""
    with pytest.raises(ValueError, match="cannot be bound"):
        ApiKey.generated("ops", ("admin",), Binding(services=("helpdesk",)))


def test_the_command_prints_a_bound_key_for_the_file(tmp_path: Path) -> None:
    """The printed lines are the configuration; a key for administrators is refused."""
    made = CliRunner().invoke(cli, ["key", "--scope", "read", "--service", "helpdesk", "--environment", "prod"])
    file = tmp_path / "ragpulse.toml"
    file.write_text(made.output.partition("in ragpulse.toml:\n")[2])
    (key,) = load_settings(file, {}).collector.api_keys
    assert (key.scopes, key.binding) == (("read",), Binding(("helpdesk",), ("prod",)))
    refused = CliRunner().invoke(cli, ["key", "--scope", "admin", "--service", "helpdesk"])
    assert refused.exit_code != 0


def test_signing_in_with_a_bound_key_says_what_works(mixed: Collector) -> None:
    """No session: pages show everything. The sentence names every operation that the key may ask."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(f"{mixed.url}/login", b"key=ours", form)
    with urllib.request.urlopen(request, timeout=60) as page:  # follows the redirect to the form
        text, cookie = page.read().decode(), page.headers["set-cookie"]
        assert page.url.endswith("/login?bound=1&to=%2F")
    assert cookie is None
    status, refusal = ask(mixed.url, "GET", "/traces", "ours")
    assert status == 403
    reads = {one.path.partition("/")[0] for one in mixed.components.operations if one.bound and one.method == "GET"}
    for said in (text, refusal):
        assert "bound to services or environments" in said
        assert all(name in said for name in reads)
