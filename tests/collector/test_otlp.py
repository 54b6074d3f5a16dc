"""OTLP/JSON as the specification has it, hostile values included; protobuf's own corners."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spans import spans_of
from wire_support import JSON, PROTOBUF, SPAN, otlp_json, span_body

from ragpulse_collector.conventions import decode
from ragpulse_collector.otlp import PARSERS
from ragpulse_collector.otlp.wire import WireBatch
from ragpulse_collector.records import DecodeError, RawBody

VALUES = (["x", "y" * 300, "für", ""], [0, 5, 300, -1, 2**62], [0.5, 2.5, 0.0], [True, b"hi", ["a"], [1], 1, 1.0, "1"])
NAMES = ("", "a", "b", "ab", "ac", "ba", ("a", "n" * 200), ("abc", "ab"))
SPANS = st.sampled_from(VALUES).flatmap(
    lambda values: st.lists(
        st.sampled_from(NAMES).flatmap(
            lambda names: st.fixed_dictionaries(dict.fromkeys(names, st.sampled_from(values)))
        ),
        min_size=20,
        max_size=40,
    )
)


class Parsed(NamedTuple):
    """One span as it came over the wire."""

    trace_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    status_code: int
    attributes: dict[str, Any]


def _parse(request: Any, content_type: Any = JSON) -> list[Parsed]:
    body = request if isinstance(request, bytes) else orjson.dumps(request)
    batches, _ = PARSERS[content_type].spans(body)
    return [span for batch in batches for span in _spans(batch)]


def _spans(batch: WireBatch) -> list[Parsed]:
    attributes = {
        row: {name: column[at] for name, column in shape.attributes.items()}
        for shape in batch.shapes
        for at, row in enumerate(shape.rows)
    }
    return [
        Parsed(
            batch.trace_ids[row].hex(),
            None if (parent := batch.parent_span_ids[row]) is None else parent.hex(),
            batch.names[row],
            batch.start_ns[row],
            batch.status_codes.get(row, 0),
            attributes[row],
        )
        for row in range(len(batch))
    ]


def _request(**span: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{**SPAN, **span}]}]}]}


def _value(value: Any) -> Any:
    (span,) = _parse(_request(attributes=[{"key": "k", "value": value}]))
    return span.attributes["k"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"stringValue": "a"}, "a"),
        ({"stringValue": ""}, ""),
        ({"boolValue": False}, False),
        ({"intValue": 42}, 42),
        ({"intValue": "-9223372036854775808"}, -(2**63)),
        ({"intValue": 1.0}, 1),
        ({"doubleValue": 1}, 1.0),
        ({"doubleValue": "Infinity"}, float("inf")),
        ({"bytesValue": "aGk="}, b"hi"),
        ({"bytesValue": "-_8"}, b"\xfb\xff"),
        ({"arrayValue": {"values": [{"intValue": "1"}, {}, {"stringValue": "x"}]}}, [1, None, "x"]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {"values": [{"key": "a", "value": {"boolValue": True}}]}}, {"a": True}),
        ({"kvlistValue": {}}, {}),
        ({}, None),
        (None, None),
        ({"stringValue": None, "intValue": 3}, 3),
        ({"futureValue": 1}, None),
    ],
)
def test_every_kind_of_value(value: Any, expected: Any) -> None:
    """64-bit integers as text or number, base64 of either alphabet, an empty value is null."""
    assert _value(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        {"intValue": "9223372036854775808"},
        {"intValue": 1.5},
        {"intValue": "0x10"},
        {"intValue": "１"},
        {"intValue": True},
        {"stringValue": 5},
        {"boolValue": "true"},
        {"doubleValue": "much"},
        {"doubleValue": True},
        {"bytesValue": "***"},
        {"arrayValue": []},
        {"arrayValue": {"values": {}}},
        {"kvlistValue": {"values": [5]}},
        "a",
    ],
)
def test_values_that_contradict_their_type_refuse_the_request(value: Any) -> None:
    """The request is malformed: nothing of it is taken."""
    with pytest.raises(DecodeError):
        _value(value)


def test_ids_are_hex_in_either_case() -> None:
    """Not base64, which JSON readers of protobuf would take them for."""
    (span,) = _parse(_request(traceId="0AF7651916CD43DD8448EB211C80319C", parentSpanId="00F067AA0BA902B7"))
    assert (span.trace_id, span.parent_span_id) == ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7")


def test_only_lower_camel_case_keys_count() -> None:
    """Unknown fields, snake_case among them, are ignored; null is absent."""
    assert _parse({"resource_spans": [1], "resourceSpans": None, "more": {}}) == []
    (span,) = _parse(_request(start_time_unix_nano="5", name=None, events=None, links=[{"x": 1}], status=None))
    assert (span.start_ns, span.name, span.status_code) == (int(SPAN["startTimeUnixNano"]), "", 0)


@pytest.mark.parametrize(
    "span",
    [
        {"kind": "SPAN_KIND_CLIENT"},
        {"status": {"code": "STATUS_CODE_ERROR"}},
        {"startTimeUnixNano": "-1"},
        {"startTimeUnixNano": str(2**64)},
        {"name": 5},
        {"attributes": {}},
        {"attributes": ["a"]},
        {"traceId": 7},
        {"status": []},
    ],
)
def test_malformed_spans_refuse_the_request(span: dict[str, Any]) -> None:
    """Enum names are forbidden by the specification."""
    with pytest.raises(DecodeError):
        _parse(_request(**span))


@pytest.mark.parametrize(
    "body", [b"[]", b"5", b"{", b'"a"', b"\xff", b'{"resourceSpans": 1}', b'{"a": NaN}', b'"\\ud800"']
)
def test_bodies_that_are_no_json_object(body: bytes) -> None:
    """Refused with a reason."""
    with pytest.raises(DecodeError):
        _parse(body)


@pytest.mark.parametrize("levels", [60, 400, 5000])
def test_deep_nesting_never_exhausts_the_stack(levels: int) -> None:
    """Up to 64 levels are read; more refuse the request with a reason."""
    value = b'{"arrayValue":{"values":[' * levels + b"{}" + b"]}}" * levels
    body = orjson.dumps(_request(attributes=[{"key": "k", "value": "?"}])).replace(b'"?"', value)
    if levels == 60:
        assert len(_parse(body)) == 1
    else:
        with pytest.raises(DecodeError):
            _parse(body)


def test_protobuf_nested_120_deep_says_so() -> None:
    """protobuf refuses the whole request; the message names the likely reasons."""
    value = b""
    for _ in range(120):
        value = _field(5, _field(1, value))
    attribute = _field(1, b"deep") + _field(2, value)
    ids = _field(1, b"t" * 16) + _field(2, b"s" * 8)
    request = _field(1, _field(2, _field(2, ids + _field(9, attribute))))
    with pytest.raises(DecodeError, match="nested more than 100 levels"):
        _parse(request, PROTOBUF)


def test_protobuf_text_that_is_not_utf8_says_so() -> None:
    """One bad text refuses the whole request."""
    with pytest.raises(DecodeError, match="UTF-8"):
        _parse(span_body({"a": "xxxx"}).replace(b"xxxx", b"\xff\xfe\xff\xfe"), PROTOBUF)


def test_unknown_protobuf_fields_are_ignored() -> None:
    """A newer sender's fields do no harm: field 1000 with one byte."""
    assert len(_parse(span_body({"a": 1}) + b"\xc2\x3e\x01x", PROTOBUF)) == 1


