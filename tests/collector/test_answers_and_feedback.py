"""Empty and refused answers, feedback by name, labels, carriers and new columns, through a running collector."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import Client, ClientError, connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

N = 12
RESPONSES = ["", " \n", "I'm sorry, but I cannot answer that question.", *["The tower is 330 metres tall."] * (N - 3)]
SCALES = {"feedback": {"scale": {"stars": [1, 5]}}}


def trace(number: int) -> str:
    """The id of a trace of `rag_trace`."""
    return f"{number + 1:032x}"


def give(client: Client, number: int, name: str, score: float | None, **more: Any) -> None:
    """Send a person's score."""
    client.call("POST scores", {"trace_id": trace(number), "name": name, "score": score, **more})


@pytest.fixture(scope="module")
def client(shared_collector: Callable[..., Collector]) -> Client:
    """A collector with twelve traces: two empty answers, a refusal, and feedback under several names."""
    client = connect(shared_collector(settings=SCALES).url)
    for number, response in enumerate(RESPONSES):
        version = "v1" if number % 2 else "v2"
        facts = {"gen_ai.response.finish_reasons": ["length" if number < 6 else "stop"], "gen_ai.agent.name": "planner",
                 "gen_ai.data_source.id": "docs", "gen_ai.retrieval.top_k": 2 + number % 2}  # fmt: skip
        send(client.url, rag_trace(number, response=response, prompt_version=version,
                                   latency_ms=2000 if number < 6 else 500, **facts))  # fmt: skip
        if number > 2:
            give(client, number, "thumbs", 1)
            give(client, number, "reading_difficulty", 0)
            give(client, number, "stars", 4 if number < 10 else 50)
    give(client, 3, "tone", None, label="friendly")
    until(client, "SELECT * FROM traces WHERE decided", N)
    until(client, "SELECT * FROM traces WHERE feedback IS NOT NULL", N - 3)
    until(client, "SELECT * FROM scores WHERE evaluator = 'tone'", 1)
    until(client, "SELECT * FROM scores WHERE evaluator = 'refusal' AND status = 'ok'", N)
    return client


def value(client: Client, metric: str, **params: Any) -> float:
    """The metric over the whole range."""
    (line,) = client.call("GET metrics", {"name": metric, "step": "all", **params})["series"]
    return float(line["points"][0]["value"])


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("empty_rate", 2 / N), ("refused_rate", 1 / N), ("unanswered_rate", 3 / N), ("quality:refusal", 1 - 3 / N)],
)
def test_empty_answers_show_as_such(client: Client, metric: str, expected: float) -> None:
    """An empty answer is an answer: stored as sent, not answered, not an error, not missing."""
    assert value(client, metric) == pytest.approx(expected)
    stored = client.sql("SELECT response FROM traces WHERE answer = 'empty' ORDER BY trace_id").rows()
    assert [row["response"] for row in stored] == ["", " \n"]


def test_the_overview_counts_empty_answers(client: Client) -> None:
    """Beside the errors; Explain has them as an attribute, lists as a filter and a facet."""
    overview = client.call("GET overview", {})
    assert (overview["n_answers"], overview["n_empty"], overview["n_refused"]) == (N, 2, 1)
    others = {row["name"]: row for row in overview["others"]}
    assert (others["feedback:stars"]["n"], others["feedback:stars"]["most"]) == (N - 3, 50.0)
    assert others["feedback:tone"]["labels"] == {"friendly": 1}
    listed = client.call("GET traces", {"answer": ["empty", "refused"], "facets": True})
    assert len(listed["traces"]) == 3
    assert {row["value"]: row["n"] for row in listed["facets"]["answer"]} == {"empty": 2, "refused": 1}


@pytest.mark.parametrize("column", ["finish_reason", "agent", "data_source", "top_k", "answer"])
def test_columns_are_filters_and_groups(client: Client, column: str) -> None:
    """The groups add up to all requests, and each is what the filter gives."""
    grouped = client.call("GET metrics", {"name": "requests", "step": "all", "group_by": column})["series"]
    assert sum(line["points"][0]["value"] for line in grouped) == N
    for line in grouped:
        (group,) = line["group"].values()
        assert value(client, "requests", **{column: str(group)}) == line["points"][0]["value"]


