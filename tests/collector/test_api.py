"""The JSON API over a whole collector: lists, details, rules, labels, feedback, SQL, status."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from traffic import rag_trace, send
from waiting import until

import ragpulse_dashboards
from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.api.guard import Guard, Keys
from ragpulse_collector.api.operations import Operations, operation, routes
from ragpulse_collector.api.params import TraceId
from ragpulse_collector.client import Client, ClientError, connect
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Busy

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
EVALUATION = {
    "traceId": f"{1:032x}",
    "eventName": "gen_ai.evaluation.result",
    "attributes": [{"key": "gen_ai.evaluation.name", "value": {"stringValue": "thumbs"}}],
}
"""A log record that holds a score."""


def filled(collector: Start, count: int = 4, **options: Any) -> Client:
    """A collector that has decided `count` traces: prompt v7 and v8 in turn, the last one failed."""
    running = collector(**options)
    for number in range(count):
        version = "v7" if number % 2 == 0 else "v8"
        send(running.url, rag_trace(number, prompt_version=version, error=number == count - 1))
    client = connect(running.url)
    until(client, "select 1 from traces where decided", count)
    return client


def test_the_list_filters_pages_and_counts(five: Client) -> None:
    """Filters narrow the list, the cursor walks all of it once, facets count values."""
    client = five
    assert len(client.call("GET traces", {"prompt_version": "v8"})["traces"]) == 2
    assert len(client.call("GET traces", {"error": "true"})["traces"]) == 1
    assert len(client.call("GET traces", {"q": "eiffel"})["traces"]) == 5
    assert len(client.call("GET traces", {"retriever": "search"})["traces"]) == 5
    assert client.call("GET traces", {"retriever": "other"})["traces"] == []
    seen, cursor = [], None
    while True:
        page = client.call("GET traces", {"limit": 2, "cursor": cursor, "facets": "true"})
        seen += [trace["trace_id"] for trace in page["traces"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 5
    assert {facet["value"]: facet["n"] for facet in page["facets"]["prompt_version"]} == {"v7": 3, "v8": 2}
    assert {facet["value"]: facet["n"] for facet in page["facets"]["session_id"]}["session-0"] == 2
    assert client.call("GET traces", {"limit": 2, "total": "true", "prompt_version": "v7"})["total"] == 3
    assert (
        client.call(
            "GET traces", {"limit": 2, "total": "true", "cursor": client.call("GET traces", {"limit": 2})["next"]}
        )["total"]
        == 5
    )


@pytest.fixture(scope="module")
def five(shared_collector: Start) -> Client:
    """Five traces for tests that only read."""
    return filled(shared_collector, 5)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("session-0", 2),
        (f"{2:032x}", 1),
        (f"{2:032x}"[:31], 5),
        ("00000000-0000-0000-0000-000000000002", 1),
        ("a-7", 0),
    ],
)
def test_the_search_finds_ids(five: Client, asked: str, found: int) -> None:
    """A session, and a trace by the beginning of its id in both spellings."""
    assert len(five.call("GET traces", {"q": asked})["traces"]) == found


def test_the_list_finds_what_became_of_traces(collector: Start) -> None:
    """The counts of an evaluator's coverage are lists: as many eligible, selected, scored and skipped."""
    client = filled(collector, 4)
    until(client, "select 1 from scores where evaluator = 'groundedness'", 4)
    told = next(one for one in client.call("GET coverage")["coverage"] if one["evaluator"] == "groundedness")
    for outcome in ("eligible", "selected", "scored", "skipped", "invalid", "error", "dropped"):
        listed = client.call("GET traces", {"evaluator": "groundedness", "outcome": outcome})["traces"]
        assert len(listed) == told[outcome], outcome
        for since, count in (("-1h", told[outcome]), ("2100-01-01T00:00Z", 0)):
            params = {"evaluator": "groundedness", "outcome": outcome, "evaluated_from": since}
            assert len(client.call("GET traces", params)["traces"]) == count, outcome
    passing, failing = (client.call("GET traces", {"failing": value})["traces"] for value in ("false", "true"))
    assert len(passing) + len(failing) == 4
    with pytest.raises(ClientError, match="outcome: input should be 'eligible'"):
        client.call("GET traces", {"outcome": "lost", "evaluator": "groundedness"})


