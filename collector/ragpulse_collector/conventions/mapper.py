"""Wire batches to canonical columns: the mapped fields, and the fields of spans and scope themselves.

WireBatch ─ rules, field by field ─▶ SpanBatch, and the scores that spans carried (OpenInference's
`evaluations.N.evaluation.*`, `annotations.N.annotation.*`; events with GenAI's results)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import lt
from typing import Any, NamedTuple

import orjson

from ragpulse import shapes
from ragpulse_collector.conventions import lifting, names
from ragpulse_collector.conventions.dialects import DIALECTS
from ragpulse_collector.conventions.rules import BareSpan, FieldMapping, RuleBook
from ragpulse_collector.conventions.usage import FIELDS, named_rules, settle_usage
from ragpulse_collector.conventions.values import SEARCHES, number, parsed, true, unquoted
from ragpulse_collector.instants import EPOCH
from ragpulse_collector.otlp.wire import Vector, WireBatch, WireEvent, WireLink, WireScope, is_trace_id
from ragpulse_collector.records import Constant, ScoreRecord, SpanBatch, Values

SCOPE_NAME, SCOPE_VERSION = "otel.scope.name", "otel.scope.version"
"""The instrumentation scope is stored among the resource's attributes, under OpenTelemetry's own names."""
TIME_FLAGS = ("no_start_time", "no_end_time", "end_before_start")
"""Flags of corrected times, which the stored times no longer show."""
NESTED = "gen_ai.invocation.is_nested"
_STATUS = {1: "ok", 2: "error"}
_THRESHOLD = re.compile(r"(?:^|,)ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,]|$)")
_SCORE_NAME = re.compile(
    r"(?:(trace|session)\.)?(annotations|evaluations)\.([0-9]{1,6})\.(?:annotation|evaluation)\."
    r"(name|score|label|explanation|annotator_kind|identifier)"
)
_CARRIERS = ("evaluator", "other")
"""Kinds of spans that may only bring a score; others state their own work, and their links another thing."""
_NO_ERROR = (None, None)
_MISSING = "response_missing_reason"


def rule_book() -> RuleBook:
    """Return the rules of all dialects."""
    return RuleBook(
        DIALECTS,
        named=named_rules,
        watch={"vectors": lambda name: name.endswith(".embedding.vector"), "scores": _SCORE_NAME.fullmatch},
    )


class MappedBatch(NamedTuple):
    """The result of mapping a batch of spans."""

    spans: SpanBatch
    scores: list[ScoreRecord]
    """Written on the spans."""
    unmapped: int
    """Spans for which a rule raised: stored with their raw attributes, as kind `other`, flagged `unmapped`."""


@dataclass(frozen=True)
class Mapper:
    """Maps batches by a rule book."""

    book: RuleBook

    def fields(self, wire: WireBatch) -> FieldMapping:
        """Return the canonical fields of a batch of spans, or of log records in the form of spans."""
        return FieldMapping(wire, self.book)

    def spans(self, wire: WireBatch) -> MappedBatch:
        """Return a batch in canonical columns."""
        mapping = self.fields(wire)
        spans = _span_batch(wire, mapping)
        return MappedBatch(spans, list(_scores(wire, mapping, spans)), len(mapping.failed))


def _span_batch(wire: WireBatch, mapping: FieldMapping) -> SpanBatch:
    """Return the mapped fields with the fields of spans and scope themselves."""
    _remove_nested_ids(mapping)
    _settle_missing(mapping, len(wire))
    values = mapping.values
    kinds: list[Any] = values.pop("kind", [])
    contexts = values.pop("contexts", None)
    for row in settle_usage(values, kinds, len(wire)):
        mapping.flags.setdefault(row, []).append("usage_estimated")
    columns: dict[str, Values] = {"kind": [kind or "other" for kind in kinds]} if kinds else {}
    for name, value in _scope_fields(wire.scope).items():
        stated = values.pop(name, None)
        columns[name] = Constant(value, len(wire)) if stated is None else [own or value for own in stated]
    columns |= values
    _settle_times(wire, columns)
    _settle_status(wire, columns, mapping.errors)
    if "cost_usd" in values:
        columns["cost_source"] = [None if usd is None else "provider" for usd in values["cost_usd"]]
    _settle_sparse(wire, columns, mapping, contexts)
    columns["attributes"] = _attribute_texts(wire, mapping)
    columns["mapped_from"] = _mapped_from(mapping, _flags(wire, columns, mapping), len(wire))
    return SpanBatch(
        trace_ids=wire.trace_ids,
        span_ids=wire.span_ids,
        parent_span_ids=wire.parent_span_ids,
        columns=columns,
        contexts=contexts,
    )


def _remove_nested_ids(mapping: FieldMapping) -> None:
    """Remove the response id of a call inside another that reports it too: it is no call of its own.

    Without an id its usage counts only if no call around it states any (see dedupe).
    """
    for row, value in zip(*mapping.column(NESTED), strict=True):
        if true(value) and "response_id" in mapping.values:
            mapping.values["response_id"][row] = mapping.sources["response_id"][row] = None


def _settle_missing(mapping: FieldMapping, size: int) -> None:
    """Set why a response is missing: as the sender states it, as its value shows it, or by how the reply ended."""
    values, unknown = mapping.values, [None] * size
    responses: list[Any] = values.get("response", unknown)
    sources = mapping.sources.get("response", responses)
    stated, endings = values.get(_MISSING, unknown), values.get("finish_reason", unknown)
    reasons: list[str | None] = [None] * size
    for row, response in enumerate(responses):
        if response:
            continue
        shown, ending = mapping.reasons.get(row), endings[row]
        ended = shapes.MISSING_REASONS.get(ending.lower()) if ending else None
        if response is None or ended not in (None, shapes.CUT):
            responses[row] = sources[row] = None
            reasons[row] = stated[row] or (ended if shown == shapes.UNREAD else shown or ended) or shown
    if any(reasons) or _MISSING in values:
        values[_MISSING] = reasons


def service_of(resource: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the service and the environment of a resource."""
    service = resource.get(names.SERVICE_NAME)
    if service is None or str(service).startswith("unknown_service"):
        service = resource.get("openinference.project.name", service)
    return service, resource.get(names.DEPLOYMENT_ENVIRONMENT, resource.get("deployment.environment"))


