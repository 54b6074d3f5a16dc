"""Proposes the rates of a rule with strata: the narrowest interval for what today's rates cost.

The variance of the weighted mean is the sum over classes h (the rule's own rate, each stratum's) of W_h² s_h² / n_h,
with W_h its share of the traffic, n_h = rate_h · N_h, and s_h² the variance of its scores plus the squared distance of
its mean from that of all. At a fixed cost it is least with rate_h proportional to s_h / √price_h (Neyman 1934). Rates
from few scores are noisy: they are proposed, never applied without a person.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ragpulse_collector.sampling.rules import Rule
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import ClassScores, scored_by_class
from ragpulse_evaluators.statistics import normal_quantile

_LEAST, _MOST = 0.01, 1.0
_ENOUGH = 10
"""Scores of each class: fewer do not tell how much they differ."""
_WORTH = 0.95
"""An interval that is not at least this much narrower is not proposed."""


@dataclass(frozen=True, slots=True)
class RateClass:
    """The units that one rate of a rule applies to, with the scores of them."""

    where: str | None
    """The condition of the stratum; None: the rule's own rate."""
    rate: float
    units: float
    """A day."""
    scores: int = 0
    mean: float = 0.0
    square: float = 0.0
    """The mean of the squared scores."""
    price: float | None = None
    """USD of a unit."""

    @property
    def shrunk(self) -> float:
        """The mean with one failure and one success more: no class of a few scores is without spread."""
        return (self.scores * self.mean + 1.0) / (self.scores + 2.0)

    def spread(self, mean: float) -> float:
        """Return s² around the mean of all classes."""
        q = self.shrunk
        return (self.scores * self.square + 1.0) / (self.scores + 2.0) - q * q + (q - mean) ** 2


@dataclass(frozen=True, slots=True)
class ProposedRate:
    """A rate today and as proposed; `where` is null for the rule's own."""

    where: str | None
    now: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Rates at today's cost, with half the width of a day's interval today and then."""

    evaluator: str
    rates: Sequence[ProposedRate] = ()
    half_width_now: float | None = None
    half_width: float | None = None
    cost_usd_per_day: float | None = None
    words: str
    """The proposal in a sentence, or why there is none."""
    toml: str | None = None
    """The keys of the `[[rule]]`, for one that is written in the file."""


def proposal_of(store: Store, rule: Rule, days: int, units: str) -> Proposal | None:
    """Propose rates from the last days; None for a rule without strata.

    `units` is the condition on the traces. The widths are those of its evaluator that costs most.
    """
    if not rule.strata:
        return None
    rows = scored_by_class(store, rule.class_sql(), units, days, rule.evaluators)
    evaluator = max(rule.evaluators, key=lambda name: sum(row.cost or 0.0 for row in rows if row.evaluator == name))
    rates = [(None, rule.rate), *((stratum.where, stratum.rate) for stratum in rule.strata)]
    own = [[row for row in rows if row.number == number] for number in range(len(rates))]
    return propose(evaluator, [_class(*rate, each, evaluator, days) for rate, each in zip(rates, own, strict=True)])


def _class(where: str | None, rate: float, rows: Sequence[ClassScores], evaluator: str, days: int) -> RateClass:
    units = rows[0].units / days if rows else 0.0
    found = next((row for row in rows if row.evaluator == evaluator), None)
    if found is None:
        return RateClass(where, rate, units)
    costs = [row.cost for row in rows]
    price = None if None in costs else math.fsum(filter(None, costs))
    return RateClass(where, rate, units, found.scores, found.mean, found.square, price)


def propose(evaluator: str, classes: Sequence[RateClass]) -> Proposal:
    """Return the proposal for these classes; without `rates`, and with the reason in words, where there is none."""
    used = [each for each in classes if each.units]
    if reason := _obstacle(used):
        return Proposal(evaluator=evaluator, words=f"no other rates: {reason}")
    now, then = used, [replace(each, rate=rate) for each, rate in zip(used, allocation(used), strict=True)]
    widths = half_width(now), half_width(then)
    if widths[1] > _WORTH * widths[0]:
        words = "no other rates: these are near the best"
        return Proposal(evaluator=evaluator, half_width_now=widths[0], words=words)
    moved = {each.where: each.rate for each in then}
    changes = ", ".join(f"{each.rate:g} -> {moved[each.where]:g} for {each.where or 'the others'}" for each in now)
    cost = math.fsum(each.rate * each.units * (each.price or 0.0) for each in then)
    same = "$" if cost else "number of answers"
    rates = [ProposedRate(each.where, each.rate, moved.get(each.where, each.rate)) for each in classes]
    return Proposal(
        evaluator=evaluator,
        rates=rates,
        toml=_toml(rates),
        half_width_now=widths[0],
        half_width=widths[1],
        cost_usd_per_day=cost,
        words=f"{changes}: a day's interval ±{widths[0]:.3f} -> ±{widths[1]:.3f} at the same {same}",
    )


def _toml(rates: Sequence[ProposedRate]) -> str:
    strata = "".join(
        f"    {{ where = {json.dumps(each.where, ensure_ascii=False)}, rate = {each.rate} }},\n" for each in rates[1:]
    )
    return f"rate = {rates[0].rate}\nstrata = [\n{strata}]\n"


def _obstacle(classes: Sequence[RateClass]) -> str | None:
    """Return why there can be no proposal."""
    few = [each for each in classes if each.scores < _ENOUGH]
    if len(classes) < 2:
        return "all units of these days have one rate"
    if few:
        return f"{few[0].scores} scores of {few[0].where or 'the others'}, at least {_ENOUGH} are needed"
    if any(each.price is None for each in classes):
        return "the cost of a verdict is not known"
    return None if all(each.rate for each in classes) else "a rate is 0"


def half_width(classes: Sequence[RateClass]) -> float:
    """Return half the width of a day's interval at these rates."""
    whole, mean = math.fsum(each.units for each in classes), _mean(classes)
    parts = (each.units / whole**2 * each.spread(mean) / each.rate for each in classes)
    return normal_quantile(0.975) * math.sqrt(math.fsum(parts))


