"""A wire span in canonical columns: the mapping engine's values plus what the span states itself."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ragpulse_collector.conventions import (
    evaluations,
    genai,
    langfuse,
    lifting,
    mlflow,
    names,
    openinference,
    others,
    own,
    traceloop,
)
from ragpulse_collector.conventions.block import mapped
from ragpulse_collector.conventions.rules import Carrier, Mapping, RuleBook
from ragpulse_collector.conventions.values import parsed
from ragpulse_collector.otlp import Origin, Vector, WireBlock, WireEvent, WireLink, WireSpan
from ragpulse_collector.records import Batch, SpanBlock, SpanRecord, Status

_log = logging.getLogger(__name__)

DIALECTS = (own.RULES, genai.RULES, openinference.RULES, traceloop.RULES, langfuse.RULES, mlflow.RULES, others.RULES)
"""First present wins, in this order."""
SCOPE_NAME, SCOPE_VERSION = "otel.scope.name", "otel.scope.version"
"""Where the instrumentation scope is kept: beside the resource's attributes, under OpenTelemetry's own names."""
TIME_FLAGS = ("no_start_time", "no_end_time", "end_before_start")
"""What a stored span cannot tell any more, its times being mended."""
_STATUS: dict[int, Status] = {1: "ok", 2: "error"}
_THRESHOLD = re.compile(r"(?:^|,)ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,]|$)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Mapper:
    """Maps spans; keeps what spans of one origin share, so make one per request body."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        self._origins: dict[int, tuple[Origin, dict[str, Any]]] = {}
        self.failed_blocks = 0

    def add(self, span: WireSpan, batch: Batch) -> None:
        """Add a span and the scores on it to the batch; a span that defeats the rules is kept raw, as `other`."""
        try:
            mapping = self.resolve(span)
            record = self._record(span, mapping)
            if "scores" in mapping.watched:
                batch.scores.extend(evaluations.scores_on(span, mapping.watched["scores"]))
        except Exception:  # noqa: BLE001 - one strange span must not refuse the whole request
            _log.warning("span %s kept without mapping", span.span_id, exc_info=True)
            record = self._record(span, Mapping(mapped_from={"flags": ["unmapped"]}))
        batch.records.append(record)

    def block(self, block: WireBlock) -> SpanBlock | None:
        """Return a block's spans mapped together, None where they have to be mapped one by one."""
        try:
            return mapped(block, self._book.plan(block.attributes), self._shared(block.origin))
        except Exception:  # noqa: BLE001 - one strange span must not refuse the whole request; `add` names it
            self.failed_blocks += 1
            _log.warning("a block of %d spans is mapped span by span", len(block), exc_info=True)
            return None

    def resolve(self, span: WireSpan) -> Mapping:
        """Return the canonical fields of a span (or of a log record dressed as one)."""
        attributes = span.attributes
        return self._book.resolve(Carrier(attributes, span.start_ns, span.dropped_attributes, span.events))

    def _record(self, span: WireSpan, mapping: Mapping) -> SpanRecord:
        for name in mapping.watched.get("vectors", ()):
            mapping.replaced[name] = _vector(span.attributes[name])
        fields = self._shared(span.origin) | mapping.values
        flags = _flags(span, fields)
        if flags:
            mapping.mapped_from.setdefault("flags", []).extend(flags)
        start = span.start_ns or span.end_ns
        if "cost_usd" in fields:
            fields["cost_source"] = "provider"
        _settle_status(span, fields)
        if mapping.truncated or _lost_contexts(span, fields):
            fields["contexts_truncated"] = True
        if span.trace_state:
            fields["upstream_pi"] = _upstream_pi(span.trace_state)
        if span.events:
            fields["events"] = _events(span.events)
        if span.links:
            fields["links"] = _links(span.links)
        fields["trace_id"] = span.trace_id
        fields["span_id"] = span.span_id
        fields["parent_span_id"] = span.parent_span_id
        fields["start_ns"] = start
        fields["end_ns"] = max(span.end_ns, start)
        fields["name"] = span.name
        fields["dropped_attributes"] = span.dropped_attributes
        fields["attributes"] = lifting.attributes_text(span.attributes, mapping.replaced)
        fields["mapped_from"] = orjson.dumps(mapping.mapped_from).decode()
        return SpanRecord.made_of(fields)

    def _shared(self, origin: Origin) -> dict[str, Any]:
        known = self._origins.get(id(origin))
        if known is None:
            known = self._origins[id(origin)] = (origin, _from_origin(origin))
        return known[1]