def test_only_a_verdict_makes_an_answer_fail(collector: Start) -> None:
    """A low figure that judges nothing is no failure."""
    client = filled(collector, 1)
    client.call("POST scores", {"trace_id": f"{1:032x}", "name": "length", "score": 0.0})
    until(client, "select 1 from scores where evaluator = 'length' and normalized < 0.5 and passing is null", 1)
    assert client.call("GET traces", {"failing": "true"})["traces"] == []


def test_the_list_finds_the_traces_of_a_document(collector: Start) -> None:
    """As many as the document is said to be retrieved for; a time range, a filter and facets hold as well."""
    client = filled(collector, 4)
    send(client.url, rag_trace(9)[:1])
    until(client, "select 1 from traces where decided", 5)
    found = client.call("GET traces", {"document": "rivers.md", "facets": "true"})
    told = {one["id"]: one["retrieved"] for one in client.call("GET documents")["documents"]}
    assert len(found["traces"]) == told["rivers.md"] == 4
    assert {facet["value"]: facet["n"] for facet in found["facets"]["prompt_version"]} == {"v7": 2, "v8": 2}
    near, far = {"from": "-1h"}, {"from": "-3h", "to": "-2h"}
    for others, count in (({"prompt_version": "v8"}, 2), (near, 4), (far, 0), ({"document": "seas.md"}, 0)):
        assert len(client.call("GET traces", {"document": "rivers.md", **others})["traces"]) == count


def test_the_filtered_list_is_a_parquet_file(collector: Start, tmp_path: Path) -> None:
    """The rows of the list with its columns, through its filters; nothing is left behind."""
    running = collector(sql_max_rows=3)
    for number in range(5):
        send(running.url, rag_trace(number, prompt_version="v8" if number < 2 else "v7"))
    until(connect(running.url), "select 1 from scores where evaluator = 'groundedness' having count(*) = 5")
    for given, count in (("prompt_version=v8&format=parquet", 2), ("sort=slow", 3)):
        file = tmp_path / f"{count}.parquet"
        with urllib.request.urlopen(f"{running.url}/api/v1/export/traces?{given}") as answer:
            file.write_bytes(answer.read())
        columns = "query, n_spans, scores['groundedness'] > 0.5, session_id[:7]"
        rows = duckdb.execute(f"SELECT {columns} FROM read_parquet(?)", [str(file)]).fetchall()
        assert rows == [("How tall is the Eiffel Tower?", 3, True, "session")] * count
    with pytest.raises(ClientError, match="format: input should be 'parquet'"):
        connect(running.url).call("GET export/traces", {"format": "xml"})


def test_the_list_sorts_by_latency_and_score(collector: Start) -> None:
    """`slow` and `worst` bring the traces a person looks for to the top."""
    running = collector()
    send(running.url, rag_trace(1, latency_ms=10.0))
    send(running.url, rag_trace(2, latency_ms=9000.0, response="It was built on the moon in 1492 by Napoleon."))
    client = connect(running.url)
    until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'", 2)
    assert client.call("GET traces", {"sort": "slow"})["traces"][0]["latency_ms"] == pytest.approx(9000.0)
    worst = client.call("GET traces", {"sort": "worst", "evaluator": "groundedness"})["traces"][0]
    assert "moon" in worst["response"]
    for sort, opposite in (("time", "oldest"), ("slow", "fast"), ("best", "worst")):
        there, back = (client.call("GET traces", {"sort": one})["traces"] for one in (sort, opposite))
        assert there == back[::-1], sort


