"""The interval of a weighted mean of answers that come from users: one formula for every number.

Scores in memory (`hajek`) and sums added up by a store (`moments.Moments`) both end here. docs/statistics.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ragpulse_evaluators.statistics.distributions import normal_quantile, student_quantile


def spread_by_class(m: float, wwy: float, wwyy: float, ww: float) -> float:
    """Return Σ_h(A_h·(s_h² + (q_h-m)²)) from the sums of `Moments`."""
    return wwyy - 2.0 * m * wwy + m * m * ww


NOT_ENOUGH_USERS = "not enough users"
"""Why an estimate has no interval: a few users gave nearly all answers."""

_ENOUGH_USERS = 5.0
"""Below this effective number of users no interval covers what it claims (simulated) ..."""
_FEW = 10.0
"""... and below this one it is `thin`: a handful carries the interval, wide as it is."""
_ALIKE = 0.7
"""From this share of n on, Kish's number calls weights alike: Wilson's interval is used as published."""
_RARE = 5.0
"""A graded mean near an end rests on its few low (or high) scores; fewer than this many are `thin`."""
_UNSEEN = 0.25
"""This part of an effective answer at the far end of the scale is taken to be still unseen ..."""
_UNSEEN_OF_USERS = 1.0
"""... and this many where answers of users are alike, since few users decide what an effective answer is."""
_HEAVY = 2.0
"""An answer or user that counts for more than this many average ones is heavy ..."""
_HEAVY_UNSEEN = 0.5
"""... and this part of one heavy answer or user is taken to be still unseen."""
ENOUGH_OF_CLASS = 10
"""Fewer answers of a class of π do not tell how much its answers differ (simulated)."""
_STEP = 0.5
"""Half a success: the continuity correction of yes-or-no answers whose weights lie far apart."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A value with its interval, None where it is not known: the base of every figure."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, kw_only=True)
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

    @property
    def estimate(self) -> float:
        """The value."""
        return self.value

    def __iter__(self) -> Iterator[float | None]:
        return iter((self.lo, self.hi))

    def __getitem__(self, index: int) -> float | None:
        return (self.lo, self.hi)[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedMean:
    """Hajek's mean of scores with weights w = 1/π, and what its interval depends on.

    A cluster g is a user with the weights W_g = Σw and the residual r_g = Σw(y-m) of all answers; W = Σw.
    """

    mean: float
    n: int
    clusters: int
    error: float
    """Σr_g²/W²: the variance of the mean as the clusters show it."""
    variance: float
    """Σw(y-m)²/W: the spread of the service's answers."""
    between: float
    """Σ(r_g²/W_g)/W: the spread of the users' means."""
    squares: float
    """Σw²/W²: one over Kish's number."""
    cluster_squares: float
    """ΣW_g²/W²: one over the effective number of clusters."""
    own: float
    """Σ_g(Σw²/W_g)/W: the part of `variance` that is in `between` without any likeness within users."""
    heaviest: float
    """max w/W: the part of all traffic that one answer stands for."""
    largest: float
    """max W_g/W: the part of all traffic that one user stands for."""
    least: float
    most: float
    graded: bool
    """Whether any score lies strictly between the bounds."""
    unseen: float = 1.0
    """Σw²(1-π)/Σw² where a finite list is meant, 1 where the service's rate is."""
    by_class: float | None = None
    """The variance of the mean of answers that stand alone, added up by classes of π; None without enough of each."""

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0), confidence: float = 0.95) -> Estimate:
        """Mean and interval; `bounds` None, or scores beyond them, mean an open scale."""
        few = self._users < _FEW
        if self._unsure:
            return self._estimate(None, thin=True, reason=NOT_ENOUGH_USERS)
        if bounds is None or self.least < bounds[0] or self.most > bounds[1]:
            return self._estimate(None if self._equal else self._student(confidence), thin=few)
        low, width = bounds[0], bounds[1] - bounds[0]
        unit = self if bounds == (0.0, 1.0) else self._moved(low, width)
        lo, hi = unit._bounded(confidence)
        return self._estimate((low + lo * width, low + hi * width), thin=few or unit._rests_on_few)

    def _moved(self, low: float, width: float) -> WeightedMean:
        """The same scores on a scale from 0 to 1."""
        return replace(
            self, mean=(self.mean - low) / width, error=self.error / width**2, variance=self.variance / width**2,
            between=self.between / width**2, least=(self.least - low) / width, most=(self.most - low) / width,
            by_class=None,
        )  # fmt: skip

    def trials(self, confidence: float = 0.95) -> float | None:
        """The number of independent yes-or-no answers that are as informative; None where there is no interval."""
        if self._unsure:
            return None
        p = min(1.0, max(0.0, self.mean))
        if self._certain(p):
            return self._freedom(confidence) * self._users / self.unseen
        if self._simple:
            return self._observed_trials(p)
        return min(p * (1.0 - p) / self._variance(p, far) for far in (p, 1.0 - p)) * self._freedom(confidence)

    def _bounded(self, confidence: float) -> tuple[float, float]:
        """Wilson's interval; as published for yes-or-no answers that stand alone with weights alike."""
        p, freedom = min(1.0, max(0.0, self.mean)), self._freedom(confidence)
        if self._certain(p):
            # As many answers may differ unseen as Wilson's interval leaves room for where all pass.
            squared = normal_quantile(0.5 + confidence / 2.0) ** 2
            share = squared / (squared + freedom * self._users / self.unseen)
            return p - p * share, p + (1.0 - p) * share
        if self._simple:
            return wilson_bounds(p, self._observed_trials(p), confidence)
        below, above = (p * (1.0 - p) / self._variance(p, far) * freedom for far in (p, 1.0 - p))
        step = _STEP if self._alone and not self.graded and self.by_class is None else 0.0
        lo, _ = wilson_bounds(p - step / below, below, confidence)
        _, hi = wilson_bounds(p + step / above, above, confidence)
        return lo, hi

    def _certain(self, p: float) -> bool:
        """Whether no two answers differ."""
        return self._equal or not 0.0 < p < 1.0 or self.variance <= 0.0

    def _freedom(self, confidence: float) -> float:
        """The cost of estimating the variance: normal quantile over Student's, squared.

        Only the part that the likeness within users explains is as uncertain as users are few: of the rest every answer
        tells.
        """
        if self._simple or (self._alike and self._equal):
            return 1.0
        cost = (self._quantile(confidence) / normal_quantile(0.5 + confidence / 2.0)) ** 2
        standalone = self._alone or self._equal or self.variance <= 0.0
        share = 1.0 if standalone else 1.0 - self.squares * self.unseen / self._each(self.likeness)
        return 1.0 / (1.0 + (cost - 1.0) * max(0.0, share))

    def _variance(self, p: float, far: float) -> float:
        """The variance of the mean for the bound on the side whose end lies `far` away.

        The larger one of what the clusters show and what the likeness within users explains; and the answers that may
        still be unseen at the far end, with a part of a heavy one (Fay and Feuer 1997). A likeness of few users may
        be larger than it looks.
        """
        rho, doubt = self.likeness, 1.0 / math.sqrt(2.0 * max(1, self.clusters - 1))
        each, most = self._each(rho), self._each(min(1.0, rho + doubt))
        heavy = (1.0 - rho) * self.heaviest**2 + rho * self.largest**2
        observed = max(self._observed, self.variance * each)
        cautious = observed + (_UNSEEN if self._alone else _UNSEEN_OF_USERS) * (far * most) ** 2
        limit = max(observed, p * (1.0 - p) * self.cluster_squares)  # no score from 0 to 1 varies by more
        pooled = min(cautious, limit) + _HEAVY_UNSEEN * far**2 * max(0.0, heavy - (_HEAVY * each) ** 2)
        return pooled if self.by_class is None else min(pooled, self._of_classes(self.by_class, rho, (far * most) ** 2))

    def _of_classes(self, alone: float, rho: float, unseen: float) -> float:
        """The variance where each class of π has its own spread: the heaviest answers often vary least."""
        if self._alone:
            return alone * self.unseen
        alike = rho * self.variance * (self.cluster_squares - self.squares)
        return max(self._observed, (alone + alike) * self.unseen) + _UNSEEN_OF_USERS * unseen

    def _each(self, likeness: float) -> float:
        """One over the number of independent answers that are as informative."""
        return (self.squares + likeness * (self.cluster_squares - self.squares)) * self.unseen

    @property
    def _unsure(self) -> bool:
        """Whether a few users gave nearly all answers."""
        return not self._alone and self._users < _ENOUGH_USERS

    @property
    def _simple(self) -> bool:
        """Whether Wilson's interval holds as published."""
        return self._alike and not self.graded

    @property
    def _alike(self) -> bool:
        """Whether every answer stands alone, with weights alike."""
        return self._alone and self.squares * _ALIKE * self.n <= 1.0

    @property
    def _alone(self) -> bool:
        """Whether every answer is a cluster of its own."""
        return self.clusters >= self.n

    @property
    def _users(self) -> float:
        """The effective number of clusters."""
        return 1.0 / self.cluster_squares

    @property
    def _equal(self) -> bool:
        return self.least == self.most

    @property
    def _observed(self) -> float:
        """`error`, corrected for the residuals being taken from the mean of the same answers.

        The answers of the largest user pull that mean most: CR2 with their leverage (McCaffrey and Bell 2002).
        """
        return self.error / (1.0 - self.largest) if self.clusters > 1 else self.error

    @property
    def likeness(self) -> float:
        """The intraclass correlation ρ by analysis of variance; 1 where nothing varies or one cluster is all."""
        largest = self.variance * (1.0 - self.own)
        if self._alone or self.clusters < 2 or largest <= 0.0:
            return 0.0 if self._alone else 1.0
        between = self.between * self.clusters / (self.clusters - 1.0)
        return min(1.0, max(0.0, (between - self.variance * self.own) / largest))

    @property
    def _rests_on_few(self) -> bool:
        """Whether a graded mean rests on few low (or high) scores."""
        if not self.graded or self._equal:
            return False
        p = min(1.0, max(0.0, self.mean))
        error = max(self.error, self.variance * self.unseen * self.squares)
        return p * (1.0 - p) * min(p, 1.0 - p) < _RARE * error

    def _observed_trials(self, p: float) -> float:
        """n*: equally weighted yes-or-no answers that are as informative; Kish's number where the error is 0."""
        published = min(p * (1.0 - p) / self.error, self.n / self.unseen) if self.error > 0.0 else 1.0 / self.squares
        if self.by_class is None or self.squares * self.n <= 1.0 + 1e-9:  # of one class
            return published
        return max(published, p * (1.0 - p) / (self.by_class * self.unseen))

    def _quantile(self, confidence: float) -> float:
        """Student's quantile with as many degrees of freedom as the effective number of clusters leaves."""
        return student_quantile(0.5 + confidence / 2.0, max(1.0, round(self._users - 1.0, 3)))

    def _student(self, confidence: float) -> tuple[float, float]:
        half = self._quantile(confidence) * math.sqrt(self.error if self._alone else self._observed)
        return self.mean - half, self.mean + half

    def _estimate(self, ends: tuple[float, float] | None, *, thin: bool, reason: str | None = None) -> Estimate:
        lo, hi = ends or (None, None)
        se = math.sqrt(self.error if self._alone else self._observed)
        return Estimate(
            value=self.mean, se=se, lo=lo, hi=hi, n=self.n, n_eff=1.0 / self.squares, thin=thin,
            clusters=self.clusters, reason=reason,
        )  # fmt: skip


def wilson_bounds(p: float, n: float, confidence: float) -> tuple[float, float]:
    """Wilson's (1927) score interval of a rate p in n trials."""
    z = normal_quantile(0.5 + confidence / 2.0)
    scale = 1.0 + z * z / n
    centre = (p + z * z / (2.0 * n)) / scale
    half = z * math.sqrt(max(0.0, p * (1.0 - p)) / n + z * z / (4.0 * n * n)) / scale
    # At p = 0 and 1 the bound is exactly p; rounding must not move it inside.
    return (0.0 if p <= 0.0 else max(0.0, centre - half)), (1.0 if p >= 1.0 else min(1.0, centre + half))
