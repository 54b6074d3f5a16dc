"""Corrects a judge's numbers by people's labels, and narrows them by a check that scored every answer."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.quality import move_point, point
from ragpulse_collector.analysis.selection import Window, filter_of, iso, range_of
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.decisions import COVERED, ELIGIBLE
from ragpulse_collector.store.queries.scores import FIRST_SCORES, LABELS, sample_of
from ragpulse_collector.store.queries.traces import Filter, ScoredTrace, facts_of, trace_rows
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

__all__ = ["assist", "calibration", "correct", "suggest"]

_ENOUGH = 30
"""The fewest labels for a correction."""
_REACH = timedelta(days=90)
"""Labels of this time before the window also correct."""
_LEAST_LABEL_PI = 0.05
"""The smallest probability of being suggested: the least certain traces alone say nothing about the others."""
_ROUNDS = 200
"""The most rounds of suggestions."""


@dataclass(frozen=True, slots=True)
class _JudgedUnit:
    """One judged unit: the judge's value, its inclusion probability, and the label of a person, if any."""

    trace_id: str
    time: datetime
    version: str | None
    judge: str | None
    value: float
    pi: float
    cluster: Any
    human: float | None
    label_pi: float | None


def _judged(store: Store, evaluator: str, window: Window, filters: Filter) -> list[_JudgedUnit]:
    sample = sample_of(store, evaluator, window.parameters, filters)
    rows = store.read(
        "SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, s.cluster, l.human, l.label_pi"
        f" FROM ({sample.sql}) s LEFT JOIN ({LABELS}) l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
        " WHERE s.pi IS NOT NULL AND s.status = 'ok' AND s.normalized IS NOT NULL",
        sample.parameters,
    ).rows
    return [_JudgedUnit(row[0].hex, *row[1:]) for row in rows]


def correct(store: Store, evaluator: str, window: Window, filters: Filter, all_series: list[dict[str, Any]]) -> None:
    """Move each point of quality series by the judge's error as people's labels show it (PPI++).

    The correction uses the labels of the series' version in the window and 90 days before it, and is assumed constant;
    its own uncertainty enters each interval. Only sampled labels count: labels that people chose themselves
    (`labels_chosen`) say nothing about the other answers. With fewer than 30 labels nothing is moved.
    """
    judged = _judged(store, evaluator, _reach(window), filters)
    for series in all_series:
        own = [answer for answer in judged if (answer.version, answer.judge) == (series["version"], series["judge"])]
        correction = _correction(own)
        labels = [answer for answer in own if answer.human is not None]
        series["labels"] = sum(answer.label_pi is not None for answer in labels)
        series["labels_chosen"] = len(labels) - series["labels"]
        series["corrected"] = correction is not None
        if correction is not None:
            for point in series["points"]:
                _move(point, correction)


def _reach(window: Window) -> Window:
    """Return the range whose labels correct the numbers of a window."""
    return Window(window.first - _REACH, window.last, 0)


@dataclass(frozen=True, slots=True)
class _Correction:
    """The weight λ of the judge, and the mean of person minus λ times judge."""

    lam: float
    error: Interval

    def __call__(self, judged: Interval) -> Interval:
        """Return the corrected number: λ times the judge's, plus the error."""
        part = Interval(*(self.lam * end for end in (judged.value, judged.lo, judged.hi)))
        return plus(part, self.error).within(0.0, 1.0)


def _correction(judged: Sequence[_JudgedUnit]) -> _Correction | None:
    """Return the correction by sampled labels; None where labels or users are too few."""
    labelled = [answer for answer in judged if answer.human is not None and answer.label_pi is not None]
    if len(labelled) < _ENOUGH:
        return None
    pi = [answer.pi * float(answer.label_pi or 1.0) for answer in labelled]
    human = [float(answer.human or 0.0) for answer in labelled]
    guesses = [answer.value for answer in labelled]
    estimate = ppi_mean([answer.value for answer in judged], guesses, human, [answer.pi for answer in judged], pi)
    lam = 1.0 if estimate is None else estimate.lam
    errors = [truth - lam * guess for truth, guess in zip(human, guesses, strict=True)]
    error = Interval.of(hajek(errors, pi, clusters=[answer.cluster for answer in labelled], bounds=(-1.0, 1.0)))
    return None if error is None else _Correction(lam, error)


