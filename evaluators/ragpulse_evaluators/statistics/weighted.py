"""What every figure is: a value with its interval, and how many answers stand behind it. Wilson's interval."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from ragpulse_evaluators.statistics.distributions import normal_quantile

NOT_ENOUGH_USERS = "not enough users"
"""Why an estimate has no interval: a few users gave nearly all answers."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A value with its interval, None where it is not known: the base of every figure."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate(Uncertain):
    """A value with its standard error and interval; iterating gives `lo, hi`.

    `n` counts the values used, `n_eff` is Kish's effective number: how many equally weighted values would be as
    informative. `clusters` counts users (sessions, traces) and equals `n` where every value stands alone. `se`, `lo`
    and `hi` are None where the values cannot give them; `reason` then says why. `thin` says that too little stands
    behind the interval for it to hold as often as it claims.
    """

    value: float
    se: float | None
    n: int
    n_eff: float
    thin: bool = False
    clusters: int = 0
    reason: str | None = None
    estimate: float = field(init=False, repr=False)
    """The value, as reports in JSON name it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimate", self.value)

    def __iter__(self) -> Iterator[float | None]:
        return iter((self.lo, self.hi))

    def __getitem__(self, index: int) -> float | None:
        return (self.lo, self.hi)[index]


def wilson_bounds(p: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's (1927) score interval of a rate p in n trials."""
    z = normal_quantile(0.5 + confidence / 2.0)
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2.0 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1.0 - p)) / n + z * z / (4.0 * n * n)) / scale
    # At p = 0 and 1 the bound is exactly p; rounding must not move it inside.
    return (0.0 if p <= 0.0 else max(0.0, centre - half)), (1.0 if p >= 1.0 else min(1.0, centre + half))
