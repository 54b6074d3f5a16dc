"""Rules applied to a batch by column: each rule fills the rows that earlier rules left empty.

A column may cover some rows only: an attribute that a span does not have is absent, which is not the same as null.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpulse_collector.conventions.dialects import openinference
from ragpulse_collector.conventions.rules import TEXTS, Found, Plan, Read, RuleBook, Step
from ragpulse_collector.conventions.values import WHOLE_COLUMNS
from ragpulse_collector.otlp import Shape, WireBatch, WireEvent

_log = logging.getLogger(__name__)

_WHOLE_COLUMNS = WHOLE_COLUMNS | openinference.WHOLE_COLUMNS

Column = tuple[Sequence[int], Sequence[Any]]
"""The rows that have an attribute, and its value in each."""


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
        self.flags: dict[int, list[str]] = {}
        """Row → what is odd about values that were not read."""
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
        flagged: dict[int, str] = {}
        if field == "kind":
            self.values[field] = found  # readers look at it
        for number, (_, name, rule) in enumerate(steps):
            rows, values = self.column(name)
            if number:
                rows, values = _empty(found, rows, values)
            for row, result in zip(rows, self._results(rule.read, rows, values), strict=True):
                if type(result) is Found:
                    result = self._unpack(name, row, result, flagged)
                if result is not None:
                    found[row] = result
                    sources[row] = name
        self.values[field], self.sources[field] = found, sources
        self._flag(flagged, found)
        if field in TEXTS:
            for name in dict.fromkeys(step.name for step in steps):
                self._lift(field, name, found)

    def _flag(self, flagged: Mapping[int, str], found: Sequence[Any]) -> None:
        for row, flag in flagged.items():
            if found[row] is None:
                self.flags.setdefault(row, []).append(flag)

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

    def _unpack(self, name: str, row: int, found: Found, flagged: dict[int, str]) -> Any:
        if found.flag is not None:
            flagged[row] = found.flag
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
            self.flags.pop(row, None)


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
