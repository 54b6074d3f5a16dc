"""Cost = requests x share with a known cost x tokens per answer x price per token, split exactly (LMDI-I, Ang 2005)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.parts import (
    BeforeAfter,
    Explained,
    ModelSpent,
    Spent,
    product_parts,
    ratio,
    uncertain,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import WEIGHT
from ragpulse_evaluators.statistics import Interval

_SHOWN = 6
"""Models whose cost moved most."""
_FACTORS = ("requests", "known cost", "tokens per answer", "models", "prices")
_SQL = f"""
    SELECT coalesce(model, 'unknown') AS name, start_time >= $at AS late, sum({WEIGHT}),
           coalesce(sum({WEIGHT}) FILTER (read), 0), coalesce(sum(tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(output_tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(cost_usd * {WEIGHT}) FILTER (read), 0),
           coalesce(sum((cost_usd * {WEIGHT}) ** 2) FILTER (read), 0)
    FROM (SELECT *, greatest(1, coalesce(input_tokens, 0) + coalesce(output_tokens, 0)) AS tokens,
                 cost_usd IS NOT NULL AS read
          FROM traces WHERE start_time >= $first AND start_time < $last AND {{filter}}) GROUP BY ALL ORDER BY ALL"""


def cost_change(store: Store, query: Query, at: datetime) -> BeforeAfter:
    """Return what the cost after a moment consists of, against the time before."""
    rows = store.read(_SQL.format(filter=query.filters.sql), {**query.parameters, "at": at}).rows
    sides = {(name, late): Spent(*sums) for name, late, *sums, _ in rows}
    names = dict.fromkeys(name for name, _ in sides)
    models = [ModelSpent(name, *(sides.get((name, late), Spent()) for late in (False, True))) for name in names]
    before, after = _total(one.before for one in models), _total(one.after for one in models)
    move = Interval.normal(after.usd - before.usd, math.sqrt(math.fsum(row[-1] for row in rows)))
    return BeforeAfter(
        from_=query.window.first, at=at, to=query.window.last, before=before.usd, after=after.usd,
        change=uncertain(move), parts=_parts(before, after, models),
        models=sorted(models, key=lambda one: -abs(one.after.usd - one.before.usd))[:_SHOWN],
        total_before=before, total_after=after,
    )  # fmt: skip


def _total(parts: Iterable[Spent]) -> Spent:
    listed = list(parts)
    return Spent(*(math.fsum(getattr(part, field.name) for part in listed) for field in fields(Spent)))


def _parts(before: Spent, after: Spent, models: Sequence[ModelSpent]) -> list[Explained]:
    """Return the factors; the price's part is that of the models' shares and that of their own prices."""
    was, now = _factors(before), _factors(after)
    *amounts, of_price = product_parts(was, now)
    own = [product_parts(_of_price(one.before, before), _of_price(one.after, after)) for one in models]
    scale = ratio(of_price, after.price - before.price)
    amounts += [scale * math.fsum(part[number] for part in own) for number in range(2)]
    figures = zip(_FACTORS, [*was, before.price], [*now, after.price], amounts, strict=True)
    return [Explained(attribute=name, value="", before=a, after=b, amount=amount) for name, a, b, amount in figures]


def _factors(spent: Spent) -> list[float]:
    return [spent.requests, ratio(spent.known, spent.requests), ratio(spent.tokens, spent.known), spent.price]


def _of_price(model: Spent, total: Spent) -> tuple[float, float]:
    """Return a model's share of the tokens and its price: the price of a token is the sum of their products."""
    return ratio(model.tokens, total.tokens), model.price
