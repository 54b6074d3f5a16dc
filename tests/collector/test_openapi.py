"""The OpenAPI document is valid, and what the collector answers fits it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from all_routes import ASKED, RULE, TRACE
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.api.http import plain
from ragpulse_collector.client import Client, connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]


@pytest.fixture(scope="module")
def client(shared_collector: Start) -> Client:
    """A collector with four evaluated traces of two prompt versions."""
    running = shared_collector()
    for number in range(4):
        send(running.url, rag_trace(number, prompt_version="v7" if number % 2 else "v8", error=number == 3))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'groundedness'", 4)
    return client


def document_of(client: Client) -> dict[str, Any]:
    """The document as it is served."""
    document: dict[str, Any] = json.loads(client.request("GET", "/openapi.json"))
    return document


def test_the_document_is_valid(client: Client) -> None:
    """A validator of OpenAPI 3.1 finds nothing, and generated code gets a distinct name for each operation."""
    document = document_of(client)
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


def test_answers_fit_the_document(client: Client) -> None:
    """Every answer satisfies the schema of its operation, and so does what was asked."""
    document, run = document_of(client), ""
    for method, path, given in ASKED:
        described = document["paths"][f"/api/v1/{path}"][method.lower()]
        params = {name: run if value == "RUN" else value for name, value in given.items()}
        declared = {one["name"] for one in described["parameters"]} | set(body_schema(described).get("properties", {}))
        assert params.keys() <= declared, path
        if path.endswith("/result"):  # not of a replay that has only begun
            eventually(partial(client.call, f"GET replays/{run}"), lambda replay: replay["status"] != "running")
        rest = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        answer = client.call(f"{method} {path.format(**params)}", rest)
        check(document, described["responses"]["200"]["content"]["application/json"]["schema"], answer)
        if method == "POST":
            check(document, body_schema(described), rest)
        run = answer["replays"][0]["run_id"] if answer.get("replays") else run


def test_every_json_operation_is_asked(client: Client) -> None:
    """Those left out need a caller, a judge, a monitor, topics or minutes; their tests are elsewhere."""
    paths = document_of(client)["paths"]
    described = {
        (method.upper(), path.removeprefix("/api/v1/"))
        for path, methods in paths.items()
        for method, one in methods.items()
        if "application/json" in one["responses"]["200"]["content"]
    }
    assert described - {(method, path) for method, path, _ in ASKED} == {
        ("GET", "replays/{id}/cases"),
        ("POST", "replays/{id}/results"),
        ("POST", "runs"),
        ("GET", "runs/{id}/result"),
        ("POST", "drift/anchors"),
        ("POST", "drift/run"),
        ("POST", "monitors/{name}/test"),
        ("POST", "topics/fit"),
        ("POST", "judge/check"),
        ("PUT", "topics/{id}"),
        ("POST", "demo"),
        ("DELETE", "demo"),
    }


def body_schema(described: dict[str, Any]) -> dict[str, Any]:
    """The schema of an operation's JSON body."""
    content = described.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = content.get("application/json", {}).get("schema", {})
    return schema