def rule_book() -> RuleBook:
    """Return the rules of all dialects."""
    return RuleBook(DIALECTS, watch={"vectors": _is_vector, "scores": evaluations.is_score})


def _from_origin(origin: Origin) -> dict[str, Any]:
    resource = origin.resource
    service = resource.get(names.SERVICE_NAME)
    if service is None or str(service).startswith("unknown_service"):
        service = resource.get("openinference.project.name", service)
    environment = resource.get(names.DEPLOYMENT_ENVIRONMENT, resource.get("deployment.environment"))
    values = {"service": service, "service_version": resource.get(names.SERVICE_VERSION), "environment": environment}
    scope = {SCOPE_NAME: origin.scope_name, SCOPE_VERSION: origin.scope_version}
    text = lifting.attributes_text({**resource, **{key: value for key, value in scope.items() if value}}, {})
    return {"resource": text, **{key: str(value) for key, value in values.items() if value is not None}}


def _settle_status(span: WireSpan, fields: dict[str, Any]) -> None:
    """A dialect's own status wins; only errors have a message."""
    if "status" not in fields:
        fields["status"] = _STATUS.get(span.status_code, "unset")
    if fields["status"] != "error":
        fields.pop("status_message", None)
    elif span.status_message:
        fields["status_message"] = span.status_message


def _flags(span: WireSpan, values: dict[str, Any]) -> list[str]:
    """Name what is odd about a span that is kept all the same."""
    flags = []
    if not span.start_ns:
        flags.append("no_start_time")
    if span.end_ns < span.start_ns:
        flags.append("end_before_start" if span.end_ns else "no_end_time")
    cached = values.get("cached_tokens")
    if cached is not None and cached > (values.get("input_tokens") or 0):
        flags.append("cached_exceeds_input")
    return flags


def _lost_contexts(span: WireSpan, values: dict[str, Any]) -> bool:
    """Tell whether documents were cut: by our SDK, which says so, or by an attribute limit that left none."""
    cut = span.attributes.get(names.TRUNCATED)
    if cut is not None and names.RETRIEVAL_DOCUMENTS in (parsed(cut) or ()):
        return True
    if not span.dropped_attributes or "contexts" in values:
        return False
    return values.get("kind") in ("retriever", "reranker")


def _upstream_pi(trace_state: str) -> float:
    """Return the probability behind OpenTelemetry's rejection threshold (`ot=th:c` keeps a quarter)."""
    match = _THRESHOLD.search(trace_state)
    return 1.0 if match is None else (2**56 - int(match[1].ljust(14, "0"), 16)) / 2**56


def _is_vector(name: str) -> bool:
    return name.endswith(".embedding.vector")


def _vector(value: Any) -> Any:
    numbers = parsed(value)
    return Vector(len(numbers)) if isinstance(numbers, list) else value


def _events(events: list[WireEvent]) -> str:
    rows = [
        {"name": event.name, "time": _instant(event.time_ns), "attributes": lifting.escape(event.attributes)}
        for event in events
    ]
    return lifting.json_text(rows)


def _links(links: list[WireLink]) -> str:
    rows = [
        {"trace_id": link.trace_id, "span_id": link.span_id, "attributes": lifting.escape(link.attributes)}
        for link in links
    ]
    return lifting.json_text(rows)


def _instant(time_ns: int) -> str:
    """Return ISO 8601 in UTC with nanoseconds, which datetime does not keep."""
    moment = _EPOCH + timedelta(seconds=time_ns // 10**9)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"
