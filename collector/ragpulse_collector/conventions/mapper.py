"""Raw attributes to canonical columns: each rule fills the rows that earlier rules left empty.

    WireBatch ─ columns by attribute name ─ rules, field by field ─▶ SpanBatch, and the scores that spans carried

A column may cover some rows only: an attribute that a span does not have is absent, which is not the same as null.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import lt
from typing import Any, NamedTuple

import orjson

from ragpulse_collector.conventions import lifting, names, scores
from ragpulse_collector.conventions.dialects import DIALECTS, openinference
from ragpulse_collector.conventions.rules import TEXTS, Found, Plan, Read, RuleBook, Step
from ragpulse_collector.conventions.values import WHOLE_COLUMNS, parsed
from ragpulse_collector.otlp import Scope, Shape, Vector, WireBatch, WireEvent, WireLink
from ragpulse_collector.records import Constant, ScoreRecord, SpanBatch, Values

_log = logging.getLogger(__name__)

SCOPE_NAME, SCOPE_VERSION = "otel.scope.name", "otel.scope.version"
"""Where the instrumentation scope is kept: beside the resource's attributes, under OpenTelemetry's own names."""
TIME_FLAGS = ("no_start_time", "no_end_time", "end_before_start")
"""Flags of times that were corrected; the stored times no longer show them."""
_STATUS = {1: "ok", 2: "error"}
_THRESHOLD = re.compile(r"(?:^|,)ot=(?:[^,]*;)?th:([0-9a-f]{1,14})(?:[;,]|$)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCHES = ("retriever", "reranker")
_WHOLE_COLUMNS = WHOLE_COLUMNS | openinference.WHOLE_COLUMNS

Column = tuple[Sequence[int], Sequence[Any]]
"""The rows that have an attribute, and its value in each."""


def rule_book() -> RuleBook:
    """Return the rules of all dialects."""
    return RuleBook(DIALECTS, watch={"vectors": _is_vector, "scores": scores.is_score})


class Mapped(NamedTuple):
    """What a batch of spans became."""

    spans: SpanBatch
    scores: list[ScoreRecord]
    """Written on the spans."""
    unmapped: int
    """Spans on which a rule raised: kept with their raw attributes, as kind `other`, flagged `unmapped`."""


class Mapper:
    """Maps batches by a rule book."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book

    def fields(self, wire: WireBatch) -> FieldMapping:
        """Return the canonical fields of a batch of spans, or of log records in the form of spans."""
        return FieldMapping(wire, self._book)

    def spans(self, wire: WireBatch) -> Mapped:
        """Return a batch in canonical columns."""
        mapping = self.fields(wire)
        return Mapped(_span_batch(wire, mapping), list(_scores(wire, mapping)), len(mapping.failed))


