"""Spans that look alike are mapped together: with the outcome they have one by one, which JSON bodies always have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from wire_support import SPAN, both_ways, otlp_json

from ragpulse_collector.otlp import protobuf

RECORDED = Path(__file__).parent / "fixtures" / "recorded"
PEERS = sorted(path.stem for path in RECORDED.glob("*.json"))
COPIES = 9


def copied(request: Any) -> bytes:
    """Repeat every span of a JSON request under new ids, its numbers changed."""
    number = 0
    for scope in (scope for envelope in request["resourceSpans"] for scope in envelope["scopeSpans"]):
        spans = []
        for span in (span for span in scope["spans"] for _ in range(COPIES)):
            number += 1
            copy = json.loads(json.dumps(span)) | {"spanId": f"{number:016x}", "name": f"{span['name']} {number}"}
            for value in (pair["value"] for pair in copy.get("attributes", ())):
                if "intValue" in value:
                    value["intValue"] = str(int(value["intValue"]) + number)
            spans.append(copy)
        scope["spans"] = spans
    return orjson.dumps(request)


@pytest.mark.parametrize("peer", PEERS)
def test_recorded_spans(peer: str) -> None:
    """What the peers' SDKs send, in numbers."""
    batch, in_blocks = both_ways(copied(orjson.loads((RECORDED / f"{peer}.json").read_bytes())))
    assert all("unmapped" not in span.mapped_from for span in batch.spans)
    assert in_blocks >= COPIES


@pytest.mark.parametrize(
    "odd",
    [
        {"status": {"code": 2, "message": "boom"}},
        {
            "events": [
                {"name": "exception", "attributes": {"exception.type": "E"}, "timeUnixNano": "1783468800000000001"}
            ]
        },
        {"links": [{"traceId": SPAN["traceId"], "spanId": SPAN["spanId"]}]},
        {"droppedAttributesCount": 3},
        {"traceState": "ot=th:c"},
        {"endTimeUnixNano": "5"},
        {"startTimeUnixNano": "0"},
        {"spanId": "0" * 16},
        {"parentSpanId": "0" * 16},
        {"attributes": {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.cache_read.input_tokens": 9}},
        {"attributes": {"gen_ai.operation.name": "retrieval"}},
        {"attributes": {"gen_ai.operation.name": {"a": 1}}},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_one_odd_span(odd: dict[str, Any]) -> None:
    """It is what it is alone, and so are its neighbours."""
    usual = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5, "gen_ai.usage.cache_read.input_tokens": 1}
    spans: list[dict[str, Any]] = [{"spanId": f"{number:016x}", "attributes": usual} for number in range(1, 21)]
    spans[7] |= odd
    batch, _ = both_ways(otlp_json(*spans))
    assert len(batch.spans) + batch.rejected == 20


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (0.0, -0.0), ({"a": 1}, {"a": True}), ([1], [1.0]), ("1", 1)])
def test_equal_values_of_two_types(values: tuple[Any, Any]) -> None:
    """Both are kept as they are, though the spans have everything else in common."""
    spans = [{"spanId": f"{number:016x}", "attributes": {"a": "x", "v": values[number % 2]}} for number in range(1, 21)]
    batch, in_blocks = both_ways(otlp_json(*spans))
    assert in_blocks == 20
    assert len({span.attributes for span in batch.spans}) == 2


def test_documents_in_every_style() -> None:
    """Texts of documents are lifted out of JSON of one style or of several, whatever their members."""
    documents = [{"id": "a", "score": 0.5, "content": "für"}, {"id": "b", "score": 0.25, "content": "b"}]
    for mixed in (
        [json.dumps(documents)] * COPIES,
        [orjson.dumps(documents).decode()] * COPIES,
        [json.dumps(documents), orjson.dumps(documents).decode()] * COPIES,
        [orjson.dumps(documents[: number % 3]).decode() for number in range(COPIES)],
        [orjson.dumps([{**documents[0], "score": number}]).decode() for number in range(COPIES)],
        ["[]"] * COPIES,
    ):
        attributes = [{"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": text} for text in mixed]
        spans = [{"spanId": f"{n:016x}", "attributes": each} for n, each in enumerate(attributes, start=1)]
        batch, _ = both_ways(otlp_json(*spans))
        assert all(span.contexts is not None for span in batch.spans)


def test_flattened_messages_and_documents_are_mapped_in_blocks() -> None:
    """OpenInference's flattened LLM and retriever spans: an exception would send each block span by span."""
    llm = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "a question",
        "llm.output_messages.0.message.content": "an answer",
        "input.value": "a question",
    }
    retriever = {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.id": "a",
        "retrieval.documents.0.document.content": "text",
    }
    spans = [{"spanId": f"{n:016x}", "attributes": llm if n % 2 else retriever} for n in range(1, 41)]
    batch, in_blocks = both_ways(otlp_json(*spans))
    assert in_blocks == 40
    assert {span.query for span in batch.spans} == {"a question", None}


def test_texts_that_are_no_json_raise_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A column of documents may hold anything."""
    spans = [
        {"spanId": f"{n:016x}", "attributes": {"gen_ai.retrieval.documents": f"{n} no json"}} for n in range(1, 21)
    ]
    both_ways(otlp_json(*spans))
    assert not caplog.records


def test_spans_are_grouped_by_the_bytes_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """To learn which attributes spans have, no value is decoded."""
    spans = [{"spanId": f"{n:016x}", "attributes": {f"name{n % 2}": n}} for n in range(1, 41)]
    rows = [(n, None, [b"\x0a\x01" + b"ab"[n % 2 : n % 2 + 1] + b"\x12\x03\x0a\x01%d" % n]) for n in range(10)]
    monkeypatch.setattr(protobuf, "_KNOWN", {})
    assert [(len(alike), sorted(found)) for alike, found in protobuf._alike(rows)] == [(5, ["a"]), (5, ["b"])]
    monkeypatch.undo()
    assert both_ways(otlp_json(*spans))[1] == 40
