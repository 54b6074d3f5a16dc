"""A judge's numbers corrected by people's labels, and made more precise by a check that scored every answer."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.quality import moved, point
from ragpulse_collector.analysis.selection import Window, filter_of, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.queries.decisions import COVERED, ELIGIBLE
from ragpulse_collector.store.queries.scores import FIRST_SCORES, LABELS, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of, trace_rows
from ragpulse_collector.store.rows import utc_now
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
"""Fewer labels than this correct nothing."""
_REACH = timedelta(days=90)
"""Labels of this long before the window still tell how the judge errs."""
_LEAST_LABEL_PI = 0.05
"""Every suggested trace had at least this chance: the k most uncertain ones alone would tell nothing of the rest."""
_ROUNDS = 200
"""After so many draws hardly a trace is left."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One judged unit: the judge's value, the chance it was judged, and what a person said where one did."""

    trace_id: str
    at: datetime
    version: str | None
    judge: str | None
    value: float
    pi: float
    cluster: Any
    human: float | None
    label_pi: float | None


def _judged(store: Store, evaluator: str, window: Window, keep: Filter) -> list[_Judged]:
    sample = sample_of(store, evaluator, window.parameters, keep)
    rows = store.read(
        "SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, s.cluster, l.human, l.label_pi"
        f" FROM ({sample.sql}) s LEFT JOIN ({LABELS}) l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
        " WHERE s.pi IS NOT NULL AND s.status = 'ok' AND s.normalized IS NOT NULL",
        sample.parameters,
    ).rows
    return [_Judged(row[0].hex, *row[1:]) for row in rows]


def correct(store: Store, evaluator: str, window: Window, keep: Filter, lines: list[dict[str, Any]]) -> None:
    """Move each point of a quality series by what people's labels show the judge to be wrong by (PPI++).

    The correction rests on the labels of the line's version in the window and 90 days before it, and is taken to be
    the same throughout; its own uncertainty enters each interval. Only labels count whose chance of being asked for is
    known: those that people chose themselves (`labels_chosen`) say nothing about the others. With fewer than 30 labels
    nothing is moved.
    """
    judged = _judged(store, evaluator, _reach(window), keep)
    for line in lines:
        mine = [one for one in judged if (one.version, one.judge) == (line["version"], line["judge"])]
        found = _correction(mine)
        labels = [one for one in mine if one.human is not None]
        line["labels"] = sum(one.label_pi is not None for one in labels)
        line["labels_chosen"] = len(labels) - line["labels"]
        line["corrected"] = found is not None
        if found is not None:
            for shown in line["points"]:
                _move(shown, found)


def _reach(window: Window) -> Window:
    """The range whose labels correct the numbers of a window."""
    return Window(window.first - _REACH, window.last, 0)


@dataclass(frozen=True, slots=True)
class _Correction:
    """How far the judge is trusted, and by how much people differ from what is left of its verdicts."""

    lam: float
    error: Interval

    def __call__(self, judged: Interval) -> Interval:
        """The corrected number: λ of the judge's, plus the mean of person minus λ of the judge."""
        part = Interval(*(self.lam * end for end in (judged.value, judged.lo, judged.hi)))
        return plus(part, self.error).within(0.0, 1.0)


def _correction(judged: Sequence[_Judged]) -> _Correction | None:
    """What the labels with a known chance show; None where they are too few, or of too few users."""
    labelled = [one for one in judged if one.human is not None and one.label_pi is not None]
    if len(labelled) < _ENOUGH:
        return None
    pi = [one.pi * float(one.label_pi or 1.0) for one in labelled]
    human = [float(one.human or 0.0) for one in labelled]
    guesses = [one.value for one in labelled]
    found = ppi_mean([one.value for one in judged], guesses, human, [one.pi for one in judged], pi)
    lam = 1.0 if found is None else found.lam
    errors = [truth - lam * guess for truth, guess in zip(human, guesses, strict=True)]
    error = Interval.of(hajek(errors, pi, clusters=[one.cluster for one in labelled], bounds=(-1.0, 1.0)))
    return None if error is None else _Correction(lam, error)


