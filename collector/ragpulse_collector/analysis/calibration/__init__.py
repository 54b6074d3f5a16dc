"""Corrects a judge's numbers by people's labels, and narrows them by a check that scored every answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ragpulse_collector.analysis.answers import Place, Uncertain
from ragpulse_collector.analysis.quality.points import Assistance, QualityLine, QualityPoint
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.queries.decisions import COVERED, ELIGIBLE
from ragpulse_collector.store.queries.scores import FIRST_SCORES, LABELS, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_evaluators.statistics import (
    NOT_ENOUGH_USERS,
    Interval,
    assisted_mean,
    bootstrap_ci,
    cohen_kappa,
    hajek,
    plus,
    ppi_mean,
)

__all__ = [
    "Agreement",
    "Calibration",
    "JudgeError",
    "JudgedUnit",
    "assist",
    "calibration",
    "correct",
    "error_of",
    "judged_units",
    "reach",
]

_ENOUGH = 30
"""The fewest labels for a correction."""
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


def judged_units(store: Store, evaluator: str, window: Window, filters: Filter) -> list[JudgedUnit]:
    """Return the judged units of a range with their labels."""
    sample = sample_of(store, evaluator, window.parameters, filters)
    rows = store.read(
        "SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, s.cluster, l.human, l.label_pi"
        f" FROM ({sample.sql}) s LEFT JOIN ({LABELS}) l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
        " WHERE s.pi IS NOT NULL AND s.status = 'ok' AND s.normalized IS NOT NULL",
        sample.parameters,
    ).rows
    return [JudgedUnit(row[0].hex, *row[1:]) for row in rows]


def correct(store: Store, query: Query, evaluator: str, lines: Sequence[QualityLine]) -> list[QualityLine]:
    """Return quality lines with each point moved by the judge's error as people's labels show it (PPI++).

    The correction uses the labels of the line's version in the window and 90 days before it, and is assumed constant;
    its own uncertainty enters each interval. Only sampled labels count: labels that people chose themselves
    (`labels_chosen`) say nothing about the other answers. With fewer than 30 labels nothing is moved.
    """
    judged = judged_units(store, evaluator, reach(query.window), query.filters)
    return [
        _corrected(line, [unit for unit in judged if (unit.version, unit.judge) == (line.version, line.judge)])
        for line in lines
    ]


def _corrected(line: QualityLine, judged: Sequence[JudgedUnit]) -> QualityLine:
    correction = error_of(judged)
    drawn = [unit.label_pi is not None for unit in judged if unit.human is not None]
    return replace(
        line,
        points=[_moved(point, correction) for point in line.points] if correction else line.points,
        labels=sum(drawn),
        labels_chosen=len(drawn) - sum(drawn),
        corrected=correction is not None,
    )


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
        part = Interval(*(self.lam * end for end in (judged.value, judged.lo, judged.hi)))
        return plus(part, self.error).within(0.0, 1.0)


def error_of(judged: Sequence[JudgedUnit], *, least: int = _ENOUGH) -> JudgeError | None:
    """Return the judge's error by sampled labels; None where labels or users are too few."""
    labelled = [answer for answer in judged if answer.human is not None and answer.label_pi is not None]
    if len(labelled) < least:
        return None
    pi = [answer.pi * float(answer.label_pi or 1.0) for answer in labelled]
    human = [float(answer.human or 0.0) for answer in labelled]
    guesses = [answer.value for answer in labelled]
    estimate = ppi_mean([answer.value for answer in judged], guesses, human, [answer.pi for answer in judged], pi)
    lam = 1.0 if estimate is None else estimate.lam
    errors = [truth - lam * guess for truth, guess in zip(human, guesses, strict=True)]
    error = Interval.of(hajek(errors, pi, clusters=[answer.cluster for answer in labelled], bounds=(-1.0, 1.0)))
    return None if error is None else JudgeError(lam, error)


def _moved(point: QualityPoint, correction: JudgeError) -> QualityPoint:
    value, lo, hi = point.value, point.lo, point.hi
    if value is None or lo is None or hi is None:
        return point
    moved = correction(Interval(value, lo, hi))
    return point.moved(value=moved.value, lo=moved.lo, hi=moved.hi, uncorrected=_uncertain(point))


