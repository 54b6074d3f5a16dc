"""Rules: which attributes give which canonical field, in which order, and how they are read.

    dialects (ordered) ─▶ RuleBook ─ plan(names) ─▶ ReadPlan: the rules that concern these attribute names
    WireBatch × plans ─▶ FieldMapping: each rule fills the rows of a field that earlier rules left empty

Spans of one instrumentation have the same attribute names, so the rules for a set of names are looked up once. SpanView
events are read under the name `event:<event name>`, families of names (`retrieval.documents.0.document.id`, ...) under
their common prefix. A column may have values for some rows only: an absent attribute differs from null.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from operator import eq
from typing import Any, NamedTuple

from ragpulse._reading.turns import is_nothing
from ragpulse.shapes import NOTHING, UNREAD
from ragpulse_collector.conventions.row_view import FAILED, RowView
from ragpulse_collector.otlp.wire import Shape, WireBatch, WireEvent
from ragpulse_collector.records import UNSAID

_log = logging.getLogger(__name__)

_KNOWN_PLANS = 1024
"""How many sets of attribute names are remembered with their rules; then the cache begins again."""
_LONGEST_NAMES = 8192
_NOTHING_BEGINS = frozenset("nuN[({O")
WITHOUT_RESPONSE = frozenset({"retriever", "reranker", "embedding"})
TEXTS = frozenset({"query", "response"})


@dataclass(slots=True)
class BareSpan:
    """A span with nothing but attributes, for values that are read outside a batch."""

    attributes: dict[str, Any] = field(default_factory=dict)
    start_ns: int = 0
    dropped_attributes: int = 0
    failed: bool = False
    is_root: bool = True
    kind: str | None = None


SpanView = RowView | BareSpan
"""What a reader gets besides the value: its span (or log record); the kind is read before any other field."""


@dataclass(slots=True)
class Result:
    """A value with the references that replace it in the raw attributes."""

    value: Any
    """None: there is nothing to read; later rules are tried as usual."""
    templates: dict[str, Any] = field(default_factory=dict)
    """Suffix of the attribute name ("" for the attribute itself) → what replaces its value (see lifting)."""
    truncated: bool = False
    flag: str | None = None
    """What is odd about the value; becomes a flag of the span if no rule can read the field, or if this one did."""
    reason: str | None = None
    """Why there is no response (see `ragpulse.shapes`), if no rule can read one."""
    error: tuple[str | None, str] | None = None
    """Type and message of an error that came in place of a reply."""


Read = Callable[[Any, SpanView], Any]
"""Reads a canonical value from a raw one; after None the next rule is tried."""
Kinds = Callable[[], Set[str | None]]
ReadColumn = Callable[[Sequence[Any], Kinds], Sequence[Any] | None]
"""Reads a column whose values all have the usual form, given the kinds of their spans; None: each is read alone."""
_COLUMN_READERS: dict[Read, ReadColumn] = {}


def of_column(*reads: Read) -> Callable[[ReadColumn], ReadColumn]:
    """Declare that a function reads a whole column as these readers read its values one by one."""

    def declare(read_column: ReadColumn) -> ReadColumn:
        _COLUMN_READERS.update(dict.fromkeys(reads, read_column))
        return read_column

    return declare


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One source of a canonical field; if its reader returns None, the next rule is tried."""

    field: str
    attribute: str
    """An exact name; a prefix ending in "." or, where numbers follow, in ".N." (the reader gets {suffix: value});
    or `event:NAME` (the reader gets the events)."""
    read: Read
    beside: str | None = None
    """An attribute that the span must have, too."""


def rules(beside: str | None = None, /, **fields: Mapping[str, Read | tuple[Read, ...]]) -> tuple[FieldRule, ...]:
    """Return the rules of a dialect by field: each attribute, in order, with its reader or readers."""
    return tuple(
        FieldRule(field, attribute, read, beside)
        for field, attributes in fields.items()
        for attribute, readers in attributes.items()
        for read in (readers if isinstance(readers, tuple) else (readers,))
    )