class FieldMapping:
    """The canonical fields of a batch: values, where each was read, and what replaces raw values that were lifted."""

    def __init__(self, wire: WireBatch, book: RuleBook) -> None:
        self._wire, self._book = wire, book
        self.plans: list[tuple[Shape, Plan]] = [(shape, book.plan(shape.attributes)) for shape in wire.shapes]
        self._columns: dict[str, Column] = {}
        self._span = _RowView(wire, self)
        self.values: dict[str, list[Any]] = {}
        self.sources: dict[str, list[str | None]] = {}
        self.templates: dict[str, dict[int, Any]] = {}
        """Attribute → row → what is stored in place of the raw value."""
        self.truncated: set[int] = set()
        self.failed: set[int] = set()
        for field, steps in self._steps().items():
            self._settle(field, steps)
        self._drop_failed()

    def column(self, name: str) -> Column:
        """Return the rows that have an attribute, a family of attributes or events, and their values."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = _unzip(self._cells(name))
        return found

    def _steps(self) -> dict[str, list[Step]]:
        """Return the rules that concern the batch, by field, in their order."""
        events = {event.name for events in self._wire.events.values() for event in events}
        steps = {step for _, plan in self.plans for step in plan.steps}
        steps.update(step for name in events for step in self._book.steps_of_event(name))
        by_field: dict[str, list[Step]] = {}
        for step in sorted(steps, key=_order):
            by_field.setdefault(step.rule.field, []).append(step)
        return by_field

    def _cells(self, name: str) -> Iterator[Column]:
        """Yield the column piece by piece."""
        if name.startswith("event:"):
            yield _events_named(self._wire.events, name.removeprefix("event:"))
        elif name.endswith("."):
            for shape, plan in self.plans:
                if name in plan.families:
                    yield shape.rows, _gathered(shape, plan.families[name])
        else:
            for shape in self._wire.shapes:
                if name in shape.attributes:
                    yield shape.rows, shape.attributes[name]

    def _settle(self, field: str, steps: Sequence[Step]) -> None:
        """Fill a field: each rule reads the rows that are still empty."""
        found: list[Any] = [None] * len(self._wire)
        sources: list[str | None] = [None] * len(self._wire)
        if field == "kind":
            self.values[field] = found  # readers look at it
        for number, (_, name, rule) in enumerate(steps):
            rows, values = self.column(name)
            if number:
                rows, values = _empty(found, rows, values)
            for row, result in zip(rows, self._results(rule.read, rows, values), strict=True):
                if result is not None:
                    found[row] = self._unpack(name, row, result) if type(result) is Found else result
                    sources[row] = name
        self.values[field], self.sources[field] = found, sources
        if field in TEXTS:
            for name in dict.fromkeys(step.name for step in steps):
                self._lift(field, name, found)

    def _results(self, read: Read, rows: Sequence[int], values: Sequence[Any]) -> Sequence[Any]:
        whole = _WHOLE_COLUMNS.get(read)
        found = whole(values) if whole and values else None
        if found is not None:
            return found
        span = self._span
        results: list[Any] = []
        for span.row, value in zip(rows, values, strict=True):
            try:
                results.append(read(value, span))
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001 - the boundary: one strange span must not refuse the whole request
                _log.warning("span %s is kept without mapping", self._wire.span_ids[span.row].hex(), exc_info=True)
                self.failed.add(span.row)
                results.append(None)
        return results

    def _unpack(self, name: str, row: int, found: Found) -> Any:
        prefix = name.removesuffix("N.")
        for suffix, template in found.templates.items():
            self.templates.setdefault(prefix + suffix, {})[row] = template
        if found.truncated:
            self.truncated.add(row)
        return found.value

    def _lift(self, field: str, name: str, texts: Sequence[Any]) -> None:
        """Reference a text wherever an attribute that could have given it holds exactly the same."""
        reference = {"$lifted": field}
        rows, values = self.column(name)
        same = [row for row, value in zip(rows, values, strict=True) if type(value) is str and value == texts[row]]
        if same:
            templates = self.templates.setdefault(name, {})
            for row in same:
                templates.setdefault(row, reference)

    def _drop_failed(self) -> None:
        for row in self.failed:
            for column in (*self.values.values(), *self.sources.values()):
                column[row] = None
            for templates in self.templates.values():
                templates.pop(row, None)


class _RowView:
    """One span of a batch as readers see it: they set `row` before each value."""

    def __init__(self, wire: WireBatch, mapping: FieldMapping) -> None:
        self._wire, self._mapping = wire, mapping
        self._places: dict[int, tuple[Shape, int]] = {}
        self.row = 0

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All attributes of the span."""
        if not self._places:
            self._places = {row: (shape, at) for shape in self._wire.shapes for at, row in enumerate(shape.rows)}
        shape, at = self._places[self.row]
        return {name: column[at] for name, column in shape.attributes.items()}

    @property
    def start_ns(self) -> int:
        """When it began."""
        return self._wire.start_ns[self.row]

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender dropped."""
        return self._wire.dropped_attributes.get(self.row, 0)

    @property
    def kind(self) -> str | None:
        """Its kind."""
        kinds = self._mapping.values.get("kind")
        return None if kinds is None else kinds[self.row]


def _order(step: Step) -> int:
    return step.order


def _unzip(pieces: Iterator[Column]) -> Column:
    """Join the pieces of a column."""
    found = list(pieces)
    if len(found) == 1:
        return found[0]
    rows = [row for piece, _ in found for row in piece]
    return rows, [value for _, piece in found for value in piece]


def _empty(found: Sequence[Any], rows: Sequence[int], values: Sequence[Any]) -> Column:
    """Return those cells of a column whose row has no value yet."""
    cells = [cell for cell in zip(rows, values, strict=True) if found[cell[0]] is None]
    return ([row for row, _ in cells], [value for _, value in cells]) if len(cells) < len(rows) else (rows, values)


def _events_named(events: Mapping[int, Sequence[WireEvent]], name: str) -> Column:
    named = {row: [event for event in found if event.name == name] for row, found in events.items()}
    return [row for row, found in named.items() if found], [found for found in named.values() if found]


def _gathered(shape: Shape, members: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a family of attributes as one mapping a row: suffix → value."""
    suffixes = [suffix for _, suffix in members]
    rows = zip(*(shape.attributes[name] for name, _ in members), strict=True)
    return [dict(zip(suffixes, row, strict=True)) for row in rows]


