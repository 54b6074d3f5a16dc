"""An estimate of one evaluator, group and bucket with what is missing from it, as figures and as words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ragpulse_collector.analysis.selection import iso
from ragpulse_evaluators.statistics import Estimate, Interval, Moments

__all__ = ["FAILURES", "NO_POINT", "Bucket", "Missing", "current", "in_words", "moved", "point", "version_markers"]

FAILURES = ("skipped", "invalid", "error")


def point(estimate: Estimate | None, *, identified: bool = False) -> dict[str, Any]:
    """The figures of an estimate as the API shows them; all null where nothing was measured.

    `users` counts whose answers they are: null where no answer names a user or session (`identified`), so that all
    answers are taken as independent. `reason` says why there is no interval.
    """
    if estimate is None:
        nothing = dict.fromkeys(("value", "lo", "hi", "users", "reason"))
        return {**nothing, "n": 0, "n_eff": 0.0, "thin": False}
    return {
        "value": estimate.estimate,
        "lo": estimate.lo,
        "hi": estimate.hi,
        "n": estimate.n,
        "n_eff": round(estimate.n_eff, 9),
        "users": estimate.clusters if identified else None,
        "thin": estimate.thin,
        "reason": estimate.reason,
    }


@dataclass(frozen=True, slots=True)
class Missing:
    """Selected answers without a verdict: left out by the budget, failed, or pending; and what they weigh."""

    dropped: int = 0
    failed: int = 0
    pending: int = 0
    weight: float = 0.0

    def __add__(self, other: Missing) -> Missing:
        return Missing(
            self.dropped + other.dropped,
            self.failed + other.failed,
            self.pending + other.pending,
            self.weight + other.weight,
        )

    @property
    def n(self) -> int:
        """How many there are."""
        return self.dropped + self.failed + self.pending

    @property
    def note(self) -> str | None:
        """What is missing, in words."""
        parts = ((self.dropped, "left out by the budget"), (self.failed, "failed"), (self.pending, "pending"))
        listed = ", ".join(f"{n:,} {why}" for n, why in parts if n)
        return f"{self.n:,} missing: {listed}" if listed else None


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """What one version of an evaluator says about one group in one bucket of request time."""

    evaluator: str
    group: tuple[Any, ...]
    version: str | None
    judge: str | None
    at: datetime
    moments: Moments | None = None
    """None where no verdict could be read."""
    counts: dict[str, int]
    """Verdicts that are no number: skipped, invalid, error."""
    online: dict[str, int]
    """Verdicts by status without those of replays."""
    missing: Missing
    first: datetime | None = None
    """The earliest request with an online verdict: what lies before rests on replays ..."""
    last: datetime
    """... and the latest of all."""
    passed: float = 0.0
    """What passing answers weigh ..."""
    called: float = 0.0
    """... of those that the evaluator calls passing or not."""
    bounded: bool
    """Whether the measure lies in 0..1."""
    identified: bool = False
    """Whether any answer names its user or session."""

    @cached_property
    def estimate(self) -> Estimate | None:
        """The mean and its interval; None where no verdict could be read."""
        return self.estimate_at(0.95)

    def estimate_at(self, confidence: float) -> Estimate | None:
        """The same with an interval of another confidence."""
        if self.moments is None:
            return None
        return self.moments.estimate(bounds=(0.0, 1.0) if self.bounded else None, confidence=confidence)

    @property
    def passing_rate(self) -> float | None:
        """The weighted share that passes, where the evaluator says what passing is."""
        return self.passed / self.called if self.called else None

    @property
    def missing_share(self) -> float:
        """The share of the selected traffic that has no verdict."""
        return self.missing.weight / self.asked if self.missing.weight else 0.0

    @property
    def asked(self) -> float:
        """The answers that the estimate speaks for: those scored, by what each represents, and those missing."""
        return (self.moments.w if self.moments else 0.0) + self.missing.weight

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Where answers are missing: the value if all of them failed, and if all of them passed."""
        value = self.moments.mean if self.moments else 0.0
        return self.widened(value, value) if self.bounded and self.missing.weight else None

    def limits(self, estimate: Estimate | None) -> tuple[float | None, float | None]:
        """The interval that decides: of an estimate, with everything that is missing failed, and passed."""
        if estimate is None:
            return (0.0, 1.0) if self.bounded and self.missing.weight else (None, None)
        if estimate.lo is None or estimate.hi is None:
            return None, None
        return self.widened(estimate.lo, estimate.hi)

    @property
    def interval(self) -> Interval | None:
        """The estimate with the interval that decides; None where there is none."""
        lo, hi = self.limits(self.estimate)
        return None if self.estimate is None or lo is None or hi is None else Interval(self.estimate.estimate, lo, hi)

    def widened(self, lo: float, hi: float) -> tuple[float, float]:
        """An interval with everything that is missing failed, and passed."""
        least, most = 0.0, 1.0
        if not self.bounded and self.moments is not None:  # of an open scale only the ends that were seen are known
            least, most = self.moments.least, self.moments.most
        share = self.missing_share
        return lo + (least - lo) * share, hi + (most - hi) * share

    def point(self) -> dict[str, Any]:
        """The point as the API shows it, without its time."""
        shown = point(self.estimate, identified=self.identified)
        return shown | {
            "counts": self.counts,
            "dropped": self.missing.dropped,
            "pending": self.missing.pending,
            "missing": self.missing.n,
            "asked": self.asked,
            "missing_share": self.missing_share,
            "replayed": max(0, (self.moments.n if self.moments else 0) - self.online.get("ok", 0)),
            "bounds": None if self.bounds is None else list(self.bounds),
            "least": self.limits(self.estimate)[0],
            "most": self.limits(self.estimate)[1],
            "words": self.words,
        }

    @property
    def words(self) -> str:
        """The figures as one line: value, answers, users, what is missing."""
        return in_words(
            point(self.estimate, identified=self.identified) | {"asked": self.asked}, note=self.missing.note
        )