def _uncertain(point: QualityPoint) -> Uncertain:
    return Uncertain(value=point.value, lo=point.lo, hi=point.hi)


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

    Agreement is kappa, sensitivity and specificity at 0.5, each with an interval in which the labels of a user's
    answers are dependent.
    """
    judged = judged_units(store, evaluator, reach(query.window), query.filters)
    versions = dict.fromkeys(
        (answer.version, answer.judge) for answer in sorted(judged, key=lambda answer: answer.time, reverse=True)
    )
    reports = (_agreement(judged, *version, since=query.window.first) for version in versions)
    return Calibration(evaluator, [report for report in reports if report])


def _agreement(
    judged: Sequence[JudgedUnit], version: str | None, judge: str | None, *, since: datetime
) -> Agreement | None:
    own = [answer for answer in judged if (answer.version, answer.judge) == (version, judge)]
    labelled = [answer for answer in own if answer.human is not None]
    pairs = [(int(answer.value >= 0.5), int((answer.human or 0.0) >= 0.5)) for answer in labelled]
    in_window, correction = [answer for answer in own if answer.time >= since], error_of(own)
    if not in_window:
        return None
    estimate = hajek(
        [answer.value for answer in in_window],
        [answer.pi for answer in in_window],
        clusters=[answer.cluster for answer in in_window],
    )
    measured = Interval.of(estimate)
    kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
    users = [answer.cluster for answer in labelled]
    lo, hi = _kappa_interval(pairs, users) if kappa is not None else (None, None)
    sensitivity = _share([(a, user) for (a, b), user in zip(pairs, users, strict=True) if b])
    specificity = _share([(1 - a, user) for (a, b), user in zip(pairs, users, strict=True) if not b])
    return Agreement(
        version=version,
        judge=judge,
        n=len(labelled),
        drawn=sum(answer.label_pi is not None for answer in labelled),
        kappa=kappa,
        lo=lo,
        hi=hi,
        sensitivity=sensitivity.value,
        sensitivity_lo=sensitivity.lo,
        sensitivity_hi=sensitivity.hi,
        specificity=specificity.value,
        specificity_lo=specificity.lo,
        specificity_hi=specificity.hi,
        judged=None if estimate is None else estimate.estimate,
        corrected=correction(measured) if correction and measured else None,
        note=_note(labelled, corrected=correction is not None and measured is not None),
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
    estimate = hajek([float(hit) for hit, _ in hits], [1.0] * len(hits), clusters=[user for _, user in hits])
    return Uncertain() if estimate is None else Uncertain(value=estimate.estimate, lo=estimate.lo, hi=estimate.hi)


def _kappa_interval(pairs: Sequence[tuple[int, int]], users: Sequence[int]) -> tuple[float | None, float | None]:
    """Return the bootstrap interval over users; None where a few users have nearly all labels."""
    agreement = hajek([float(a == b) for a, b in pairs], [1.0] * len(pairs), clusters=users)
    if len(pairs) < _ENOUGH or agreement is None or agreement.lo is None:
        return None, None
    interval = bootstrap_ci(pairs, statistic=_kappa_of_rows, groups=users, resamples=500)
    return (None, None) if interval is None else (interval.lo, interval.hi)


def _kappa_of_rows(rows: Sequence[tuple[int, int]]) -> float:
    kappa = cohen_kappa([judge for judge, _ in rows], [person for _, person in rows])
    return 0.0 if kappa is None else kappa


_NO_GAIN = "too few judged (below 30, or 10 of the rarer kind), all judged, or the check does not foresee the verdict"
_SEVERAL = "several versions were asked here, and nothing says which one an answer not drawn would have met"
_REPLAYED = "a replay judged some of these: their chances are not the rule's"
Version = tuple[str | None, str | None]
"""A version of an evaluator, and its judge."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that the judge's rule could have selected."""

    unit: int
    place: Place
    pi: float
    upstream: float
    drawn: bool
    covered: bool
    """Whether the check had to score it, independent of the sampling."""
    check: float | None
    cluster: int


@dataclass(frozen=True, slots=True)
class _Verdict:
    value: float
    pi: float
    online: bool


def assist(store: Store, query: Query, evaluator: str, check: str, lines: Sequence[QualityLine]) -> list[QualityLine]:
    """Return quality lines with each point moved and narrowed by the scores of `check` for every answer of the rule.

    A point gets `unassisted` (value, lo, hi as they were) and `assisted`. Answers without a score of the check stay in.
    Raises Invalid where either evaluator has no scores from 0 to 1, and where the check did not have to score every
    answer of the judge's rule.
    """
    answers = _answers(store, evaluator, check, query)
    verdicts = _verdicts(store, evaluator, query.window, query.filters)
    _require_full_check(evaluator, check, answers)
    by_place: dict[Place, list[_Answer]] = defaultdict(list)
    for answer in answers:
        by_place[answer.place].append(answer)

    def assisted(line: QualityLine) -> QualityLine:
        own, elsewhere = _of_version(verdicts, (line.version, line.judge))
        points = [
            point
            if point.value is None
            else _narrowed(point, by_place[Place(point.t, tuple(line.group.values()))], own, elsewhere)
            for point in line.points
        ]
        return replace(line, assisted_by=check, points=points)

    return [assisted(line) for line in lines]


