"""An estimate of one evaluator, group and bucket, with its missing verdicts, as figures and as words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from ragpulse_collector.analysis.answers import Answer, GroupValue, Marker, extended, flag, uncertain
from ragpulse_collector.words import basis, called, level
from ragpulse_evaluators.statistics import Estimate, Interval, Moments, Uncertain

__all__ = [
    "FAILURES",
    "Bucket",
    "Figures",
    "Measured",
    "Missing",
    "changed_version",
    "current",
    "markers_at",
    "version_markers",
    "wording_change",
]

FAILURES = ("skipped", "invalid", "error")
_NAMED: tuple[Literal["users", "sessions"] | None, ...] = (None, "sessions", "users")
"""What `IDENTIFIED` of `store.estimates` counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures(Uncertain):
    """An estimate with its 95 % interval; all null where nothing was measured."""

    n: int = 0
    n_eff: float = 0.0
    users: int | None = None
    """Null where no answer names a user or session: all answers are taken as independent."""
    users_are: Literal["users", "sessions"] | None = None
    """`sessions` where no answer names its user, but some name their session."""
    thin: bool = False
    reason: str | None = None
    """Why there is no interval."""

    @classmethod
    def of(cls, estimate: Estimate | None, *, identified: int = 0) -> Figures:
        """Return the figures of an estimate; `identified` says what the answers name, as `IDENTIFIED` counts."""
        if estimate is None:
            return cls()
        return cls(
            value=estimate.estimate,
            lo=estimate.lo,
            hi=estimate.hi,
            n=estimate.n,
            n_eff=round(estimate.n_eff, 9),
            users=estimate.clusters if identified else None,
            users_are=(named := _NAMED[int(identified)]),
            thin=estimate.thin,
            reason=estimate.reason and estimate.reason.replace("users", named or "users"),
        )

    @classmethod
    def of_sums(cls, sums: Moments | None) -> Figures:
        """Return the figures of a mean from 0 to 1."""
        return cls() if sums is None else cls.of(sums.estimate(), identified=sums.identified)

    def in_words(self, *, asked: float = 0.0, passed: tuple[int, int] | None = None, note: str | None = None) -> str:
        """Return `0.87 ± 0.03 · 412 of 9,800 answers · 58 users · 169 missing: 169 pending`."""
        if self.value is None:
            return note or "nothing scored"
        rests_on = basis(self.n, asked=asked, passed=passed, users=self.users, users_are=self.users_are)
        if self.lo is None or self.hi is None:
            figure = f"{self.value:.2f}, {self.reason or 'too few answers'} for an interval"
        else:
            figure = level(self.value, self.lo, self.hi)
        return " · ".join(part for part in (figure, rests_on, note) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Figures):
    """An estimate of quality with its missing part: selected answers without a result."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURES, 0))
    """Verdicts without a score: skipped, invalid, error."""
    dropped: int = 0
    pending: int = 0
    missing: int = 0
    asked: float = 0.0
    """The answers that it represents: scored ones by their weights, and missing ones."""
    missing_share: float = 0.0
    passed: tuple[int, int] | None = None
    """The numbers of answers that passed, and that have pass or fail; null where the evaluator has none."""
    replayed: int = 0
    """Scores of replays, among `n`."""
    bounds: tuple[float, float] | None = None
    """The value if all missing answers failed, and if all passed."""
    least: float | None = None
    """The interval that decides: `lo` and `hi` with all missing answers failed, and passed."""
    most: float | None = None
    words: str = "nothing scored"
    uncorrected: Uncertain | None = None
    """The judge's figure, where people's labels corrected it."""
    correction: str | None = None
    """What people's labels did or could do, in words; null where nobody labels and no model judges."""
    assisted_by: None = None
    unassisted: None = None
    """Both always null: a judge has its own interval."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Selected answers without a verdict: dropped by the budget, failed, pending or unclear; and their weight.

    Unclear answers miss in a `pass_rate` only: the other metrics count them.
    """

    dropped: int = 0
    failed: int = 0
    pending: int = 0
    weight: float = 0.0
    unclear: int = 0

    def __add__(self, other: Missing) -> Missing:
        return Missing(
            self.dropped + other.dropped,
            self.failed + other.failed,
            self.pending + other.pending,
            self.weight + other.weight,
            self.unclear + other.unclear,
        )

    @property
    def n(self) -> int:
        """The number of answers."""
        return self.dropped + self.failed + self.pending + self.unclear

    @property
    def note(self) -> str | None:
        """The missing verdicts in words."""
        parts = (
            (self.dropped, "left out by the budget"),
            (self.failed, "failed"),
            (self.pending, "pending"),
            (self.unclear, "unclear"),
        )
        listed = ", ".join(f"{n:,} {why}" for n, why in parts if n)
        return f"{self.n:,} missing: {listed}" if listed else None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The verdicts of one evaluator version on one group in one bucket of request time."""

    evaluator: str
    group: tuple[GroupValue, ...]
    version: str | None
    judge: str | None
    start: datetime
    moments: Moments | None = None
    """None without a verdict."""
    counts: dict[str, int]
    """Verdicts without a score: skipped, invalid, error."""
    online: dict[str, int]
    """Online verdicts by status."""
    missing: Missing
    first: datetime | None = None
    """The earliest request with an online verdict; earlier scores are of replays."""
    last: datetime
    """The latest request."""
    passed: float = 0.0
    """The weight of passing answers."""
    called: float = 0.0
    """The weight of answers with pass or fail."""
    unclear: float = 0.0
    """The weight of answers that were scored, but are neither pass nor fail."""
    n_unclear: int = 0
    n_passed: tuple[int, int] | None = None
    """The numbers of answers that passed, and that have pass or fail; None where the evaluator has none."""
    bounded: bool
    """Whether scores lie in 0..1."""
    identified: int = 0
    """2: some answer names its user, 1: some name their session, 0: none of both."""
    corrected: Interval | None = None
    """The figure as people's labels correct it."""
    correction: str | None = None

    @property
    def series(self) -> tuple[str | None, str | None]:
        """Version and judge: only buckets of the same are compared."""
        return self.version, self.judge

    @cached_property
    def estimate(self) -> Estimate | None:
        """The mean and its interval; None without a verdict."""
        return self.estimate_at(0.95)

    def estimate_at(self, confidence: float) -> Estimate | None:
        """Return the estimate with an interval of another confidence."""
        if self.moments is None:
            return None
        return self.moments.estimate(bounds=(0.0, 1.0) if self.bounded else None, confidence=confidence)

    @property
    def passing_rate(self) -> float | None:
        """The weighted share of passing answers; None where the evaluator has no pass or fail."""
        return self.passed / self.called if self.called else None

    @property
    def clear_share(self) -> float | None:
        """The weighted share of answers with pass or fail; None where the evaluator has none."""
        decided = self.called + self.unclear
        return self.called / decided if decided else None

    def wording(self, before: Bucket | None) -> str | None:
        """Tell that the evaluator decides another share of the answers than before; None where it does not, surely."""
        now, was = self.clear_share, before.clear_share if before else None
        if now is None or was is None or before is None or self.moments is None or before.moments is None:
            return None
        return wording_change((now, self.moments.clusters), (was, before.moments.clusters))

    @property
    def missing_share(self) -> float:
        """The share of the selected traffic without a verdict."""
        return self.missing.weight / self.selected_weight if self.missing.weight else 0.0

    @property
    def selected_weight(self) -> float:
        """The weight of scored and missing answers: the traffic that the estimate is about."""
        return (self.moments.w if self.moments else 0.0) + self.missing.weight

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The value if all missing answers failed, and if all passed; None if none is missing."""
        value = self.moments.mean if self.moments else 0.0
        return self.widen(value, value) if self.bounded and self.missing.weight else None

    def limits(self, figure: Uncertain | None) -> tuple[float | None, float | None]:
        """Return the deciding interval: that of a figure with all missing answers failed, and passed."""
        if figure is None or figure.value is None:
            return (0.0, 1.0) if self.bounded and self.missing.weight else (None, None)
        if figure.lo is None or figure.hi is None:
            return None, None
        return self.widen(figure.lo, figure.hi)

    @property
    def interval(self) -> Interval | None:
        """The estimate with its deciding interval; None without one."""
        lo, hi = self.limits(self.estimate)
        return None if self.estimate is None or lo is None or hi is None else Interval(self.estimate.estimate, lo, hi)

    def widen(self, lo: float, hi: float) -> tuple[float, float]:
        """Return an interval with all missing answers failed, and passed."""
        least, most = 0.0, 1.0
        if not self.bounded and self.moments is not None:  # of an open scale only the observed ends are known
            least, most = self.moments.least, self.moments.most
        share = self.missing_share
        return lo + (least - lo) * share, hi + (most - hi) * share

    @property
    def measured(self) -> Measured:
        """The figures with the missing part."""
        return self.measured_as(Measured)

    def measured_as(self, kind: type[Answer], **more: Any) -> Answer:
        """Return an answer that has the figures with the missing part, and more of its own."""
        figures = self._figures
        least, most = self.limits(figures)
        return extended(
            kind,
            figures,
            counts=self.counts,
            dropped=self.missing.dropped,
            pending=self.missing.pending,
            missing=self.missing.n,
            asked=self.selected_weight,
            missing_share=self.missing_share,
            passed=self.n_passed,
            replayed=max(0, (self.moments.n if self.moments else 0) - self.online.get("ok", 0)),
            bounds=self.bounds,
            least=least,
            most=most,
            words=self._in_words(figures),
            uncorrected=uncertain(self.estimate) if self.corrected else None,
            correction=self.correction,
            **more,
        )

    @property
    def words(self) -> str:
        """The figures as one line: value, answers, users, missing verdicts."""
        return self._in_words(self._figures)

    @property
    def _figures(self) -> Figures:
        figures, right = Figures.of(self.estimate, identified=self.identified), self.corrected
        return figures if right is None else replace(figures, value=right.value, lo=right.lo, hi=right.hi)

    def _in_words(self, figures: Figures) -> str:
        told = (self.missing.note, self.correction if self.corrected else None)
        note = " · ".join(filter(None, told)) or None
        return figures.in_words(asked=self.selected_weight, passed=self.n_passed, note=note)


_SURE = 3.3
"""Standard errors: one false alarm in a thousand looks."""


def wording_change(now: tuple[float, int], before: tuple[float, int]) -> str | None:
    """Return that a share of decided answers moved, from two shares and their numbers of users, where it surely did.

    Scores of a check of words move with the wording too, so whoever reads them needs to know.
    """
    (share, n), (earlier, n_before) = now, before
    pooled = (share * n + earlier * n_before) / (n + n_before)
    error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / n + 1.0 / n_before))
    if abs(share - earlier) <= _SURE * error or round(100 * share) == round(100 * earlier):
        return None
    return f"wording changed: it decides {share:.0%} instead of {earlier:.0%}".replace("%", " %")


def current(buckets: Iterable[Bucket]) -> Bucket | None:
    """Return the bucket of the version in force: that of the latest request, the larger of equals."""
    ranked = [
        (bucket.moments is not None, bucket.last, bucket.moments.n if bucket.moments else 0, bucket)
        for bucket in buckets
    ]
    return max(ranked, key=lambda entry: entry[:3], default=(None,))[-1]


def changed_version(buckets: Iterable[Bucket], newest: Bucket) -> str | None:
    """Return that another version or judge scored online in the same range; None where only the newest did."""
    others = {
        _named(bucket): bucket.moments.n
        for bucket in buckets
        if bucket.series != newest.series and bucket.online.get("ok") and bucket.moments
    }
    if not others or newest.moments is None:
        return None
    former = ", ".join(f"{n:,} of {version}" for version, n in others.items())
    return f"the evaluator changed in this range: {newest.moments.n:,} answers of {_named(newest)} count, not {former}"


def _named(bucket: Bucket) -> str:
    return " by ".join(name for name in bucket.series if name) or "no version"


_MOST_MARKERS = 50


def version_markers(evaluator: str, buckets: Sequence[Bucket]) -> list[Marker]:
    """Return where versions and judges of an evaluator started online, without the first."""
    starts: dict[tuple[str | None, str | None], datetime] = {}
    for bucket in buckets:
        if bucket.first is not None:
            version_and_judge = bucket.series
            starts[version_and_judge] = min(starts.get(version_and_judge, bucket.first), bucket.first)
    return markers_at(evaluator, starts)


def markers_at(evaluator: str, starts: Mapping[tuple[str | None, str | None], datetime]) -> list[Marker]:
    """Return the starts of versions and judges as markers, without the first."""
    ordered = sorted(starts.items(), key=lambda item: item[1])[1 : _MOST_MARKERS + 1]
    return [
        Marker(
            start,
            "version",
            f"{called(evaluator)} {version}{f' judged by {judge}' if judge else ''}",
            label=flag(version),
        )
        for (version, judge), start in ordered
    ]
