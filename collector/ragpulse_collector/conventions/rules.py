"""The mapping engine: ordered rules per canonical field, tried on the attributes that are there, first present wins.

    dialects (ordered) ─▶ RuleBook ─ resolve(carrier) ─▶ Mapping: values, where each came from, what was lifted out

An attribute is looked up once, by name; only names that some rule wants are read. Span events take part under the
name `event:<event name>`, families of names (`retrieval.documents.0.document.id`, ...) under their common prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragpulse_collector.otlp import WireEvent

_KNOWN_NAMES = 8192
"""Attribute names remembered with their rules; more names than that are a sender's invention and are looked up anew."""
_LONGEST_KNOWN = 128


@dataclass(slots=True)
class Carrier:
    """What readers may look at besides the value: the span (or log record) it is on."""

    attributes: dict[str, Any]
    start_ns: int = 0
    dropped_attributes: int = 0
    events: Sequence[WireEvent] = ()
    kind: str | None = None
    """Settled before any other field is read."""


@dataclass(slots=True)
class Found:
    """A value together with what stays behind in the raw attributes in its stead."""

    value: Any
    templates: dict[str, Any] = field(default_factory=dict)
    """Suffix of the attribute name ("" for the attribute itself) → what replaces its value (see lifting)."""
    truncated: bool = False


Read = Callable[[Any, Carrier], Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to a canonical field: read `attribute`; a reader that returns None passes to the next rule."""

    field: str
    attribute: str
    """An exact name, a prefix ending in "." (the reader gets {suffix: value}) or `event:NAME` (a list of events)."""
    read: Read
    last: bool = False
    """Consulted after the rules of all dialects that are not `last`."""


@dataclass(slots=True)
class Mapping:
    """The outcome for one span."""

    values: dict[str, Any] = field(default_factory=dict)
    mapped_from: dict[str, Any] = field(default_factory=dict)
    replaced: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False


_Candidate = tuple[int, Rule, str, Any]


class RuleBook:
    """All rules of all dialects in one order: kind first, then as the dialects are given."""

    def __init__(self, dialects: Iterable[Sequence[Rule]]) -> None:
        rules = [rule for dialect in dialects for rule in dialect]
        rules.sort(key=lambda rule: (rule.field != "kind", rule.last))
        self._exact: dict[str, list[tuple[int, Rule]]] = {}
        self._families: dict[str, list[tuple[int, Rule]]] = {}
        for order, rule in enumerate(rules):
            book = self._families if rule.attribute.endswith(".") else self._exact
            book.setdefault(rule.attribute, []).append((order, rule))
        self._known: dict[str, tuple[list[tuple[int, Rule]], str | None]] = {}

    def resolve(self, carrier: Carrier) -> Mapping:
        """Return every canonical field that the carrier's attributes and events yield."""
        mapping = Mapping()
        values = mapping.values
        for _, rule, name, value in sorted(self._candidates(carrier), key=_order):
            known = values.get(rule.field)
            if known is not None:
                if value == known and type(value) is str and rule.field in _TEXTS:
                    mapping.replaced.setdefault(name, {"$lifted": rule.field})
                continue
            result = rule.read(value, carrier)
            if result is not None:
                self._take(mapping, carrier, rule, name, value, result)
        return mapping

    def _candidates(self, carrier: Carrier) -> list[_Candidate]:
        out: list[_Candidate] = []
        families: dict[str, dict[str, Any]] = {}
        known = self._known
        for name, value in carrier.attributes.items():
            entry = known.get(name) or self._look_up(name)
            for order, rule in entry[0]:
                out.append((order, rule, name, value))
            if entry[1] is not None:
                families.setdefault(entry[1], {})[name[len(entry[1]) :]] = value
        for prefix, members in families.items():
            out.extend((order, rule, prefix, members) for order, rule in self._families[prefix])
        if carrier.events:
            self._add_events(carrier.events, out)
        return out

    def _add_events(self, events: Sequence[WireEvent], out: list[_Candidate]) -> None:
        by_name: dict[str, list[WireEvent]] = {}
        for event in events:
            by_name.setdefault(f"event:{event.name}", []).append(event)
        for name, same in by_name.items():
            out.extend((order, rule, name, same) for order, rule in self._exact.get(name, ()))

    def _look_up(self, name: str) -> tuple[list[tuple[int, Rule]], str | None]:
        exact = self._exact.get(name, [])
        family = next((prefix for prefix in self._families if name.startswith(prefix)), None)
        if len(self._known) < _KNOWN_NAMES and len(name) <= _LONGEST_KNOWN:
            self._known[name] = (exact, family)
        return exact, family

    @staticmethod
    def _take(mapping: Mapping, carrier: Carrier, rule: Rule, name: str, value: Any, result: Any) -> None:
        if type(result) is Found:
            mapping.replaced.update({name + suffix: template for suffix, template in result.templates.items()})
            mapping.truncated |= result.truncated
            result = result.value
        elif result is value and rule.field in _TEXTS:
            mapping.replaced[name] = {"$lifted": rule.field}
        if rule.field == "kind":
            carrier.kind = result
        mapping.values[rule.field] = result
        mapping.mapped_from[rule.field] = name


_TEXTS = frozenset({"query", "response"})


def _order(candidate: _Candidate) -> int:
    return candidate[0]
