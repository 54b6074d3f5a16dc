"""Corrects a judge's numbers by people's labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ragpulse_collector.analysis.answers import uncertain
from ragpulse_collector.analysis.quality import Bucket, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import LABELS, sample_of
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.views import UNCLEAR
from ragpulse_evaluators.statistics import NOT_ENOUGH_USERS, Interval, Uncertain, bootstrap_ci, cohen_kappa, hajek, plus
from ragpulse_evaluators.statistics.correction import Judged, judge_weight, mean_error

__all__ = [
    "Agreement",
    "Calibration",
    "JudgeError",
    "JudgedUnit",
    "LabelledJudge",
    "calibration",
    "correct",
    "error_of",
    "judged_units",
    "labelled_judges",
    "reach",
]

_ENOUGH = 30
"""The fewest labels for a correction."""
Version = tuple[str | None, str | None]
"""A version of an evaluator, and its judge."""
_REACH = timedelta(days=90)
"""Labels of this time before the window also correct."""


@dataclass(frozen=True, slots=True)
class JudgedUnit:
    """One judged unit: the judge's value, its inclusion probability, and the label of a person, if any."""

    trace_id: str
    time: datetime
    version: str | None
    judge: str | None
    value: float
    pi: float
    cluster: int
    human: float | None
    label_pi: float | None
    unclear: bool = False
    """Whether the judge could not decide between pass and fail."""


def judged_units(
    store: Store, evaluator: str, window: Window, filters: Filter, *, labelled: bool = False
) -> list[JudgedUnit]:
    """Return the judged units of a range with their labels; `labelled` ones alone."""
    sample = sample_of(store, evaluator, window.parameters, filters)
    rows = store.read(
        "SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, s.cluster, l.human, l.label_pi,"
        f" {UNCLEAR}"
        f" FROM ({sample.sql}) s LEFT JOIN ({LABELS}) l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
        " WHERE s.pi IS NOT NULL AND s.status = 'ok' AND s.normalized IS NOT NULL"
        f"{' AND l.human IS NOT NULL' if labelled else ''}",
        sample.parameters,
    ).rows
    return [JudgedUnit(row[0].hex, *row[1:]) for row in rows]


@dataclass(frozen=True, slots=True)
class LabelledJudge:
    """All that a version of a judge scored, added up, and what people labelled of it."""

    scored: Bucket
    labelled: Sequence[JudgedUnit]

    @property
    def drawn(self) -> list[JudgedUnit]:
        """The sampled labels: only these say something about the other answers."""
        return [unit for unit in self.labelled if unit.label_pi is not None]


def labelled_judges(store: Store, query: Query, evaluator: str) -> dict[Version, LabelledJudge]:
    """Return the versions and judges with answers in the reach of a window, with their labels."""
    window = reach(query.window)
    units = judged_units(store, evaluator, window, query.filters, labelled=True)
    return {
        bucket.series: LabelledJudge(bucket, [unit for unit in units if (unit.version, unit.judge) == bucket.series])
        for bucket in estimates(store, evaluator, window, query.filters)
        if bucket.moments is not None
    }


def reach(window: Window) -> Window:
    """Return the range whose labels correct the numbers of a window."""
    return Window(window.first - _REACH, window.last, 0)


@dataclass(frozen=True, slots=True)
class JudgeError:
    """The weight λ of the judge, and the mean of person minus λ times judge."""

    lam: float
    error: Interval

    def __call__(self, judged: Interval) -> Interval:
        """Return the corrected number: λ times the judge's, plus the error."""
        return plus(judged.times(self.lam), self.error).within(0.0, 1.0)


def error_of(judge: LabelledJudge, *, least: int = _ENOUGH) -> JudgeError | None:
    """Return the judge's error by sampled labels; None where labels or users are too few."""
    labelled, moments = judge.drawn, judge.scored.moments
    if len(labelled) < least or moments is None:
        return None
    pi = [answer.pi * float(answer.label_pi or 1.0) for answer in labelled]
    human = [float(answer.human or 0.0) for answer in labelled]
    guesses = [answer.value for answer in labelled]
    lam = judge_weight(Judged.of_moments(moments), guesses, human, pi)
    errors = [truth - lam * guess for truth, guess in zip(human, guesses, strict=True)]
    error = mean_error(errors, pi, [answer.cluster for answer in labelled])
    return None if error is None else JudgeError(lam, error)