def test_a_trace_is_told_whole(collector: Start) -> None:
    """Spans, contexts, scores, decisions and neighbours of a trace come in one answer, with and without its time."""
    client = filled(collector, 3)
    trace_id = f"{2:032x}"
    until(client, f"select 1 from scores where trace_id = '{trace_id}'", 4)
    told = client.call(f"GET traces/{trace_id}")
    assert [span["kind"] for span in told["spans"]] == ["rag", "retriever", "llm"]
    assert [context["id"] for context in told["contexts"]] == ["towers.md", "rivers.md"]
    assert {decision["evaluator"] for decision in told["decisions"]} >= {"groundedness", "refusal"}
    assert told["spans"][0]["attributes"]["input.value"] == "How tall is the Eiffel Tower?"
    assert "Seine" in told["spans"][1]["attributes"]["gen_ai.retrieval.documents"]
    assert told["previous"]["trace_id"] == f"{1:032x}"
    near = client.call(f"GET traces/{trace_id}", {"at": told["trace"]["start_time"]})
    assert near["spans"] == told["spans"]


def test_spans_are_told_in_brief_or_one_by_one(collector: Start) -> None:
    """A waterfall's spans come without texts and attributes, one span with all of its own; an unknown one is a 404."""
    running = collector(roles=("ingest",))  # nobody decides or evaluates between two answers
    send(running.url, rag_trace(0))
    client = connect(running.url)
    operation = f"GET traces/{1:032x}"
    whole = client.call(operation)
    brief = client.call(operation, {"spans": "brief"})
    steps = [{name: value for name, value in span.items() if name in whole["spans"][0]} for span in brief["spans"]]
    assert all(step.items() <= full.items() for step, full in zip(steps, whole["spans"], strict=True))
    assert [span["arguments"] for span in brief["spans"] if span["kind"] == "retriever"] == [
        span["query"] for span in whole["spans"] if span["kind"] == "retriever"
    ]
    assert "attributes" not in brief["spans"][0]
    assert brief == {**whole, "spans": brief["spans"]}
    halves = [client.call(operation, {"only": half}) for half in ("trace", "rest")]
    assert {part: halves[0][part] or halves[1][part] for part in whole} == whole
    search = whole["spans"][1]
    far = "2020-01-01T00:00:00Z"
    assert client.call(operation, {"spans": search["span_id"], "at": far})["spans"] == [search]
    for wrong, status in (("0" * 16, 404), ("nonsense", 400)):
        with pytest.raises(ClientError) as raised:
            client.call(operation, {"spans": wrong})
        assert raised.value.status == status


def cursor(offset: float) -> str:
    """A cursor that this collector has not made."""
    return base64.urlsafe_b64encode(json.dumps(["2026-01-01T00:00:00", "aa", offset]).encode()).decode().rstrip("=")


@pytest.fixture(scope="module")
def empty(shared_collector: Start) -> Client:
    """A collector without traces, for questions that are refused."""
    return connect(shared_collector().url)


