"""Rules: which units are evaluated online, by what, at which rate. One model; its SQL; the rules in force.

A rule is from the file (read-only), from the API and pages (in the store), or built in. Settings and API each parse
their text into `RuleSettings`; a `Rule` is one whose conditions were checked as SQL.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from ragpulse_collector.configuration import source_line
from ragpulse_collector.refusals import Conflict, Invalid, NotFound, Refusal
from ragpulse_collector.settings import RuleSettings, Settings, SettingsError
from ragpulse_collector.settings.lead import is_active
from ragpulse_collector.store import Store
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.queries.deciding import KNOWN_RULES
from ragpulse_collector.store.queries.decisions import TEST_ENVIRONMENT, add_rule, latest_score, stored_rules
from ragpulse_collector.store.queries.failures import FAILURE
from ragpulse_collector.store.queries.labels import STORED, label_at
from ragpulse_collector.store.sql.where import condition, holds, identifier, members_in

_DEFAULTS = (("unit", "trace"), ("budget_usd_per_day", None))
"""Newer keys with their default, which is not written: the policy of older rules stays the same."""


class Rule(RuleSettings):
    """A `[[rule]]` whose conditions were checked: which units are evaluated online, by what, at which rate.

    A unit that meets `where` is selected with the highest of `rate` and the rates of the strata it meets. Conditions
    may also name labels of evaluators that run on everything (`label.language = 'de'`), those of strata scores, too
    (`score.groundedness < 0.5`): these hold once all of them are stored. Raises Invalid for a rate outside 0..1, no
    evaluators, or a `where` that is not one SQL boolean over the columns of `traces` and the results of other
    evaluators.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    source: str = Field("store", exclude=True)
    """`file`, `api` or `built-in`; no part of the policy."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise Invalid(_first_message(error)) from error

    @classmethod
    def of(cls, written: RuleSettings, *, source: str) -> Rule:
        """Check the rule of a file or of a request; raises Invalid."""
        return cls(**{name: getattr(written, name) for name in RuleSettings.model_fields}, source=source)

    def changed(self, **values: Any) -> Rule:
        """Return the rule with other values, checked again."""
        copy = self.model_copy(update=values)
        return Rule.of(copy, source=copy.source)

    @classmethod
    def stored(cls, text: str) -> Rule:
        """Read the JSON of the store; raises Invalid for unknown keys and wrong types."""
        return cls(**{**json.loads(text), "source": "api"})

    @model_validator(mode="after")
    def _check_conditions(self) -> Self:
        if self.where is not None:
            if members_in(self.where, "score"):
                reason = "scores belong into strata, so that all keep the rule's rate"
                raise Invalid(f"where {self.where!r}: {reason}")
            condition(self.where)
        if FAILURE in self.labels:
            raise Invalid(f"rule {self.name!r}: label.failure is told when it is read; name what it is told by")
        for stratum in self.strata:
            condition(stratum.where, members_in(stratum.where, "score"))
        circular = set(self.scores).intersection(self.evaluators)
        if circular:
            raise Invalid(
                f"rule {self.name!r}: a score or label of {min(circular)} is not there before {min(circular)} is drawn"
            )
        return self

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """The evaluators whose scores or labels the conditions name; each has to run on everything."""
        return tuple(sorted({name for text in self._conditions for name in _evaluators_in(text)}))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels that conditions name."""
        return tuple(sorted({name for text in self._conditions for name in members_in(text, "label")}))

    @property
    def _conditions(self) -> Sequence[str]:
        return [text for text in (self.where, *(stratum.where for stratum in self.strata)) if text]

    @cached_property
    def policy(self) -> str:
        """The version of the rule: 12 hex of sha256 over its canonical form; any change is a new policy."""
        canonical = json.dumps(json.loads(self.text), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @property
    def text(self) -> str:
        """The JSON that `stored` reads, with the keys of `ragpulse.toml`."""
        return self.model_dump_json(exclude={name for name, value in _DEFAULTS if getattr(self, name) == value})

    def pi_sql(self) -> str:
        """Return SQL for the rule's probability at a row of `traces`, with the scores stored so far."""
        scores = ", ".join(f"{literal(name)}: {latest_score(name)}" for name in self.scores)
        labels = ", ".join(f"{literal(name)}: {label_at(name)}" for name in self.labels)
        stored = ", ".join(f"{{{of}}} AS {name}" for name, of in (("score", scores), ("label", labels)) if of)
        return f"(SELECT {self.chance_sql()} FROM (SELECT {stored}))" if stored else self.chance_sql()

    def chance_sql(self) -> str:
        """Return SQL for the rule's probability at a row of facts; a condition that fails on a row does not hold.

        Where the rule names scores or labels the row has them as fields of the columns `score` and `label`.
        """
        strata = (f"CASE WHEN {_met(stratum.where)} THEN {stratum.rate!r} ELSE 0.0 END" for stratum in self.strata)
        rates = [repr(float(self.rate)), *strata]
        highest = rates[0] if len(rates) == 1 else f"greatest({', '.join(rates)})"
        return highest if self.where is None else f"CASE WHEN {_met(self.where)} THEN {highest} ELSE 0.0 END"


class RuleSet(NamedTuple):
    """The rules that decided from a time on: later spans of a unit are decided by the rules of its time."""

    since: datetime
    rules: Sequence[Rule]

    @classmethod
    def stored(cls, text: str) -> RuleSet:
        """Read the JSON of the store."""
        value = json.loads(text)
        return cls(datetime.fromisoformat(value["at"]), [Rule(**rule) for rule in value["rules"]])

    @property
    def text(self) -> str:
        """The JSON that `stored` reads."""
        at = self.since.isoformat(timespec="microseconds")
        return json.dumps({"at": at, "rules": [json.loads(rule.text) for rule in self.rules]})

    def decides_like(self, rules: Sequence[Rule]) -> bool:
        """Return whether these are the same rules, wherever they were written."""
        return [rule.policy for rule in self.rules] == [rule.policy for rule in rules]

    def of_unit(self, unit: str) -> RuleSet:
        """Return the rules about units of one kind."""
        return self._replace(rules=of_unit(unit, self.rules))


def of_unit(unit: str, rules: Iterable[Rule]) -> Sequence[Rule]:
    """Return the rules about units of one kind."""
    return [rule for rule in rules if rule.unit == unit]


def _met(where: str) -> str:
    """Return SQL that is true at a row of facts where a condition holds, and what it names is stored."""
    scores, labels = (members_in(where, of) for of in ("score", "label"))
    stored = [f"score.{identifier(name)} IS NOT NULL" for name in scores]
    stored += [f"label.{identifier(name)} IS NOT NULL" for name in labels if name not in STORED]
    return " AND ".join([*stored, holds(condition(where, scores))])


def _evaluators_in(condition: str) -> list[str]:
    """Return the evaluators whose scores or labels a condition names."""
    labels = (name for name in members_in(condition, "label") if name not in STORED)
    return [*members_in(condition, "score"), *labels]


def _first_message(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    reason = first.get("ctx", {}).get("error")
    return str(reason) if reason else f"rule: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def _bare(names: Iterable[str]) -> set[str]:
    return {name.partition("@")[0] for name in names}


OFFLINE = Rule(
    name="offline",
    evaluators=("groundedness", "context_utilization", "citation_check", "refusal"),
    rate=1.0,
    source="built-in",
)
"""The rule beside all others, unless `offline` is false: checks that need neither judge nor key."""
DEFAULT_JUDGED = Rule(name="faithfulness", evaluators=("faithfulness",), rate=0.05, source="built-in")
"""The second built-in rule where a judge is configured and no rule is: it spends money."""


class Rules:
    """The rules in force. A rule of the file cannot be changed here; every change is a new policy and audited."""

    def __init__(self, settings: Settings, store: Store, *, check_evaluator: Callable[[str], object]) -> None:
        """`check_evaluator(name)` raises Invalid or NotFound where an evaluator cannot run online here."""
        self._store, self._check_evaluator, self._lock = store, check_evaluator, Lock()
        self._load()
        self.reload(settings)()

    def _load(self) -> None:
        rows = stored_rules(self._store.read)
        self._stored = tuple(Rule.stored(text) for text in rows.values() if text is not None)
        self._deleted = frozenset(name for name, text in rows.items() if text is None)

    def reload(self, settings: Settings) -> Callable[[], None]:
        """Check the rules of the file; returns the function that puts them in force. Raises SettingsError."""
        file = settings.source or "ragpulse.toml"
        fixed = tuple(self._of_file(settings, number) for number in range(len(settings.rule)))
        for name in sorted({rule.name for rule in fixed} & {rule.name for rule in self._stored}):
            raise SettingsError(f"rule {name!r} is in {file} and in the store: rename one, or delete the stored one")
        ours = _bare(name for rule in fixed for name in rule.evaluators)
        free = tuple(name for name in OFFLINE.evaluators if name not in ours and settings.offline)
        offline = (OFFLINE.changed(evaluators=free),) if free else ()
        judged = (DEFAULT_JUDGED,) if settings.judge.model and not fixed else ()

        def apply() -> None:
            self._file, self._fixed, self._built_in = file, fixed, (*offline, *judged)

        return apply

    def _of_file(self, settings: Settings, number: int) -> Rule:
        entry, key = settings.rule[number], "where"
        try:
            rule = Rule.of(entry, source="file")
            key = "evaluators"
            self._check_evaluators(rule)
        except Refusal as error:
            line = source_line(settings, "rule", number, key) or settings.source or "ragpulse.toml"
            raise SettingsError(f"{line}: rule {entry.name!r}: {error.args[0]}") from error
        return rule

    def _check_evaluators(self, rule: Rule) -> None:
        for name in (*rule.evaluators, *rule.scores):
            self._check_evaluator(name)

    def effective(self) -> Sequence[Rule]:
        """Return the rules in force now; the sampler reads them before every decision."""
        taken = self._deleted | {rule.name for rule in (*self._fixed, *self._stored)}
        built_in = (rule for rule in self._built_in if rule.name not in taken)
        return (*built_in, *self._fixed, *self._stored)

    def evaluated(self) -> set[str]:
        """Return the evaluators that the rules in force evaluate."""
        return _bare(name for rule in self.effective() if is_active(rule) for name in rule.evaluators)

    def earlier(self) -> Sequence[set[str]]:
        """Return the evaluators of every set of rules that decided, oldest first."""
        sets = [json.loads(text)["rules"] for text in self._store.read(KNOWN_RULES).values]
        return [_bare(name for rule in rules for name in rule["evaluators"]) for rules in sets]

    def budgets(self) -> dict[str, float]:
        """Return the daily budgets of the rules that have one, by name."""
        return {rule.name: rule.budget_usd_per_day for rule in self.effective() if rule.budget_usd_per_day is not None}

    def checked(self, draft: RuleSettings) -> Rule:
        """Return a draft as a rule that could run here; raises Invalid or NotFound naming the mistake."""
        rule = Rule.of(draft, source="api")
        self._check_evaluators(rule)
        return rule

    def save(self, draft: RuleSettings, *, actor: str, replace: bool) -> Rule:
        """Store a rule; with `replace` it takes the place of a stored or built-in one of its name.

        Raises Invalid naming the mistake, Conflict where the name is taken.
        """
        self._refuse_fixed(draft.name)
        rule = self.checked(draft)
        if not replace and self._named(rule.name):
            raise Conflict(f"rule {rule.name!r} exists; change it with PUT rules/{rule.name}")
        self._append(rule, "change" if replace else "create", actor)
        return rule

    def delete(self, name: str, *, actor: str) -> None:
        """Delete a stored or built-in rule; raises NotFound, Conflict for one of the file."""
        self._refuse_fixed(name)
        rule = self._named(name)
        if rule is None:
            raise NotFound(f"there is no rule {name!r}")
        self._append(rule, "delete", actor)

    def _named(self, name: str) -> Rule | None:
        return next((rule for rule in self.effective() if rule.name == name), None)

    def _refuse_fixed(self, name: str) -> None:
        if any(rule.name == name for rule in self._fixed):
            raise Conflict(f"rule {name!r} is written in {self._file}: change it there, then restart or send SIGHUP")

    def _append(self, rule: Rule, action: str, actor: str) -> None:
        with self._lock:
            self._store.write(
                lambda tx: add_rule(tx, rule.name, rule.policy, rule.text, action=action, actor=actor)
            ).result()
            self._load()


def scored_evaluators(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The evaluators whose scores or labels the rules name."""
    return tuple(sorted({name for rule in rules for name in rule.scores}))


def draw_sql(
    rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *, where: str = "true", append: bool = False
) -> str:
    """Return the statement that decides every unit for every evaluator of the rules, into the table `drawn`.

    `where` is a condition on the units; with `append` the rows are added to the table.

    `designed` is the rules' probability, `local` what the budget's scale leaves of it; a unit is chosen iff u < local.
    `pi` is local times the upstream sampler's probability: the chance that enters the estimate.
    """
    by_evaluator: dict[str, list[Rule]] = {}
    for rule in rules:
        for evaluator in rule.evaluators:
            by_evaluator.setdefault(evaluator, []).append(rule)
    groups: dict[tuple[tuple[Rule, ...], tuple[float, str]], list[str]] = {}
    for evaluator, own_rules in by_evaluator.items():
        groups.setdefault((tuple(own_rules), scales.get(evaluator, (1.0, ""))), []).append(evaluator)
    selects = [_chance_sql(names, own_rules, *scale) for (own_rules, scale), names in groups.items()]
    return f"""
        {"INSERT INTO drawn" if append else "CREATE OR REPLACE TEMP TABLE drawn AS"}
        WITH chance AS ({" UNION ALL ".join(selects)})
        SELECT x.trace_id, x.span_id, x.start_time AS request_time, unnest(c.evaluators) AS evaluator, c.rule, c.policy,
               c.revision, least(1.0, c.local * c.upstream_pi) AS pi, x.u, x.u < c.local AS sampled,
               CASE WHEN c.environment = '{TEST_ENVIRONMENT}' THEN 'test_run'
                    WHEN c.designed <= 0 THEN 'filtered' WHEN x.u < c.local THEN 'sampled'
                    WHEN x.u < c.designed THEN c.scaled_by ELSE 'not_sampled' END AS reason
        FROM unit x JOIN chance c ON c.trace_uuid = x.trace_id WHERE {where}"""


def _chance_sql(evaluators: Sequence[str], rules: Sequence[Rule], scale: float, scaled_by: str) -> str:
    """One row per trace: the rule with the highest probability wins, the first of equals."""
    chances = [f"({rule.chance_sql()})" for rule in rules]
    best = chances[0] if len(chances) == 1 else f"greatest({', '.join(chances)})"
    names = ", ".join(literal(name) for name in evaluators)
    rows = "fact LEFT JOIN seen USING (trace_uuid)" if any(rule.scores for rule in rules) else "fact"
    if labels := {name for rule in rules for name in rule.labels}:
        fields = (f"{literal(name)}: {STORED.get(name) or f'given.{identifier(name)}'}" for name in sorted(labels))
        rows = f"(SELECT *, {{{', '.join(fields)}}} AS label FROM {rows})"
    return f"""
        SELECT trace_uuid, revision, upstream_pi, environment, [{names}] AS evaluators,
               {_of_best(chances, best, [rule.name for rule in rules])} AS rule,
               {_of_best(chances, best, [rule.policy for rule in rules])} AS policy, {best}::DOUBLE AS designed,
               {best}::DOUBLE * {scale!r}::DOUBLE AS local, {literal(scaled_by or "budget")} AS scaled_by FROM {rows}"""


def _of_best(chances: Sequence[str], best: str, texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return literal(texts[0])
    whens = " ".join(
        f"WHEN {chance} >= {best} THEN {literal(text)}" for chance, text in zip(chances, texts, strict=True)
    )
    return f"CASE {whens} END"