def test_explain_names_what_cut_answers_share(client: Client) -> None:
    """Finish reason and answer are attributes."""
    found = client.call("GET explain", {"metric": "latency_p50", "sel_lo": "1500"})["attributes"]
    cut = next(one for one in found if (one["attribute"], one["value"]) == ("finish_reason", "length"))
    assert (cut["selected"]["share"], cut["baseline"]["share"]) == (1.0, 0.0)
    assert {"agent", "data_source"} <= {one["attribute"] for one in found}
    fast = client.call("GET explain", {"metric": "latency_p50", "sel_lo": "0", "sel_hi": "1500"})["attributes"]
    answered = next(one for one in fast if (one["attribute"], one["value"]) == ("answer", "answered"))
    assert (answered["selected"]["share"], answered["baseline"]["share"]) == (1.0, 0.5)


def test_each_name_is_its_own_series(client: Client) -> None:
    """A difficulty of 0 does not touch acceptance; stars outside their scale are left out with a count."""
    assert value(client, "acceptance") == 1.0
    assert value(client, "feedback:thumbs") == 1.0
    assert value(client, "feedback:reading_difficulty") == 0.0
    assert value(client, "feedback:stars") == 4.0
    answer = client.call("GET metrics", {"name": "feedback:stars", "step": "all"})
    assert answer["left_out"] == 2
    assert client.sql("SELECT count(*) AS n FROM scores WHERE evaluator = 'stars'").rows() == [{"n": N - 3}]


def test_feedback_is_compared_checked_and_watched(client: Client) -> None:
    """The names of metrics are those of evaluators everywhere."""
    compared = client.call("GET compare", {"a": "prompt:v1", "b": "prompt:v2", "evaluator": "feedback:stars"})
    assert (compared["a"]["value"], compared["b"]["value"]) == (4.0, 4.0)
    checked = client.call("GET check", {"evaluator": "feedback:thumbs", "min": 0.2})
    assert checked["value"] == 1.0
    client.call("POST monitors", {"name": "stars", "metric": "feedback:stars", "condition": "< 3"})
    assert client.call("GET explain", {"metric": "feedback:thumbs"})["n_baseline"] == 0
    assert client.call("GET exemplars", {"name": "feedback:stars"})["worst"]


@pytest.mark.parametrize("metric", ["quality:groundednes", "score:starz", "feedback:thumbz", "quality:nothing"])
@pytest.mark.parametrize("operation", ["GET metrics", "POST monitors", "GET monitors/preview"])
def test_an_unknown_name_is_refused_with_the_nearest(client: Client, operation: str, metric: str) -> None:
    """400 with the nearest name or the possible ones, from charts and monitors."""
    draft = {"name": metric if operation == "GET metrics" else "m", "metric": metric, "condition": "< 0.5"}
    params = {"name": metric} if operation == "GET metrics" else draft
    with pytest.raises(ClientError, match=r"no evaluator|no metric") as refused:
        client.call(operation, params)
    assert refused.value.status == 400


def test_people_and_evaluators_have_columns_of_their_own(client: Client) -> None:
    """Under one name, in the list; scores outside 0..1 and labels are there as they are."""
    give(client, 5, "refusal", 0)
    until(client, "SELECT * FROM scores WHERE evaluator = 'refusal' AND source = 'human'", 1)
    rows = {row["trace_id"]: row["scores"] for row in client.call("GET traces", {})["traces"]}
    assert rows[trace(5)]["refusal"]["normalized"] == 1.0
    assert rows[trace(5)]["feedback:refusal"]["normalized"] == 0.0
    assert rows[trace(4)]["feedback:stars"]["score"] == 4.0
    assert rows[trace(3)]["feedback:tone"]["label"] == "friendly"