def _scope_fields(scope: WireScope) -> dict[str, Any]:
    resource = scope.resource
    service, environment = service_of(resource)
    values = {
        "service": service,
        "service_version": resource.get(names.SERVICE_VERSION),
        "environment": environment,
        "agent": resource.get("gen_ai.main_agent.name"),
        "index_version": resource.get(names.INDEX_VERSION),
    }
    otel_scope = {SCOPE_NAME: scope.name, SCOPE_VERSION: scope.version}
    text = lifting.attributes_text({**resource, **{key: value for key, value in otel_scope.items() if value}})
    return {"resource": text, **{key: str(value) for key, value in values.items() if value is not None}}


def _settle_times(wire: WireBatch, columns: dict[str, Values]) -> None:
    """Correct times: a span without a start begins when it ends, and no span ends before it begins."""
    starts, ends = wire.start_ns, wire.end_ns
    if 0 in starts:
        starts = [start or end for start, end in zip(starts, ends, strict=True)]
    if any(map(lt, ends, starts)):
        ends = list(map(max, ends, starts))
    columns |= {"name": wire.names, "start_ns": starts, "end_ns": ends}


def _settle_status(wire: WireBatch, columns: dict[str, Values], errors: Mapping[int, tuple[str | None, str]]) -> None:
    """Set the status: a dialect's own wins, and only errors have a message. An error in place of a reply is one."""
    own_status, messages = columns.pop("status", None), columns.pop("status_message", None)
    rows, unknown = range(len(wire)), [None] * len(wire)
    status = [_STATUS.get(wire.status_codes.get(row, 0), "unset") for row in rows]
    if own_status is not None and not isinstance(own_status, Constant):
        status = [own or stated for own, stated in zip(own_status, status, strict=True)]
    columns["status"] = status
    errors = {row: error for row, error in errors.items() if status[row] == "unset"}
    if errors:
        status[:] = ["error" if row in errors else own for row, own in enumerate(status)]
        types = columns.get("error_type", unknown)
        if not isinstance(types, Constant):
            columns["error_type"] = [own or errors.get(row, _NO_ERROR)[0] for row, own in enumerate(types)]
    if "error" in status:
        own_messages = messages if messages is not None and not isinstance(messages, Constant) else unknown
        own_messages = [own or errors.get(row, _NO_ERROR)[1] for row, own in enumerate(own_messages)]
        columns["status_message"] = [
            wire.status_messages.get(row, own_messages[row]) if status[row] == "error" else None for row in rows
        ]


