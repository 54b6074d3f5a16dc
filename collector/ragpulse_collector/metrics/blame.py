"""Was it the retrieval or the generation: the verdicts of several evaluators on one answer, read together."""

from __future__ import annotations

from collections import defaultdict
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
    groups, keep = dimensions(params), filter_of(store, params)
    chosen = {
        "faithful": first_of(store, window, FAITHFUL),
        "sufficient": first_of(store, window, SUFFICIENT),
        "used": first_of(store, window, ("context_utilization",)),
        "answered": first_of(store, window, ("refusal",)),
    }
    cells: dict[tuple[Any, ...], dict[str, float]] = defaultdict(lambda: dict.fromkeys(KINDS, 0.0))
    sizes: dict[tuple[Any, ...], int] = defaultdict(int)
    for key, weight, told in _units(store, window, keep, groups, chosen):
        cells[key][verdict_on(**told)] += weight
        sizes[key] += 1
    return {
        "evaluators": chosen,
        "cells": [
            {"t": iso(key[0]), "group": dict(zip(groups, key[1:], strict=True)), "n": sizes[key], **cells[key]}
            for key in sorted(cells, key=lambda key: (key[0], str(key[1:])))
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


def _units(
    store: Store, window: Window, keep: Filter, groups: tuple[str, ...], chosen: Mapping[str, str | None]
) -> list[tuple[tuple[Any, ...], float, dict[str, bool | None]]]:
    """Each unit that any of the evaluators saw: its cell, its weight (draws are nested: the smallest pi), verdicts."""
    found: dict[tuple[Any, Any], tuple[tuple[Any, ...], float, dict[str, bool | None]]] = {}
    listed = "".join(f", {group}" for group in groups)
    for role, name in chosen.items():
        if name is None:
            continue
        sample = sample_of(store, name, window, keep, columns=groups)
        passed = "normalized > 0" if role == "used" else "coalesce(passing, normalized >= 0.5)"
        rows = store.read(
            f"SELECT trace_id, span_id, {window.bucket('request_time')}, pi, {passed}{listed} FROM ({sample.sql})"
            " WHERE status = 'ok' AND pi > 0",
            sample.parameters,
        ).rows
        for trace, span, at, pi, ok, *group in rows:
            blank: dict[str, bool | None] = dict.fromkeys(chosen)
            cell, weight, told = found.get((trace, span), ((at, *group), 0.0, blank))
            found[trace, span] = (cell, max(weight, 1.0 / pi), {**told, role: ok})
    return list(found.values())
