"""Our encoder against the stock one: both byte strings must parse to the same protobuf message."""

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from ragpulse._export import encoder as encoder
from ragpulse._reading.contexts import RecordedDocument, quoting, to_documents_json
from ragpulse._record.attach import AttachTracer, ForwardedSpan, Forwarder
from ragpulse._record.content import ContentPolicy, FeedbackRecord
from ragpulse._record.recording import SpanPlan, plan_for
from ragpulse._record.redaction import special_characters
from ragpulse._record.scope import RequestScope
from ragpulse._record.tracer import Tracer, TraceSampler, Unsampled

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
scalar = text | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
value = st.recursive(scalar, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4))
attributes = st.dictionaries(text, value, max_size=5)
number = st.integers(0, 2**63 - 1)
span_id = st.integers(1, 2**64 - 1)
trace_id = st.integers(1, 2**128 - 1)


@st.composite
def spans(draw: st.DrawFn) -> ReadableSpan:
    """A finished SDK span with everything that a span can carry."""
    trace = draw(trace_id)
    state = TraceState([("vendor", draw(st.text("abc", min_size=1)))] if draw(st.booleans()) else [])
    context = SpanContext(trace, draw(span_id), False, TraceFlags(1), state)
    parent = SpanContext(trace, draw(span_id), draw(st.booleans())) if draw(st.booleans()) else None
    target = SpanContext(draw(trace_id), draw(span_id), draw(st.booleans()))
    error = draw(st.booleans())
    return ReadableSpan(
        name=draw(text),
        context=context,
        parent=parent,
        resource=Resource(draw(attributes)),
        attributes=draw(attributes),
        events=[Event(draw(text), draw(attributes), draw(number)) for _ in range(draw(st.integers(0, 2)))],
        links=[Link(target, draw(attributes))] if draw(st.booleans()) else [],
        kind=draw(st.sampled_from(SpanKind)),
        status=Status(StatusCode.ERROR, draw(text)) if error else Status(StatusCode.UNSET),
        start_time=draw(number),
        end_time=draw(number),
        instrumentation_scope=InstrumentationScope("tests", "1"),
    )


def _ours(span: ReadableSpan) -> bytes:
    forwarder = Forwarder(_Queue(), ContentPolicy(), content_on_spans=True, resource={})  # type: ignore[arg-type]
    forwarded = ForwardedSpan(span, forwarder, "", 0)
    return encoder.request(*forwarded.origin()[1:], [forwarded.encode()])


@given(spans())
@settings(max_examples=40, deadline=None)
def test_any_sdk_span_is_encoded_as_the_stock_encoder_does(span: ReadableSpan) -> None:
    """The whole request, resource and scope included, is the same message."""
    assert ExportTraceServiceRequest.FromString(_ours(span)) == encode_spans([span])


class _Queue:
    def __init__(self) -> None:
        self.spans: list[Any] = []

    def offer(self, span: Any) -> None:
        """Keep the span."""
        self.spans.append(span)

    def flush(self, timeout: float) -> bool:
        """Nothing waits."""
        return True


@given(text, attributes, attributes, number)
@settings(max_examples=40, deadline=None)
def test_our_own_span_is_encoded_as_the_stock_encoder_does(
    name: str, constants: dict[str, Any], dynamic: dict[str, Any], started: int
) -> None:
    """Constants encoded beforehand, scope and dynamic attributes together are one ordinary span, without doubles."""
    queue = _Queue()
    tracer = Tracer(queue.offer, policy=ContentPolicy(), sampler=TraceSampler(), resource={}, clock=lambda: started)
    plan = SpanPlan(name=name, kind="", span_kind=1, constants=constants)
    span, _ = tracer.start(plan, {})  # type: ignore[arg-type]
    span.scope = RequestScope({"session.id": "s1"})
    span.set_attributes(dynamic)
    span.add_event("happened", dynamic, 7)
    span.end()
    stock = ReadableSpan(
        name=name,
        context=span.get_span_context(),
        resource=Resource({}),
        attributes={**constants, "session.id": "s1", **dynamic},
        events=[Event("happened", dynamic, 7)],
        start_time=started,
        end_time=max(started, 1),
    )
    ours = Span.FromString(queue.spans[0].encode())
    expected = encode_spans([stock]).resource_spans[0].scope_spans[0].spans[0]
    assert {item.key: item.value for item in ours.attributes} == {item.key: item.value for item in expected.attributes}
    assert len(ours.attributes) == len(expected.attributes)
    for message in (ours, expected):
        message.ClearField("attributes")
        message.ClearField("status")
    assert ours == expected