def test_labels_are_filters_and_groups(client: Client) -> None:
    """`label=` finds the traces, of one evaluator too; `group_by=label` has one line for each."""
    assert [row["trace_id"] for row in client.call("GET traces", {"label": "friendly"})["traces"]] == [trace(3)]
    both = client.call("GET traces", {"label": "friendly", "evaluator": "refusal"})
    assert both["traces"] == []
    lines = client.call("GET metrics", {"name": "requests", "step": "all", "group_by": "label"})["series"]
    counts = {line["group"]["label"]: line["points"][0]["value"] for line in lines}
    assert counts["friendly"] == 1.0
    assert counts["refused"] == 3.0
    assert (
        len(client.call("GET traces", {"evaluator": "feedback:stars", "min_score": 3, "limit": 50})["traces"]) == N - 3
    )


def test_pages_show_scores_as_they_are(client: Client) -> None:
    """A mark of 4 and a label, in the list and on the trace; an empty answer is named."""
    import urllib.request

    def page(path: str) -> str:
        with urllib.request.urlopen(f"{client.url}{path}") as answer:
            return str(answer.read().decode())

    overview = page("/?from=-24h")
    assert "2 are empty" in overview
    assert "1 declined to answer" in overview
    assert "friendly 1" in overview
    assert "empty answer" in page("/traces?from=-24h&answer=empty")
    shown = page(f"/traces/{trace(3)}")
    assert "friendly" in shown
    assert ">4<" in shown.replace(" ", "")


CARRIERS: dict[str, tuple[dict[str, Any], bool, list[Any]]] = {
    "of a span": ({"evaluations.0.evaluation": {}}, True, [trace(0), f"{3:016x}", None, None]),
    "of a trace": ({"trace.evaluations.0.evaluation": {}}, True, [trace(0), f"{1:016x}", "trace", None]),
    "an annotation": ({"annotations.0.annotation": {}}, True, [trace(0), f"{3:016x}", None, None]),
    "of a session": ({"session.evaluations.0.evaluation": {}}, False, [None, None, "session", "session-0"]),
}


@pytest.mark.parametrize("case", CARRIERS)
def test_a_later_score_reaches_what_it_is_about(client: Client, case: str) -> None:
    """A carrier with one link scores the linked span or trace; a session is named by its id."""
    names, linked, expected = CARRIERS[case]
    (prefix,) = names
    number = 100 + list(CARRIERS).index(case)
    name = f"judged {case}"
    judges = ("a", "b") if linked else ("a",)
    attributes = {"openinference.span.kind": "EVALUATOR", "session.id": "session-0"}
    for index, judge in enumerate(judges):
        at = prefix.replace(".0.", f".{index}.")
        attributes |= {f"{at}.name": name, f"{at}.score": 3 + index, f"{at}.identifier": judge}
    carrier = _carrier(number, attributes, f"{3:016x}" if linked else None)
    send(client.url, [carrier])
    until(client, f"SELECT * FROM scores WHERE evaluator = '{name}'", len(judges))
    rows = client.sql(
        f"SELECT trace_id, span_id, scope, session_id, identifier FROM scores WHERE evaluator = '{name}'"
        " ORDER BY identifier"
    ).rows()
    assert [row["identifier"] for row in rows] == list(judges)
    for row in rows:
        found = [row["trace_id"], row["span_id"], row["scope"], row["session_id"]]
        assert [one if wanted is not None or place > 1 else None for place, (one, wanted)
                in enumerate(zip(found, expected, strict=True))] == expected  # fmt: skip
    if linked:
        scores = client.call("GET traces", {"q": trace(0)})["traces"][0]["scores"]
        assert {key: scores[key]["score"] for key in scores if key.startswith(name)} == {
            f"{name} (a)": 3.0, f"{name} (b)": 4.0,
        }  # fmt: skip
    else:
        session = client.call("GET sessions/session-0", {})
        assert [score["evaluator"] for score in session["scores"]] == [name]
        assert not any(name in turn["scores"] for turn in session["turns"])


