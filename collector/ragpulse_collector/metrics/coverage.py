"""How much of the traffic an evaluator has really seen: so that a good number cannot hide a broken pipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.metrics.filters import Filter, filter_of
from ragpulse_collector.metrics.runs import MAX_ATTEMPTS
from ragpulse_collector.metrics.window import Window, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now

__all__ = ["coverage", "covered", "queued"]


def coverage(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Per evaluator: units eligible, selected, scored, skipped, invalid, error, dropped; the share never covered."""
    now = clock()
    window = window_of({"width": 1, **params}, now=now)
    return {"coverage": covered(store, window, filter_of(params)), "queued": queued(store, now=now)}


def covered(store: Store, window: Window, keep: Filter) -> list[dict[str, Any]]:
    """The rows of `coverage` for a window and filter."""
    only = (
        f" SEMI JOIN (SELECT trace_id FROM raw.trace_facts WHERE latest AND {keep.sql}) t ON t.trace_id = d.trace_id"
        if keep
        else ""
    )
    rows = store.read(
        "WITH d AS (SELECT trace_id, span_id, split_part(evaluator, '@', 1) AS evaluator, pi, u, sampled, reason"
        "   FROM raw.decisions WHERE latest AND reason <> 'late' AND request_time >= $first AND request_time < $last),"
        " g AS (SELECT trace_id, span_id, evaluator, status, created_at, hash(trace_id, span_id, evaluator) AS k"
        "   FROM raw.scores WHERE source = 'online' AND request_time >= $first AND request_time < $last),"
        " r AS (SELECT k, max(created_at) AS latest_at FROM g GROUP BY k HAVING count(*) > 1),"
        " v AS (SELECT g.* FROM g LEFT JOIN r ON r.k = g.k WHERE r.k IS NULL OR r.latest_at = g.created_at)"
        " SELECT d.evaluator, count(*) AS eligible,"
        "   count(*) FILTER (d.sampled OR (d.reason = 'budget' AND d.u < d.pi)) AS selected,"
        "   count(*) FILTER (d.sampled AND v.status = 'ok') AS scored,"
        "   count(*) FILTER (d.sampled AND v.status = 'skipped') AS skipped,"
        "   count(*) FILTER (d.sampled AND v.status = 'invalid') AS invalid,"
        "   count(*) FILTER (d.sampled AND v.status = 'error') AS error,"
        "   count(*) FILTER (NOT d.sampled AND d.reason = 'budget' AND d.u < d.pi) AS dropped,"
        "   avg((d.pi <= 0)::INTEGER) AS uncovered_share"
        " FROM d LEFT JOIN v ON v.trace_id = d.trace_id AND v.span_id = d.span_id AND v.evaluator = d.evaluator"
        f"{only} GROUP BY d.evaluator ORDER BY d.evaluator",
        {**window.parameters, **keep.parameters},
    )
    return rows.dicts()


def queued(store: Store, *, now: datetime) -> int:
    """Jobs of the last day that wait for the worker."""
    rows = store.read(
        "SELECT count(*) FROM (SELECT * FROM raw.eval_jobs WHERE created_at >= $since) j"
        " ANTI JOIN (SELECT job_id FROM raw.scores WHERE created_at >= $since AND (status <> 'error'"
        f"   OR attempt >= {MAX_ATTEMPTS})) s ON s.job_id = j.job_id"
        " ANTI JOIN (SELECT job_id FROM raw.run_items WHERE job_id IS NOT NULL) i ON i.job_id = j.job_id"
        " ANTI JOIN (SELECT trace_id, span_id, evaluator FROM raw.decisions WHERE latest AND NOT sampled"
        "   AND reason = 'budget') b ON b.trace_id = j.trace_id AND b.span_id = j.span_id AND b.evaluator = j.evaluator"
        "   AND j.run_id IS NULL"
        " ANTI JOIN (SELECT r.run_id, arg_max(r.status, r.created_at) AS status FROM raw.runs r GROUP BY 1"
        "   HAVING status <> 'running') r ON r.run_id = j.run_id",
        {"since": now - timedelta(days=1)},
    ).rows
    return int(rows[0][0])
