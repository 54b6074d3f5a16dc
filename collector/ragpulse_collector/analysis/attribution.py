"""Several evaluators' verdicts on one answer, read together: retrieval or generation, the cost of a good answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.selection import Window, dimensions, filter_of, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS
from ragpulse_collector.store.queries.scores import evaluators_in, judge_cost, sample_of
from ragpulse_collector.store.queries.traces import Filter, public_name, with_columns
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Estimate, Moments

__all__ = [
    "FAITHFUL",
    "KINDS",
    "cost_of_good",
    "cost_per_good_answer",
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


def cost_per_good_answer(
    store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now
) -> dict[str, Any]:
    """USD per answer that passes both a faithfulness and a relevancy evaluator, with interval, by `group_by`.

    Judge cost is a line of its own; `unknown_share` is the share of requests whose cost is not known.
    """
    window = window_of({"width": 1, **params}, now=clock()).whole
    keep, groups = filter_of(params), dimensions(params)
    listed = "".join(f", {group}" for group in groups)
    rows = store.read(
        f"SELECT sum(cost_usd), count(*), avg((cost_usd IS NULL)::INTEGER){listed}"
        f" FROM {with_columns('traces', groups)} WHERE start_time >= $first"
        f" AND start_time < $last AND {keep.sql} GROUP BY ALL ORDER BY ALL",
        {**window.parameters, **keep.parameters},
    ).rows
    names = good_by(evaluators_in(store, window.parameters))
    shares = _good_shares(store, window, keep, groups, names)
    found = []
    for cost, n, unknown, *group in rows:
        share = shares.get(tuple(group))
        cost_good = cost_of_good(cost, n, share)
        found.append(
            {
                "group": dict(zip(map(public_name, groups), group, strict=True)),
                **(cost_good or {"value": None, "lo": None, "hi": None}),
                "good_share": None if share is None else share.estimate,
                "n": 0 if share is None else share.n,
                "cost_usd": cost,
                "requests": n,
                "unknown_share": unknown,
            }
        )
    return {"evaluators": names, "groups": found, "judge_cost_usd": judge_cost(store, window.parameters)}


def good_share(store: Store, window: Window, keep: Filter, names: Sequence[str]) -> Estimate | None:
    """The estimated share of good answers in the whole window, by the evaluators at hand; None where unknown."""
    return _good_shares(store, window, keep, (), good_by(names)).get(())


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


def _good_shares(
    store: Store, window: Window, keep: Filter, groups: tuple[str, ...], names: Sequence[str]
) -> dict[tuple[Any, ...], Estimate]:
    """The estimated share of good answers per group: both verdicts pass; draws are nested, so the smaller pi counts."""
    if not names or names[0] not in FAITHFUL:
        return {}
    first = sample_of(store, names[0], window.parameters, keep, columns=groups)
    good, joined, pi, parameters = _GOOD.format("a"), "", "a.pi", first.parameters
    if len(names) == 2:
        second = sample_of(store, names[1], window.parameters, keep, prefix="second_")
        parameters = {**parameters, **second.parameters}
        joined = (
            f" JOIN (SELECT * FROM ({second.sql}) WHERE status = 'ok' AND pi > 0) b"
            " ON hash(b.trace_id, b.span_id) = hash(a.trace_id, a.span_id)"
        )
        good, pi = f"{good} AND {_GOOD.format('b')}", "least(a.pi, b.pi)"
    listed = "".join(f", a.{group}" for group in groups)
    rows = store.read(
        f"SELECT {MOMENTS}{listed.replace(', a.', ', ')} FROM ("
        f"SELECT cluster, {CLUSTER_SUMS.format(y='y')}{listed.replace(', a.', ', ')} FROM ("
        f"SELECT ({good})::INTEGER AS y, {pi} AS pi, a.cluster{listed} FROM ({first.sql}) a{joined}"
        " WHERE a.status = 'ok' AND a.pi > 0) GROUP BY ALL) GROUP BY ALL",
        parameters,
    ).rows
    sums = len(fields(Moments))
    found = {tuple(row[sums:]): Moments.of(row[:sums]) for row in rows}
    return {group: moments.estimate() for group, moments in found.items() if moments is not None}


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