def _settle_sparse(
    wire: WireBatch, columns: dict[str, Values], mapping: FieldMapping, contexts: Sequence[Any] | None
) -> None:
    """Add the columns that most batches do not need."""
    sparse: dict[str, tuple[dict[int, Any], Any]] = {
        "contexts_truncated": (dict.fromkeys(_truncated_contexts(wire, columns, mapping, contexts), True), False),
        "dropped_attributes": (wire.dropped_attributes, 0),
        "upstream_pi": ({row: _upstream_pi(state) for row, state in wire.trace_states.items()}, 1.0),
        "events": ({row: lifting.json_text(list(map(_event, events))) for row, events in wire.events.items()}, None),
        "links": ({row: lifting.json_text(list(map(_link, links))) for row, links in wire.links.items()}, None),
    }
    for name, (cells, default) in sparse.items():
        if cells:
            columns[name] = [cells.get(row, default) for row in range(len(wire))]


def _truncated_contexts(
    wire: WireBatch, columns: Mapping[str, Values], mapping: FieldMapping, contexts: Sequence[Any] | None
) -> set[int]:
    """Return the rows whose documents were cut: by our SDK, which states it, or by a limit of attributes."""
    truncated_names = zip(*mapping.column(names.TRUNCATED), strict=True)
    truncated = {row for row, value in truncated_names if names.RETRIEVAL_DOCUMENTS in (parsed(value) or ())}
    kinds = columns.get("kind")
    if kinds is not None and not isinstance(kinds, Constant):
        truncated.update(
            row
            for row in wire.dropped_attributes
            if (contexts is None or contexts[row] is None) and kinds[row] in SEARCHES
        )
    return truncated | mapping.truncated


def _flags(wire: WireBatch, columns: Mapping[str, Values], mapping: FieldMapping) -> dict[int, list[str]]:
    """Return the flags of odd spans, by row."""
    flags = {row: ["unmapped"] for row in mapping.failed} | mapping.flags
    for row, (start, end) in enumerate(zip(wire.start_ns, wire.end_ns, strict=True)):
        if not start:
            flags.setdefault(row, []).append("no_start_time")
        if end < start:
            flags.setdefault(row, []).append("end_before_start" if end else "no_end_time")
    column, totals = columns.get("cached_tokens"), columns.get("input_tokens") or [None] * len(wire)
    if column is not None:
        for row, (cached_tokens, total) in enumerate(zip(column, totals, strict=True)):
            if cached_tokens is not None and cached_tokens > (total or 0):
                flags.setdefault(row, []).append("cached_exceeds_input")
    return flags


def _mapped_from(mapping: FieldMapping, flags: Mapping[int, list[str]], size: int) -> list[str]:
    """Return for each row the JSON object field → attribute it was read from."""
    for name in FIELDS:
        mapping.sources.pop(name, None)
    fields = list(mapping.sources)
    texts: dict[tuple[str | None, ...], str] = {}
    rows = list(zip(*mapping.sources.values(), strict=True)) if fields else [()] * size
    for sources in dict.fromkeys(rows):
        attributes = {field: name for field, name in zip(fields, sources, strict=True) if name is not None}
        texts[sources] = orjson.dumps(attributes).decode()
    result = [texts[sources] for sources in rows]
    for row, row_flags in flags.items():
        result[row] = orjson.dumps({**orjson.loads(result[row]), "flags": row_flags}).decode()
    return result


def _attribute_texts(wire: WireBatch, mapping: FieldMapping) -> list[str]:
    """Return the raw attributes of each span as JSON text, lifted values replaced by their references."""
    texts = [""] * len(wire)
    for shape, plan in mapping.plans:
        attributes = dict(shape.attributes)
        for name, column in attributes.items():
            if not lifting.PLAIN.issuperset(map(type, column)):
                attributes[name] = list(map(lifting.escape, column))
        for name in attributes.keys() & mapping.templates.keys():
            templates = mapping.templates[name]
            attributes[name] = [
                templates.get(row, value) for row, value in zip(shape.rows, attributes[name], strict=True)
            ]
        for name in plan.watched.get("vectors", ()):
            attributes[name] = list(map(_vector, shape.attributes[name]))
        for row, text in zip(shape.rows, lifting.json_objects(attributes, len(shape.rows)), strict=True):
            texts[row] = text
    return texts