class Step(NamedTuple):
    """A rule with its position in the order of all rules."""

    order: tuple[int, str]
    rule: FieldRule


class ReadPlan(NamedTuple):
    """The rules for one set of attribute names, which spans of one instrumentation share."""

    steps: tuple[Step, ...]
    families: dict[str, list[tuple[str, str]]]
    """Attribute of a rule → (name, suffix) of the family's members."""
    watched: dict[str, list[str]]
    """The watched attribute names (see RuleBook)."""


class RuleBook:
    """All rules of all dialects in one order: kind first, then in the order of the dialects.

    `named` gives the rules that follow from a name alone, which come last. `watch` gives predicates over attribute
    names; the plan lists the names that satisfy one.
    """

    def __init__(
        self,
        dialects: Iterable[Sequence[FieldRule]],
        *,
        named: Callable[[str], Iterable[FieldRule]] = lambda _: (),
        watch: Mapping[str, Callable[[str], object]] | None = None,
    ) -> None:
        self.rules = [rule for dialect in dialects for rule in dialect]
        self.rules.sort(key=lambda rule: rule.field != "kind")
        self._by_attribute: dict[str, list[Step]] = {}
        for order, rule in enumerate(self.rules):
            self._by_attribute.setdefault(rule.attribute, []).append(Step((order, ""), rule))
        self._named = named
        self._families = [(name, name.removesuffix("N.")) for name in self._by_attribute if name.endswith(".")]
        self._prefixes = tuple(prefix for _, prefix in self._families)
        self._watch = watch or {}
        self._plans: dict[tuple[str, ...], ReadPlan] = {}

    def steps_of_event(self, name: str) -> Sequence[Step]:
        """Return the rules that read span events of this name."""
        return self._by_attribute.get(f"event:{name}", ())

    def plan(self, attributes: Iterable[str]) -> ReadPlan:
        """Return the rules for attributes of these names."""
        names = tuple(attributes)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._make_plan(names)
            if sum(map(len, names)) <= _LONGEST_NAMES:
                if len(self._plans) >= _KNOWN_PLANS:
                    self._plans.clear()
                self._plans[names] = plan
        return plan

    def _make_plan(self, names: Iterable[str]) -> ReadPlan:
        families: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            if not name.startswith(self._prefixes):
                continue
            for family, prefix in self._families:
                suffix = name[len(prefix) :]
                if name.startswith(prefix) and (family == prefix or suffix[:1].isdigit()):
                    families.setdefault(family, []).append((name, suffix))
        # Attributes with the name of an event rule are left out: its reader expects events.
        plain = [name for name in names if not name.startswith("event:")]
        found = (step for name in (*plain, *families) for step in self._by_attribute.get(name, ()))
        named = (
            Step((len(self.rules), f"{rule.field} {'request' in name} {name}"), rule)
            for name in plain
            for rule in self._named(name)
        )
        steps = (*(step for step in found if step.rule.beside is None or step.rule.beside in plain), *named)
        watched = {label: [name for name in names if test(name)] for label, test in self._watch.items()}
        return ReadPlan(steps, families, {label: matches for label, matches in watched.items() if matches})


Column = tuple[Sequence[int], Sequence[Any]]
"""The rows that have an attribute, and its value in each."""


