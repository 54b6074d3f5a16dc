"""Each dialect's golden cases become canonical records, and nothing that was sent is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from spans import Span, remapped, spans_of
from wire_support import JSON, PROTOBUF, SPAN, as_protobuf, attribute_pairs, decode_json, otlp_json

from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.lifting import restore_attributes
from ragpulse_collector.records import RawBody

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.json"))
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['title']}")
    for path in FIXTURES
    for case in json.loads(path.read_text(encoding="utf-8"))
]


def _span(case: dict[str, Any]) -> dict[str, Any]:
    start = int(SPAN["startTimeUnixNano"])
    events = [
        {
            "name": event["name"],
            "timeUnixNano": start + event.get("after_ms", 0) * 10**6,
            "attributes": event["attributes"],
        }
        for event in case.get("events", ())
    ]
    return {
        "attributes": case["attributes"],
        "events": events,
        "status": case.get("status", {}),
        "droppedAttributesCount": case.get("dropped", 0),
    }


def _record(case: dict[str, Any]) -> Span:
    (record,) = spans_of(decode_json(_span(case)))
    return record


def _plain(record: Span, field: str) -> Any:
    value = getattr(record, field)
    if field == "contexts" and value is not None:
        return [[c.rank, c.id, c.score, c.text, c.metadata] for c in value]
    return value


@pytest.mark.parametrize("case", CASES)
def test_a_golden_case_maps_as_written(case: dict[str, Any]) -> None:
    """The canonical fields, where they came from, and what stays in the raw attributes."""
    record = _record(case)
    assert {field: _plain(record, field) for field in case["expected"]} == case["expected"]
    mapped_from = orjson.loads(record.mapped_from)
    assert {field: mapped_from[field] for field in case.get("mapped_from", {})} == case.get("mapped_from", {})
    stored = orjson.loads(record.attributes)
    assert {name: stored[name] for name in case.get("stored", {})} == case.get("stored", {})


@pytest.mark.parametrize("case", CASES)
def test_raw_attributes_come_back_as_sent(case: dict[str, Any]) -> None:
    """To the byte, from the stored attributes and the lifted texts; embedding vectors alone are not kept."""
    record = _record(case)
    restored = restore_attributes(record.attributes, record.query, record.response, record.contexts)
    if case.get("restored", True):
        assert restored == case["attributes"]
        assert list(restored) == list(case["attributes"])


@pytest.mark.parametrize("case", CASES)
def test_mapping_stored_spans_again_changes_nothing(case: dict[str, Any]) -> None:
    """`remap` over an unchanged rule book is the identity."""
    record = _record(case)
    assert remapped(record) == record


@pytest.mark.parametrize("case", CASES)
def test_both_encodings_say_the_same(case: dict[str, Any]) -> None:
    """The same span in protobuf and in JSON is one record."""
    body = otlp_json(_span(case))
    from_json = decode(RawBody(signal="traces", content_type=JSON, body=body))
    assert decode(RawBody(signal="traces", content_type=PROTOBUF, body=as_protobuf(body))) == from_json


def test_every_text_is_stored_once() -> None:
    """What was lifted into a column is not in the raw attributes any more."""
    (case,) = (c.values[0] for c in CASES if "our retriever: documents" in str(c.id))
    record = _record(case)  # type: ignore[arg-type]
    assert "refund window" not in record.attributes
    assert "30 days" not in record.attributes


def test_resource_and_scope_describe_the_service() -> None:
    """service, version and environment; the scope is kept under OpenTelemetry's own names."""
    resource = {"service.name": "helpdesk", "service.version": "1.4", "deployment.environment.name": "prod"}
    (record,) = spans_of(decode_json({}, resource=resource))
    assert (record.service, record.service_version, record.environment) == ("helpdesk", "1.4", "prod")
    assert orjson.loads(record.resource) == {**resource, "otel.scope.name": "wire"}


@pytest.mark.parametrize(
    ("resource", "service"),
    [
        ({"service.name": "unknown_service:python", "openinference.project.name": "demo"}, "demo"),
        ({"service.name": "unknown_service"}, "unknown_service"),
        ({}, None),
    ],
)
def test_a_project_name_stands_in_for_an_unknown_service(resource: dict[str, str], service: str | None) -> None:
    """OpenInference users name a project, not a service."""
    assert spans_of(decode_json({}, resource=resource))[0].service == service