def check(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Validate a value; references lead to the document's components."""
    whole = {**schema, "components": document["components"]}
    found = Draft202012Validator(whole).iter_errors(value)
    causes = ((error, [(cause.json_path, cause.message[:200]) for cause in error.context or ()]) for error in found)
    problems = [f"{error.json_path}: {within or error.message[:300]}" for error, within in causes]
    assert problems == []


@dataclass(frozen=True)
class Span:
    """An object with a key that is a word of Python, below another one."""

    from_: datetime
    within: Span | None = None


@pytest.mark.parametrize("text", ["plain", 'says "from_": 1'])
def test_a_field_from_is_named_as_in_json(text: str) -> None:
    """At any depth; keys that users chose and texts stay."""
    start = datetime(2026, 11, 21, 8)
    content = {"from_": text, "found": [Span(start, Span(start))]}
    inner = {"from": "2026-11-21T08:00:00Z", "within": None}
    assert plain(content) == {"from_": text, "found": [{"from": "2026-11-21T08:00:00Z", "within": inner}]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/api/v1/traces?servise=a", None, 400, "did you mean 'service'?"),
        ("GET", "/api/v1/traces?limit=many", None, 400, "limit"),
        ("GET", "/api/v1/status?x=1", None, 400, "this takes none"),
        ("GET", "/api/v1/traces?q=a&q=b", None, 400, "one value"),
        ("GET", "/api/v1/metrics?name=requests&step=soon", None, 400, "no duration"),
        ("GET", "/api/v1/metrics?name=requests&from=-9999999999d", None, 400, "no time"),
        ("POST", "/api/v1/sql", {"query": "drop table x"}, 400, ""),
        ("POST", "/api/v1/sql", {"qury": "select 1"}, 400, "did you mean 'query'?"),
        ("POST", "/api/v1/prune", {"older_than": "999999999999d"}, 400, "at most 317 years"),
        ("POST", "/api/v1/rules", {**RULE, "rate": 2}, 400, "rate"),
        ("GET", f"/api/v1/traces/{9:032x}", None, 404, "no trace"),
        ("GET", "/api/v1/nothing", None, 404, "/api/v1/nothing"),
        ("POST", "/v1/nothing", None, 404, "/v1/nothing"),
        ("GET", "/nothing", None, 404, "/nothing"),
        ("POST", "/nothing", None, 404, "/nothing"),
        ("POST", "/api/v1/status", {}, 405, "GET, HEAD"),
        ("PATCH", "/api/v1/rules", {}, 405, "GET, HEAD, POST"),
        ("DELETE", "/metrics", None, 405, "GET, HEAD"),
        ("DELETE", "/traces", None, 405, "GET, HEAD"),
        ("PUT", "/login", None, 405, ""),
    ],
)
def test_errors_are_problem_details(client: Client, method: str, path: str, body: Any, status: int, words: str) -> None:
    """RFC 9457 with the reason, `error` as before, the wrong parameter by name, and `Allow` with 405."""
    answer = httpx.request(method, client.url + path, json=body)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert (problem["status"], problem["instance"]) == (status, path.partition("?")[0])
    assert problem["detail"] == problem["error"]
    assert {"type", "title"} <= problem.keys()
    assert words in problem["detail"]
    assert ("allow" in answer.headers) == (status == 405)
    assert all(one["name"] and one["detail"] in problem["detail"] for one in problem.get("errors", []))


def test_the_guard_answers_problem_details(collector: Start, tmp_path: Path) -> None:
    """A foreign host and a missing key are refused in the same form, whatever stands in the host's name."""
    del tmp_path
    key = {"name": "ops", "scopes": ["read"], "sha256": "0" * 64}
    running = collector(api_keys=[key])
    missing = httpx.get(f"{running.url}/api/v1/status")
    foreign = httpx.get(f"{running.url}/api/v1/status", headers={"Host": 'evil"\u00e9.test'.encode("latin-1")})
    for answer, status in ((missing, 401), (foreign, 403)):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert answer.json()["detail"] == answer.json()["error"]
    assert missing.headers["www-authenticate"] == "Bearer"


def test_pages_link_only_to_what_the_api_takes(client: Client) -> None:
    """Each JSON link of a page is answered, also where the page is grouped, filtered and zoomed in."""
    given = "from=-1h&back=-24h&group_by=model&service=helpdesk&error=false"
    pages = (
        "/",
        "/traces",
        "/explain",
        "/documents",
        "/label",
        "/live",
        "/evaluators",
        "/replays",
        "/alerts",
        "/health",
    )
    links = set()
    with httpx.Client(base_url=client.url, timeout=60) as browser:
        for page in (
            *(f"{path}?{given}" for path in pages),
            f"/traces/{TRACE}?at=-1h",
            "/compare?a=prompt:v7&b=prompt:v8",
        ):
            text = browser.get(page, headers={"Accept": "text/html"}).text
            links |= {html.unescape(link) for link in re.findall(r'href="(/api/v1/[^"]+)"', text)}
        refused = {link: answer.text for link in links if (answer := browser.get(link)).status_code != 200}
    assert len(links) > 10
    assert refused == {}


def test_the_metric_of_exemplars_has_two_names(client: Client) -> None:
    """`metric`, as declared, and `name`, as it was read before, choose the same order."""
    slowest = client.call("GET exemplars", {"metric": "quality:groundedness"})
    assert slowest == client.call("GET exemplars", {"name": "quality:groundedness"})
    assert slowest["worst"]