class FieldMapping:
    """The canonical fields of a batch: values, their sources, and the references that replace lifted raw values."""

    def __init__(self, wire: WireBatch, book: RuleBook) -> None:
        self._wire, self._book = wire, book
        self.plans: list[tuple[Shape, ReadPlan]] = [(shape, book.plan(shape.attributes)) for shape in wire.shapes]
        self._columns: dict[tuple[str, str | None], Column] = {}
        self.values: dict[str, list[Any]] = {}
        self._span = RowView(wire, self.values)
        self.sources: dict[str, list[str | None]] = {}
        self.templates: dict[str, dict[int, Any]] = {}
        """Attribute → row → the reference that replaces the raw value."""
        self.truncated: set[int] = set()
        self.failed: set[int] = set()
        self.flags: dict[int, list[str]] = {}
        """Row → flags of odd values."""
        self.reasons: dict[int, str] = {}
        """Row → why there is no response."""
        self.empty: set[int] = set()
        """Rows in which a reader found an empty text."""
        self.errors: dict[int, tuple[str | None, str]] = {}
        """Row → type and message of an error that came in place of a response."""
        for name, rules in self._rules().items():
            self._settle(name, rules)
        self._drop_failed()

    def column(self, name: str, beside: str | None = None) -> Column:
        """Return the rows that have an attribute (beside another), a family of attributes or events, and the values."""
        column = self._columns.get((name, beside))
        if column is None:
            column = self._columns[name, beside] = _unzip(self._cells(name, beside))
        return column

    def _rules(self) -> dict[str, list[FieldRule]]:
        """Return the rules that concern the batch, by field, in their order."""
        events = {event.name for events in self._wire.events.values() for event in events}
        by_order = dict(step for _, plan in self.plans for step in plan.steps)
        by_order.update(step for name in events for step in self._book.steps_of_event(name))
        by_field: dict[str, list[FieldRule]] = {}
        for order in sorted(by_order):
            by_field.setdefault(by_order[order].field, []).append(by_order[order])
        return by_field

    def _cells(self, name: str, beside: str | None) -> Iterator[Column]:
        """Yield the chunks of a column."""
        if name.startswith("event:"):
            yield _events_named(self._wire.events, name.removeprefix("event:"))
        elif name.endswith("."):
            for shape, plan in self.plans:
                if name in plan.families:
                    yield shape.rows, _gathered(shape, plan.families[name])
        else:
            for shape in self._wire.shapes:
                if name in shape.attributes and (beside is None or beside in shape.attributes):
                    yield shape.rows, shape.attributes[name]

    def _settle(self, field: str, rules: Sequence[FieldRule]) -> None:
        """Fill a field: each rule reads the rows that are still empty."""
        column: list[Any] = [None] * len(self._wire)
        sources: list[str | None] = [None] * len(self._wire)
        row_flags: dict[int, str] = {}
        is_text = field in TEXTS
        if field == "kind":
            self.values[field] = column  # for readers of other fields
        for rule in filter(lambda rule: self._has_empty(rule, column), rules):
            rows, values = _empty(column, *self.column(rule.attribute, rule.beside))
            for row, result in zip(rows, self._results(rule.read, rows, values), strict=True):
                if is_text and _says_nothing(result.value if type(result) is Result else result, field):
                    result = Result(None, reason=NOTHING if field == "response" else None)
                if type(result) is Result:
                    result = self._unpack(rule.attribute, row, result, row_flags)
                if result is not None:
                    column[row] = result
                    sources[row] = rule.attribute
        if field == "response" and None in column:
            self._keep_empty(rules, column, sources)
        self.values[field], self.sources[field] = column, sources
        self._flag(row_flags, column)
        if field in TEXTS:
            for name in dict.fromkeys(rule.attribute for rule in rules):
                self._lift(field, name, column)

    def _has_empty(self, rule: FieldRule, column: Sequence[Any]) -> bool:
        """Whether a rule may still fill a row; without this check each rule would gather its values in vain."""
        if rule.attribute.startswith("event:"):
            return True
        shapes = (
            shape
            for shape, plan in self.plans
            if rule.attribute in (plan.families if rule.attribute.endswith(".") else shape.attributes)
        )
        return any(None in map(column.__getitem__, shape.rows) for shape in shapes)

    def _keep_empty(self, rules: Sequence[FieldRule], column: list[Any], sources: list[str | None]) -> None:
        """Keep the empty text of a call that did not fail, where it was sent and no rule found another."""
        kinds = self.values.get("kind") or column
        for rule in rules:
            rows, values = _empty(column, *self.column(rule.attribute, rule.beside))
            for row, value in zip(rows, values, strict=True):
                is_sent = value == "" or row in self.empty
                if (
                    is_sent
                    and kinds[row] not in WITHOUT_RESPONSE
                    and row not in self.reasons
                    and self._wire.status_codes.get(row) != FAILED
                ):
                    column[row], sources[row] = "", rule.attribute

    def _flag(self, row_flags: Mapping[int, str], values: Sequence[Any]) -> None:
        for row, flag in row_flags.items():
            if values[row] is None:
                self.flags.setdefault(row, []).append(flag)

    def _results(self, read: Read, rows: Sequence[int], values: Sequence[Any]) -> Sequence[Any]:
        read_column = _COLUMN_READERS.get(read)
        column = read_column(values, lambda: self._kinds(rows)) if read_column and values else None
        if column is not None:
            return column
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

    def _kinds(self, rows: Sequence[int]) -> set[str | None]:
        kinds = self.values.get("kind")
        return {None} if kinds is None else {kinds[row] for row in rows}

    def _unpack(self, name: str, row: int, result: Result, row_flags: dict[int, str]) -> Any:
        if result.flag is not None:
            row_flags[row] = result.flag
            if result.value is not None:
                self.flags.setdefault(row, []).append(result.flag)
        if result.reason is not None and self.reasons.get(row, UNREAD) == UNREAD:
            self.reasons[row] = result.reason
        if result.error is not None:
            self.errors.setdefault(row, result.error)
        if result.value == "":
            self.empty.add(row)
            return None
        prefix = name.removesuffix("N.")
        is_lifted = result.value != UNSAID and not name.startswith("event:")
        for suffix, template in result.templates.items() if is_lifted else ():
            self.templates.setdefault(prefix + suffix, {})[row] = template
        if result.truncated:
            self.truncated.add(row)
        return result.value

    def _lift(self, field: str, name: str, texts: Sequence[Any]) -> None:
        """Replace exactly the same text by a reference in every attribute that a rule of the field reads."""
        reference = {"$lifted": field}
        rows, values = self.column(name)
        same = [
            row
            for row in compress(rows, map(eq, values, map(texts.__getitem__, rows)))
            if texts[row] not in (None, "", UNSAID)
        ]
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
            self.flags.pop(row, None)


