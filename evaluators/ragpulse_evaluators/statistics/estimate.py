"""A number that carries its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value with its standard error and interval; iterating gives `lo, hi`.

    `n` counts the values used, `n_eff` is Kish's effective number: how many equally weighted values would be as
    informative. `se`, `lo` and `hi` are None where one value alone cannot tell them. `thin` says that too little stands
    behind the interval for it to hold as often as it claims.
    """

    estimate: float
    se: float | None
    lo: float | None
    hi: float | None
    n: int
    n_eff: float
    thin: bool = False

    def __iter__(self) -> Iterator[float | None]:
        return iter((self.lo, self.hi))

    def __getitem__(self, index: int) -> float | None:
        return (self.lo, self.hi)[index]
