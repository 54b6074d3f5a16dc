"""Traces as the lists show them: the columns of `traces` with each evaluator's latest verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ragpulse_collector.metrics.window import iso
from ragpulse_collector.store import Store
from ragpulse_collector.store.views import FACT_COLUMNS

__all__ = ["trace_rows"]


def trace_rows(store: Store, trace_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the decided traces with these ids (hex), in this order, as `GET traces` shows them."""
    if not trace_ids:
        return []
    listed = {"ids": list(trace_ids)}
    facts = store.read(
        f"SELECT replace(trace_id::VARCHAR, '-', '') AS trace_id, {', '.join(FACT_COLUMNS)} FROM raw.trace_facts"
        " WHERE latest AND trace_id IN (SELECT unnest($ids::UUID[]))",
        listed,
    ).dicts()
    scores: dict[str, dict[str, Any]] = defaultdict(dict)
    for trace, evaluator, normalized, status, passing in store.read(
        "SELECT replace(trace_id::VARCHAR, '-', ''), evaluator, normalized, status, passing FROM raw.scores"
        " WHERE trace_id IN (SELECT unnest($ids::UUID[])) ORDER BY created_at",
        listed,
    ).rows:
        scores[trace][evaluator] = {"normalized": normalized, "status": status, "passing": passing}
    by_id = {
        row["trace_id"]: row | {"start_time": iso(row["start_time"]), "scores": scores[row["trace_id"]]}
        for row in facts
    }
    return [by_id[trace] for trace in trace_ids if trace in by_id]