def _says_nothing(text: Any, field: str) -> bool:
    """Return whether a text stands for no value: `null`; of a query, for arguments that are empty."""
    return type(text) is str and text[:1] in _NOTHING_BEGINS and is_nothing(text, query=field == "query")


def _unzip(chunks: Iterator[Column]) -> Column:
    """Join the chunks of a column."""
    columns = list(chunks)
    if len(columns) == 1:
        return columns[0]
    rows = [row for chunk, _ in columns for row in chunk]
    return rows, [value for _, chunk in columns for value in chunk]


def _empty(filled: Sequence[Any], rows: Sequence[int], values: Sequence[Any]) -> Column:
    """Return the cells of a column whose row has no value yet."""
    if list(map(filled.__getitem__, rows)).count(None) == len(rows):
        return rows, values
    cells = [cell for cell in zip(rows, values, strict=True) if filled[cell[0]] is None]
    return [row for row, _ in cells], [value for _, value in cells]


def _events_named(events: Mapping[int, Sequence[WireEvent]], name: str) -> Column:
    by_row = {row: [event for event in row_events if event.name == name] for row, row_events in events.items()}
    matches = {row: row_events for row, row_events in by_row.items() if row_events}
    return list(matches), list(matches.values())


def _gathered(shape: Shape, members: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return a family of attributes as one mapping for each row: suffix → value."""
    suffixes = [suffix for _, suffix in members]
    rows = zip(*(shape.attributes[name] for name, _ in members), strict=True)
    return [dict(zip(suffixes, row, strict=True)) for row in rows]