@pytest.mark.parametrize(
    ("operation", "params", "status"),
    [
        ("GET traces/zz", {}, 400),
        (f"GET traces/{99:032x}", {}, 404),
        (f"GET traces/{99:032x}", {"only": "half"}, 400),
        ("GET traces", {"limit": "many"}, 400),
        ("GET traces", {"from": "tomorrow"}, 400),
        ("GET traces", {"where": "select 1"}, 400),
        ("GET traces", {"cursor": "nonsense"}, 400),
        ("GET metrics", {"name": "quality"}, 400),
        ("POST sql", {"query": "drop table raw.spans"}, 400),
        ("POST sql", {"query": "select * from read_csv('/etc/passwd')"}, 400),
        ("POST labels", {"trace_id": "0" * 32}, 400),
        ("POST rules", {"name": "x", "evaluators": ["no_such"], "rate": 1}, 400),
        ("POST rules", {"name": "x", "evaluators": ["refusal"], "rate": 2}, 400),
        ("POST rules", {"name": "x", "evaluators": ["refusal"], "rate": 0.1, "where": "1; drop table x"}, 400),
        ("GET traces", {"sort": "slow", "cursor": cursor(-5)}, 400),
        ("GET traces", {"sort": "slow", "cursor": cursor(10**30)}, 400),
        ("GET traces", {"sort": "slow", "cursor": cursor(float("inf"))}, 400),
        ("GET sessions", {"offset": 10**30}, 400),
        ("GET metrics", {"name": "requests", "from": "0001-01-01", "to": "9999-12-31"}, 400),
        ("GET exemplars", {"metric": "requests", "t": "9999-12-31T23:59:59", "step": "7d"}, 400),
        ("GET monitors/preview", {"metric": "requests", "condition": "< 3", "window": "0s"}, 400),
        ("GET export/evaluations", {"limit": 0}, 400),
        ("POST replays", {"evaluators": "refusal", "limit": -1, "dry_run": True}, 400),
        ("POST replays", {"evaluators": "refusal", "max_usd": -1, "dry_run": True}, 400),
        ("POST replays", {"evaluators": "faithfulness", "dry_run": True}, 400),
    ],
)
def test_mistakes_are_named(empty: Client, operation: str, params: dict[str, Any], status: int) -> None:
    """A malformed question gets its status and a sentence, never a 500."""
    with pytest.raises(ClientError) as raised:
        empty.call(operation, params)
    assert raised.value.status == status
    assert len(str(raised.value)) > 10


@pytest.mark.parametrize(
    ("operation", "params", "near"),
    [
        ("GET metrics", {"name": "quality:groundednes"}, "groundedness"),
        ("GET metrics", {"name": ["requests", "latencyp95"]}, "latency_p95"),
        ("GET metrics", {"name": "qualty:groundedness"}, "quality:groundedness"),
        ("GET metrics", {"name": "requests", "group_by": "servise"}, "service"),
        ("GET metrics", {"nme": "requests"}, "name"),
        ("GET exemplars", {"metric": "pass_rate:refusl"}, "refusal"),
        ("GET explain", {"metric": "eror_rate"}, "error_rate"),
        ("GET check", {"evaluator": "groundednes", "min": 0.8}, "groundedness"),
        ("GET plan", {"evaluator": "groundednes", "half_width": 0.02}, "groundedness"),
        ("GET compare", {"a": "faithfulnes@1", "b": "faithfulness@2"}, "faithfulness"),
        ("GET calibration", {"evaluator": "groundednes"}, "groundedness"),
        ("GET explain", {"name": "eror_rate"}, "error_rate"),
        ("GET traces", {"evaluator": "groundednes", "sort": "worst"}, "groundedness"),
        ("GET traces", {"sort": "wrst"}, "worst"),
        ("GET traces", {"evaluator": "refusal", "outcome": "droped"}, "dropped"),
        ("GET export/traces", {"evaluator": "refusl"}, "refusal"),
        ("GET export/evaluations", {"evaluator": "refusl"}, "refusal"),
        ("GET sessions", {"evaluator": "refusl", "sort": "worst"}, "refusal"),
        ("GET documents", {"evaluator": "refusl"}, "refusal"),
        ("GET documents", {"sort": "unusd"}, "unused"),
        ("GET labels/suggest", {"evaluator": "refusl"}, "refusal"),
        ("GET drift", {"evaluator": "faithfulnes"}, "faithfulness"),
        ("GET blame", {"group_by": "servise"}, "service"),
        ("GET compare", {"a": "servise:x", "b": "service:y"}, "service"),
        ("GET compare", {"a": "service:x", "b": "service:y", "by": "modle"}, "model"),
        ("POST datasets/d", {"evaluator": "refusl", "max_score": 0.5}, "refusal"),
        ("POST drift/anchors", {"evaluator": "faithfulnes"}, "faithfulness"),
        ("POST drift/run", {"evaluator": "faithfulnes"}, "faithfulness"),
        ("GET traces", {"where": "servce = 'a'"}, "service"),
        ("POST rules", {"name": "x", "evaluators": ["refusl"], "rate": 1}, "refusal"),
        ("POST rules", {"name": "x", "evaluators": ["refusal"], "rate": 1, "where": "servce = 'a'"}, "service"),
        ("POST replays", {"evaluators": ["refusl"], "dry_run": True}, "refusal"),
        ("POST monitors", {"name": "m", "metric": "latencyp95", "condition": "> 1"}, "latency_p95"),
    ],
)
def test_a_slip_is_refused_with_the_nearest_name(
    empty: Client, operation: str, params: dict[str, Any], near: str
) -> None:
    """In rules, monitors and questions: an empty chart would look as if nothing had been measured."""
    with pytest.raises(ClientError, match=f"did you mean '{near}'") as raised:
        empty.call(operation, params)
    assert raised.value.status == 400


