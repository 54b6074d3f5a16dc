"""People's labels in the headline: how far the judge agrees with them, and what the number is once corrected."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.metrics.filters import Filter, filter_of
from ragpulse_collector.metrics.rows import trace_rows
from ragpulse_collector.metrics.units import sample_of
from ragpulse_collector.metrics.window import Window, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import bootstrap_ci, cohen_kappa, ppi_mean, weighted_mean

__all__ = ["calibration", "correct", "suggest"]

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
    sample = sample_of(store, evaluator, window, keep)
    rows = store.read(
        "WITH l AS (SELECT trace_id, span_id, arg_max(score, created_at) AS human, arg_max(label_pi, created_at) AS"
        "   label_pi FROM raw.labels WHERE evaluator = $evaluator GROUP BY ALL)"
        f" SELECT s.trace_id, s.request_time, s.version, s.judge, s.normalized, s.pi, l.human, l.label_pi"
        f" FROM ({sample.sql}) s LEFT JOIN l ON l.trace_id = s.trace_id AND l.span_id = s.span_id"
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
            shift, se = _error_of(labelled)
            for shown in line["points"]:
                _move(shown, shift, se)


def _error_of(labelled: Sequence[_Judged]) -> tuple[float, float]:
    """The judge's mean error and its standard error, with one pseudo-error each way so that none seen is not none."""
    errors = [float(one.human or 0.0) - one.value for one in labelled]
    weights = [1.0 / (one.pi * (one.label_pi or 1.0)) for one in labelled]
    typical = sum(weights) / len(weights)
    return weighted_mean([*errors, 1.0, -1.0], [*weights, typical, typical])


def _move(shown: dict[str, Any], shift: float, se: float) -> None:
    if shown["value"] is None:
        return
    shown["uncorrected"] = {key: shown[key] for key in ("value", "lo", "hi")}
    value, lo, hi = (shown[key] for key in ("value", "lo", "hi"))
    below, above = (0.0 if end is None else abs(value - end) for end in (lo, hi))
    moved = value + shift
    reach = 1.96 * se
    ends = (moved, moved - math.hypot(below, reach), moved + math.hypot(above, reach))
    shown |= dict(zip(("value", "lo", "hi"), (min(1.0, max(0.0, end)) for end in ends), strict=True))


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