def correct(bucket: Bucket, error: JudgeError | None) -> Bucket:
    """Return a bucket with the figure as people's labels correct it (PPI++); the same without an error or an interval.

    The error is that of its version's labels in the window and 90 days before it, and is assumed constant; its own
    uncertainty enters the interval. Only sampled labels count: labels that people chose themselves say nothing about
    the other answers.
    """
    judged = Interval.of(bucket.estimate)
    return bucket if error is None or judged is None else replace(bucket, corrected=error(judged))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The agreement of a version of an evaluator with people, each share with its 95 % interval."""

    version: str | None
    judge: str | None
    n: int
    """Labels."""
    drawn: int
    """Those of them that were drawn by sampling."""
    kappa: float | None
    lo: float | None
    hi: float | None
    sensitivity: float | None
    sensitivity_lo: float | None
    sensitivity_hi: float | None
    specificity: float | None
    specificity_lo: float | None
    specificity_hi: float | None
    judged: float | None
    """The judge's mean."""
    corrected: Interval | None
    """The corrected mean, equal to that of the series over the same range."""
    note: str | None
    """Why nothing is corrected."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """An evaluator against people's labels, the newest version first."""

    evaluator: str
    versions: Sequence[Agreement]


def calibration(store: Store, query: Query, evaluator: str) -> Calibration:
    """Answer `GET calibration`: a judge against people's labels, per version and judge.

    Agreement is kappa, sensitivity and specificity at 0.5 of what the judge decided, each with an interval in which the
    labels of a user's answers are dependent.
    """
    judges = labelled_judges(store, query, evaluator)
    in_window = {bucket.series: bucket for bucket in estimates(store, evaluator, query.window.whole, query.filters)}
    newest = sorted(judges.items(), key=lambda entry: entry[1].scored.last, reverse=True)
    reports = (_agreement(judge, in_window[series]) for series, judge in newest if series in in_window)
    return Calibration(evaluator, [report for report in reports if report])


def _agreement(judge: LabelledJudge, bucket: Bucket) -> Agreement | None:
    estimate, labelled, correction = bucket.estimate, judge.labelled, error_of(judge)
    if estimate is None:
        return None
    corrected = correct(bucket, correction).corrected
    decided = [answer for answer in labelled if not answer.unclear]
    pairs = [(int(answer.value >= 0.5), int((answer.human or 0.0) >= 0.5)) for answer in decided]
    kappa = _kappa(pairs) if pairs else None
    users = [answer.cluster for answer in decided]
    lo, hi = _kappa_interval(pairs, users) if kappa is not None else (None, None)
    sensitivity = _share([(a, user) for (a, b), user in zip(pairs, users, strict=True) if b])
    specificity = _share([(1 - a, user) for (a, b), user in zip(pairs, users, strict=True) if not b])
    return Agreement(
        version=bucket.version,
        judge=bucket.judge,
        n=len(labelled),
        drawn=len(judge.drawn),
        kappa=kappa,
        lo=lo,
        hi=hi,
        sensitivity=sensitivity.value,
        sensitivity_lo=sensitivity.lo,
        sensitivity_hi=sensitivity.hi,
        specificity=specificity.value,
        specificity_lo=specificity.lo,
        specificity_hi=specificity.hi,
        judged=estimate.estimate,
        corrected=corrected,
        note=_note(labelled, corrected=corrected is not None),
    )


def _note(labelled: Sequence[JudgedUnit], *, corrected: bool) -> str | None:
    """Return why nothing is corrected."""
    if corrected:
        return None
    chosen = sum(answer.label_pi is None for answer in labelled)
    if len(labelled) - chosen >= _ENOUGH:
        return NOT_ENOUGH_USERS
    return "not enough labels" + (f": {chosen} were chosen by people, and correct nothing" if chosen else "")


def _share(hits: Sequence[tuple[int, int]]) -> Uncertain:
    """Return the share of hits, each with its user; the labels of a user's answers are dependent."""
    return uncertain(hajek([float(hit) for hit, _ in hits], [1.0] * len(hits), clusters=[user for _, user in hits]))


def _kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    return cohen_kappa([judge for judge, _ in pairs], [person for _, person in pairs])


def _kappa_interval(pairs: Sequence[tuple[int, int]], users: Sequence[int]) -> tuple[float | None, float | None]:
    """Return the bootstrap interval over users; None where a few users have nearly all labels."""
    agreement = hajek([float(a == b) for a, b in pairs], [1.0] * len(pairs), clusters=users)
    if len(pairs) < _ENOUGH or agreement is None or agreement.lo is None:
        return None, None
    interval = bootstrap_ci(pairs, statistic=lambda rows: _kappa(rows) or 0.0, groups=users, resamples=500)
    return (None, None) if interval is None else (interval.lo, interval.hi)
