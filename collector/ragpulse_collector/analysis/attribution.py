"""Combines several evaluators: failures of retrieval or generation, the share and the cost of good answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.selection import Window, dimensions, filter_of, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS
from ragpulse_collector.store.queries.scores import evaluators_in, sample_of
from ragpulse_collector.store.queries.traces import Filter, public_name
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Estimate, Moments

__all__ = [
    "FAITHFUL",
    "KINDS",
    "cost_of_good",
    "failure_attribution",
    "first_of",
    "good_by",
    "good_share",
    "verdict_on",
]

FAITHFUL = ("faithfulness", "statement_faithfulness", "groundedness")
"""Evaluators of whether an answer is supported, the most trusted first."""
RELEVANT = ("relevancy", "answer_relevancy", "refusal")
"""Evaluators of whether an answer answers the question."""


def cost_of_good(cost: float | None, n: int, share: Estimate | None) -> dict[str, Any] | None:
    """Return the cost of a good answer with its interval; None where cost or quality is unknown.

    The cost is counted: the interval is that of the share of good answers, inverted.
    """
    if cost is None or share is None or not n or share.estimate <= 0:
        return None
    lo, hi = (cost / (n * end) if end else math.inf for end in (share.hi, share.lo))
    return {"value": cost / (n * share.estimate), "lo": lo, "hi": None if math.isinf(hi) else hi}


def first_of(store: Store, window: Window, names: tuple[str, ...]) -> str | None:
    """Return the first of these evaluators with a verdict in the window."""
    return _first(names, evaluators_in(store, window.parameters))


def _first(names: Sequence[str], available: Sequence[str]) -> str | None:
    return next((name for name in names if name in available), None)


def good_by(available: Sequence[str]) -> list[str]:
    """Return the available evaluators that a good answer passes: one of faithfulness, one of relevancy."""
    names = (_first(FAITHFUL, available), _first(RELEVANT, available))
    return [name for name in names if name is not None]


def good_share(store: Store, window: Window, filters: Filter, available: Sequence[str]) -> Estimate | None:
    """Return the estimated share of good answers, which pass both evaluators; the smaller pi counts.

    None without an evaluator of whether an answer is supported.
    """
    names = good_by(available)
    if not names or names[0] not in FAITHFUL:
        return None
    first = sample_of(store, names[0], window.parameters, filters)
    good, join_sql, pi, parameters = _GOOD.format("a"), "", "a.pi", first.parameters
    if len(names) == 2:
        second = sample_of(store, names[1], window.parameters, filters, prefix="second_")
        parameters = {**parameters, **second.parameters}
        join_sql = (
            f" JOIN (SELECT * FROM ({second.sql}) WHERE status = 'ok' AND pi > 0) b"
            " ON hash(b.trace_id, b.span_id) = hash(a.trace_id, a.span_id)"
        )
        good, pi = f"{good} AND {_GOOD.format('b')}", "least(a.pi, b.pi)"
    (sums,) = store.read(
        f"SELECT {MOMENTS} FROM (SELECT cluster, {CLUSTER_SUMS.format(y='y')} FROM ("
        f"SELECT ({good})::INTEGER AS y, {pi} AS pi, a.cluster FROM ({first.sql}) a{join_sql}"
        " WHERE a.status = 'ok' AND a.pi > 0) GROUP BY ALL)",
        parameters,
    ).rows
    moments = Moments.of(sums)
    return None if moments is None else moments.estimate()


_GOOD = "coalesce({0}.passing, {0}.normalized >= 0.5)"


KINDS = ("good", "retrieval", "generation", "refusal_right", "refusal_wrong", "unknown")
SUFFICIENT = ("context_recall", "context_relevancy", "context_precision")
"""Evaluators of whether the contexts contain the answer, the most trusted first; all need a judge."""


def failure_attribution(
    store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now
) -> dict[str, Any]:
    """Answer `GET blame`: per bucket and group the estimated number of answers of each kind (weighted by 1/pi).

    good: contexts sufficient, answer supported. retrieval: contexts insufficient. generation: sufficient, yet the
    answer is not supported. A refusal is right where the contexts were insufficient. Without a verdict on the
    contexts, an unsupported answer counts as generation if it used any context, else as retrieval.
    """
    window = window_of({"width": 30, **params}, now=clock())
    groups, filters = dimensions(params), filter_of(params)
    roles = {
        "faithful": first_of(store, window, FAITHFUL),
        "sufficient": first_of(store, window, SUFFICIENT),
        "used": first_of(store, window, ("context_utilization",)),
        "answered": first_of(store, window, ("refusal",)),
    }
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for start, n, weight, faithful, sufficient, used, answered, *group in _patterns(
        store, window, filters, groups, roles
    ):
        cell = cells.setdefault((start, *group), {"n": 0, **dict.fromkeys(KINDS, 0.0)})
        kind = verdict_on(faithful=faithful, sufficient=sufficient, used=used, answered=answered)
        cell["n"] += n
        cell[kind] += weight
    return {
        "evaluators": roles,
        "cells": [
            {"t": iso(key[0]), "group": dict(zip(map(public_name, groups), key[1:], strict=True)), **cells[key]}
            for key in sorted(cells, key=lambda key: (key[0], str(key[1:])))
        ],
    }


def verdict_on(*, faithful: bool | None, sufficient: bool | None, used: bool | None, answered: bool | None) -> str:
    """Return the kind of an answer from its verdicts; None stands for a missing verdict."""
    if answered is False:
        return "unknown" if sufficient is None else "refusal_wrong" if sufficient else "refusal_right"
    if sufficient is False:
        return "retrieval"
    if faithful is None:
        return "unknown"
    if faithful:
        return "good"
    return "retrieval" if sufficient is None and used is False else "generation"


def _patterns(
    store: Store, window: Window, filters: Filter, groups: tuple[str, ...], roles: Mapping[str, str | None]
) -> list[tuple[Any, ...]]:
    """Return units and their weight (by the smallest pi) per bucket, group and combination of verdicts."""
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    group_sql = "".join(f", {group}" for group in groups)
    for role, name in roles.items():
        if name is not None:
            sample = sample_of(store, name, window.parameters, filters, columns=groups, prefix=f"{role}_")
            passed = "normalized > 0" if role == "used" else "coalesce(passing, normalized >= 0.5)"
            parts.append(
                f"SELECT hash(trace_id, span_id) AS unit, request_time, pi, '{role}' AS role, {passed} AS ok{group_sql}"
                f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0"
            )
            parameters |= sample.parameters
    if not parts:
        return []
    verdicts = ", ".join(f"bool_or(ok) FILTER (role = '{role}') AS {role}" for role in roles)
    units = (
        f"SELECT any_value(request_time) AS request_time, min(pi) AS pi, {verdicts}{group_sql}"
        f" FROM ({' UNION ALL '.join(parts)}) GROUP BY unit{group_sql}"
    )
    return store.read(
        f"SELECT {window.bucket('request_time')}, count(*), sum(1 / pi), {', '.join(roles)}{group_sql}"
        f" FROM ({units}) GROUP BY ALL",
        parameters,
    ).rows
