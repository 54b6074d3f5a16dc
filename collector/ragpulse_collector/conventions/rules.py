"""The mapping engine: ordered rules per canonical field, tried on the attributes that are there, first present wins.

    dialects (ordered) ─▶ RuleBook ─ resolve(carrier) ─▶ Mapping: values, where each came from, what was lifted out

Spans of one instrumentation carry the same names, so the rules that concern a set of names are looked up once and
remembered. Span events take part under the name `event:<event name>`, families of names
(`retrieval.documents.0.document.id`, ...) under their common prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ragpulse_collector.otlp import WireEvent

_KNOWN_PLANS = 1024
"""Sets of attribute names remembered with their rules; a sender that invents more has them looked up anew."""
_LONGEST_NAMES = 8192


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
    """An exact name; a prefix ending in "." or, where numbers follow, in ".N." (the reader gets {suffix: value});
    or `event:NAME` (the reader gets the events)."""
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
    watched: dict[str, list[str]] = field(default_factory=dict)
    """Attribute names by what they were watched for (see RuleBook)."""

    def unpack(self, name: str, found: Found) -> Any:
        """Return a found value, its templates noted."""
        for suffix, template in found.templates.items():
            self.replaced[name.removesuffix("N.") + suffix] = template
        self.truncated |= found.truncated
        return found.value

    def lift(self, field_: str, text: Any, options: Iterable[tuple[int, str, Read]], found: dict[str, Any]) -> None:
        """Reference the text wherever an attribute that could have given it says exactly the same."""
        for _, name, _ in options:
            value = found[name]
            if value == text and type(value) is str:
                self.replaced.setdefault(name, {"$lifted": field_})


Options = list[tuple[int, str, Read]]
"""The ways to read one field: (order of the rule, name of the value, reader)."""
_Ways = dict[str, Options]
"""Field → the ways to read it."""


class Plan(NamedTuple):
    """What to do with one set of attribute names: spans of one instrumentation share it."""

    ways: _Ways
    families: dict[str, list[tuple[str, str]]]
    """Attribute of a rule → (name, suffix) of the family's members."""
    watched: dict[str, list[str]]


class RuleBook:
    """All rules of all dialects in one order: kind first, then as the dialects are given.

    `watch` names predicates over attribute names; names that satisfy one are listed in the mapping.
    """

    def __init__(
        self, dialects: Iterable[Sequence[Rule]], *, watch: dict[str, Callable[[str], bool]] | None = None
    ) -> None:
        rules = [rule for dialect in dialects for rule in dialect]
        rules.sort(key=lambda rule: (rule.field != "kind", rule.last))
        self._rules: dict[str, list[tuple[int, Rule]]] = {}
        for order, rule in enumerate(rules):
            self._rules.setdefault(rule.attribute, []).append((order, rule))
        self._families = [(name, name.removesuffix("N.")) for name in self._rules if name.endswith(".")]
        self._watch = watch or {}
        self._plans: dict[tuple[str, ...], Plan] = {}

    def sources(self) -> dict[str, list[str]]:
        """Return field → the attributes it is read from, first wins (for the documentation)."""
        every = [(order, name, rule.field) for name, rules in self._rules.items() for order, rule in rules]
        fields: dict[str, list[str]] = {}
        for _, name, field_ in sorted(every):
            names = fields.setdefault(field_, [])
            if name not in names:
                names.append(name)
        return fields

    def resolve(self, carrier: Carrier) -> Mapping:
        """Return every canonical field that the carrier's attributes and events yield."""
        found = carrier.attributes
        plan = self.plan(found)
        ways = plan.ways
        if plan.families or carrier.events:
            ways, found = self._with_groups(plan, carrier)
        mapping = Mapping(watched=plan.watched)
        values, mapped_from = mapping.values, mapping.mapped_from
        for field_, options in ways.items():
            for _, name, read in options:
                value = found[name]
                result = read(value, carrier)
                if result is None:
                    continue
                if type(result) is Found:
                    result = mapping.unpack(name, result)
                values[field_] = result
                mapped_from[field_] = name
                if field_ in TEXTS:
                    mapping.lift(field_, result, options, found)
                elif field_ == "kind":
                    carrier.kind = result
                break
        return mapping

    def plan(self, attributes: Iterable[str]) -> Plan:
        """Return the rules for attributes of these names."""
        names = tuple(attributes)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._make_plan(names)
            if len(self._plans) < _KNOWN_PLANS and sum(map(len, names)) <= _LONGEST_NAMES:
                self._plans[names] = plan
        return plan

    def _make_plan(self, names: Iterable[str]) -> Plan:
        families: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            for family, prefix in self._families:
                suffix = name[len(prefix) :]
                if name.startswith(prefix) and (family == prefix or suffix[:1].isdigit()):
                    families.setdefault(family, []).append((name, suffix))
        watched = {label: [name for name in names if test(name)] for label, test in self._watch.items()}
        watched = {label: found for label, found in watched.items() if found}
        return Plan(self._ways([*_plain(names), *families]), families, watched)

    def _ways(self, names: Iterable[str]) -> _Ways:
        steps = [(order, name, rule) for name in names for order, rule in self._rules.get(name, ())]
        ways: _Ways = {}
        for order, name, rule in sorted(steps, key=_order):
            ways.setdefault(rule.field, []).append((order, name, rule.read))
        return ways

    def _with_groups(self, plan: Plan, carrier: Carrier) -> tuple[_Ways, dict[str, Any]]:
        """Return the ways and the values by name, families and span events gathered under theirs."""
        attributes = carrier.attributes
        found = dict(attributes)
        for family, members in plan.families.items():
            found[family] = {suffix: attributes[name] for name, suffix in members}
        events: dict[str, list[WireEvent]] = {}
        for event in carrier.events:
            events.setdefault(f"event:{event.name}", []).append(event)
        found.update(events)
        wanted = [name for name in events if name in self._rules]
        return self._ways([*_plain(attributes), *plan.families, *wanted]) if wanted else plan.ways, found


TEXTS = frozenset({"query", "response"})


def _plain(names: Iterable[str]) -> list[str]:
    """Leave out attributes that are called as events are here: their readers expect events."""
    return [name for name in names if not name.startswith("event:")]


def _order(step: tuple[int, str, Rule]) -> int:
    return step[0]