def _move(point: dict[str, Any], correction: _Correction) -> None:
    value, lo, hi = (point[key] for key in ("value", "lo", "hi"))
    if value is None or lo is None or hi is None:
        return
    point["uncorrected"] = {"value": value, "lo": lo, "hi": hi}
    move_point(point, asdict(correction(Interval(value, lo, hi))))


def calibration(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET calibration`: a judge against people's labels; `evaluator`, `from` (default 90 days) and filters.

    Per version and judge: labels (`n`; `drawn` by sampling), agreement (kappa, sensitivity and specificity at
    0.5, each with an interval in which the labels of a user's answers are dependent), the judge's mean and the
    corrected mean, equal to that of the series over the same range. Without a correction `note` has the reason.
    """
    evaluator = str(params.get("evaluator") or "")
    window = range_of(params, now=clock(), back="90d")
    judged = _judged(store, evaluator, _reach(window), filter_of(params))
    versions = dict.fromkeys(
        (answer.version, answer.judge) for answer in sorted(judged, key=lambda answer: answer.time, reverse=True)
    )
    reports = (_report(judged, *version, since=window.first) for version in versions)
    return {"evaluator": evaluator, "versions": [report for report in reports if report]}


def _report(
    judged: Sequence[_JudgedUnit], version: str | None, judge: str | None, *, since: datetime
) -> dict[str, Any] | None:
    own = [answer for answer in judged if (answer.version, answer.judge) == (version, judge)]
    labelled = [answer for answer in own if answer.human is not None]
    pairs = [(int(answer.value >= 0.5), int((answer.human or 0.0) >= 0.5)) for answer in labelled]
    in_window, correction = [answer for answer in own if answer.time >= since], _correction(own)
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
    return {
        "version": version,
        "judge": judge,
        "n": len(labelled),
        "kappa": kappa,
        "lo": lo,
        "hi": hi,
        **_share("sensitivity", [(a, user) for (a, b), user in zip(pairs, users, strict=True) if b]),
        **_share("specificity", [(1 - a, user) for (a, b), user in zip(pairs, users, strict=True) if not b]),
        "drawn": sum(answer.label_pi is not None for answer in labelled),
        "judged": None if estimate is None else estimate.estimate,
        "corrected": asdict(correction(measured)) if correction and measured else None,
        "note": _note(labelled, corrected=correction is not None and measured is not None),
    }


def _note(labelled: Sequence[_JudgedUnit], *, corrected: bool) -> str | None:
    """Return why nothing is corrected."""
    if corrected:
        return None
    chosen = sum(answer.label_pi is None for answer in labelled)
    if len(labelled) - chosen >= _ENOUGH:
        return NOT_ENOUGH_USERS
    return "not enough labels" + (f": {chosen} were chosen by people, and correct nothing" if chosen else "")


def _share(name: str, hits: Sequence[tuple[int, Any]]) -> dict[str, float | None]:
    """Return the share of hits among labels with its interval; the labels of a user's answers are dependent."""
    estimate = hajek([float(hit) for hit, _ in hits], [1.0] * len(hits), clusters=[user for _, user in hits])
    value, lo, hi = (None, None, None) if estimate is None else (estimate.estimate, estimate.lo, estimate.hi)
    return {name: value, f"{name}_lo": lo, f"{name}_hi": hi}


def _kappa_interval(pairs: Sequence[tuple[int, int]], users: Sequence[Any]) -> tuple[float | None, float | None]:
    """Return the bootstrap interval over users; None where a few users have nearly all labels."""
    agreement = hajek([float(a == b) for a, b in pairs], [1.0] * len(pairs), clusters=users)
    if len(pairs) < _ENOUGH or agreement is None or agreement.lo is None:
        return None, None
    interval = bootstrap_ci(pairs, statistic=_kappa_of_rows, groups=users, resamples=500)
    return (None, None) if interval is None else (interval.lo, interval.hi)


def _kappa_of_rows(rows: Any) -> float:
    kappa = cohen_kappa([int(row[0]) for row in rows], [int(row[1]) for row in rows])
    return 0.0 if kappa is None else kappa


@dataclass(frozen=True, slots=True)
class Suggestion(ScoredTrace):
    """A trace to label."""

    label_pi: float = field(kw_only=True)
    """The probability with which it was drawn."""


def suggest(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET labels/suggest`: judged traces to label, each with its sampling probability (`label_pi`).

    `evaluator`, `limit` (default 20), `from` (7 days), filters. Less certain verdicts have a higher probability, never
    below 0.05, so that the corrected estimate stays unbiased. Traces that were not drawn are drawn again in the next
    round: suggestions continue until every trace is labelled.
    """
    evaluator = str(params.get("evaluator") or "")
    limit = min(200, max(1, int(params.get("limit") or 20)))
    window = range_of(params, now=clock(), back="7d")
    judged = [answer for answer in _judged(store, evaluator, window, filter_of(params)) if answer.human is None]
    draws = {answer.trace_id: _label_draw(evaluator, answer) for answer in judged}
    first = dict(sorted(draws.items(), key=lambda entry: entry[1])[:limit])
    rows = trace_rows(store, list(first))
    return {"traces": [extended(Suggestion, row, label_pi=first[row.trace_id][2]) for row in rows]}


def _label_draw(evaluator: str, answer: _JudgedUnit) -> tuple[int, float, float]:
    """Return the round in which a trace is drawn, its position in the round (0..1), and the probability of that round.

    Both depend on trace and verdict only: a part of a round is a random sample of it.
    """
    pi = _LEAST_LABEL_PI + 0.45 * 4.0 * answer.value * (1.0 - answer.value)
    for draw_round in range(_ROUNDS):
        u = _number(f"{evaluator}:{draw_round}" if draw_round else evaluator, answer)
        if u < pi:
            return draw_round, u / pi, pi * (1.0 - pi) ** draw_round
    return _ROUNDS, 1.0, (1.0 - pi) ** _ROUNDS


def _number(name: str, answer: _JudgedUnit) -> float:
    """Return a number in [0, 1) for each trace and round, independent of the sampler's u."""
    return int(hashlib.sha256(f"label:{name}:{answer.trace_id}".encode()).hexdigest()[:13], 16) / 16.0**13


_NO_GAIN = "too few judged (below 30, or 10 of the rarer kind), all judged, or the check does not foresee the verdict"
_SEVERAL = "several versions were asked here, and nothing says which one an answer not drawn would have met"
_REPLAYED = "a replay judged some of these: their chances are not the rule's"
Key = tuple[Any, ...]
"""A bucket's start and the values of its group."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that the judge's rule could have selected."""

    unit: int
    key: Key
    pi: float
    upstream: float
    drawn: bool
    covered: bool
    """Whether the check had to score it, independent of the sampling."""
    check: float | None
    cluster: Any


@dataclass(frozen=True, slots=True)
class _Verdict:
    value: float
    pi: float
    online: bool


def assist(
    store: Store,
    evaluator: str,
    check: str,
    window: Window,
    filters: Filter,
    groups: tuple[str, ...],
    all_series: Iterable[dict[str, Any]],
) -> None:
    """Move and narrow each point of quality series by the scores of `check` for every answer of the judge's rule.

    A point gets `unassisted` (value, lo, hi as they were) and `assisted` (`n_all`, `unchecked`, `lam`, `narrowing`,
    `note`). Answers without a score of the check stay in. Raises Invalid where either evaluator has no scores from
    0 to 1, and where the check did not have to score every answer of the judge's rule.
    """
    answers = _answers(store, evaluator, check, window, filters, groups)
    verdicts = _verdicts(store, evaluator, window, filters)
    _require_full_check(evaluator, check, answers)
    by_place: dict[Key, list[_Answer]] = defaultdict(list)
    for answer in answers:
        by_place[answer.key].append(answer)
    by_time = {(iso(start), *group): answers_there for (start, *group), answers_there in by_place.items()}
    for series in all_series:
        series["assisted_by"] = check
        version = series["version"], series["judge"]
        scored_elsewhere = {
            unit
            for key, answers_there in verdicts.items()
            if key != version
            for unit in answers_there
            if answers_there[unit].online
        }
        for shown_point in series["points"]:
            if shown_point["value"] is not None:
                bucket_answers = by_time.get((shown_point["t"], *series["group"].values()), [])
                _narrow(
                    shown_point,
                    bucket_answers,
                    [verdicts[version].get(answer.unit) for answer in bucket_answers],
                    scored_elsewhere,
                )


def _narrow(
    shown_point: dict[str, Any],
    answers: Sequence[_Answer],
    verdicts: Sequence[_Verdict | None],
    scored_elsewhere: set[int],
) -> None:
    pairs = list(zip(answers, verdicts, strict=True))
    by_rule = sum(verdict is not None and verdict.online and verdict.pi == answer.pi for answer, verdict in pairs)
    assisted, note = None, None
    if by_rule < shown_point["n"]:
        note = _REPLAYED
    elif any(answer.unit in scored_elsewhere for answer in answers):
        note = _SEVERAL
    else:
        assisted = assisted_mean(
            [None if verdict is None else verdict.value for verdict in verdicts],
            [answer.check for answer in answers],
            [answer.pi for answer in answers],
            [answer.upstream for answer in answers],
            drawn=[answer.drawn or verdict is not None for answer, verdict in pairs],
            clusters=[answer.cluster for answer in answers],
        )
    if assisted is not None and not assisted.lam:
        note = _NO_GAIN
    shown_point["unassisted"] = {key: shown_point[key] for key in ("value", "lo", "hi")}
    shown_point["assisted"] = {
        "n_all": len(answers),
        "unchecked": sum(answer.check is None for answer in answers),
        "lam": assisted.lam if assisted else 0.0,
        "narrowing": assisted.narrowing if assisted else 1.0,
        "note": note,
    }
    if assisted is not None:
        move_point(shown_point, {key: verdicts for key, verdicts in point(assisted).items() if key != "users"})


def _require_full_check(evaluator: str, check: str, answers: Sequence[_Answer]) -> None:
    covered = sum(answer.covered for answer in answers)
    if covered < len(answers):
        raise Invalid(
            f"{check} was to score only {covered:,} of the {len(answers):,} answers that {evaluator} could have been"
            " asked about: give it a rule at rate 1.0 for all of them, or choose a range or filter in which it has one"
        )
    if answers and all(answer.check is None for answer in answers):
        raise Invalid(f"{check} has no scores from 0 to 1 in this range, so it shares no scale with {evaluator}")


def _answers(
    store: Store, evaluator: str, check: str, window: Window, filters: Filter, groups: tuple[str, ...]
) -> list[_Answer]:
    """Return every unit that the judge's rule could have selected, with the first score of the check.

    A later score may depend on the sampling.
    """
    group_sql = "".join(f", t.{group}" for group in groups)
    rows = store.read(
        f"""
        SELECT hash(d.trace_id, d.span_id, $evaluator::VARCHAR), {window.bucket("d.request_time")}{group_sql}, d.pi,
               coalesce(t.upstream_pi, 1),
               d.sampled OR (d.capped AND d.u * coalesce(t.upstream_pi, 1) < d.pi),
               coalesce(c.pi, 0) >= coalesce(t.upstream_pi, 1) * (1 - 1e-9), s.value, t.cluster
        FROM ({ELIGIBLE}) d
        JOIN ({facts_of(filters, (*groups, "upstream_pi", f"{CLUSTER} AS cluster"))}) t ON t.trace_id = d.trace_id
        LEFT JOIN ({COVERED}) c ON c.trace_id = d.trace_id AND c.span_id = d.span_id
        LEFT JOIN ({FIRST_SCORES}) s ON s.trace_id = d.trace_id AND s.span_id = d.span_id
        """,
        {"evaluator": evaluator, "check": check, **window.parameters, **filters.parameters},
    ).rows
    place_slice = slice(1, 2 + len(groups))
    return [_Answer(row[0], row[place_slice], *row[place_slice.stop :]) for row in rows]


def _verdicts(
    store: Store, evaluator: str, window: Window, filters: Filter
) -> dict[tuple[str | None, str | None], dict[int, _Verdict]]:
    """Return the judge's verdicts in its series, by version and judge, then by unit."""
    sample = sample_of(store, evaluator, window.parameters, filters)
    verdicts: dict[tuple[str | None, str | None], dict[int, _Verdict]] = defaultdict(dict)
    for version, judge, unit, value, pi, source in store.read(
        f"SELECT version, judge, unit, normalized, pi, source FROM ({sample.sql})"
        " WHERE pi IS NOT NULL AND status = 'ok' AND normalized IS NOT NULL",
        sample.parameters,
    ).rows:
        verdicts[version, judge][unit] = _Verdict(value, pi, source == "online")
    return verdicts
