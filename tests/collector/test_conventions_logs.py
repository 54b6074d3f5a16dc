"""Log records that carry something of a span: contents in either spelling, scores of people and of tools."""

from __future__ import annotations

from typing import Any

import orjson
from wire_support import JSON, SPAN, attribute_pairs

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import Batch, RawBody

IDS = {"traceId": SPAN["traceId"], "spanId": SPAN["spanId"], "timeUnixNano": "1783468800000000000"}
DETAILS = "gen_ai.client.inference.operation.details"
SCORE = "gen_ai.evaluation.result"


def _decode(*records: dict[str, Any]) -> Batch:
    out = [{**IDS, **record, "attributes": attribute_pairs(record.get("attributes", {}))} for record in records]
    body = orjson.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": out}]}]})
    return decode(RawBody(signal="logs", content_type=JSON, body=body))


def test_operation_details_are_the_contents_of_their_span() -> None:
    """Structured messages as the official instrumentations send them, an empty value for a missing name included."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Hi"}], "name": None}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "Hello"}]}],
    }
    (content,) = _decode({"eventName": DETAILS, "attributes": attributes}).contents
    assert (content.trace_id, content.span_id) == (SPAN["traceId"], SPAN["spanId"])
    assert (content.query, content.response, content.time_ns) == ("Hi", "Hello", 1783468800000000000)


def test_documents_on_a_log_event_are_contexts() -> None:
    """Retrievals may keep their documents off the span too."""
    attributes = {
        "gen_ai.retrieval.documents": '[{"id": "a", "content": "text"}]',
        "gen_ai.operation.name": "retrieval",
    }
    (content,) = _decode({"eventName": DETAILS, "attributes": attributes}).contents
    assert [(c.id, c.text) for c in content.contexts or ()] == [("a", "text")]


def test_older_events_carry_one_message_in_the_body() -> None:
    """Named by an attribute where the sender predates event_name."""
    user = {"attributes": {"event.name": "gen_ai.user.message"}, "body": _body({"content": "Hi"})}
    choice = {
        "eventName": "gen_ai.choice",
        "body": _body({"index": 0, "message": {"role": "assistant", "content": "Hello"}}),
    }
    contents = _decode(user, choice).contents
    assert [(c.query, c.response) for c in contents] == [("Hi", None), (None, "Hello")]


def test_evaluation_results_become_scores() -> None:
    """A person's where our SDK says so, a tool's otherwise; a NaN is no score."""
    human = {
        "gen_ai.evaluation.name": "thumbs",
        "gen_ai.evaluation.score.value": 1,
        "gen_ai.evaluation.explanation": "helpful",
        "ragpulse.score.source": "human",
    }
    tool = {
        "gen_ai.evaluation.name": "relevance",
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.score.value": float("nan"),
        "gen_ai.response.id": "r-1",
    }
    scores = _decode(
        {"eventName": SCORE, "attributes": human}, {"eventName": SCORE, "attributes": tool, "spanId": ""}
    ).scores
    assert [(s.name, s.score, s.label, s.explanation, s.source, s.span_id, s.response_id) for s in scores] == [
        ("thumbs", 1.0, None, "helpful", "human", SPAN["spanId"], None),
        ("relevance", None, "pass", None, "code", None, "r-1"),
    ]


def test_a_score_without_a_trace_is_refused() -> None:
    """There is nothing it could belong to; the sender is told."""
    batch = _decode({"eventName": SCORE, "traceId": "", "attributes": {"gen_ai.evaluation.name": "x"}})
    assert (batch.rejected, batch.scores) == (1, [])
    assert "trace_id" in (batch.message or "")


def test_a_score_with_a_response_id_needs_no_trace() -> None:
    """The specification lets an evaluation event name the response only."""
    attributes = {"gen_ai.evaluation.name": "x", "gen_ai.response.id": "r-1"}
    batch = _decode({"eventName": SCORE, "traceId": "", "spanId": "", "attributes": attributes})
    assert [(score.trace_id, score.span_id, score.response_id) for score in batch.scores] == [(None, None, "r-1")]
    assert batch.rejected == 0


def test_ordinary_logs_are_accepted_and_not_kept() -> None:
    """An application's log lines are no business of ours, with or without a trace."""
    batch = _decode({"body": {"stringValue": "started"}}, {"eventName": "device.boot", "traceId": ""})
    assert (batch.rejected, batch.contents, batch.scores) == (0, [], [])


def _body(content: dict[str, Any]) -> dict[str, Any]:
    return {"kvlistValue": {"values": attribute_pairs(content)}}


def test_an_exception_on_a_log_record_belongs_to_its_span() -> None:
    """Under either event name; without a span it is an ordinary record, which is counted for its service."""
    attributes = {"exception.type": "openai.BadRequestError", "exception.message": "too long"}
    names = ("exception", "gen_ai.client.operation.exception")
    batch = _decode(*({"eventName": name, "attributes": attributes} for name in names))
    assert [(c.error_type, c.status_message, c.query) for c in batch.contents] == [
        ("openai.BadRequestError", "too long", None)
    ] * 2
    alone = _decode({"eventName": "exception", "spanId": "", "attributes": attributes})
    assert (alone.contents, alone.not_stored) == ([], {"unknown_service": 1})