def test_every_question_about_an_evaluator_knows_its_name(collector: Start) -> None:
    """A new operation that takes an evaluator's name refuses an unknown one as problem+json."""
    url = collector().url
    paths = json.loads(urllib.request.urlopen(f"{url}/openapi.json").read())["paths"]
    asked = {
        path: {one["name"] for one in about["get"]["parameters"] if one.get("required")}
        for path, about in paths.items()
        if any(one["name"] == "evaluator" for one in about.get("get", {}).get("parameters", ()))
    }
    assert len(asked) >= 9
    for path, needed in asked.items():
        given = {**dict.fromkeys(needed, "0.5"), "evaluator": "QQQ"}
        with pytest.raises(urllib.error.HTTPError, match="400") as raised:
            urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(given)}")
        with raised.value as answer:
            assert answer.headers["content-type"] == "application/problem+json"
            assert "no evaluator 'QQQ'; there are: " in json.loads(answer.read())["detail"]


def test_names_are_known_by_scores_labels_and_rules(collector: Start) -> None:
    """What has scores, a label or a rule can be asked for although no evaluator of the registry is called so."""
    running = collector()
    client = connect(running.url)
    assert client.call("GET traces", {"evaluator": "feedback"})["traces"] == []
    send(running.url, rag_trace(0))
    until(client, "select 1 from traces where decided")
    client.call("POST labels", {"trace_id": f"{1:032x}", "evaluator": "polite", "passing": False})
    client.call("POST scores", {"trace_id": f"{1:032x}", "name": "thumbs", "score": 1})
    until(client, "select 1 from scores where evaluator = 'thumbs'")
    for name in ("polite", "thumbs", "refusal"):
        client.call("GET traces", {"evaluator": name})
    with pytest.raises(ClientError, match="did you mean 'thumbs'"):
        client.call("GET traces", {"evaluator": "thums"})


@pytest.mark.parametrize("label_pi", [0, -0.5, 1.5, "NaN"])
def test_a_label_without_a_probability_is_refused(collector: Start, label_pi: object) -> None:
    """It would make every corrected number of the evaluator fail."""
    label = {"trace_id": f"{1:032x}", "evaluator": "judge", "passing": True, "label_pi": label_pi}
    with pytest.raises(ClientError, match="label_pi") as raised:
        connect(collector().url).call("POST labels", label)
    assert raised.value.status == 400


def test_scores_that_somebody_sends_may_have_a_name_like_an_evaluators(collector: Start) -> None:
    """`refusals` is a slip of `refusal` until it has scores."""
    running = collector()
    client = connect(running.url)
    with pytest.raises(ClientError, match="did you mean 'refusal'"):
        client.call("GET metrics", {"name": "quality:refusals"})
    send(running.url, rag_trace(0))
    client.call("POST scores", {"trace_id": f"{1:032x}", "name": "refusals", "score": 1})
    until(client, "select 1 from scores where evaluator = 'refusals'")
    assert client.call("GET metrics", {"name": "quality:refusals"})["series"] == []


