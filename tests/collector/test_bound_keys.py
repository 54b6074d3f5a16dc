"""Keys that are bound to services or environments: what they may send, and that they read nothing of others."""

from __future__ import annotations

import base64
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
VOLATILE = {"created_at", "decided_at", "received_at", "elapsed_ms", "from", "to", "t", "u", "until", "policy"}
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
    """Pages, exports and Prometheus are refused; health, the login, OTLP and MCP (see test_mcp) are left."""
    for method, path in routes_of(mixed):
        if not path.startswith("/api/v1/"):
            status, text = ask(mixed.url, method, path, "ours")
            open_ = path in ("/healthz", "/readyz", "/mcp") or path.startswith(
                ("/login", "/static", "/v1/", "/api/public/")
            )
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


VICTIM, FORGED = OTHER, "forged-by-helpdesk"
"""The trace that an attacker knows by its ids, and a mark in all that the attacker sends."""


def attribute(key: str, value: Any) -> dict[str, Any]:
    """An attribute of OTLP/JSON."""
    return {"key": key, "value": {"doubleValue" if isinstance(value, float) else "stringValue": value}}


def event(name: str, *, span: str | None = None, trace: bool = True, **attributes: Any) -> dict[str, Any]:
    """A log record about the victim's trace; `__` stands for a dot."""
    ids = ({"traceId": IDS[VICTIM]} if trace else {}) | ({"spanId": span} if span else {})
    named = [attribute(key.replace("__", "."), value) for key, value in attributes.items()]
    return {**ids, "eventName": name, "timeUnixNano": str(time.time_ns()), "attributes": named}


def forged_events() -> list[dict[str, Any]]:
    """Scores, feedback, texts and an exception for the spans of the other service."""
    root, _, call = (f"{VICTIM * 8 + number:016x}" for number in (1, 2, 3))
    score = {"gen_ai__evaluation__name": FORGED, "gen_ai__evaluation__score__value": 0.5}
    human = {**score, "ragpulse__score__source": "human"}
    texts = {"gen_ai__input__messages": json.dumps([{"role": "user", "content": FORGED}]),
             "gen_ai__output__messages": json.dumps([{"role": "assistant", "content": FORGED}])}  # fmt: skip
    return [
        event("gen_ai.evaluation.result", **score),
        event("gen_ai.evaluation.result", span=root, **human),
        event("gen_ai.evaluation.result", span=call, **score),
        event("gen_ai.evaluation.result", trace=False, gen_ai__response__id="resp-victim", **human),
        event("gen_ai.client.inference.operation.details", span=call, **texts),
        event("gen_ai.choice", span=call, message=FORGED),
        event("exception", span=call, exception__type=FORGED, exception__message=FORGED),
    ]


def export(running: Collector, signal: str, body: dict[str, Any], *, over: str) -> None:
    """Send a body with the attacker's key, over HTTP as JSON or over gRPC."""
    if over == "http":
        assert ask(running.url, "POST", f"/v1/{signal}", "ours", body)[0] == 200
        return
    grpc = pytest.importorskip("grpc", reason="the extra [grpc] is not installed")
    from google.protobuf import json_format
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def wire(value: Any) -> Any:  # protobuf's JSON has ids in base64
        if isinstance(value, dict):
            return {
                key: base64.b64encode(bytes.fromhex(one)).decode() if key.endswith(("traceId", "panId")) else wire(one)
                for key, one in value.items()
            }
        return [wire(one) for one in value] if isinstance(value, list) else value

    kind, name = {"logs": (ExportLogsServiceRequest, "logs"), "traces": (ExportTraceServiceRequest, "trace")}[signal]
    service = f"opentelemetry.proto.collector.{name}.v1.{name.capitalize()}Service"
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_port}") as channel:
        call = channel.unary_unary(f"/{service}/Export")
        message = json_format.ParseDict(wire(body), kind()).SerializeToString()
        call(message, timeout=60, metadata=[("authorization", "Bearer ours")])


