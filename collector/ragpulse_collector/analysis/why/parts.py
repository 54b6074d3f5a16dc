"""The parts of a change between two equal times, as answers show them; a product split among its factors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from ragpulse_evaluators.statistics import Uncertain


@dataclass(frozen=True, slots=True)
class AttributeValue:
    """An attribute with its value."""

    attribute: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(AttributeValue):
    """How much of a change something explains; what nobody explains is the rest of the change."""

    before: float
    """Its own figure: a factor, a step's milliseconds, the share of the requests with the value."""
    after: float
    amount: float
    """In the unit of the change."""
    lo: float | None = None
    hi: float | None = None
    also: Sequence[AttributeValue] = ()
    """What came with it in the same requests: nothing tells them apart."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What requests used: those with a known cost, but for `requests`; one token at least, so that it has a price."""

    requests: float = 0.0
    known: float = 0.0
    tokens: float = 0.0
    output: float = 0.0
    usd: float = 0.0

    @property
    def price(self) -> float:
        """USD per token."""
        return ratio(self.usd, self.tokens)


@dataclass(frozen=True, slots=True)
class ModelSpent:
    """A model before and after."""

    model: str
    before: Spent
    after: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """A metric after a moment against an equal time before, and what explains the difference."""

    from_: Annotated[datetime, Field(alias="from")]
    at: datetime
    to: datetime
    before: float | None
    after: float | None
    change: Uncertain
    parts: Sequence[Explained] = ()
    """The surest first; those of cost are its factors, which add up to the change."""
    models: Sequence[ModelSpent] = ()
    total_before: Spent | None = None
    """Of cost: all models together. Requests without a known cost are in no figure but their number."""
    total_after: Spent | None = None
    mix: None = None
    """Always null."""


def ratio(a: float, b: float) -> float:
    """Return a / b; 0 for nothing of nothing."""
    return a / b if b else 0.0


_NEARLY_EQUAL = 1e-6


def product_parts(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Split the change of a product among its factors: L(after, before) ln(after_i / before_i); they add up to it.

    L is the logarithmic mean. A factor that is 0 on one side has the whole change (the limit: Ang and Liu 2007).
    """
    old, new, pairs = math.prod(before), math.prod(after), list(zip(before, after, strict=True))
    zero = next((number for number, pair in enumerate(pairs) if 0.0 in pair), None)
    if zero is not None:
        return [new - old if number == zero else 0.0 for number in range(len(pairs))]
    logs = [math.log(b) - math.log(a) for a, b in pairs]
    whole = math.fsum(logs)
    # Of two almost equal products the quotient is rounding alone; their mean is as near as it can be.
    mean = (new - old) / whole if abs(whole) > _NEARLY_EQUAL else (new + old) / 2
    return [mean * one for one in logs]