def test_the_chart_of_a_name_whose_scores_are_gone_is_empty(collector: Start) -> None:
    """A link to it may live longer than the scores; a slip of the name is refused still."""
    running = collector()
    client = connect(running.url)
    send(running.url, rag_trace(0))
    client.call("POST scores", {"trace_id": f"{1:032x}", "name": "thumbs", "score": 1})
    until(client, "select 1 from scores where evaluator = 'thumbs'")
    client.call("POST prune", {"trace": f"{1:032x}"})
    assert client.call("POST sql", {"query": "select count(*) from scores"})["rows"] == [[0]]
    for name in ("GET metrics", "GET explain"):
        client.call(name, {"name": "quality:thumbs"})
    with pytest.raises(ClientError, match="did you mean 'thumbs'"):
        client.call("GET metrics", {"name": "quality:thums"})
    with pytest.raises(ClientError, match="no evaluator 'stars'"):
        client.call("GET metrics", {"name": "quality:stars"})


def test_the_chart_of_a_monitor_is_empty_before_its_first_score(collector: Start) -> None:
    """The file may name an evaluator whose scores somebody will send; a monitor of the API would stay undecided."""
    watched = {"name": "m", "metric": "quality:stars", "condition": "< 0.9"}
    settings = {"target": [{"metric": "quality:helpful", "min": 0.9}], "monitor": [watched]}
    client = connect(collector(settings=settings).url)
    for name in ("stars", "helpful"):
        assert client.call("GET metrics", {"name": f"quality:{name}"})["series"] == []
    with pytest.raises(ClientError, match="did you mean 'stars'"):
        client.call("GET metrics", {"name": "quality:star"})
    with pytest.raises(ClientError, match="no evaluator 'unheard'"):
        client.call("POST monitors", {**watched, "name": "n", "metric": "quality:unheard"})


def test_a_busy_store_tells_readers_when_to_come_again() -> None:
    """503 with Retry-After and the reason, from the API and from a page."""

    @operation("GET traces/{trace_id}")
    def run(trace_id: TraceId, only: str | None = None, spans: str | None = None) -> Done:
        """Never answer."""
        raise Busy(f"busy with {trace_id} {only} {spans}", retry_after_s=3)

    table = Operations(run.operations)  # type: ignore[attr-defined]
    app = Starlette(routes=[*routes(table), *ragpulse_dashboards.routes(table.call)])
    guard = Guard(app, settings=CollectorSettings(), keys=Keys(CollectorSettings()))
    client = TestClient(guard, base_url="http://127.0.0.1")
    for path in ("/api/v1/traces/", "/traces/"):
        answer = client.get(path + "a" * 32)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
        assert "busy with" in answer.text.lower()


def test_rules_are_edited_live_and_each_change_is_a_new_policy(collector: Start) -> None:
    """A rule made over the API is in force at once, changes its policy when changed, and is audited."""
    client = connect(collector().url)
    made = client.call("POST rules", {"name": "half", "evaluators": ["refusal"], "rate": 0.5})
    changed = client.call("PUT rules/half", {"evaluators": ["refusal"], "rate": 0.25})
    assert made["policy"] != changed["policy"]
    assert {rule["name"] for rule in client.call("GET rules")["rules"]} == {"offline", "half"}
    client.call("DELETE rules/half")
    assert {rule["name"] for rule in client.call("GET rules")["rules"]} == {"offline"}


def test_rules_of_the_file_are_read_only(collector: Start) -> None:
    """Changing a rule of the file is answered 409."""
    client = connect(collector(rules=[("live", "refusal", 1.0)]).url)
    with pytest.raises(ClientError, match=r"ragpulse\.toml") as raised:
        client.call("DELETE rules/live")
    assert raised.value.status == 409


def test_feedback_and_labels_reach_their_trace(collector: Start) -> None:
    """A score and a label given over the API are stored with the trace."""
    client = filled(collector, 1)
    trace_id = f"{1:032x}"
    client.call("POST scores", {"trace_id": trace_id, "name": "thumbs", "score": -1, "comment": "wrong"})
    client.call("POST labels", {"trace_id": trace_id, "evaluator": "groundedness", "passing": False})
    until(client, "select 1 from scores where source = 'human' and evaluator = 'thumbs'", 1)
    told = client.call(f"GET traces/{trace_id}")
    assert told["labels"][0]["evaluator"] == "groundedness"
    assert told["trace"]["feedback"] == -1