def _of_version(
    verdicts: Mapping[Version, Mapping[int, _Verdict]], version: Version
) -> tuple[Mapping[int, _Verdict], set[int]]:
    """Return the verdicts of a version by unit, and the units that a rule gave to other versions."""
    others = (by_unit for key, by_unit in verdicts.items() if key != version)
    return verdicts.get(version, {}), {unit for by_unit in others for unit in by_unit if by_unit[unit].online}


def _narrowed(
    point: QualityPoint, answers: Sequence[_Answer], verdicts: Mapping[int, _Verdict], scored_elsewhere: set[int]
) -> QualityPoint:
    pairs = [(answer, verdicts.get(answer.unit)) for answer in answers]
    by_rule = sum(verdict is not None and verdict.online and verdict.pi == answer.pi for answer, verdict in pairs)
    assisted, note = None, None
    if by_rule < point.n:
        note = _REPLAYED
    elif any(answer.unit in scored_elsewhere for answer in answers):
        note = _SEVERAL
    else:
        assisted = assisted_mean(
            [None if verdict is None else verdict.value for _, verdict in pairs],
            [answer.check for answer in answers],
            [answer.pi for answer in answers],
            [answer.upstream for answer in answers],
            drawn=[answer.drawn or verdict is not None for answer, verdict in pairs],
            clusters=[answer.cluster for answer in answers],
        )
    if assisted is not None and not assisted.lam:
        note = _NO_GAIN
    assistance = Assistance(
        n_all=len(answers),
        unchecked=sum(answer.check is None for answer in answers),
        lam=assisted.lam if assisted else 0.0,
        narrowing=assisted.narrowing if assisted else 1.0,
        note=note,
    )
    kept = replace(point, unassisted=_uncertain(point), assisted=assistance)
    if assisted is None:
        return kept
    return kept.moved(
        value=assisted.estimate,
        lo=assisted.lo,
        hi=assisted.hi,
        n=assisted.n,
        n_eff=round(assisted.n_eff, 9),
        thin=assisted.thin,
        reason=assisted.reason,
    )


def _require_full_check(evaluator: str, check: str, answers: Sequence[_Answer]) -> None:
    covered = sum(answer.covered for answer in answers)
    if covered < len(answers):
        raise Invalid(
            f"{check} was to score only {covered:,} of the {len(answers):,} answers that {evaluator} could have been"
            " asked about: give it a rule at rate 1.0 for all of them, or choose a range or filter in which it has one"
        )
    if answers and all(answer.check is None for answer in answers):
        raise Invalid(f"{check} has no scores from 0 to 1 in this range, so it shares no scale with {evaluator}")


def _answers(store: Store, evaluator: str, check: str, query: Query) -> list[_Answer]:
    """Return every unit that the judge's rule could have selected, with the first score of the check.

    A later score may depend on the sampling.
    """
    place = ", ".join((query.window.bucket("d.request_time"), *(f"t.{group}" for group in query.groups)))
    facts = facts_of(query.filters, (*query.groups, "upstream_pi", f"{CLUSTER} AS cluster"))
    rows = store.read(
        f"""
        SELECT hash(d.trace_id, d.span_id, $evaluator::VARCHAR), {place}, d.pi,
               coalesce(t.upstream_pi, 1),
               d.sampled OR (d.capped AND d.u * coalesce(t.upstream_pi, 1) < d.pi),
               coalesce(c.pi, 0) >= coalesce(t.upstream_pi, 1) * (1 - 1e-9), s.value, t.cluster
        FROM ({ELIGIBLE}) d
        JOIN ({facts}) t ON t.trace_id = d.trace_id
        LEFT JOIN ({COVERED}) c ON c.trace_id = d.trace_id AND c.span_id = d.span_id
        LEFT JOIN ({FIRST_SCORES}) s ON s.trace_id = d.trace_id AND s.span_id = d.span_id
        """,
        {"evaluator": evaluator, "check": check, **query.parameters},
    ).rows
    rest = 2 + len(query.groups)
    return [_Answer(row[0], Place(row[1], tuple(row[2:rest])), *row[rest:]) for row in rows]


def _verdicts(store: Store, evaluator: str, window: Window, filters: Filter) -> dict[Version, dict[int, _Verdict]]:
    """Return the judge's verdicts in its series, by version and judge, then by unit."""
    sample = sample_of(store, evaluator, window.parameters, filters)
    verdicts: dict[Version, dict[int, _Verdict]] = defaultdict(dict)
    for version, judge, unit, value, pi, source in store.read(
        f"SELECT version, judge, unit, normalized, pi, source FROM ({sample.sql})"
        " WHERE pi IS NOT NULL AND status = 'ok' AND normalized IS NOT NULL",
        sample.parameters,
    ).rows:
        verdicts[version, judge][unit] = _Verdict(value, pi, source == "online")
    return verdicts
