"""Was it the retrieval or the generation: the verdicts of several evaluators on one answer, read together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.filters import Filter, dimensions, filter_of
from ragpulse_collector.metrics.good import FAITHFUL, first_of
from ragpulse_collector.metrics.units import sample_of
from ragpulse_collector.metrics.window import Window, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now

__all__ = ["KINDS", "blame", "verdict_on"]

KINDS = ("good", "retrieval", "generation", "refusal_right", "refusal_wrong", "unknown")
SUFFICIENT = ("context_recall", "context_relevancy", "context_precision")
"""Evaluators that say whether the contexts hold the answer, the most trusted first; all need a judge."""


def blame(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
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
            {"t": iso(key[0]), "group": dict(zip(groups, key[1:], strict=True)), **found[key]}
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
            sample = sample_of(store, name, window, keep, columns=groups, prefix=f"{role}_")
            passed = "normalized > 0" if role == "used" else "coalesce(passing, normalized >= 0.5)"
            parts.append(
                f"SELECT hash(trace_id, span_id) AS unit, request_time, pi, '{role}' AS role, {passed} AS ok{listed}"
                f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0"
            )
            parameters |= sample.parameters
    if not parts:
        return []
    roles = ", ".join(f"bool_or(ok) FILTER (role = '{role}') AS {role}" for role in chosen)
    kept = "".join(f", any_value({group}) AS {group}" for group in groups)
    units = (
        f"SELECT any_value(request_time) AS request_time, min(pi) AS pi, {roles}{kept}"
        f" FROM ({' UNION ALL '.join(parts)}) GROUP BY unit"
    )
    return store.read(
        f"SELECT {window.bucket('request_time')}, count(*), sum(1 / pi), {', '.join(chosen)}{listed}"
        f" FROM ({units}) GROUP BY ALL",
        parameters,
    ).rows