def test_a_forced_evaluation_runs_outside_the_rules(collector: Start) -> None:
    """An evaluator asked for by hand scores the trace although no rule names it."""
    client = filled(collector, 1)
    client.call("POST evaluate", {"trace_id": f"{1:032x}", "evaluators": ["latency"]})
    rows = until(client, "select score, pi from scores where evaluator = 'latency' and status = 'ok'", 1)
    assert rows[0]["score"] == pytest.approx(0.8)


def test_status_counts_what_came_and_what_was_refused(collector: Start) -> None:
    """Received spans, duplicates and refused requests are counted where a person sees them."""
    running = collector()
    send(running.url, rag_trace(0))
    send(running.url, rag_trace(0))
    client = connect(running.url)
    with pytest.raises(ClientError):
        client.request("POST", "/v1/traces", body={"resourceSpans": 7})
    client.request("POST", "/v1/logs", body={"resourceLogs": [{"scopeLogs": [{"logRecords": [EVALUATION, {}]}]}]})
    status = client.call("GET status")
    assert status["received"]["spans"] == 3
    assert status["received"]["logs"] == 1
    assert status["queue"] == {"bytes": 0, "bodies": 0, "oldest_s": 0.0, "refused": None}
    assert status["duplicates"] == 3
    assert status["rejected"]["requests_by_code"] == {"400": 1}


def test_metrics_and_ordinary_logs_are_counted_and_said_once(
    collector: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """For each service, in the log and in the status; a page shows them."""
    running = collector()
    client = connect(running.url)
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    metrics = {"resource": resource, "scopeMetrics": [{"metrics": [{"name": "a"}, {"name": "b"}]}]}
    logs = {"resource": resource, "scopeLogs": [{"logRecords": [{"body": {"stringValue": "hello"}}]}]}
    for _ in range(2):
        client.request("POST", "/v1/metrics", body={"resourceMetrics": [metrics]})
        client.request("POST", "/v1/logs", body={"resourceLogs": [logs]})
    assert client.call("GET status")["not_stored"] == {"metrics": {"shop": 4}, "logs": {"shop": 2}}
    said = [record.getMessage() for record in caplog.records if "service 'shop'" in record.getMessage()]
    assert sorted(said) == [
        "service 'shop' sends log records that are no GenAI events: they are accepted and counted, not stored",
        "service 'shop' sends metrics: they are accepted and counted, not stored",
    ]
    page = client.request("GET", "/health", accept="text/html")
    assert b"Metrics of shop, counted only" in page
    assert b"prices: genai-prices " in page


def test_status_says_how_long_the_oldest_evaluation_waits(collector: Start) -> None:
    """Jobs that nobody works off have an age, in the status and for Prometheus."""
    running = collector(roles=("ingest",))
    client = connect(running.url)
    assert client.call("GET status")["evaluations"]["oldest_s"] == 0
    job = "INSERT INTO raw.eval_jobs (job_id, evaluator, created_at) SELECT uuid(), 'e', $at::TIMESTAMP - to_seconds(i)"
    work = f"{job} FROM range(1000, 1003) r(i)"
    running.store.write(lambda t: t.execute(work, {"at": t.at})).result(60)
    score = "INSERT INTO raw.scores (job_id, evaluator, status, source, created_at) SELECT uuid(), 'e', 'ok', 'online'"
    running.store.write(lambda t: t.execute(f"{score}, $at::TIMESTAMP FROM range(60)", {"at": t.at})).result(60)
    evaluations = client.call("GET status")["evaluations"]
    assert evaluations["pending"] == evaluations["due"] == 3
    assert 1002 <= evaluations["oldest_s"] < 1100
    (waiting,) = evaluations["waiting"]
    assert (waiting["evaluator"], waiting["done_per_s"], waiting["clears_in_s"]) == ("e", 0.1, 30.0)
    assert "ragpulse_evaluations_oldest_seconds 10" in client.request("GET", "/metrics").decode()


def test_every_operation_is_in_the_openapi_document(collector: Start) -> None:
    """The document is made from the same table that answers."""
    running = collector()
    document = connect(running.url)
    paths = json.loads(document.request("GET", "/openapi.json"))["paths"]
    assert {f"/api/v1/{operation.path}" for operation in running.components.operations} == set(paths)


def test_prometheus_text_has_the_counters(collector: Start) -> None:
    """`/metrics` is text that Prometheus reads."""
    client = filled(collector, 2)
    until(client, "select 1 from scores where evaluator = 'refusal'", 2)
    text = client.request("GET", "/metrics").decode()
    assert "ragpulse_received_spans_total 6" in text
    assert 'ragpulse_quality{evaluator="refusal"}' in text
    for figure in ("", "_lo", "_hi", "_n", "_users", "_missing_share"):
        assert f'ragpulse_quality{figure}{{evaluator="refusal",service="' in text


def test_verdicts_leave_as_events_that_any_receiver_takes(collector: Start) -> None:
    """What one collector found is sent, as it came, to another's `/v1/logs`, and is a score of that span there."""
    client, other = filled(collector, 2), collector()
    held = "select trace_id, span_id, score from scores where {0} order by all"
    mine = until(client, held.format("evaluator = 'groundedness'"), 2)
    body = client.call("GET export/evaluations", {"evaluator": "groundedness"})
    records = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert {(one["traceId"], one["spanId"]) for one in records} == {(row["trace_id"], row["span_id"]) for row in mine}
    assert {one["eventName"] for one in records} == {"gen_ai.evaluation.result"}
    for number in range(2):
        send(other.url, rag_trace(number))
    headers = {"Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{other.url}/v1/logs", json.dumps(body).encode(), headers)).close()
    assert until(connect(other.url), held.format("source = 'code'"), len(mine)) == mine
    past = client.call("GET export/evaluations", {"from": "-2h", "to": "-1h"})
    assert past["resourceLogs"][0]["scopeLogs"][0]["logRecords"] == []