def _move(shown: dict[str, Any], correction: _Correction) -> None:
    value, lo, hi = (shown[key] for key in ("value", "lo", "hi"))
    if value is None or lo is None or hi is None:
        return
    shown["uncorrected"] = {"value": value, "lo": lo, "hi": hi}
    moved(shown, asdict(correction(Interval(value, lo, hi))))


def calibration(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """The judge against people's labels: `evaluator`, `from` (default 90 days) and filters.

    Per version and judge: labels (`n`; `drawn` with a known chance), agreement (kappa, sensitivity and specificity at
    0.5, each with an interval that counts labels on answers of one user as dependent), the judge's mean and the
    corrected one, which is that of the series over the same range. Where nothing is corrected `note` says why.
    """
    evaluator = str(params.get("evaluator") or "")
    window = window_of({"width": 1, **params}, now=clock(), back="90d").whole
    judged = _judged(store, evaluator, _reach(window), filter_of(params))
    versions = dict.fromkeys((one.version, one.judge) for one in sorted(judged, key=lambda one: one.at, reverse=True))
    reports = (_report(judged, *version, since=window.first) for version in versions)
    return {"evaluator": evaluator, "versions": [report for report in reports if report]}


def _report(
    judged: Sequence[_Judged], version: str | None, judge: str | None, *, since: datetime
) -> dict[str, Any] | None:
    mine = [one for one in judged if (one.version, one.judge) == (version, judge)]
    labelled = [one for one in mine if one.human is not None]
    pairs = [(int(one.value >= 0.5), int((one.human or 0.0) >= 0.5)) for one in labelled]
    now, correction = [one for one in mine if one.at >= since], _correction(mine)
    if not now:
        return None
    found = hajek([one.value for one in now], [one.pi for one in now], clusters=[one.cluster for one in now])
    measured = Interval.of(found)
    kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
    whose = [one.cluster for one in labelled]
    lo, hi = _kappa_interval(pairs, whose) if kappa is not None else (None, None)
    return {
        "version": version,
        "judge": judge,
        "n": len(labelled),
        "kappa": kappa,
        "lo": lo,
        "hi": hi,
        **_share("sensitivity", [(a, user) for (a, b), user in zip(pairs, whose, strict=True) if b]),
        **_share("specificity", [(1 - a, user) for (a, b), user in zip(pairs, whose, strict=True) if not b]),
        "drawn": sum(one.label_pi is not None for one in labelled),
        "judged": None if found is None else found.estimate,
        "corrected": asdict(correction(measured)) if correction and measured else None,
        "note": _note(labelled, corrected=correction is not None and measured is not None),
    }


def _note(labelled: Sequence[_Judged], *, corrected: bool) -> str | None:
    """Why nothing is corrected."""
    if corrected:
        return None
    chosen = sum(one.label_pi is None for one in labelled)
    if len(labelled) - chosen >= _ENOUGH:
        return NOT_ENOUGH_USERS
    return "not enough labels" + (f": {chosen} were chosen by people, and correct nothing" if chosen else "")


def _share(name: str, hits: Sequence[tuple[int, Any]]) -> dict[str, float | None]:
    """The share of hits among labels with its interval, in which labels on answers of one user are dependent."""
    found = hajek([float(hit) for hit, _ in hits], [1.0] * len(hits), clusters=[user for _, user in hits])
    value, lo, hi = (None, None, None) if found is None else (found.estimate, found.lo, found.hi)
    return {name: value, f"{name}_lo": lo, f"{name}_hi": hi}


def _kappa_interval(pairs: Sequence[tuple[int, int]], whose: Sequence[Any]) -> tuple[float | None, float | None]:
    """Users are drawn again, with all their labels; None where a few users have nearly all of them."""
    alike = hajek([float(a == b) for a, b in pairs], [1.0] * len(pairs), clusters=whose)
    if len(pairs) < _ENOUGH or alike is None or alike.lo is None:
        return None, None
    found = bootstrap_ci(pairs, statistic=_kappa_of_rows, groups=whose, resamples=500)
    return (None, None) if found is None else (found.lo, found.hi)


def _kappa_of_rows(rows: Any) -> float:
    kappa = cohen_kappa([int(row[0]) for row in rows], [int(row[1]) for row in rows])
    return 0.0 if kappa is None else kappa


def suggest(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET labels/suggest`: judged traces worth a person's label, each with the chance it had (`label_pi`).

    `evaluator`, `limit` (default 20), `from` (7 days), filters. A trace is drawn the likelier the less sure its
    verdict is, but never with less than 0.05, so that the corrected estimate stays unbiased. What was not drawn is
    drawn again in the next round: suggestions go on until every trace is labelled.
    """
    evaluator = str(params.get("evaluator") or "")
    limit = min(200, max(1, int(params.get("limit") or 20)))
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    judged = [one for one in _judged(store, evaluator, window, filter_of(params)) if one.human is None]
    drawn = {one.trace_id: _drawn(evaluator, one) for one in judged}
    first = dict(sorted(drawn.items(), key=lambda entry: entry[1])[:limit])
    return {"traces": [row | {"label_pi": first[row["trace_id"]][2]} for row in trace_rows(store, list(first))]}


def _drawn(evaluator: str, one: _Judged) -> tuple[int, float, float]:
    """In which round a trace is drawn, its place in the round (0..1), and the chance of being drawn just then.

    Both follow from the trace and its verdict: who labels a part of a round has labelled a random part of it.
    """
    pi = _LEAST_LABEL_PI + 0.45 * 4.0 * one.value * (1.0 - one.value)
    for sitting in range(_ROUNDS):
        u = _number(f"{evaluator}:{sitting}" if sitting else evaluator, one)
        if u < pi:
            return sitting, u / pi, pi * (1.0 - pi) ** sitting
    return _ROUNDS, 1.0, (1.0 - pi) ** _ROUNDS


def _number(draw: str, one: _Judged) -> float:
    """A number in [0, 1) of its own for each trace and draw, independent of the one that chose it for the judge."""
    return int(hashlib.sha256(f"label:{draw}:{one.trace_id}".encode()).hexdigest()[:13], 16) / 16.0**13


_NO_HELP = "too few judged (below 30, or 10 of the rarer kind), all judged, or the check does not foresee the verdict"
_SEVERAL = "several versions were asked here, and nothing says which one an answer not drawn would have met"
_REPLAYED = "a replay judged some of these: their chances are not the rule's"
Place = tuple[Any, ...]
"""A bucket's start and the values of its group."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that the judge's rule could have drawn."""

    unit: int
    place: Place
    pi: float
    upstream: float
    drawn: bool
    covered: bool
    """Whether the check was to score it, whatever the draw."""
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
    keep: Filter,
    groups: tuple[str, ...],
    lines: Iterable[dict[str, Any]],
) -> None:
    """Move and narrow each point of a quality series by what `check` says of all answers that could have been judged.

    A point gets `unassisted` (value, lo, hi as they were) and `assisted` (`n_all`, `unchecked`, `lam`, `narrowing`,
    `note`). Answers without a score of the check stay in and tell nothing. Raises ValueError where either evaluator has
    no scores from 0 to 1, and where the check was not to score every answer that the judge's rule could draw.
    """
    answers = _answers(store, evaluator, check, window, keep, groups)
    verdicts = _verdicts(store, evaluator, window, keep)
    _refuse_what_cannot_help(evaluator, check, answers)
    places: dict[Place, list[_Answer]] = defaultdict(list)
    for one in answers:
        places[one.place].append(one)
    by_time = {(iso(at), *group): found for (at, *group), found in places.items()}
    for line in lines:
        line["assisted_by"] = check
        version = line["version"], line["judge"]
        others = {unit for other, found in verdicts.items() if other != version for unit in found if found[unit].online}
        for shown in line["points"]:
            if shown["value"] is not None:
                met = by_time.get((shown["t"], *line["group"].values()), [])
                _narrow(shown, met, [verdicts[version].get(one.unit) for one in met], others)


def _narrow(
    shown: dict[str, Any], answers: Sequence[_Answer], found: Sequence[_Verdict | None], others: set[int]
) -> None:
    pairs = list(zip(answers, found, strict=True))
    by_rule = sum(got is not None and got.online and got.pi == one.pi for one, got in pairs)
    assisted, note = None, None
    if by_rule < shown["n"]:
        note = _REPLAYED
    elif any(one.unit in others for one in answers):
        note = _SEVERAL
    else:
        assisted = assisted_mean(
            [None if got is None else got.value for got in found],
            [one.check for one in answers],
            [one.pi for one in answers],
            [one.upstream for one in answers],
            drawn=[one.drawn or got is not None for one, got in pairs],
            clusters=[one.cluster for one in answers],
        )
    if assisted is not None and not assisted.lam:
        note = _NO_HELP
    shown["unassisted"] = {key: shown[key] for key in ("value", "lo", "hi")}
    shown["assisted"] = {
        "n_all": len(answers),
        "unchecked": sum(one.check is None for one in answers),
        "lam": assisted.lam if assisted else 0.0,
        "narrowing": assisted.narrowing if assisted else 1.0,
        "note": note,
    }
    if assisted is not None:
        moved(shown, {key: found for key, found in point(assisted).items() if key != "users"})


def _refuse_what_cannot_help(evaluator: str, check: str, answers: Sequence[_Answer]) -> None:
    covered = sum(one.covered for one in answers)
    if covered < len(answers):
        raise ValueError(
            f"{check} was to score only {covered:,} of the {len(answers):,} answers that {evaluator} could have been"
            " asked about: give it a rule at rate 1.0 for all of them, or choose a range or filter in which it has one"
        )
    if answers and all(one.check is None for one in answers):
        raise ValueError(f"{check} has no scores from 0 to 1 in this range, so it shares no scale with {evaluator}")


def _answers(
    store: Store, evaluator: str, check: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> list[_Answer]:
    """Every unit that the judge's rule could have drawn, with what the check said of it first.

    First, since that was said of all alike; what somebody asked again later may depend on the draw.
    """
    listed = "".join(f", t.{group}" for group in groups)
    rows = store.read(
        f"""
        SELECT hash(d.trace_id, d.span_id, $evaluator::VARCHAR), {window.bucket("d.request_time")}{listed}, d.pi,
               coalesce(t.upstream_pi, 1),
               d.sampled OR (d.capped AND d.u * coalesce(t.upstream_pi, 1) < d.pi),
               coalesce(c.pi, 0) >= coalesce(t.upstream_pi, 1) * (1 - 1e-9), s.value, t.cluster
        FROM ({ELIGIBLE}) d
        JOIN ({facts_of(keep, (*groups, "upstream_pi", f"{CLUSTER} AS cluster"))}) t ON t.trace_id = d.trace_id
        LEFT JOIN ({COVERED}) c ON c.trace_id = d.trace_id AND c.span_id = d.span_id
        LEFT JOIN ({FIRST_SCORES}) s ON s.trace_id = d.trace_id AND s.span_id = d.span_id
        """,
        {"evaluator": evaluator, "check": check, **window.parameters, **keep.parameters},
    ).rows
    place = slice(1, 2 + len(groups))
    return [_Answer(row[0], row[place], *row[place.stop :]) for row in rows]


def _verdicts(
    store: Store, evaluator: str, window: Window, keep: Filter
) -> dict[tuple[str | None, str | None], dict[int, _Verdict]]:
    """The judge's verdicts that enter its series, by version and judge, then unit."""
    sample = sample_of(store, evaluator, window.parameters, keep)
    found: dict[tuple[str | None, str | None], dict[int, _Verdict]] = defaultdict(dict)
    for version, judge, unit, value, pi, source in store.read(
        f"SELECT version, judge, unit, normalized, pi, source FROM ({sample.sql})"
        " WHERE pi IS NOT NULL AND status = 'ok' AND normalized IS NOT NULL",
        sample.parameters,
    ).rows:
        found[version, judge][unit] = _Verdict(value, pi, source == "online")
    return found
