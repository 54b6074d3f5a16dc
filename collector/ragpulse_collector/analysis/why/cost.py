"""Cost = requests x share with a known cost x tokens per answer x price per token, split exactly (LMDI-I, Ang 2005)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.parts import (
    BeforeAfter,
    Explained,
    ModelSpent,
    Spent,
    product_parts,
    ratio,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, WEIGHT
from ragpulse_collector.store.queries.traces import of_range
from ragpulse_evaluators.statistics import Uncertain, student_quantile

_SHOWN, _FEWEST = 6, 5
"""Models whose cost moved most; the fewest groups of users that show an interval."""
_FACTORS = ("requests", "known cost", "tokens per answer", "models", "prices")
_GROUPS = 24
"""Groups of users: without each of them in turn, the change and its parts differ as much as chance may explain."""
_SQL = f"""
    SELECT {CLUSTER} % {_GROUPS} AS users, coalesce(model, 'unknown') AS name, start_time >= $at AS late, sum({WEIGHT}),
           coalesce(sum({WEIGHT}) FILTER (read), 0), coalesce(sum(tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(output_tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(cost_usd * {WEIGHT}) FILTER (read), 0)
    FROM (SELECT *, greatest(1, coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) AS tokens,
                 cost_usd IS NOT NULL AS read
          {{requests}})
    GROUP BY ALL ORDER BY ALL"""


def cost_change(store: Store, query: Query, at: datetime) -> BeforeAfter:
    """Return what the cost after a moment consists of, against the time before; the requests of a user are alike."""
    rows = store.read(_SQL.format(requests=of_range(query.filters)), {**query.parameters, "at": at}).rows
    groups = sorted({row[0] for row in rows})
    models = _models(rows)
    before, after, figures = _figures(models)
    scale = len(groups) / max(1, len(groups) - 1)
    others = [_figures(_models(rows, without=group, scale=scale))[2] for group in groups]
    change, *parts = (_jackknifed(value, [other[number] for other in others]) for number, value in enumerate(figures))
    return BeforeAfter(
        from_=query.window.first, at=at, to=query.window.last, before=before.usd, after=after.usd,
        change=change, parts=_parts(before, after, parts),
        models=sorted(models, key=lambda one: -abs(one.after.usd - one.before.usd))[:_SHOWN],
        total_before=before, total_after=after,
    )  # fmt: skip


def _models(rows: Sequence[Sequence[Any]], without: int | None = None, scale: float = 1.0) -> list[ModelSpent]:
    """Return what each model spent before and after, the users of a group left out and those of the others in place."""
    sums: dict[str, tuple[list[float], list[float]]] = {}
    for group, name, late, *added in rows:
        sides = sums.setdefault(name, ([0.0] * len(added), [0.0] * len(added)))
        if group != without:
            sides[late][:] = (total + scale * one for total, one in zip(sides[late], added, strict=True))
    return [ModelSpent(name, *(Spent(*side) for side in sides)) for name, sides in sums.items()]


def _figures(models: Sequence[ModelSpent]) -> tuple[Spent, Spent, list[float]]:
    """Return the totals, and the change with its parts."""
    before, after = _total(one.before for one in models), _total(one.after for one in models)
    return before, after, [after.usd - before.usd, *_amounts(before, after, models)]


def _jackknifed(value: float, others: Sequence[float]) -> Uncertain:
    """Return a figure with the interval that it has without each of so many groups of users; none without groups."""
    n = len(others)
    if n < _FEWEST:
        return Uncertain(value=value)
    middle = math.fsum(others) / n
    error = math.sqrt((n - 1) / n * math.fsum((other - middle) ** 2 for other in others))
    half = student_quantile(0.975, n - 1) * error
    return Uncertain(value=value, lo=value - half, hi=value + half)


def _total(parts: Iterable[Spent]) -> Spent:
    listed = list(parts)
    return Spent(*(math.fsum(getattr(part, field.name) for part in listed) for field in fields(Spent)))


def _amounts(before: Spent, after: Spent, models: Sequence[ModelSpent]) -> list[float]:
    """Return the factors' parts; the price's part is that of the models' shares and that of their own prices."""
    *amounts, of_price = product_parts(_factors(before), _factors(after))
    own = [product_parts(_of_price(one.before, before), _of_price(one.after, after)) for one in models]
    scale = ratio(of_price, after.price - before.price)
    return [*amounts, *(scale * math.fsum(part[number] for part in own) for number in range(2))]


def _parts(before: Spent, after: Spent, parts: Sequence[Uncertain]) -> list[Explained]:
    figures = zip(_FACTORS, [*_factors(before), before.price], [*_factors(after), after.price], parts, strict=True)
    return [
        Explained(attribute=name, value="", before=a, after=b, amount=part.value or 0.0, lo=part.lo, hi=part.hi)
        for name, a, b, part in figures
    ]


def _factors(spent: Spent) -> list[float]:
    return [spent.requests, ratio(spent.known, spent.requests), ratio(spent.tokens, spent.known), spent.price]


def _of_price(model: Spent, total: Spent) -> tuple[float, float]:
    """Return a model's share of the tokens and its price: the price of a token is the sum of their products."""
    return ratio(model.tokens, total.tokens), model.price
