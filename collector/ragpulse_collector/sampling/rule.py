"""Rules: which units are evaluated online, by what, at which rate; their SQL is checked before it is used.

Pacing: sampling slows down so that the day's judge budget lasts the whole day.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from ragpulse_collector import settings
from ragpulse_collector.catalog import CpuLoad
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.queries.decisions import TEST_ENVIRONMENT, latest_score
from ragpulse_collector.store.queries.jobs import HELD_BACK, selected_units, selected_usd, spent_usd
from ragpulse_collector.store.sql.where import condition, holds, identifier, scores_in

_DEFAULTS = (("unit", "trace"), ("budget_usd_per_day", None))
"""Newer keys with their default, which is not written: the policy of older rules stays the same."""
_FIRST_WINDOW = timedelta(minutes=15)
"""How far a new process looks back."""


class Stratum(settings.Stratum):
    """A slice of the traffic that is sampled at a rate of its own, where that is higher.

    Its condition may also name scores of evaluators that run on everything (`score.groundedness < 0.5`). It holds once
    all these scores are stored.
    """

    @property
    def scores(self) -> tuple[str, ...]:
        """The evaluators whose scores the condition names."""
        return scores_in(self.where)

    def rate_sql(self) -> str:
        """Return SQL for the rate at a row of facts, 0 where the condition does not hold."""
        stored = [f"score.{identifier(name)} IS NOT NULL" for name in self.scores]
        condition_sql = " AND ".join([*stored, holds(condition(self.where, self.scores))])
        return f"CASE WHEN {condition_sql} THEN {self.rate!r} ELSE 0.0 END"


class Rule(settings.RuleSettings):
    """A `[[rule]]` whose conditions were checked: which units are evaluated online, by what, at which rate.

    A unit that meets `where` is selected with the highest of `rate` and the rates of the strata it meets. Raises
    Invalid for a rate outside 0..1, no evaluators, or a `where` that is not one SQL boolean over the columns of
    `traces` (and, in strata, over the scores of other evaluators).
    """

    strata: tuple[Stratum, ...] = ()
    source: str = Field("store", exclude=True)
    """`file`, `store` or `built-in`; no part of the policy."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise Invalid(_first_message(error)) from error

    @model_validator(mode="after")
    def _check_conditions(self) -> Self:
        if self.where is not None:
            if scores_in(self.where):
                raise Invalid(f"where {self.where!r}: scores belong into strata, so that all keep the rule's rate")
            condition(self.where)
        for stratum in self.strata:
            condition(stratum.where, stratum.scores)
        circular = set(self.scores).intersection(self.evaluators)
        if circular:
            raise Invalid(f"rule {self.name!r}: score.{min(circular)} is not there before {min(circular)} is drawn")
        return self

    def changed(self, **values: Any) -> Rule:
        """Return the rule with other values, checked again."""
        return Rule(**{**self.as_json(), "source": self.source, **values})

    @cached_property
    def scores(self) -> tuple[str, ...]:
        """The evaluators whose scores the strata name; each has to run on everything."""
        return tuple(sorted({name for stratum in self.strata for name in stratum.scores}))

    @property
    def policy(self) -> str:
        """The version of the rule: 12 hex of sha256 over its canonical form; any change is a new policy."""
        canonical = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def as_json(self) -> dict[str, Any]:
        """Return the rule as in `ragpulse.toml`; unit and budget only where they differ from the default."""
        written = self.model_dump(mode="json")
        return {name: value for name, value in written.items() if (name, value) not in _DEFAULTS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, source: str = "store") -> Rule:
        """Build a rule from its written form; raises Invalid for unknown keys and wrong types."""
        return cls(**{**data, "strata": data.get("strata") or (), "source": source})

    def pi_sql(self) -> str:
        """Return SQL for the rule's probability at a row of `traces`, with the scores stored so far."""
        if not self.scores:
            return self.chance_sql()
        stored = ", ".join(f"{literal(name)}: {latest_score(name)}" for name in self.scores)
        return f"(SELECT {self.chance_sql()} FROM (SELECT {{{stored}}} AS score))"

    def chance_sql(self) -> str:
        """Return SQL for the rule's probability at a row of facts; a condition that fails on a row does not hold.

        Where the rule names scores the row has them as fields of a column `score`.
        """
        rates = [repr(float(self.rate)), *(stratum.rate_sql() for stratum in self.strata)]
        highest = rates[0] if len(rates) == 1 else f"greatest({', '.join(rates)})"
        return (
            highest if self.where is None else f"CASE WHEN {holds(condition(self.where))} THEN {highest} ELSE 0.0 END"
        )


OFFLINE = Rule(
    name="offline",
    evaluators=("groundedness", "context_utilization", "citation_check", "refusal"),
    rate=1.0,
    source="built-in",
)
"""The rule without configuration: checks that need neither judge nor key."""