def test_a_trace_becomes_a_regression_test(collector: Start) -> None:
    """The generated pytest file is Python that holds the case."""
    client = filled(collector, 1)
    until(client, "select 1 from scores where evaluator = 'groundedness'", 1)
    answer = client.call(f"GET traces/{1:032x}/pytest")
    compile(answer["text"], answer["filename"], "exec")
    assert "Eiffel Tower is 330 metres" in answer["text"]


def test_a_trace_has_the_contexts_that_its_answer_was_made_from(collector: Start) -> None:
    """What a reranker returned comes first and is what evaluators see; what it was given is marked as superseded."""
    running = collector()
    spans = rag_trace(0)
    reranker = json.loads(json.dumps(spans[1]).replace('"retriever"', '"reranker"').replace("rivers.md", "best.md"))
    reranker |= {"spanId": f"{99:016x}", "startTimeUnixNano": str(int(spans[1]["startTimeUnixNano"]) + 500)}
    send(running.url, [*spans, reranker])
    client = connect(running.url)
    until(client, "select 1 from traces where decided", 1)
    for params in ({}, {"spans": "brief"}):
        found = client.call(f"GET traces/{1:032x}", params)["contexts"]
        assert [(one["id"], one["superseded"]) for one in found] == [
            ("towers.md", False), ("best.md", False), ("towers.md", True), ("rivers.md", True)
        ]  # fmt: skip


def test_a_search_that_failed_names_no_model(collector: Start) -> None:
    """The model of a trace is what wrote its answer: an embedding model wrote none."""
    running = collector()
    root, search, _ = rag_trace(0, error=True)
    embedding = json.loads(json.dumps(rag_trace(0)[2]).replace('"llm"', '"embedding"').replace("gpt-5-mini", "embed-3"))
    send(running.url, [root, search, embedding])
    client = connect(running.url)
    until(client, "select 1 from traces where decided", 1)
    assert client.call("GET traces")["traces"][0]["model"] is None
