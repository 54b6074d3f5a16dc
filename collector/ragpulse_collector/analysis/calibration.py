"""A judge's numbers corrected by people's labels, and made more precise by a check that scored every answer."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.quality import point
from ragpulse_collector.analysis.window import Window, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.decisions import COVERED, ELIGIBLE
from ragpulse_collector.store.queries.scores import FIRST_SCORES, LABELS, sample_of
from ragpulse_collector.store.queries.traces import facts_of, trace_rows
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import (
    Interval,
    assisted_mean,
    bootstrap_ci,
    cohen_kappa,
    plus,
    ppi_mean,
    weighted_mean,
)

__all__ = ["assist", "calibration", "correct", "suggest"]

_ENOUGH = 30
"""Fewer labels than this correct nothing."""
_REACH = timedelta(days=90)
"""Labels of this long before the window still tell how the judge errs."""
_LEAST_LABEL_PI = 0.05
"""Every suggested trace had at least this chance: the k most uncertain ones alone would tell nothing of the rest."""


@dataclass(frozen=True, slots=True)
class _Judged:
    """One judged unit: the judge's value, the chance it was judged, and what a person said where one did."""

    trace_id: str
    at: datetime
    version: str | None
    judge: str | None
    value: float
    pi: float
    human: float | None
    label_pi: float | None


def _judged(store: Store, evaluator: str, window: Window, keep: Filter) -> list[_Judged]:
    sample = sample_of(store, evaluator, window.parameters, keep)
    rows = store.read(
        f"SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, l.human, l.label_pi"
        f" FROM ({sample.sql}) s LEFT JOIN ({LABELS}) l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
        " WHERE s.pi IS NOT NULL AND s.status = 'ok' AND s.normalized IS NOT NULL",
        sample.parameters,
    ).rows
    return [_Judged(row[0].hex, *row[1:]) for row in rows]


def correct(store: Store, evaluator: str, window: Window, keep: Filter, lines: list[dict[str, Any]]) -> None:
    """Move each point of a quality series by the mean error of the judge (person minus judge, Hajek-weighted).

    The error is estimated from the labels of the line's version in the window and 90 days before it, and taken to be
    the same throughout; its own uncertainty enters each interval. With fewer than 30 labels nothing is moved.
    """
    judged = _judged(store, evaluator, Window(window.first - _REACH, window.last, 0), keep)
    for line in lines:
        labelled = [
            one
            for one in judged
            if one.human is not None and (one.version, one.judge) == (line["version"], line["judge"])
        ]
        line["labels"], line["corrected"] = len(labelled), len(labelled) >= _ENOUGH
        if line["corrected"]:
            error = _error_of(labelled)
            for shown in line["points"]:
                _move(shown, error)


def _error_of(labelled: Sequence[_Judged]) -> Interval:
    """The judge's mean error, with one pseudo-error each way so that none seen is not none."""
    errors = [float(one.human or 0.0) - one.value for one in labelled]
    weights = [1.0 / (one.pi * (one.label_pi or 1.0)) for one in labelled]
    typical = sum(weights) / len(weights)
    mean, se = weighted_mean([*errors, 1.0, -1.0], [*weights, typical, typical])
    return Interval.normal(mean, se)


def _move(shown: dict[str, Any], error: Interval) -> None:
    value, lo, hi = (shown[key] for key in ("value", "lo", "hi"))
    if value is None:
        return
    shown["uncorrected"] = {"value": value, "lo": lo, "hi": hi}
    measured = Interval(value, value if lo is None else lo, value if hi is None else hi)
    shown |= asdict(plus(measured, error).within(0.0, 1.0))


def _ppi(judged: Sequence[_Judged], labelled: Sequence[_Judged]) -> Any:
    if not judged:
        return None
    return ppi_mean(
        [one.value for one in judged],
        [one.value for one in labelled],
        [float(one.human or 0.0) for one in labelled],
        pi_all=[one.pi for one in judged],
        pi_labelled=[one.pi * (one.label_pi or 1.0) for one in labelled],
    )


