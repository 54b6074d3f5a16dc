"""Latency, cost and acceptance of two groups of requests, and how many more of them would decide."""

from __future__ import annotations

import math
from typing import Any

from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import Filter, with_columns
from ragpulse_evaluators.statistics import (
    Estimate,
    benjamini_hochberg,
    compare_arms,
    hajek,
    verdict,
)
from ragpulse_evaluators.statistics.comparison import ENOUGH_CLUSTERS

__all__ = ["ALPHA", "TAU", "WHOLE", "Group", "effects", "more_needed", "needed"]

TAU = 0.1
"""The size of difference the sequential test is tuned for: of normalized scores, or as a share of the larger mean."""
ALPHA = 0.05


def needed(call: str, short: int, more: int | None) -> dict[str, Any]:
    """How many more decide it, and of what: an arm with too few users has no verdict, however many answers it has."""
    if call != "not enough data":
        return {"need_more": None, "need_more_of": "answers"}
    return (
        {"need_more": short, "need_more_of": "users"} if short else {"need_more": more or 1, "need_more_of": "answers"}
    )


def more_needed(mean: float, half: float, n: int) -> int | None:
    """About how many more would decide it, if the difference is what it looks like (at least 0.01)."""
    return max(1, math.ceil(n * (half / max(abs(mean), 0.01)) ** 2) - n) if half else None


Group = tuple[str, str]
"""A column of `traces` and its value."""
WHOLE = ""
"""Stands for all values together: no value of a dimension is empty text."""
_COLUMNS = {"latency_ms": ("latency", "ms"), "cost_usd": ("cost", "USD"), "feedback": ("acceptance", "score")}


def effects(
    store: Store, a_is: Group, b_is: Group, window: Window, keep: Filter, by: str | None
) -> dict[str | None, list[dict[str, Any]]]:
    """Compare latency, cost and acceptance of two groups of requests, in all (key WHOLE) and by values of `by`.

    The sequential test of quality on their own scales, clustered by user; values rest on p-values adjusted for all that
    were looked at (Benjamini-Hochberg).
    """
    found: dict[str | None, list[dict[str, Any]]] = {}
    for column, (name, _) in _COLUMNS.items():
        a, b = (_arms(store, column, side, window, keep, by) for side in (a_is, b_is))
        for stratum in a.keys() & b.keys():
            one = _also_one(name, a[stratum], b[stratum], lower_is_better=column != "feedback")
            found.setdefault(stratum, []).append(one)
    parts = [one for stratum, outcome in found.items() if stratum != WHOLE for one in outcome]
    for one, p in zip(parts, benjamini_hochberg([one["p"] for one in parts]), strict=True):
        one["p_adjusted"] = p
        if p > ALPHA and one["verdict"] in ("better", "worse"):
            one["verdict"] = "not enough data"
    return found


def _arms(
    store: Store, column: str, side: Group, window: Window, keep: Filter, by: str | None
) -> dict[str | None, Estimate]:
    """One side's mean of a column, clustered by user, in all and by stratum."""
    rows = store.read(
        f"SELECT {f'{by}::VARCHAR' if by else 'NULL'}, {column}, coalesce(user_id, session_id, trace_id)"
        f" FROM {with_columns('traces', filter(None, (by, side[0])))}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} AND {side[0]} = $side"
        f" AND {column} IS NOT NULL",
        {**window.parameters, **keep.parameters, "side": side[1]},
    ).rows
    parts: dict[str | None, list[tuple[float, str]]] = {WHOLE: [(float(row[1]), row[2]) for row in rows]}
    for stratum, value, cluster in rows if by else ():
        parts.setdefault(stratum, []).append((float(value), cluster))
    found = {
        key: hajek([value for value, _ in part], [1.0] * len(part), clusters=[cluster for _, cluster in part])
        for key, part in parts.items()
    }
    return {key: arm for key, arm in found.items() if arm is not None}


def _also_one(name: str, a: Estimate, b: Estimate, *, lower_is_better: bool) -> dict[str, Any]:
    scale = max(abs(a.estimate), abs(b.estimate), 1e-9)
    found = compare_arms(b, a, tau=TAU * scale)
    outcome = verdict([b, a], found)
    if lower_is_better and outcome in ("better", "worse"):
        outcome = "worse" if outcome == "better" else "better"
    call = "not enough data" if outcome == "undecided" else str(outcome)
    if found is not None and call == "not enough data" and max(abs(found.lo), abs(found.hi)) < 0.05 * scale:
        call = "no difference"
    short = max(0, ENOUGH_CLUSTERS - min(a.clusters, b.clusters))
    half = 0.0 if found is None else (found.hi - found.lo) / 2.0
    more = None if found is None else more_needed(found.difference / scale, half / scale, a.n + b.n)
    return {
        "metric": name,
        "unit": next(unit for told_as, unit in _COLUMNS.values() if told_as == name),
        "a": a.estimate,
        "b": b.estimate,
        "difference": None if found is None else {"value": found.difference, "lo": found.lo, "hi": found.hi},
        "p": 1.0 if found is None else found.p,
        "verdict": call,
        **needed(call, short, more),
    }