def _first_message(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    reason = first.get("ctx", {}).get("error")
    return str(reason) if reason else f"rule: {'.'.join(map(str, first['loc']))}: {first['msg']}"


def scored_evaluators(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The evaluators whose scores the rules name."""
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
    return f"""
        SELECT trace_uuid, revision, upstream_pi, environment, [{names}] AS evaluators,
               {_of_best(rules, chances, best, "name")} AS rule,
               {_of_best(rules, chances, best, "policy")} AS policy, {best}::DOUBLE AS designed,
               {best}::DOUBLE * {scale!r}::DOUBLE AS local, {literal(scaled_by or "budget")} AS scaled_by FROM {rows}"""


def _of_best(rules: Sequence[Rule], chances: Sequence[str], best: str, field: str) -> str:
    if len(rules) == 1:
        return literal(getattr(rules[0], field))
    whens = " ".join(
        f"WHEN {chance} >= {best} THEN {literal(getattr(rule, field))}"
        for rule, chance in zip(rules, chances, strict=True)
    )
    return f"CASE {whens} END"


@dataclass(slots=True)
class Controller:
    """Chooses the scale of one evaluator so that the remaining budget (USD, or CPU seconds) lasts; pure arithmetic.

    It follows the demand at full rate, smoothed over `memory_s`, so that a second call changes nothing.
    """

    floor: float = 0.02
    memory_s: float = 600.0
    scale: float = 1.0
    demand: float | None = None
    """USD per second at scale 1."""

    def update(self, *, usd: float, seconds: float, budget_usd: float, remaining_s: float) -> float:
        """Add what the last `seconds` selected (in USD, at the present scale); returns the next scale."""
        demand = usd / self.scale / seconds
        fresh = 1.0 if self.demand is None else 1.0 - math.exp(-seconds / self.memory_s)
        self.demand = demand * fresh + (self.demand or 0.0) * (1.0 - fresh)
        affordable = budget_usd / max(1.0, remaining_s)
        scale = 1.0 if self.demand <= 0.0 else affordable / self.demand
        self.scale = min(1.0, max(self.floor, scale))
        return self.scale


_CPU_FLOOR, _CPU_MEMORY_S = 1e-4, 120.0


class Pacer:
    """Moves the inclusion probabilities so that the day's budget (None: no limit), and those of rules, last the day.

    A local model's currency is CPU seconds: its probability follows what it can read of the traffic.

    `pi_scale(evaluator)` multiplies every designed pi of a costly evaluator. It follows the demand and the remaining
    budget, minus the tenth that is released over the day. It never falls below `floor`, which that tenth pays for.
    Since pi is stored with each decision, estimates stay unbiased however the scale moves.
    """

    def __init__(
        self,
        store: Store,
        usd_per_day: float | None,
        *,
        rules: Callable[[], Sequence[Rule]] = tuple,
        cpu_loads: Callable[[], Mapping[str, CpuLoad]] = dict,
    ) -> None:
        self._store, self._usd_per_day, self._rules, self._cpu_loads = store, usd_per_day, rules, cpu_loads
        self._controllers: dict[str, Controller] = {}
        self._models: dict[str, Controller] = {}
        self._updated_at: datetime | None = None

    def pi_scale(self, evaluator: str) -> tuple[float, str]:
        """The factor on this evaluator's designed inclusion probability, in [floor, 1], and the reason for it."""
        if model := self._models.get(evaluator):
            return model.scale, "throttled"
        controller = self._controllers.get(evaluator)
        return (1.0 if controller is None else controller.scale), "budget"

    def update(self, now: datetime) -> dict[str, float]:
        """Recompute the scales from the ledger and the decisions since the last time; call it about once a minute."""
        since = self._updated_at
        if since is None or since > now:  # at the start, or the clock was set back
            since = now - _FIRST_WINDOW
        seconds = (now - since).total_seconds()
        if seconds < 1.0:
            return self._scales()
        self._updated_at = now
        self._pace_models(since, now, seconds)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        remaining_s = 86_400.0 - (now - midnight).total_seconds()
        selected = selected_usd(self._store.read, since, now)
        for name in self._controllers.keys() | selected.keys():
            controller = self._controllers.setdefault(name, Controller())
            budget = self._budget(name, midnight)
            if budget is not None:
                usd = selected.get(name, 0.0)
                controller.update(usd=usd, seconds=seconds, budget_usd=budget, remaining_s=remaining_s)
        return self._scales()

    def _scales(self) -> dict[str, float]:
        return {name: controller.scale for name, controller in (self._controllers | self._models).items()}

    @property
    def keeps_up(self) -> dict[str, float]:
        """The share of the designed sample that each local model keeps up with, by evaluator."""
        return {name: controller.scale for name, controller in self._models.items()}

    def _pace_models(self, since: datetime, now: datetime, seconds: float) -> None:
        """Select nine tenths of what each model can read: the last one works off what is pending."""
        loads = self._cpu_loads()
        units = selected_units(self._store.read, since, now, list(loads)) if loads else {}
        for name, load in loads.items():
            model = self._models.setdefault(name, Controller(floor=_CPU_FLOOR, memory_s=_CPU_MEMORY_S))
            affordable = load.share * (1.0 - HELD_BACK)
            used = units.get(name, 0.0) * load.seconds
            model.update(usd=used, seconds=seconds, budget_usd=affordable, remaining_s=1.0)

    def _budget(self, name: str, midnight: datetime) -> float | None:
        """Return what this evaluator may still spend today by the budgets of day and rules; None without a cap.

        A rule without a budget may spend whatever the day allows.
        """
        rules = [rule for rule in self._rules() if name in rule.evaluators]
        rule_shares = [
            self._share(name, rule.evaluators, rule.budget_usd_per_day, midnight, rule.name) for rule in rules
        ]
        day_share = self._share(name, self._controllers, self._usd_per_day, midnight)
        bounds = [
            day_share,
            sum(share for share in rule_shares if share is not None) if rules and None not in rule_shares else None,
        ]
        return min((bound for bound in bounds if bound is not None), default=None)

    def _share(
        self, name: str, evaluators: Iterable[str], usd: float | None, midnight: datetime, rule: str | None = None
    ) -> float | None:
        """Return this evaluator's share, by demand, of what remains of a budget; None without a budget."""
        if usd is None:
            return None
        remaining = usd * (1.0 - HELD_BACK) - spent_usd(self._store.read, day=midnight.date(), rule=rule)
        demands = {key: self._controllers[key].demand or 0.0 for key in evaluators if key in self._controllers}
        total_demand = sum(demands.values())
        return max(0.0, remaining * demands[name] / total_demand if total_demand and demands.get(name) else remaining)
