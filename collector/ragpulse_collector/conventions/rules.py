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
    watched: dict[str, list[str]] = field(default_factory=dict)
    """Attribute names by what they were watched for (see RuleBook)."""


class _Plan(NamedTuple):
    """What to do with one set of attribute names: spans of one instrumentation share it."""

    steps: list[tuple[int, Rule, str]]
    families: dict[str, list[tuple[str, str]]]
    """Prefix → (name, suffix) of its members."""
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
        self._prefixes = tuple(name for name in self._rules if name.endswith("."))
        self._watch = watch or {}
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def resolve(self, carrier: Carrier) -> Mapping:
        """Return every canonical field that the carrier's attributes and events yield."""
        attributes = carrier.attributes
        plan = self._plan(attributes)
        mapping = Mapping(watched=plan.watched)
        values = mapping.values
        steps, found = plan.steps, attributes
        if plan.families or carrier.events:
            steps, found = self._with_groups(plan, carrier)
        for _, rule, name in steps:
            value = found[name]
            if rule.field in values:
                if rule.field in _TEXTS and value == values[rule.field]:
                    mapping.replaced.setdefault(name, {"$lifted": rule.field})
                continue
            result = rule.read(value, carrier)
            if result is not None:
                self._take(mapping, carrier, rule, name, value, result)
        return mapping

    def _plan(self, attributes: dict[str, Any]) -> _Plan:
        names = tuple(attributes)
        plan = self._plans.get(names)
        if plan is None:
            plan = self._make_plan(names)
            if len(self._plans) < _KNOWN_PLANS and sum(map(len, names)) <= _LONGEST_NAMES:
                self._plans[names] = plan
        return plan

    def _make_plan(self, names: Iterable[str]) -> _Plan:
        steps: list[tuple[int, Rule, str]] = []
        families: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            steps.extend((order, rule, name) for order, rule in self._rules.get(name, ()))
            prefix = next((prefix for prefix in self._prefixes if name.startswith(prefix)), None)
            if prefix is not None:
                families.setdefault(prefix, []).append((name, name[len(prefix) :]))
        for prefix in families:
            steps.extend((order, rule, prefix) for order, rule in self._rules[prefix])
        watched = {label: [name for name in names if test(name)] for label, test in self._watch.items()}
        steps.sort(key=_order)
        return _Plan(steps, families, {label: found for label, found in watched.items() if found})

    def _with_groups(self, plan: _Plan, carrier: Carrier) -> tuple[list[tuple[int, Rule, str]], dict[str, Any]]:
        """Return the steps and the values by name, families and span events gathered under theirs."""
        attributes = carrier.attributes
        found = dict(attributes)
        for prefix, members in plan.families.items():
            found[prefix] = {suffix: attributes[name] for name, suffix in members}
        events: dict[str, list[WireEvent]] = {}
        for event in carrier.events:
            events.setdefault(f"event:{event.name}", []).append(event)
        found.update(events)
        extra = [(order, rule, name) for name in events for order, rule in self._rules.get(name, ())]
        return sorted(plan.steps + extra, key=_order) if extra else plan.steps, found

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


def _order(step: tuple[int, Rule, str]) -> int:
    return step[0]
