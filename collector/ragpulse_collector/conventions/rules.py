"""Rules: which attribute gives which canonical field, in which order, read how.

    dialects (ordered) ─▶ RuleBook ─ plan(names) ─▶ Plan: the rules that concern these attribute names

Spans of one instrumentation carry the same names, so that the rules which concern a set of names are looked up once.
Span events take part under the name `event:<event name>`, families of names (`retrieval.documents.0.document.id`, ...)
under their common prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

_KNOWN_PLANS = 1024
"""Sets of attribute names remembered with their rules; further ones are looked up each time."""
_LONGEST_NAMES = 8192
TEXTS = frozenset({"query", "response"})


class Span(Protocol):
    """What a reader may look at besides the value: the span (or log record) that the value is on."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All its attributes."""

    @property
    def start_ns(self) -> int:
        """When it began."""

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender dropped."""

    @property
    def kind(self) -> str | None:
        """Its kind, which is settled before any other field is read."""


@dataclass(slots=True)
class Alone:
    """A span that is nothing but its attributes, for values that are read outside a batch."""

    attributes: dict[str, Any] = field(default_factory=dict)
    start_ns: int = 0
    dropped_attributes: int = 0
    kind: str | None = None


@dataclass(slots=True)
class Found:
    """A value together with what stays behind in the raw attributes in its stead."""

    value: Any
    """None: the reader knows that there is nothing to read; later rules are tried all the same."""
    templates: dict[str, Any] = field(default_factory=dict)
    """Suffix of the attribute name ("" for the attribute itself) → what replaces its value (see lifting)."""
    truncated: bool = False
    flag: str | None = None
    """What is odd about the value; kept among the span's flags where no rule reads the field."""


Read = Callable[[Any, Span], Any]
"""Reads a canonical value from a raw one; None passes to the next rule."""
ReadColumn = Callable[[Sequence[Any]], Sequence[Any] | None]
"""Reads a whole column where all its values are of the usual form; None where one is not, then each is read alone."""


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


class Step(NamedTuple):
    """One rule that concerns a batch, with its place in the order of all rules."""

    order: int
    name: str
    rule: Rule


class Plan(NamedTuple):
    """What concerns one set of attribute names: spans of one instrumentation share it."""

    steps: tuple[Step, ...]
    families: dict[str, list[tuple[str, str]]]
    """Attribute of a rule → (name, suffix) of the family's members."""
    watched: dict[str, list[str]]
    """Attribute names by what they were watched for (see RuleBook)."""


class RuleBook:
    """All rules of all dialects in one order: kind first, then as the dialects are given.

    `watch` names predicates over attribute names; names that satisfy one are listed in the plan.
    """

    def __init__(
        self, dialects: Iterable[Sequence[Rule]], *, watch: dict[str, Callable[[str], bool]] | None = None
    ) -> None:
        rules = [rule for dialect in dialects for rule in dialect]
        rules.sort(key=lambda rule: (rule.field != "kind", rule.last))
        self._rules: dict[str, list[Step]] = {}
        for order, rule in enumerate(rules):
            self._rules.setdefault(rule.attribute, []).append(Step(order, rule.attribute, rule))
        self._families = [(name, name.removesuffix("N.")) for name in self._rules if name.endswith(".")]
        self._watch = watch or {}
        self._plans: dict[tuple[str, ...], Plan] = {}

    def sources(self) -> dict[str, list[str]]:
        """Return field → the attributes it is read from, first wins (for the documentation)."""
        fields: dict[str, list[str]] = {}
        for _, name, rule in sorted(step for steps in self._rules.values() for step in steps):
            names = fields.setdefault(rule.field, [])
            if name not in names:
                names.append(name)
        return fields

    def steps_of_event(self, name: str) -> Sequence[Step]:
        """Return the rules that read span events of this name."""
        return self._rules.get(f"event:{name}", ())

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
        # Attributes that are called as events are here are left out: their readers expect events.
        plain = [name for name in names if not name.startswith("event:")]
        steps = tuple(step for name in (*plain, *families) for step in self._rules.get(name, ()))
        watched = {label: [name for name in names if test(name)] for label, test in self._watch.items()}
        return Plan(steps, families, {label: found for label, found in watched.items() if found})


__all__ = ["TEXTS", "Alone", "Found", "Plan", "Read", "ReadColumn", "Rule", "RuleBook", "Span", "Step"]
