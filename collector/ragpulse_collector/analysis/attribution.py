"""Several evaluators' verdicts on one answer, read together: retrieval or generation, the cost of a good answer."""

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
"""Evaluators that say whether an answer is supported, the most trusted first."""
RELEVANT = ("relevancy", "answer_relevancy", "refusal")
"""Evaluators that say whether it answers the question."""


def cost_of_good(cost: float | None, n: int, share: Estimate | None) -> dict[str, Any] | None:
    """Value and interval of what a good answer costs; None where cost or quality is unknown.

    Cost is counted, not estimated: the interval is that of the share of good answers, turned over.
    """
    if cost is None or share is None or not n or share.estimate <= 0:
        return None
    lo, hi = (cost / (n * end) if end else math.inf for end in (share.hi, share.lo))
    return {"value": cost / (n * share.estimate), "lo": lo, "hi": None if math.isinf(hi) else hi}


def first_of(store: Store, window: Window, names: tuple[str, ...]) -> str | None:
    """The first of these evaluators that measured anything in the window."""
    return _first(names, evaluators_in(store, window.parameters))


def _first(names: Sequence[str], known: Sequence[str]) -> str | None:
    return next((name for name in names if name in known), None)


def good_by(known: Sequence[str]) -> list[str]:
    """Return the evaluators that a good answer passes, of those at hand: a faithfulness and a relevancy."""
    chosen = (_first(FAITHFUL, known), _first(RELEVANT, known))
    return [name for name in chosen if name is not None]


def good_share(store: Store, window: Window, keep: Filter, known: Sequence[str]) -> Estimate | None:
    """The estimated share of good answers in the window: both verdicts pass; draws are nested, the smaller pi counts.

    None where no evaluator at hand says whether an answer is supported.
    """
    names = good_by(known)
    if not names or names[0] not in FAITHFUL:
        return None
    first = sample_of(store, names[0], window.parameters, keep)
    good, joined, pi, parameters = _GOOD.format("a"), "", "a.pi", first.parameters
    if len(names) == 2:
        second = sample_of(store, names[1], window.parameters, keep, prefix="second_")
        parameters = {**parameters, **second.parameters}
        joined = (
            f" JOIN (SELECT * FROM ({second.sql}) WHERE status = 'ok' AND pi > 0) b"
            " ON hash(b.trace_id, b.span_id) = hash(a.trace_id, a.span_id)"
        )
        good, pi = f"{good} AND {_GOOD.format('b')}", "least(a.pi, b.pi)"
    (sums,) = store.read(
        f"SELECT {MOMENTS} FROM (SELECT cluster, {CLUSTER_SUMS.format(y='y')} FROM ("
        f"SELECT ({good})::INTEGER AS y, {pi} AS pi, a.cluster FROM ({first.sql}) a{joined}"
        " WHERE a.status = 'ok' AND a.pi > 0) GROUP BY ALL)",
        parameters,
    ).rows
    moments = Moments.of(sums)
    return None if moments is None else moments.estimate()


_GOOD = "coalesce({0}.passing, {0}.normalized >= 0.5)"


KINDS = ("good", "retrieval", "generation", "refusal_right", "refusal_wrong", "unknown")
SUFFICIENT = ("context_recall", "context_relevancy", "context_precision")
"""Evaluators that say whether the contexts hold the answer, the most trusted first; all need a judge."""


def failure_attribution(
    store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now
) -> dict[str, Any]:
    """Answer `GET blame`: per bucket and group the estimated number of answers of each kind (weighted by 1/pi).

    good: contexts sufficient, answer supported. retrieval: contexts insufficient. generation: sufficient, yet the
    answer is not supported. A refusal is right where the contexts were insufficient. Where no judge tells whether the
    contexts sufficed, an unsupported answer is put down to generation if it drew on any context, else to retrieval.
    """
    window = window_of({"width": 30, **params}, now=clock())
    groups, keep = dimensions(params), filter_of(params)
    chosen = {
        "faithful": first_of(store, window, FAITHFUL),
        "sufficient": first_of(store, window, SUFFICIENT),
        "used": first_of(store, window, ("context_utilization",)),
        "answered": first_of(store, window, ("refusal",)),
    }
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for at, n, weight, faithful, sufficient, used, answered, *group in _patterns(store, window, keep, groups, chosen):
        cell = found.setdefault((at, *group), {"n": 0, **dict.fromkeys(KINDS, 0.0)})
        kind = verdict_on(faithful=faithful, sufficient=sufficient, used=used, answered=answered)
        cell["n"] += n
        cell[kind] += weight
    return {
        "evaluators": chosen,
        "cells": [
            {"t": iso(key[0]), "group": dict(zip(map(public_name, groups), key[1:], strict=True)), **found[key]}
            for key in sorted(found, key=lambda key: (key[0], str(key[1:])))
        ],
    }


def verdict_on(*, faithful: bool | None, sufficient: bool | None, used: bool | None, answered: bool | None) -> str:
    """The kind of one answer from what the evaluators said of it; None where one said nothing."""
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
    store: Store, window: Window, keep: Filter, groups: tuple[str, ...], chosen: Mapping[str, str | None]
) -> list[tuple[Any, ...]]:
    """Per bucket, group and combination of verdicts: units, and what they weigh (draws are nested: the smallest pi)."""
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    listed = "".join(f", {group}" for group in groups)
    for role, name in chosen.items():
        if name is not None:
            sample = sample_of(store, name, window.parameters, keep, columns=groups, prefix=f"{role}_")
            passed = "normalized > 0" if role == "used" else "coalesce(passing, normalized >= 0.5)"
            parts.append(
                f"SELECT hash(trace_id, span_id) AS unit, request_time, pi, '{role}' AS role, {passed} AS ok{listed}"
                f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0"
            )
            parameters |= sample.parameters
    if not parts:
        return []
    roles = ", ".join(f"bool_or(ok) FILTER (role = '{role}') AS {role}" for role in chosen)
    units = (
        f"SELECT any_value(request_time) AS request_time, min(pi) AS pi, {roles}{listed}"
        f" FROM ({' UNION ALL '.join(parts)}) GROUP BY unit{listed}"
    )
    return store.read(
        f"SELECT {window.bucket('request_time')}, count(*), sum(1 / pi), {', '.join(chosen)}{listed}"
        f" FROM ({units}) GROUP BY ALL",
        parameters,
    ).rows
