"""What the `redact` patterns match is stored nowhere: not in texts, contexts, attributes, events or log events."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spans import spans_of
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import connect
from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.conventions.redaction import MASK, Redactor
from ragpulse_collector.records import RawBody
from ragpulse_collector.settings import SettingsError

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

SECRET = "078-05-1120"
PATTERN = r"\d{3}-\d{2}-\d{4}"
TRACE, SPAN = f"{1:032x}", f"{1:016x}"


def text(key: str, value: str) -> dict[str, Any]:
    """An OTLP attribute."""
    return {"key": key, "value": {"stringValue": value}}


def masked(signal: Any, envelope: dict[str, Any], patterns: list[str] | None = None) -> Any:
    """Decode one body with the patterns applied."""
    body = RawBody(signal=signal, content_type="application/json", body=json.dumps(envelope).encode())
    return decode(body, Redactor.of(patterns or [PATTERN]))


def span_with(attributes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """An OTLP envelope of one span."""
    span = {"traceId": TRACE, "spanId": SPAN, "name": "s", "startTimeUnixNano": "1", "endTimeUnixNano": "2", **more}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": attributes}]}]}]}


def test_no_text_of_a_span_keeps_a_match(collector: Callable[..., Collector], tmp_path: Path) -> None:
    """Sent in every place a span has, through the running collector: no column of any table holds it."""
    running = collector(redact=[PATTERN])
    spans = rag_trace(0, query=f"Is {SECRET} mine?", response=f"{SECRET} is.", prompt_version=SECRET, model=SECRET)
    spans[0] |= {"name": f"answer {SECRET}", "status": {"code": 2, "message": SECRET}}
    spans[0]["events"] = [{"name": SECRET, "timeUnixNano": "5", "attributes": [text("exception.message", SECRET)]}]
    documents = json.dumps([{"id": SECRET, "content": f"about {SECRET}", "metadata": {"owner": SECRET}}])
    spans[1]["attributes"] = [text("ragpulse.span.kind", "retriever"), text("gen_ai.retrieval.documents", documents)]
    spans[2]["attributes"] += [text(f"key {SECRET}", "x"), text("note", json.dumps({"deep": [SECRET]}))]
    send(running.url, spans, service=SECRET)
    client = connect(running.url)
    for view in ("spans", "contexts", "traces"):
        rows = client.sql(f"select * from {view}").rows()
        assert rows
        assert SECRET not in json.dumps(rows), view
    assert MASK in json.dumps(client.call(f"GET traces/{TRACE}"))


def test_what_people_type_is_masked_too(collector: Callable[..., Collector]) -> None:
    """Comments, labels and names of feedback and of verdicts, over the API as from the pages."""
    running = collector(redact=[PATTERN])
    send(running.url, rag_trace(0))
    client = connect(running.url)
    until(client, "select 1 from traces where decided")
    typed = {"trace_id": TRACE, "comment": f"call {SECRET}"}
    client.call("POST scores", typed | {"name": f"thumbs {SECRET}", "label": SECRET})
    client.call("POST labels", typed | {"evaluator": "groundedness", "passing": True, "annotator": SECRET})
    for table in ("feedback", "labels"):
        (row,) = client.sql(f"select * from raw.{table}").rows()
        assert SECRET not in json.dumps(row), table
        assert f"call {MASK}" in row.values(), table


def test_texts_on_log_events_are_masked() -> None:
    """Prompts that arrive as log records pass the same patterns."""
    details = {
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": SECRET}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": SECRET}]}]),
    }
    record = {
        "traceId": TRACE, "spanId": SPAN, "timeUnixNano": "5",
        "eventName": "gen_ai.client.inference.operation.details",
        "attributes": [text(key, value) for key, value in details.items()],
    }  # fmt: skip
    batch = masked("logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    assert batch.contents
    assert SECRET not in repr(batch)
    assert MASK in repr(batch)


def test_a_match_never_breaks_the_json_around_it() -> None:
    """A pattern that takes everything, quotes and braces included, leaves valid JSON and readable references."""
    envelope = span_with(
        [text("input.value", "hello"), {"key": "n", "value": {"intValue": "123456789"}}, text("a", "b")]
    )
    (span,) = spans_of(masked("traces", envelope, [r'["{}:,]+', r"\d{9}", "query", "lifted"]))
    attributes = restore_attributes(span.attributes, span.query, span.response, span.contexts)
    assert attributes["input.value"] == "hello"
    assert attributes["n"] == MASK
    assert json.loads(span.mapped_from)


def test_json_around_a_text_that_became_a_column_is_masked() -> None:
    """Strings, whatever escapes they are written with, numbers and keys; the JSON stays valid."""
    messages = [{"role": "system", "content": 'For "Jürgen"', "n": 123456789}, {"role": "user", "content": "Jürgen?"}]
    sent = text("gen_ai.input.messages", json.dumps(messages))
    (span,) = spans_of(masked("traces", span_with([sent]), ["Jürgen", r"\d{9}", "role"]))
    attributes = restore_attributes(span.attributes, span.query, span.response, span.contexts)
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {MASK: "system", "content": f'For "{MASK}"', "n": MASK}, {MASK: "user", "content": f"{MASK}?"},
    ]  # fmt: skip


def test_escapes_hide_nothing() -> None:
    """JSON inside a string, with letters written as escapes, is looked into."""
    (span,) = spans_of(masked("traces", span_with([text("note", '{"who": "J\\u00fcrgen"}')]), ["Jürgen"]))
    assert "rgen" not in span.attributes
    assert json.loads(json.loads(span.attributes)["note"]) == {"who": MASK}


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=8))
def test_what_does_not_match_is_untouched(value: Any) -> None:
    """Values without a match come back equal."""
    import re

    assert Redactor(re.compile("\x00never\x00")).value(value) == value


def test_a_broken_pattern_is_refused_at_start() -> None:
    """The setting is named."""
    with pytest.raises(SettingsError, match="redact"):
        Redactor.of(["("])