def _span_batch(wire: WireBatch, mapping: FieldMapping) -> SpanBatch:
    """Return the mapped fields beside what spans and scope state themselves."""
    values = mapping.values
    kinds: list[Any] = values.pop("kind", [])
    contexts = values.pop("contexts", None)
    columns: dict[str, Values] = {"kind": [kind or "other" for kind in kinds]} if kinds else {}
    for name, value in _scope_fields(wire.scope).items():
        said = values.pop(name, None)
        columns[name] = Constant(value, len(wire)) if said is None else [each or value for each in said]
    columns |= values
    _settle_times(wire, columns)
    _settle_status(wire, columns)
    if "cost_usd" in values:
        columns["cost_source"] = [None if usd is None else "provider" for usd in values["cost_usd"]]
    _settle_sparse(wire, columns, mapping, contexts)
    columns["attributes"] = _attribute_texts(wire, mapping)
    columns["mapped_from"] = _mapped_from(mapping, _flags(wire, columns, mapping.failed), len(wire))
    return SpanBatch(
        trace_ids=wire.trace_ids,
        span_ids=wire.span_ids,
        parent_span_ids=wire.parent_span_ids,
        columns=columns,
        contexts=contexts,
    )


def _scope_fields(scope: Scope) -> dict[str, Any]:
    resource = scope.resource
    service = resource.get(names.SERVICE_NAME)
    if service is None or str(service).startswith("unknown_service"):
        service = resource.get("openinference.project.name", service)
    environment = resource.get(names.DEPLOYMENT_ENVIRONMENT, resource.get("deployment.environment"))
    values = {"service": service, "service_version": resource.get(names.SERVICE_VERSION), "environment": environment}
    own = {SCOPE_NAME: scope.name, SCOPE_VERSION: scope.version}
    text = lifting.attributes_text({**resource, **{key: value for key, value in own.items() if value}}, {})
    return {"resource": text, **{key: str(value) for key, value in values.items() if value is not None}}


def _settle_times(wire: WireBatch, columns: dict[str, Values]) -> None:
    """A span without a start begins when it ends; one that ends before it begins takes no time."""
    starts, ends = wire.start_ns, wire.end_ns
    if 0 in starts:
        starts = [start or end for start, end in zip(starts, ends, strict=True)]
    if any(map(lt, ends, starts)):
        ends = list(map(max, ends, starts))
    columns |= {"name": wire.names, "start_ns": starts, "end_ns": ends}


def _settle_status(wire: WireBatch, columns: dict[str, Values]) -> None:
    """A dialect's own status wins; only errors have a message."""
    said, messages = columns.pop("status", None), columns.pop("status_message", None)
    rows = range(len(wire))
    status = [_STATUS.get(wire.status_codes.get(row, 0), "unset") for row in rows]
    if said is not None and not isinstance(said, Constant):
        status = [own or stated for own, stated in zip(said, status, strict=True)]
    columns["status"] = status
    if "error" in status:
        found = messages if messages is not None and not isinstance(messages, Constant) else [None] * len(wire)
        columns["status_message"] = [
            wire.status_messages.get(row, found[row]) if status[row] == "error" else None for row in rows
        ]


