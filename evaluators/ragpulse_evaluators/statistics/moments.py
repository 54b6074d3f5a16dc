"""The sums over answers and users that a weighted mean and its interval are made of: one formula for every number.

A store adds them up, and `hajek` those of scores in memory. docs/statistics.md says why.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragpulse_evaluators.statistics.distributions import normal_quantile, student_quantile
from ragpulse_evaluators.statistics.weighted import NOT_ENOUGH_USERS, Estimate, wilson_bounds

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
class Moments:
    """Sums over answers (w = 1/π) and over clusters (W = Σw and S = Σwy of one user's answers)."""

    n: int
    clusters: int
    w: float
    wy: float
    wyy: float
    ww: float
    """Σw²."""
    cluster_ww: float
    """ΣW²."""
    cluster_ws: float
    """ΣWS."""
    cluster_ss: float
    """ΣS²."""
    cluster_means: float
    """ΣS²/W."""
    cluster_own: float
    """Σ_g(Σw²/W)."""
    heaviest: float
    """max w."""
    largest: float
    """max W."""
    least: float
    most: float
    between: int
    """The number of scores strictly between the ends of the scale."""
    class_wwy: float = 0.0
    """Σ_h(A_h·q_h) over classes h of π, with A_h = Σw² and the mean q_h = (n_h·Σwy/Σw + 1)/(n_h + 2) ..."""
    class_wwyy: float = 0.0
    """... and Σ_h(A_h·e_h) with e_h = (n_h·Σwy²/Σw + 1)/(n_h + 2)."""
    class_n: int = 0
    """The least n_h; 0 without classes."""
    identified: int = 0
    """What the clusters are: 2 users, 1 sessions where no answer names its user, 0 answers that name neither."""
    centre: float = 0.0
    """All y are meant from here: sums of large numbers would cancel."""
    unseen: float = 1.0
    """Σw²(1-π)/Σw² where a finite list is meant, 1 where the service's rate is."""

    @classmethod
    def of(cls, row: Sequence[Any]) -> Moments | None:
        """Read the sums in the order of the fields; None where nothing was measured."""
        n, clusters, *sums = row
        return cls(int(n), int(clusters), *sums) if n else None

    @classmethod
    def added(
        cls,
        values: Sequence[float],
        pi: Sequence[float],
        clusters: Sequence[Hashable],
        *,
        bounds: tuple[float, float] | None,
        finite: bool,
    ) -> Moments:
        """Add up scores in memory; `finite` means this very list of them, each a cluster of its own."""
        weights = [1.0 / chance for chance in pi]
        total, ww = math.fsum(weights), math.fsum(weight * weight for weight in weights)
        centre = math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / total
        parts: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for weight, value, name in zip(weights, values, clusters, strict=True):
            sums = parts[name]
            sums[0] += weight
            sums[1] += weight * weight
            sums[2] += weight * (value - centre)
        users = [*parts.values()]
        factors = [1.0 - chance for chance in pi] if finite else [1.0] * len(users)
        classes = [] if finite else _classes(values, weights)
        return cls(
            n=len(values),
            clusters=len(users),
            w=total,
            wy=0.0,
            wyy=math.fsum(weight * (value - centre) ** 2 for weight, value in zip(weights, values, strict=True)),
            ww=ww,
            cluster_ww=math.fsum(weight**2 for weight, _, _ in users),
            cluster_ws=0.0,
            cluster_ss=math.fsum(rest**2 * factor for (_, _, rest), factor in zip(users, factors, strict=True)),
            cluster_means=math.fsum(rest**2 / weight for weight, _, rest in users),
            cluster_own=math.fsum(squares / weight for weight, squares, _ in users),
            heaviest=max(weights),
            largest=max(weight for weight, _, _ in users),
            least=min(values),
            most=max(values),
            between=0 if bounds is None else sum(bounds[0] < value < bounds[1] for value in values),
            class_wwy=math.fsum(squares * q for _, squares, q, _ in classes),
            class_wwyy=math.fsum(squares * e for _, squares, _, e in classes),
            class_n=min((n for n, *_ in classes), default=0),
            centre=centre,
            unseen=math.fsum(weight * (weight - 1.0) for weight in weights) / ww if finite else 1.0,
        )

    @property
    def mean(self) -> float:
        """Hajek's mean Σwy/Σw."""
        return self.centre + self.wy / self.w

    @property
    def se(self) -> float:
        """√Σ_g(S-mW)²/Σw: the estimand is the service's rate, not this finite list."""
        m = self.wy / self.w
        return float(max(0.0, self.cluster_ss - 2 * m * self.cluster_ws + m * m * self.cluster_ww) ** 0.5 / self.w)

    def times_needed(self, half: float) -> float:
        """How many times as many answers, of as many times more users, have an interval of ± `half`."""
        low, high = 0.0, 1.0
        while self._half(high) > half:
            low, high = high, 2.0 * high
        while high - low > 1e-3 * high:
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._half(middle) > half else (low, middle)
        return high

    def _half(self, times: float) -> float:
        sums = {name: times * getattr(self, name) for name in _ADDED}
        counts = {name: max(1, round(times * getattr(self, name))) for name in ("n", "clusters")}
        lo, hi = replace(self, **sums, **counts, class_n=round(times * self.class_n)).estimate()
        return 1.0 if lo is None or hi is None else (hi - lo) / 2.0

    def estimate(self, *, bounds: tuple[float, float] | None = (0.0, 1.0), confidence: float = 0.95) -> Estimate:
        """Mean and interval; `bounds` None, or scores beyond them, mean an open scale."""
        few = self._users < _FEW
        if self._unsure:
            return self._estimate(None, thin=True, reason=NOT_ENOUGH_USERS)
        if bounds is None or self.least < bounds[0] or self.most > bounds[1]:
            half = self._quantile(confidence) * math.sqrt(self._error if self._alone else self._observed)
            return self._estimate(None if self._equal else (self.mean - half, self.mean + half), thin=few)
        low, width = bounds[0], bounds[1] - bounds[0]
        unit = self if bounds == (0.0, 1.0) else self._on_scale(low, width)
        lo, hi = unit._bounded(confidence)
        return self._estimate((low + lo * width, low + hi * width), thin=few or unit._rests_on_few)

    def _on_scale(self, low: float, width: float) -> Moments:
        """The same scores on a scale from 0 to 1."""
        return replace(
            self, centre=(self.centre - low) / width, wy=self.wy / width, wyy=self.wyy / width**2,
            cluster_ws=self.cluster_ws / width, cluster_ss=self.cluster_ss / width**2,
            cluster_means=self.cluster_means / width**2, least=(self.least - low) / width,
            most=(self.most - low) / width, class_n=0,
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
        step = _STEP if self._alone and not self.between and self._by_class is None else 0.0
        lo, _ = wilson_bounds(p - step / below, below, confidence)
        _, hi = wilson_bounds(p + step / above, above, confidence)
        return lo, hi

    def _certain(self, p: float) -> bool:
        """Whether no two answers differ."""
        return self._equal or not 0.0 < p < 1.0 or self._spread <= 0.0

    def _freedom(self, confidence: float) -> float:
        """The cost of estimating the variance: normal quantile over Student's, squared.

        Only the part that the likeness within users explains is as uncertain as users are few: of the rest every answer
        tells.
        """
        if self._simple or (self._alike and self._equal):
            return 1.0
        cost = (self._quantile(confidence) / normal_quantile(0.5 + confidence / 2.0)) ** 2
        standalone = self._alone or self._equal or self._spread <= 0.0
        share = 1.0 if standalone else 1.0 - self._squares * self.unseen / self._each(self.likeness)
        return 1.0 / (1.0 + (cost - 1.0) * max(0.0, share))

    def _variance(self, p: float, far: float) -> float:
        """The variance of the mean for the bound on the side whose end lies `far` away.

        The larger one of what the clusters show and what the likeness within users explains; and the answers that may
        still be unseen at the far end, with a part of a heavy one (Fay and Feuer 1997). A likeness of few users may
        be larger than it looks.
        """
        rho, doubt = self.likeness, 1.0 / math.sqrt(2.0 * max(1, self.clusters - 1))
        each, most = self._each(rho), self._each(min(1.0, rho + doubt))
        heavy = (1.0 - rho) * (self.heaviest / self.w) ** 2 + rho * (self.largest / self.w) ** 2
        observed = max(self._observed, self._spread * each)
        cautious = observed + (_UNSEEN if self._alone else _UNSEEN_OF_USERS) * (far * most) ** 2
        limit = max(observed, p * (1.0 - p) * self._cluster_squares)  # no score from 0 to 1 varies by more
        pooled = min(cautious, limit) + _HEAVY_UNSEEN * far**2 * max(0.0, heavy - (_HEAVY * each) ** 2)
        return (
            pooled if self._by_class is None else min(pooled, self._of_classes(self._by_class, rho, (far * most) ** 2))
        )

    def _of_classes(self, alone: float, rho: float, unseen: float) -> float:
        """The variance where each class of π has its own spread: the heaviest answers often vary least."""
        if self._alone:
            return alone * self.unseen
        alike = rho * self._spread * (self._cluster_squares - self._squares)
        return max(self._observed, (alone + alike) * self.unseen) + _UNSEEN_OF_USERS * unseen

    def _each(self, likeness: float) -> float:
        """One over the number of independent answers that are as informative."""
        return (self._squares + likeness * (self._cluster_squares - self._squares)) * self.unseen

    @property
    def _unsure(self) -> bool:
        """Whether a few users gave nearly all answers."""
        return not self._alone and self._users < _ENOUGH_USERS

    @property
    def _simple(self) -> bool:
        """Whether Wilson's interval holds as published."""
        return self._alike and not self.between

    @property
    def _alike(self) -> bool:
        """Whether every answer stands alone, with weights alike."""
        return self._alone and self._squares * _ALIKE * self.n <= 1.0

    @property
    def _alone(self) -> bool:
        """Whether every answer is a cluster of its own."""
        return self.clusters >= self.n

    @property
    def _users(self) -> float:
        """The effective number of clusters."""
        return 1.0 / self._cluster_squares

    @property
    def _equal(self) -> bool:
        return self.least == self.most

    @property
    def _observed(self) -> float:
        """`error`, corrected for the residuals being taken from the mean of the same answers.

        The answers of the largest user pull that mean most: CR2 with their leverage (McCaffrey and Bell 2002).
        """
        return self._error / (1.0 - (self.largest / self.w)) if self.clusters > 1 else self._error

    @property
    def likeness(self) -> float:
        """The intraclass correlation ρ by analysis of variance; 1 where nothing varies or one cluster is all."""
        largest = self._spread * (1.0 - (self.cluster_own / self.w))
        if self._alone or self.clusters < 2 or largest <= 0.0:
            return 0.0 if self._alone else 1.0
        between = self._spread_of_users * self.clusters / (self.clusters - 1.0)
        return min(1.0, max(0.0, (between - self._spread * (self.cluster_own / self.w)) / largest))

    @property
    def _rests_on_few(self) -> bool:
        """Whether a graded mean rests on few low (or high) scores."""
        if not self.between or self._equal:
            return False
        p = min(1.0, max(0.0, self.mean))
        error = max(self._error, self._spread * self.unseen * self._squares)
        return p * (1.0 - p) * min(p, 1.0 - p) < _RARE * error

    def _observed_trials(self, p: float) -> float:
        """n*: equally weighted yes-or-no answers that are as informative; Kish's number where the error is 0."""
        published = min(p * (1.0 - p) / self._error, self.n / self.unseen) if self._error > 0.0 else 1.0 / self._squares
        if self._by_class is None or self._squares * self.n <= 1.0 + 1e-9:  # of one class
            return published
        return max(published, p * (1.0 - p) / (self._by_class * self.unseen))

    def _quantile(self, confidence: float) -> float:
        """Student's quantile with as many degrees of freedom as the effective number of clusters leaves."""
        return student_quantile(0.5 + confidence / 2.0, max(1.0, round(self._users - 1.0, 3)))

    def _estimate(self, ends: tuple[float, float] | None, *, thin: bool, reason: str | None = None) -> Estimate:
        lo, hi = ends or (None, None)
        se = math.sqrt(self._error if self._alone else self._observed)
        return Estimate(
            value=self.mean, se=se, lo=lo, hi=hi, n=self.n, n_eff=1.0 / self._squares, thin=thin,
            clusters=self.clusters, reason=reason,
        )  # fmt: skip

    @property
    def _error(self) -> float:
        """Σr_g²/W² of the residuals r_g = Σw(y-m) of a user: the variance of the mean as the clusters show it."""
        return self.se**2

    @property
    def _spread(self) -> float:
        """Σw(y-m)²/W: the spread of the service's answers."""
        return max(0.0, self.wyy / self.w - (self.wy / self.w) ** 2)

    @property
    def _spread_of_users(self) -> float:
        """Σ(r_g²/W_g)/W: the spread of the users' means."""
        return max(0.0, self.cluster_means / self.w - (self.wy / self.w) ** 2)

    @property
    def _squares(self) -> float:
        """One over Kish's number."""
        return self.ww / self.w**2

    @property
    def _cluster_squares(self) -> float:
        """One over the effective number of clusters."""
        return self.cluster_ww / self.w**2

    @property
    def _by_class(self) -> float | None:
        """Σ_h(A_h·(s_h² + (q_h-m)²))/W²: the variance where answers of a class are alike and classes are not.

        None without enough answers of each class.
        """
        if self.class_n < ENOUGH_OF_CLASS:
            return None
        m = self.mean
        return (self.class_wwyy - 2.0 * m * self.class_wwy + m * m * self.ww) / self.w**2


def _classes(values: Sequence[float], weights: Sequence[float]) -> list[tuple[int, float, float, float]]:
    """The classes of π, a factor of two wide each: n_h, A_h, q_h and e_h of `Moments`."""
    classes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for value, weight in zip(values, weights, strict=True):
        classes[math.floor(math.log2(weight))].append((value, weight))
    found = []
    for answers in classes.values():
        n, w, ww = len(answers), *(math.fsum(weight**power for _, weight in answers) for power in (1, 2))
        q, e = (
            (n * math.fsum(weight * value**power for value, weight in answers) / w + 1.0) / (n + 2.0)
            for power in (1, 2)
        )
        found.append((n, ww, q, e))
    return found


_ADDED = (
    "w", "wy", "wyy", "ww", "cluster_ww", "cluster_ws", "cluster_ss", "cluster_means", "cluster_own", "class_wwy",
    "class_wwyy",
)  # fmt: skip
"""The sums of `Moments` that grow with the number of answers."""
