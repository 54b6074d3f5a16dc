"""Cost = requests x share with a known cost x tokens per answer x price per token, split exactly (LMDI-I, Ang 2005)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.parts import BeforeAfter, Explained, ModelShare, product_parts, uncertain
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import WEIGHT
from ragpulse_evaluators.statistics import Interval

_FACTORS = ("requests", "known cost", "tokens per answer")
_SHOWN = 6
"""Models with the largest moves of their shares."""
_MILLION = 1e6


class _Spent(NamedTuple):
    """What requests of one model, or of all, used: those with a known cost and known tokens, but for `requests`."""

    requests: float = 0.0
    known: float = 0.0
    tokens: float = 0.0
    output: float = 0.0
    usd: float = 0.0
    squares: float = 0.0

    @property
    def factors(self) -> list[float]:
        """The factors of the cost."""
        return [
            self.requests, _ratio(self.known, self.requests), _ratio(self.tokens, self.known), self.price,
        ]  # fmt: skip

    @property
    def price(self) -> float:
        """USD per token."""
        return _ratio(self.usd, self.tokens)


_SQL = f"""
    SELECT start_time >= $at AS late, coalesce(model, 'unknown') AS name, sum({WEIGHT}),
           coalesce(sum({WEIGHT}) FILTER (read), 0), coalesce(sum(tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(output_tokens * {WEIGHT}) FILTER (read), 0),
           coalesce(sum(cost_usd * {WEIGHT}) FILTER (read), 0),
           coalesce(sum((cost_usd * {WEIGHT}) ** 2) FILTER (read), 0)
    FROM (SELECT *, coalesce(input_tokens, 0) + coalesce(output_tokens, 0) AS tokens,
                 cost_usd IS NOT NULL AND tokens > 0 AS read
          FROM traces WHERE start_time >= $first AND start_time < $last AND {{filter}}) GROUP BY ALL"""


def cost_change(store: Store, query: Query, at: datetime) -> BeforeAfter:
    """Return what the cost after a moment consists of, against the time before."""
    rows = store.read(_SQL.format(filter=query.filters.sql), {**query.parameters, "at": at}).rows
    olds, news = ({name: _Spent(*sums) for late, name, *sums in rows if late is after} for after in (False, True))
    before, after = (_Spent(*map(math.fsum, zip(_Spent(), *side.values(), strict=True))) for side in (olds, news))
    amounts = product_parts(before.factors, after.factors)
    parts = [
        Explained(attribute=name, value="", before=a, after=b, amount=amount)
        for name, a, b, amount in zip(_FACTORS, before.factors, after.factors, amounts, strict=False)
    ]
    models, prices = _of_price(olds, news, before, after)
    scale = _ratio(amounts[-1], after.price - before.price)
    was, now = before.price * _MILLION, after.price * _MILLION
    parts += [
        Explained(attribute=name, value="", before=was, after=now, amount=scale * part)
        for name, part in (("models", models), ("prices", prices))
    ]
    move = Interval.normal(after.usd - before.usd, math.sqrt(before.squares + after.squares))
    return BeforeAfter(
        from_=query.window.first, at=at, to=query.window.last, before=before.usd, after=after.usd,
        change=uncertain(move), parts=parts, models=_models(olds, news, before, after),
        known_before=before.factors[1], known_after=after.factors[1],
    )  # fmt: skip


def _of_price(
    olds: Mapping[str, _Spent], news: Mapping[str, _Spent], before: _Spent, after: _Spent
) -> tuple[float, float]:
    """Return how far the shares of the models, and their own prices, move the price of a token."""
    parts = [
        product_parts((_ratio(old.tokens, before.tokens), old.price), (_ratio(new.tokens, after.tokens), new.price))
        for old, new in _both(olds, news).values()
    ]
    return math.fsum(part[0] for part in parts), math.fsum(part[1] for part in parts)


def _both(olds: Mapping[str, _Spent], news: Mapping[str, _Spent]) -> dict[str, tuple[_Spent, _Spent]]:
    return {name: (olds.get(name, _Spent()), news.get(name, _Spent())) for name in {**olds, **news}}


def _models(
    olds: Mapping[str, _Spent], news: Mapping[str, _Spent], before: _Spent, after: _Spent
) -> Sequence[ModelShare]:
    shares = [
        ModelShare(
            model=name, before=_ratio(old.tokens, before.tokens), after=_ratio(new.tokens, after.tokens),
            price_before=old.price * _MILLION, price_after=new.price * _MILLION,
            output_before=_ratio(old.output, old.tokens), output_after=_ratio(new.output, new.tokens),
        )
        for name, (old, new) in _both(olds, news).items()
    ]  # fmt: skip
    shares.sort(key=lambda one: (-abs(one.after - one.before), -one.after, one.model))
    return [one for one in shares if one.before or one.after][:_SHOWN]


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0