def calibration(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """The judge against people's labels: `evaluator`, `from` (default 90 days) and filters.

    Per version and judge: labels, agreement (kappa with interval, sensitivity, specificity at 0.5), the judge's mean
    and the corrected one. Below 30 labels `note` says "not enough labels".
    """
    evaluator = str(params.get("evaluator") or "")
    window = window_of({"width": 1, **params}, now=clock(), back="90d").whole
    judged = _judged(store, evaluator, window, filter_of(params))
    versions = dict.fromkeys((one.version, one.judge) for one in sorted(judged, key=lambda one: one.at, reverse=True))
    return {"evaluator": evaluator, "versions": [_report(judged, *version) for version in versions]}


def _report(judged: Sequence[_Judged], version: str | None, judge: str | None) -> dict[str, Any]:
    mine = [one for one in judged if (one.version, one.judge) == (version, judge)]
    labelled = [one for one in mine if one.human is not None]
    pairs = [(int(one.value >= 0.5), int((one.human or 0.0) >= 0.5)) for one in labelled]
    found = _ppi(mine, labelled) if labelled else None
    kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
    lo, hi = _kappa_interval(pairs) if kappa is not None else (None, None)
    return {
        "version": version,
        "judge": judge,
        "n": len(labelled),
        "kappa": kappa,
        "lo": lo,
        "hi": hi,
        "sensitivity": _share([a for a, b in pairs if b]),
        "specificity": _share([1 - a for a, b in pairs if not b]),
        "judged": None if not mine else sum(o.value / o.pi for o in mine) / sum(1 / o.pi for o in mine),
        "corrected": None if found is None else {"value": found.estimate, "lo": found.lo, "hi": found.hi},
        "note": None if len(labelled) >= _ENOUGH else "not enough labels",
    }


def _share(values: Sequence[int]) -> float | None:
    return sum(values) / len(values) if values else None


def _kappa_interval(pairs: Sequence[tuple[int, int]]) -> tuple[float | None, float | None]:
    if len(pairs) < _ENOUGH:
        return None, None
    found = bootstrap_ci(pairs, statistic=_kappa_of_rows, resamples=500)
    return (None, None) if found is None else (found.lo, found.hi)


def _kappa_of_rows(rows: Any) -> float:
    kappa = cohen_kappa([int(row[0]) for row in rows], [int(row[1]) for row in rows])
    return 0.0 if kappa is None else kappa


def suggest(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET labels/suggest`: judged traces worth a person's label, each with the chance it had (`label_pi`).

    `evaluator`, `limit` (about so many, default 20), `from` (7 days), filters. A trace is drawn the likelier the less
    sure its verdict is, but never with less than 0.05, so that the corrected estimate stays unbiased.
    """
    evaluator = str(params.get("evaluator") or "")
    limit = min(200, max(1, int(params.get("limit") or 20)))
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    judged = [one for one in _judged(store, evaluator, window, filter_of(params)) if one.human is None]
    # Of more than ten times what is wanted most would be drawn at the least chance: the newest are asked about.
    pool = sorted(judged, key=lambda one: (one.at, one.trace_id), reverse=True)[: int(limit / (2 * _LEAST_LABEL_PI))]
    chances = _chances([4.0 * one.value * (1.0 - one.value) for one in pool], limit)
    drawn = {one.trace_id: pi for one, pi in zip(pool, chances, strict=True) if _number(evaluator, one) < pi}
    return {"traces": [row | {"label_pi": drawn[row["trace_id"]]} for row in trace_rows(store, list(drawn))]}


def _chances(doubts: Sequence[float], limit: int) -> list[float]:
    """Chances in [0.05, 1] that grow with doubt (0..1) and add up to about `limit`."""
    weights = [0.1 + doubt for doubt in doubts]
    low, high = 0.0, 1e3
    for _ in range(60):
        middle = (low + high) / 2.0
        whole = sum(min(1.0, max(_LEAST_LABEL_PI, middle * weight)) for weight in weights)
        low, high = (middle, high) if whole < limit else (low, middle)
    return [min(1.0, max(_LEAST_LABEL_PI, high * weight)) for weight in weights]


def _number(evaluator: str, one: _Judged) -> float:
    """A number in [0, 1) of its own for each trace, independent of the one that chose it for the judge."""
    return int(hashlib.sha256(f"label:{evaluator}:{one.trace_id}".encode()).hexdigest()[:13], 16) / 16.0**13


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
        shown |= point(assisted)


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
               coalesce(c.pi, 0) >= coalesce(t.upstream_pi, 1) * (1 - 1e-9), s.value
        FROM ({ELIGIBLE}) d
        JOIN ({facts_of(keep, (*groups, "upstream_pi"))}) t ON t.trace_id = d.trace_id
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