NO_POINT: dict[str, Any] = {
    **point(None), "counts": dict.fromkeys(FAILURES, 0), "dropped": 0, "pending": 0, "missing": 0, "asked": 0.0,
    "missing_share": 0.0, "replayed": 0, "bounds": None, "least": None, "most": None, "words": "nothing scored",
}  # fmt: skip
"""The point of a bucket in which nothing was selected."""


def in_words(figures: Mapping[str, Any], *, note: str | None = None) -> str:
    """Say what a point rests on: `0.87 ± 0.03 · 412 of 9,800 answers · 58 users · 169 missing: 169 pending`."""
    value, lo, hi, n = (figures[name] for name in ("value", "lo", "hi", "n"))
    if value is None:
        return note or "nothing scored"
    if lo is None or hi is None:
        quality = f"{value:.2f}, {figures['reason'] or 'too few answers'} for an interval"
    elif abs((hi - value) - (value - lo)) < 0.005:
        quality = f"{value:.2f} ± {(hi - lo) / 2.0:.2f}"
    else:
        quality = f"{value:.2f} ({lo:.2f} to {hi:.2f})"
    asked = round(figures.get("asked") or 0)
    of = f" of {asked:,}" if asked > n else ""
    whose = "taken as independent" if figures["users"] is None else f"{figures['users']:,} users"
    return " · ".join(part for part in (quality, f"{n:,}{of} answers", whose, note) if part)


def moved(shown: dict[str, Any], figures: Mapping[str, Any]) -> None:
    """Give a point another value and interval, and say so in its words and in the interval that decides."""
    shown |= figures
    share, lo, hi = shown["missing_share"], shown["lo"], shown["hi"]
    if lo is not None and hi is not None:
        shown["least"], shown["most"] = lo * (1.0 - share), hi * (1.0 - share) + share
    shown["words"] = in_words(shown, note=f"{shown['missing']:,} missing" if shown["missing"] else None)


def current(buckets: Iterable[Bucket]) -> Bucket | None:
    """The bucket of the version in force: the one with the latest request, the larger of equals."""
    ranked = [(one.moments is not None, one.last, one.moments.n if one.moments else 0, one) for one in buckets]
    return max(ranked, key=lambda entry: entry[:3], default=(None,))[-1]


_MOST_MARKERS = 50


def version_markers(evaluator: str, buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """The same for the versions and judges of an evaluator, from its buckets: online verdicts only, the first apart."""
    began: dict[tuple[str | None, str | None], datetime] = {}
    for one in buckets:
        if one.first is not None:
            line = (one.version, one.judge)
            began[line] = min(began.get(line, one.first), one.first)
    ordered = sorted(began.items(), key=lambda item: item[1])[1 : _MOST_MARKERS + 1]
    return [
        {"t": iso(at), "kind": "version", "text": f"{evaluator} {version}{f' judged by {judge}' if judge else ''}"}
        for (version, judge), at in ordered
    ]