def attack(running: Collector, *, over: str) -> None:
    """Everything that a sender of another service can try with the ids of a trace."""
    resource = {"attributes": [attribute("service.name", "helpdesk"), attribute("deployment.environment.name", "prod")]}
    logs = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": forged_events()}]}]}
    export(running, "logs", logs, over=over)
    child = rag_trace(VICTIM)[2] | {"spanId": "00000000000000ee", "name": "elsewhere"}
    for field, value in (("name", FORGED), ("score", 0.5), ("annotator_kind", "HUMAN")):
        for scope in ("", "trace."):
            child["attributes"].append(attribute(f"{scope}annotations.0.annotation.{field}", value))
    spans = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [child]}]}]}
    export(running, "traces", spans, over=over)
    feedback = {"trace_id": IDS[VICTIM], "name": FORGED, "score": 0.5}
    ask(running.url, "POST", "/api/v1/scores", "ours", feedback)


@pytest.mark.parametrize("over", ["http", "grpc"])
@pytest.mark.parametrize("first", ["the attack", "the trace"])
def test_a_bound_key_writes_nothing_to_the_requests_of_others(collector: Start, over: str, first: str) -> None:
    """Who knows the ids of a trace adds spans to it, as distributed tracing needs, but no verdict and no text."""
    running = collector(api_keys=KEYS, grpc_port=0)
    spans = secret_trace(VICTIM)
    spans[2]["attributes"].append(attribute("gen_ai.response.id", "resp-victim"))
    spans[2]["status"] = {"code": 2}
    if first == "the attack":
        attack(running, over=over)
    post(running.url, "everything", spans, service="payroll")
    settled(running.url)
    if first == "the trace":
        attack(running, over=over)
    allowed = {"trace_id": IDS[VICTIM], "name": "real", "score": 1.0}
    assert ask(running.url, "POST", "/api/v1/scores", "everything", allowed)[0] == 200

    def seen() -> tuple[int, str]:
        return ask(running.url, "GET", f"/api/v1/traces/{IDS[VICTIM]}", "everything")

    eventually(lambda: "real" in seen()[1])
    trace = json.loads(seen()[1])
    assert trace["trace"]["feedback"] is None or trace["trace"]["feedback"] == 1.0
    (elsewhere,) = [span for span in trace["spans"] if span["name"] == "elsewhere"]
    trace["spans"].remove(elsewhere)  # it is there, and its raw attributes with it
    assert FORGED not in json.dumps(trace)
    assert FORGED not in ask(running.url, "GET", "/api/v1/traces", "everything")[1]
    scored = ask(running.url, "GET", "/api/v1/export/evaluations", "everything")[1]
    assert FORGED not in scored


def test_a_bound_key_scores_its_own_requests(collector: Start) -> None:
    """The same events about the own service are stored, before and after its spans."""
    running = collector(api_keys=KEYS)
    body = {"resourceLogs": [{"resource": {"attributes": [
        attribute("service.name", "helpdesk"), attribute("deployment.environment.name", "prod")]},
        "scopeLogs": [{"logRecords": forged_events()}]}]}  # fmt: skip
    assert ask(running.url, "POST", "/v1/logs", "ours", body) == (200, "{}")
    spans = rag_trace(VICTIM)
    spans[2]["attributes"].append(attribute("gen_ai.response.id", "resp-victim"))
    post(running.url, "ours", spans)
    settled(running.url)
    eventually(lambda: FORGED in ask(running.url, "GET", "/api/v1/traces", "ours")[1])
    trace = json.loads(ask(running.url, "GET", f"/api/v1/traces/{IDS[VICTIM]}", "ours")[1])
    assert {one["score"] for one in trace["scores"] if one["evaluator"] == FORGED and one["score"] is not None} == {0.5}
    assert len([one for one in trace["scores"] if one["evaluator"] == FORGED]) == 4
    (call,) = [span for span in trace["spans"] if span["kind"] == "llm"]
    assert FORGED in call["response"]