def test_falsy_protobuf_values_keep_their_type() -> None:
    """Empty text, zero, false, empty list and null are not the same."""
    request = ExportTraceServiceRequest.FromString(span_body({"s": "", "i": 0, "f": 0.0, "b": False, "l": []}))
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="n")
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="y").value.bytes_value = b""
    (span,) = _parse(request.SerializeToString(), PROTOBUF)
    assert repr(span.attributes) == repr({"s": "", "i": 0, "f": 0.0, "b": False, "l": [], "n": None, "y": b""})


def test_long_vectors_are_left_out_in_both_encodings() -> None:
    """1,536 numbers on a span are an embedding: their count is what is kept."""
    (span,) = _parse(span_body({"v": [0.5] * 1536}), PROTOBUF)
    assert span.attributes["v"] == {"$dropped": "vector", "length": 1536}
    assert _value({"arrayValue": {"values": [{"doubleValue": 0.5}] * 100}}) == {"$dropped": "vector", "length": 100}


@settings(deadline=None, max_examples=60)
@given(attributes=SPANS)
def test_spans_together_are_the_spans_alone(attributes: list[dict[str, Any]]) -> None:
    """Whatever their attributes have in common: how many there are, names, types, values."""
    together = _parse(span_body(*attributes), PROTOBUF)
    alone = [_parse(span_body(each), PROTOBUF)[0] for each in attributes]
    assert [repr(span.attributes) for span in together] == [repr(span.attributes) for span in alone]


@pytest.mark.parametrize("value", [b"\x12\x03\x0a\x01%c", b"\x12\x09\x21%cxxxxxxx"], ids=["text", "number"])
def test_what_is_given_twice_means_the_last(value: bytes) -> None:
    """A name in a span and a key in an attribute."""
    last = _field(1, b"b") + value % b"2"
    ids = _field(1, b"t" * 16) + _field(2, b"s" * 8)
    spans = b"".join(
        _field(2, ids + _field(9, _field(1, b"a") + value % (number + 32) + _field(1, b"b")) + _field(9, last))
        for number in range(20)
    )
    found = _parse(_field(1, _field(2, spans)), PROTOBUF)
    expected = "2" if value.startswith(b"\x12\x03") else found[0].attributes["b"]
    assert [span.attributes for span in found] == [{"b": expected}] * 20


def _field(number: int, content: bytes) -> bytes:
    """Return a length-delimited protobuf field."""
    length, size = len(content), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + content


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (r"cut \ud83d", "cut \ufffd"),
        (r"\uDE00 first", "\ufffd first"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\ud83d\u0041", "\ufffdA"),
        (r"whole \ud83d\ude00 and \\ud83d \ud83d", "whole \U0001f600 and \\ud83d \ufffd"),
    ],
)
def test_half_an_emoji_is_replaced_and_the_spans_are_kept(sent: str, kept: str) -> None:
    """JavaScript's exporter sends lone surrogates where a text was cut; pairs and escaped backslashes stay."""
    spans = [{"spanId": f"{number:016x}", "attributes": {"a": "HERE"}} for number in range(1, 11)]
    body = otlp_json(*spans).replace(b"HERE", sent.encode())
    found = spans_of(decode(RawBody(signal="traces", content_type=JSON, body=body)))
    assert [orjson.loads(span.attributes)["a"] for span in found] == [kept] * 10


@pytest.mark.parametrize("body", [rb'{"resourceSpans": "\ud83d"', rb'{"a\n": \ud83d}', b"\xed\xa0\xbd", rb'"\ud83'])
def test_other_faults_beside_half_an_emoji_are_refused(body: bytes) -> None:
    """What is no JSON without it is refused; bytes that are not UTF-8 are, as in protobuf."""
    with pytest.raises(DecodeError, match="not JSON"):
        decode(RawBody(signal="traces", content_type=JSON, body=body))