def _settle_sparse(
    wire: WireBatch, columns: dict[str, Values], mapping: FieldMapping, contexts: Sequence[Any] | None
) -> None:
    """Add the columns that most batches do not need."""
    sparse: dict[str, tuple[dict[int, Any], Any]] = {
        "contexts_truncated": (dict.fromkeys(_cut_contexts(wire, columns, mapping, contexts), True), False),
        "dropped_attributes": (wire.dropped_attributes, 0),
        "upstream_pi": ({row: _upstream_pi(state) for row, state in wire.trace_states.items()}, 1.0),
        "events": ({row: _events(events) for row, events in wire.events.items()}, None),
        "links": ({row: _links(links) for row, links in wire.links.items()}, None),
    }
    for name, (cells, default) in sparse.items():
        if cells:
            columns[name] = [cells.get(row, default) for row in range(len(wire))]


def _cut_contexts(
    wire: WireBatch, columns: Mapping[str, Values], mapping: FieldMapping, contexts: Sequence[Any] | None
) -> set[int]:
    """Return the rows whose documents were cut: by our SDK, which says so, or by an attribute limit that left none."""
    stated = zip(*mapping.column(names.TRUNCATED), strict=True)
    cut = {row for row, value in stated if names.RETRIEVAL_DOCUMENTS in (parsed(value) or ())}
    kinds = columns.get("kind")
    if kinds is not None and not isinstance(kinds, Constant):
        cut.update(
            row
            for row in wire.dropped_attributes
            if (contexts is None or contexts[row] is None) and kinds[row] in _SEARCHES
        )
    return cut | mapping.truncated


def _flags(wire: WireBatch, columns: Mapping[str, Values], failed: set[int]) -> dict[int, list[str]]:
    """Name what is odd about spans that are kept all the same."""
    flags: dict[int, list[str]] = {row: ["unmapped"] for row in failed}
    for row, (start, end) in enumerate(zip(wire.start_ns, wire.end_ns, strict=True)):
        if not start:
            flags.setdefault(row, []).append("no_start_time")
        if end < start:
            flags.setdefault(row, []).append("end_before_start" if end else "no_end_time")
    cached, whole = columns.get("cached_tokens"), columns.get("input_tokens") or [None] * len(wire)
    if cached is not None:
        for row, (part, all_) in enumerate(zip(cached, whole, strict=True)):
            if part is not None and part > (all_ or 0):
                flags.setdefault(row, []).append("cached_exceeds_input")
    return flags


def _mapped_from(mapping: FieldMapping, flags: Mapping[int, list[str]], size: int) -> list[str]:
    """Return for each row the JSON object of fields and the attributes they were read from."""
    fields = list(mapping.sources)
    texts: dict[tuple[str | None, ...], str] = {}
    rows = list(zip(*mapping.sources.values(), strict=True)) if fields else [()] * size
    for sources in dict.fromkeys(rows):
        found = {field: name for field, name in zip(fields, sources, strict=True) if name is not None}
        texts[sources] = orjson.dumps(found).decode()
    out = [texts[sources] for sources in rows]
    for row, names_ in flags.items():
        out[row] = orjson.dumps({**orjson.loads(out[row]), "flags": names_}).decode()
    return out


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


def _scores(wire: WireBatch, mapping: FieldMapping) -> Iterator[ScoreRecord]:
    """Yield the scores written on spans."""
    for shape, plan in mapping.plans:
        if "scores" not in plan.watched:
            continue
        columns = {name: shape.attributes[name] for name in plan.watched["scores"]}
        for at, row in enumerate(shape.rows):
            said = {name: column[at] for name, column in columns.items()}
            end_ns = wire.end_ns[row] or wire.start_ns[row]
            yield from scores.scores_on(wire.trace_ids[row].hex(), wire.span_ids[row].hex(), end_ns, said)


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
