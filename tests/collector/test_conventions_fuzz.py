"""Whatever the wire carries: decoded or refused as undecodable, never a crash; what is taken comes back as sent."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spans import remapped, spans_of
from wire_support import JSON, PROTOBUF, SPAN, both_ways, decode_json, otlp_json, span_body

from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.dialects import DIALECTS
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.records import DecodeError, RawBody

FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
texts = st.text(st.characters(codec="utf-8"), max_size=20)
KNOWN = sorted(
    {
        rule.attribute.removesuffix("N.") + ("0.document.content" if rule.attribute.endswith(".") else "")
        for dialect in DIALECTS
        for rule in dialect
        if not rule.attribute.startswith("event:")
    }
)
WORDS = ["user", "text", "a question", "$lifted", "RETRIEVER", "llm", "true", "12", "", "{", "é"]
MEMBERS = ["role", "content", "parts", "type", "query", "documents", "id", "score", "text", "metadata", "$x", "$json"]
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0.5, 1e-7, 1e300, -0.0])
leaves = scalars | st.sampled_from(WORDS) | texts


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return inner | st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4)


nested = _around(_around(_around(leaves)))
json_texts = nested.map(lambda value: json.dumps(value, separators=(",", ":")))
values = leaves | nested | json_texts | nested.map(json.dumps)
attributes = st.dictionaries(texts | st.sampled_from(KNOWN), values, max_size=8)


def _taken_or_refused(body: bytes, content_type: Any) -> None:
    for signal in ("traces", "logs", "metrics"):
        with contextlib.suppress(DecodeError):
            batch = decode(RawBody(signal=signal, content_type=content_type, body=body))
            assert all("unmapped" not in span.mapped_from for span in spans_of(batch))


@FEW
@given(attributes)
def test_attributes_come_back_as_sent_whatever_they_are(sent: dict[str, Any]) -> None:
    """Known names with values of every shape, markers of our own included."""
    (record,) = spans_of(decode_json({"attributes": sent}))
    assert "unmapped" not in record.mapped_from
    restored = restore_attributes(record.attributes, record.query, record.response, record.contexts)
    assert repr(restored) == repr(sent)
    assert remapped(record) == record


@FEW
@given(
    attributes,
    st.lists(
        st.tuples(st.sampled_from(["exception", "gen_ai.choice", "db.query.result", "x"]), attributes), max_size=2
    ),
)
def test_both_encodings_are_one(sent: dict[str, Any], events: list[tuple[str, dict[str, Any]]]) -> None:
    """JSON and protobuf of the same span decode to equal batches."""
    span = {"attributes": sent, "events": [{"name": name, "attributes": values} for name, values in events]}
    body = otlp_json(span)
    both_ways(body)


@FEW
@given(st.data())
def test_spans_that_look_alike(data: st.DataObject) -> None:
    """Nine spans of the same names, values of one kind or of several: each becomes what it becomes alone."""
    made = {}
    for name in data.draw(st.lists(st.sampled_from(KNOWN) | texts, unique=True, max_size=6)):
        kinds = [values, st.sampled_from(WORDS), texts, st.integers(0, 9), st.floats(0, 1), st.just(data.draw(values))]
        made[name] = data.draw(st.sampled_from(kinds))
    spans = [
        {"spanId": f"{number:016x}", "attributes": {name: data.draw(value) for name, value in made.items()}}
        for number in range(1, 10)
    ]
    together = spans_of(both_ways(otlp_json(*spans)))
    alone = [each for span in spans for each in spans_of(decode_json(span))]
    assert sorted(map(repr, together)) == sorted(map(repr, alone))


@FEW
@given(st.binary(max_size=200))
def test_random_bytes(body: bytes) -> None:
    """As either encoding of any signal."""
    _taken_or_refused(body, PROTOBUF)
    _taken_or_refused(body, JSON)


@FEW
@given(st.data())
def test_damaged_protobuf(data: st.DataObject) -> None:
    """A real request with bytes replaced, removed or repeated."""
    body = bytearray(_REQUEST)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    _taken_or_refused(bytes(body), PROTOBUF)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@FEW
@given(st.data())
def test_damaged_json(data: st.DataObject) -> None:
    """A real request with anything in the place of anything."""
    request = copy.deepcopy(_JSON_REQUEST)
    for _ in range(data.draw(st.integers(1, 3))):
        _damage(request, data)
    _taken_or_refused(json.dumps(request).encode(), JSON)


def _damage(node: Any, data: st.DataObject) -> None:
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or data.draw(st.booleans()):
            node[key] = data.draw(anything)
            return
        node = node[key]


_REQUEST = span_body(
    {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 5,
        "l": [1, 2],
        "gen_ai.input.messages": '[{"a": 1}]',
    }
)
_JSON_REQUEST = orjson.loads(
    otlp_json(
        {**SPAN, "attributes": {"a": 1, "b": [1.5], "c": {"d": None}}, "events": [{"name": "e", "attributes": {}}]}
    )
)