@pytest.mark.parametrize(
    ("trace_state", "pi"),
    [
        ("ot=th:c", 0.25),
        ("ot=th:8", 0.5),
        ("ot=th:0", 1.0),
        ("vendor=1,ot=rv:123456789abcde;th:fd70a4,x=y", 0.01),
        ("ot=th:zz", 1.0),
        ("other=th:c", 1.0),
    ],
)
def test_upstream_sampling_is_read_from_the_trace_state(trace_state: str, pi: float) -> None:
    """OpenTelemetry's rejection threshold gives the probability with which the trace was kept."""
    assert spans_of(decode_json({"traceState": trace_state}))[0].upstream_pi == pytest.approx(pi, rel=1e-5)


@pytest.mark.parametrize(
    ("times", "duration", "flags"),
    [
        ({"endTimeUnixNano": None}, 0, ["no_end_time"]),
        ({"endTimeUnixNano": "1783468799000000000"}, 0, ["end_before_start"]),
        ({"startTimeUnixNano": None}, 0, ["no_start_time"]),
        ({}, 10**9, None),
    ],
)
def test_odd_times_are_stored_and_flagged(times: dict[str, Any], duration: int, flags: list[str] | None) -> None:
    """Nothing is refused for its clock."""
    record = spans_of(decode_json(times))[0]
    assert (record.end_ns - record.start_ns, orjson.loads(record.mapped_from).get("flags")) == (duration, flags)
    assert remapped(record) == record


@pytest.mark.parametrize("encode", [bytes, as_protobuf], ids=["json", "protobuf"])
def test_links_are_kept(encode: Callable[[bytes], bytes]) -> None:
    """Where they lead and what is said of them, in both encodings; remapping leaves them as they are."""
    link = {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": attribute_pairs({"why": "retry"})}
    body = encode(otlp_json({"links": [link]}))
    content_type: Any = PROTOBUF if encode is as_protobuf else JSON
    (record,) = spans_of(decode(RawBody(signal="traces", content_type=content_type, body=body)))
    kept = [{"trace_id": "a" * 32, "span_id": "b" * 16, "attributes": {"why": "retry"}}]
    assert orjson.loads(record.links or "") == orjson.loads(remapped(record).links or "") == kept


def test_events_are_kept_with_nanoseconds() -> None:
    """As JSON, times in ISO 8601."""
    event = {"name": "e", "timeUnixNano": "1783468800123456789", "attributes": {"k": 1}}
    record = spans_of(decode_json({"events": [event]}))[0]
    assert orjson.loads(record.events or "") == [
        {"name": "e", "time": "2026-07-08T00:00:00.123456789Z", "attributes": {"k": 1}}
    ]


def test_feedback_on_spans_becomes_scores() -> None:
    """OpenInference's evaluations and annotations; scope trace belongs to the trace, not to the span."""
    attributes = {
        "evaluations.0.evaluation.name": "relevance",
        "evaluations.0.evaluation.score": 0.5,
        "evaluations.0.evaluation.label": "half",
        "annotations.0.annotation.name": "thumbs",
        "annotations.0.annotation.score": 1,
        "annotations.0.annotation.annotator_kind": "HUMAN",
        "trace.evaluations.0.evaluation.name": "overall",
        "trace.evaluations.0.evaluation.explanation": "fine",
        "evaluations.1.evaluation.score": 1,
    }
    scores = decode_json({"attributes": attributes}).scores
    assert [(s.name, s.score, s.label, s.source, s.span_id is None) for s in scores] == [
        ("relevance", 0.5, "half", "code", False),
        ("thumbs", 1.0, None, "human", False),
        ("overall", None, None, "code", True),
    ]


def test_remap_keeps_texts_that_came_from_a_log_event() -> None:
    """A query that no attribute holds is not forgotten when columns are derived again."""
    record = spans_of(decode_json({"attributes": {"gen_ai.operation.name": "chat"}}))[0]
    record.query = "from a log event"
    assert remapped(record).query == "from a log event"


def test_a_parent_id_that_is_none_makes_a_root() -> None:
    """All zeros, or of a wrong length."""
    spans = spans_of(
        decode_json({"parentSpanId": "0" * 16}, {"parentSpanId": "abcd"}, {"parentSpanId": "00F067AA0BA902B7"})
    )
    assert [span.parent_span_id for span in spans] == [None, None, "00f067aa0ba902b7"]