def _carrier(number: int, attributes: dict[str, Any], linked: str | None) -> dict[str, Any]:
    """A span of an evaluator in a trace of its own."""
    (span, *_) = rag_trace(number)
    values = [
        {"key": key, "value": {"stringValue": item} if isinstance(item, str) else {"intValue": item}}
        for key, item in attributes.items()
    ]
    links = [{"traceId": trace(0), "spanId": linked}] if linked else []
    return {**span, "name": "judge", "attributes": values, "links": links}


def test_an_ordinary_link_moves_no_score(client: Client) -> None:
    """A span that states its own work carries its own feedback, whatever it links to."""
    attributes = {
        "openinference.span.kind": "LLM", "annotations.0.annotation.name": "own", "annotations.0.annotation.score": 1
    }  # fmt: skip
    send(client.url, [_carrier(110, attributes, f"{3:016x}")])
    until(client, "SELECT * FROM scores WHERE evaluator = 'own'", 1)
    assert client.sql("SELECT trace_id FROM scores WHERE evaluator = 'own'").rows() == [{"trace_id": trace(110)}]


def test_content_stored_elsewhere_is_said(client: Client) -> None:
    """A reference in place of the messages; the page says so."""
    spans = rag_trace(120, **{"gen_ai.output.messages_ref": "s3://bucket/answer.json"})
    for span in spans:
        span["attributes"] = [item for item in span["attributes"] if item["key"] != "output.value"]
    send(client.url, spans)
    until(client, f"SELECT * FROM traces WHERE decided AND trace_id = '{trace(120)}'", 1)
    (row,) = client.sql(f"SELECT response, response_missing_reason FROM traces WHERE trace_id = '{trace(120)}'").rows()
    assert row == {"response": None, "response_missing_reason": "stored_elsewhere"}
    assert json.dumps(row)


FORGOTTEN: dict[str, dict[str, Any]] = {
    "a trace by the API": {"trace": trace(130)},
    "a trace": {"traceId": trace(130), "attributes": {}},
    "a response": {"attributes": {"gen_ai.response.id": "forgotten-call"}},
}


def test_feedback_about_a_forgotten_person_is_not_stored(client: Client) -> None:
    """It names a trace, a call or a session that was deleted with the person; other feedback is stored."""
    ids = {"user.id": "ann", "gen_ai.response.id": "forgotten-call", "session.id": "forgotten-session"}
    send(client.url, [*rag_trace(130, **ids), *rag_trace(131)])
    until(client, f"SELECT * FROM traces WHERE decided AND trace_id IN ('{trace(130)}', '{trace(131)}')", 2)
    client.call("POST prune", {"user": "ann"})
    for case, about in FORGOTTEN.items():
        if "trace" in about:
            give(client, 130, "late", 1)
        else:
            _log(client, {**about, "attributes": {**about["attributes"], "gen_ai.evaluation.name": f"late {case}"}})
    attributes = {
        "openinference.span.kind": "EVALUATOR", "session.id": "forgotten-session",
        "session.evaluations.0.evaluation.name": "late session", "session.evaluations.0.evaluation.score": 1,
    }  # fmt: skip
    send(client.url, [_carrier(132, attributes, None)])
    give(client, 131, "late other", 1)
    until(client, "SELECT * FROM scores WHERE evaluator = 'late other'", 1)
    until(client, f"SELECT * FROM traces WHERE decided AND trace_id = '{trace(132)}'", 1)
    stored = client.sql("SELECT DISTINCT evaluator FROM scores WHERE starts_with(evaluator, 'late')").rows()
    assert stored == [{"evaluator": "late other"}]
    assert client.sql("SELECT count(*) AS n FROM raw.feedback WHERE starts_with(name, 'late')").rows() == [{"n": 1}]


def _log(client: Client, record: dict[str, Any]) -> None:
    """Send an evaluation result as a log event."""
    import urllib.request

    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in record["attributes"].items()]
    one = {**record, "eventName": "gen_ai.evaluation.result", "attributes": attributes}
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [one]}]}]}).encode()
    request = urllib.request.Request(f"{client.url}/v1/logs", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200