def _scores(wire: WireBatch, mapping: FieldMapping, spans: SpanBatch) -> Iterator[ScoreRecord]:
    """Yield the scores in attributes and events of spans.

    Those about a trace belong to its first unit, those about a session to the session that the span names. A score that
    comes later is on a carrier: a span of an evaluator or of no kind with exactly one link, to what is scored.
    """
    for shape, plan in mapping.plans:
        score_columns: dict[tuple[Any, ...], dict[str, Sequence[Any]]] = {}
        for name in plan.watched.get("scores", ()):
            if match := _SCORE_NAME.fullmatch(name):
                score_columns.setdefault(match.group(1, 2, 3), {})[match[4]] = shape.attributes[name]
        for index, row in enumerate(shape.rows):
            for (scope, *_), columns in score_columns.items():
                score = score_of({name: column[index] for name, column in columns.items()}, wire.end_ns[row])
                if score is not None:
                    score.scope = scope
                    score.session_id = spans.value("session_id", row) if scope == "session" else None
                    yield _placed(score, wire, row, spans)
    for row, events in wire.events.items():
        for event in events:
            score = evaluation_result(event.attributes, event.time_ns) if event.name == names.EVALUATION_EVENT else None
            if score is not None:
                yield _placed(score, wire, row, spans)


def _placed(score: ScoreRecord, wire: WireBatch, row: int, spans: SpanBatch) -> ScoreRecord:
    """Return a score with what it is about; on a carrier without a link it may name a response."""
    kind = spans.value("kind", row)
    score.time_ns = score.time_ns or wire.end_ns[row] or wire.start_ns[row]
    score.written_on = (wire.trace_ids[row].hex(), wire.span_ids[row].hex())
    if score.response_id is None or kind not in _CARRIERS or wire.links.get(row):
        score.trace_id, score.span_id = _target(wire, row, kind)
        score.response_id = None
    if score.scope is not None:
        score.span_id = None
    return score


_RESULT = {
    "name": names.EVALUATION_NAME,
    "score": names.EVALUATION_SCORE,
    "label": names.EVALUATION_LABEL,
    "explanation": names.EVALUATION_EXPLANATION,
    "annotator_kind": names.SCORE_SOURCE,
    "response_id": names.RESPONSE_ID,
}


def evaluation_result(attributes: Mapping[str, Any], time_ns: int) -> ScoreRecord | None:
    """Return the score in a `gen_ai.evaluation.result` event, of a log or a span; None without its evaluator's name."""
    return score_of({field: attributes.get(name) for field, name in _RESULT.items()}, time_ns)


def score_of(values: Mapping[str, Any], time_ns: int) -> ScoreRecord | None:
    """Return a score by the names of OpenInference, about nothing yet; None without its evaluator's name."""
    span = BareSpan()
    name = unquoted(values.get("name"), span)
    if name is None:
        return None
    return ScoreRecord(
        trace_id=None,
        span_id=None,
        time_ns=time_ns,
        name=name,
        score=number(values.get("score"), span),
        label=unquoted(values.get("label"), span),
        explanation=unquoted(values.get("explanation"), span),
        identifier=unquoted(values.get("identifier"), span),
        source="human" if str(values.get("annotator_kind")).lower() == names.SCORE_SOURCE_HUMAN else "code",
        response_id=unquoted(values.get("response_id"), span),
    )


def _target(wire: WireBatch, row: int, kind: Any) -> tuple[str, str]:
    """Return the trace and the span that the scores on a span are about: itself, or the only link of a carrier."""
    links = wire.links.get(row, [])
    if len(links) == 1 and kind in _CARRIERS and is_trace_id(bytes.fromhex(links[0].trace_id)):
        return links[0].trace_id, links[0].span_id
    return wire.trace_ids[row].hex(), wire.span_ids[row].hex()


def _upstream_pi(trace_state: str) -> float:
    """Return the probability of OpenTelemetry's rejection threshold (`ot=th:c`: a quarter)."""
    match = _THRESHOLD.search(trace_state)
    return 1.0 if match is None else (2**56 - int(match[1].ljust(14, "0"), 16)) / 2**56


def _vector(value: Any) -> Any:
    numbers = parsed(value)
    return Vector(len(numbers)) if isinstance(numbers, list) else value


def _event(event: WireEvent) -> dict[str, Any]:
    return {"name": event.name, "time": _instant(event.time_ns), "attributes": lifting.escape(event.attributes)}


def _link(link: WireLink) -> dict[str, Any]:
    return {"trace_id": link.trace_id, "span_id": link.span_id, "attributes": lifting.escape(link.attributes)}


def _instant(time_ns: int) -> str:
    """Return ISO 8601 in UTC with nanoseconds, which datetime does not keep."""
    moment = EPOCH + timedelta(seconds=time_ns // 10**9)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"
