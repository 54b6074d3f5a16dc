"""Spans of one body are mapped by column: each becomes what it becomes alone, whatever its neighbours are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from spans import spans_of
from wire_support import SPAN, both_ways, decode_json, otlp_json

from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.conventions.mapper import Mapper
from ragpulse_collector.conventions.rules import FieldRule, RuleBook
from ragpulse_collector.otlp.wire import WireRows, WireScope

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
    """What the peers' SDKs send, in numbers: both encodings become the same, and nothing is left unmapped."""
    batch = both_ways(copied(orjson.loads((RECORDED / f"{peer}.json").read_bytes())))
    assert batch.unmapped == 0
    assert len(spans_of(batch)) >= COPIES


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
    together = both_ways(otlp_json(*spans))
    alone = [each for span in spans for each in spans_of(decode_json(span))]
    assert spans_of(together) == alone
    assert len(alone) + together.rejected == 20


@pytest.mark.parametrize("values", [(1, True), (1, 1.0), (0.0, -0.0), ({"a": 1}, {"a": True}), ([1], [1.0]), ("1", 1)])
def test_equal_values_of_two_types(values: tuple[Any, Any]) -> None:
    """Both are kept as they are, though the spans have everything else in common."""
    spans = [{"spanId": f"{number:016x}", "attributes": {"a": "x", "v": values[number % 2]}} for number in range(1, 21)]
    assert len({span.attributes for span in spans_of(both_ways(otlp_json(*spans)))}) == 2


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
        assert all(span.contexts is not None for span in spans_of(both_ways(otlp_json(*spans))))


def test_absent_is_not_null() -> None:
    """A span that has an attribute without a value differs from one that does not have the attribute."""
    with_null, without = spans_of(
        decode_json({"attributes": {"a": None}}, {"spanId": "0" * 15 + "1", "attributes": {}})
    )
    assert (with_null.attributes, without.attributes) == ('{"a":null}', "{}")


def test_a_rule_that_raises_costs_its_span_alone() -> None:
    """The span is kept raw and counted; its neighbours are mapped."""

    def read(value: Any, _: Any) -> Any:
        return f"m{6 // value}"

    rows = WireRows(WireScope({}))
    for number in range(3):
        rows.add(b"t" * 16, bytes([number] * 8), None, "s", 1, 2, {"model": number})
    mapped = Mapper(RuleBook([(FieldRule("model", "model", read),)])).spans(rows.batch())
    assert mapped.unmapped == 1
    assert [span.model for span in spans_of(mapped.spans)] == [None, "m6", "m3"]
    assert orjson.loads(spans_of(mapped.spans)[0].mapped_from) == {"flags": ["unmapped"]}


@pytest.mark.parametrize(
    "question", ["Why?", ', "role": "user"', "Wie spät?", "Wie sp\u00e4t?\n", "\U0001f600", '"', "\\", "x"]
)
@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (" ,\n", " : ")])
def test_a_text_is_cut_out_of_json_however_it_is_written(
    question: str, ensure_ascii: bool, separators: tuple[str, str]
) -> None:
    """What is stored holds the text once, and gives the attribute back to the byte."""
    messages = json.dumps(
        [{"role": "system", "content": f"{question} {'x' * 3_000}"}, {"role": "user", "content": question}],
        ensure_ascii=ensure_ascii, separators=separators,
    )  # fmt: skip
    (span,) = spans_of(decode_json({"attributes": {"gen_ai.input.messages": messages}}))
    assert span.query == question
    assert span.attributes.count("$lifted") == 1
    assert restore_attributes(span.attributes, question, None, None) == {"gen_ai.input.messages": messages}


def test_references_of_earlier_versions_are_read() -> None:
    """They held JSON texts parsed, with the style they were written in."""
    template = '{"a": {"$json": [{"role": "user", "content": {"$lifted": "query"}}], "style": "spaced"}}'
    restored = restore_attributes(template, "Wie spät?", None, None)
    assert restored == {"a": '[{"role": "user", "content": "Wie sp\\u00e4t?"}]'}