@given(st.integers(0, 2**64 - 1))
def test_varints_read_back(whole: int) -> None:
    """A varint is what protobuf reads as the same number."""
    message = AnyValue.FromString(b"\x18" + encoder.varint(whole))
    assert message.int_value % 2**64 == whole


def test_values_that_otlp_cannot_hold_are_written_as_text() -> None:
    """A lone surrogate, a too large integer, an unknown object: still one valid message."""
    read = [AnyValue.FromString(encoder.any_value(bad)).string_value for bad in ("\ud800", 2**70, object())]
    assert read == ["\\ud800", str(2**70), "<builtins.object>"]
    assert math.isnan(AnyValue.FromString(encoder.any_value(float("nan"))).double_value)


def test_a_score_is_a_log_record_with_event_name_and_trace() -> None:
    """The log record parses with the stock message type."""
    record = encoder.log_record(5, "gen_ai.evaluation.result", 1, 2, {"a": 1.5})
    body = encoder.request(encoder.resource({"service.name": "x"}), encoder.scope("ragpulse", "1"), [record])
    (found,) = ExportLogsServiceRequest.FromString(body).resource_logs[0].scope_logs[0].log_records
    assert (found.event_name, found.time_unix_nano, found.severity_number) == ("gen_ai.evaluation.result", 5, 9)
    assert (int.from_bytes(found.trace_id), int.from_bytes(found.span_id)) == (1, 2)
    assert found.attributes[0].value.double_value == 1.5


def _records() -> list[tuple[str, Any]]:
    """A record of each kind, with the name of the library that it is sent under."""
    queue = _Queue()
    tracer = Tracer(queue.offer, policy=ContentPolicy(), sampler=TraceSampler(), resource={"service.name": "shop"})
    for library in (None, InstrumentationScope("openinference", "2")):
        span, _ = tracer.start(SpanPlan(name="step", kind="", span_kind=1, constants={}, library=library), Context())
        span.end()
    forwarder = Forwarder(queue, tracer.policy, content_on_spans=True, resource={})  # type: ignore[arg-type]
    provider = TracerProvider()
    provider.add_span_processor(forwarder)
    AttachTracer(provider.get_tracer("ragpulse"), forwarder, Unsampled()).start(PLAN, Context())[0].end()
    provider.get_tracer("peer").start_span("chat", attributes={"gen_ai.operation.name": "chat"}).end()
    queue.offer(FeedbackRecord(tracer, 1, 7, "thumbs", 1.0, None))
    return list(zip(("ragpulse", "openinference", "ragpulse", "peer", "ragpulse"), queue.spans, strict=True))


def test_each_record_says_how_it_is_encoded_and_what_it_is_sent_with() -> None:
    """A span of ours, of a library, beside the application's, forwarded, and a score: no list of classes decides."""
    records = _records()
    for library, record in records:
        path, resource, scope = record.origin()
        ((sent_path, body, count),) = encoder.encode_requests([record])
        assert (sent_path, count) == (path, 1)
        assert (resource in body, record.encode() in body) == (True, True)
        assert library.encode() in scope
    broken: Any = Unencodable()
    requests = encoder.encode_requests([*(record for _, record in records), broken])
    assert [(path, count) for path, _, count in requests] == [("traces", 4), ("logs", 1)]


class Unencodable:
    """A record that spoils no batch."""

    def origin(self) -> encoder.Origin:
        """Fails."""
        raise ValueError


PLAN = SpanPlan(name="step", kind="", span_kind=1, constants={})


def test_a_decorated_functions_constants_follow_the_conventions() -> None:
    """Kind, operation and names under all three vocabularies."""
    plan = plan_for("llm", "generate", model="m", provider="openai", data_source=None, index_version=None, scope={})
    assert plan.constants == {
        "ragpulse.span.kind": "llm",
        "openinference.span.kind": "LLM",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "openai",
    }


@given(st.lists(text | st.text('a1é "\\\n\r\t\x01\x7f')))
@settings(max_examples=200, deadline=None)
def test_documents_are_json_whatever_is_in_them(texts: list[str]) -> None:
    """However their texts are quoted: none that needs it, the usual five characters, or any."""
    quote = quoting(special_characters(" ".join(texts).encode()))
    rows = json.loads(to_documents_json([RecordedDocument(None, 0.5, text, None) for text in texts], quote))
    assert [row["content"] for row in rows] == texts