def allocation(classes: Sequence[RateClass]) -> list[float]:
    """Return the rates that give the narrowest interval at today's cost, from 0.01 to 1, in the order of today's.

    A unit that meets several conditions has the highest of their rates. Another order would move units between the
    classes, so neighbours that would change places get one rate.
    """
    mean, prices = _mean(classes), _prices(classes)
    order = sorted(range(len(classes)), key=lambda number: classes[number].rate)
    pools: list[tuple[list[int], float, float]] = []
    for number in order:
        each = classes[number]
        pools.append(([number], each.units * each.spread(mean), each.units * prices[number]))
        while len(pools) > 1 and pools[-2][1] / pools[-2][2] >= pools[-1][1] / pools[-1][2]:
            (a, spread_a, cost_a), (b, spread_b, cost_b) = pools[-2:]
            pools[-2:] = [(a + b, spread_a + spread_b, cost_a + cost_b)]
    budget = math.fsum(each.rate * each.units * price for each, price in zip(classes, prices, strict=True))
    least = min(_LEAST, *(each.rate for each in classes))  # else the floor could cost more than today's rates
    scale = _scale([(math.sqrt(spread / cost), cost) for _, spread, cost in pools], budget, least)
    rates = {
        number: _bounded(scale * math.sqrt(spread / cost), least)
        for members, spread, cost in pools
        for number in members
    }
    return [_written(rates[number]) for number in range(len(classes))]


def _scale(pools: Sequence[tuple[float, float]], budget: float, least: float) -> float:
    """Return the factor of the ideal rates (each with its cost at rate 1) that spends the budget, by bisection."""
    low, high = 0.0, _MOST / min(rate for rate, _ in pools)
    for _ in range(60):
        middle = (low + high) / 2.0
        spent = math.fsum(cost * _bounded(middle * rate, least) for rate, cost in pools)
        low, high = (low, middle) if spent > budget else (middle, high)
    return low


def _bounded(rate: float, least: float) -> float:
    return min(_MOST, max(least, rate))


def _written(rate: float) -> float:
    """Return the rate with three digits, rounded down: it must not cost more."""
    step = 10.0 ** (math.floor(math.log10(rate)) - 2)
    return round(math.floor(rate / step + 1e-6) * step, 12)


def _mean(classes: Sequence[RateClass]) -> float:
    return math.fsum(each.units * each.shrunk for each in classes) / math.fsum(each.units for each in classes)


def _prices(classes: Sequence[RateClass]) -> list[float]:
    """Return the prices; a class that was free (recorded replies) has the mean of the others, 1 where all were."""
    paid = [each.price for each in classes if each.price]
    usual = math.fsum(paid) / len(paid) if paid else 1.0
    return [each.price or usual for each in classes]
