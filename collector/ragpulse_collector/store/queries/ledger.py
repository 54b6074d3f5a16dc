"""The ledger of judge money: what was spent or is reserved, and every entry."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Any, Literal

from ragpulse_collector.store.protocol import Rows, Transaction

__all__ = ["Entry", "add_entries", "selected_usd", "spent_usd"]

Read = Callable[..., Rows]
Entry = tuple[date, str, str, str | None, Literal["reserve", "release", "spend"], float]
"""Day, evaluator, job id, run id, kind, USD."""
_COLUMNS = ("entry_id", "day", "evaluator", "job_id", "run_id", "kind", "usd", "created_at")


def spent_usd(
    read: Read, *, day: date | datetime | None = None, run_id: str | None = None, evaluator: str | None = None
) -> float:
    """Return USD spent or reserved by a replay, or online on a UTC day, by one evaluator or by all."""
    sql = (
        "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE run_id IS NOT DISTINCT FROM $run"
        " AND ($day IS NULL OR day = $day::DATE) AND ($evaluator IS NULL OR evaluator = $evaluator)"
    )
    return float(read(sql, {"run": run_id, "day": day, "evaluator": evaluator}).rows[0][0])


def add_entries(tx: Transaction, entries: Iterable[Entry], *, at: datetime) -> None:
    """Append entries; their sum is what is spent or reserved."""
    rows: list[tuple[Any, ...]] = [(uuid.uuid4().hex, *entry, at) for entry in entries]
    tx.append("ledger", _COLUMNS, rows)


def selected_usd(read: Read, since: datetime, until: datetime) -> dict[str, float]:
    """Return USD that the units selected between two instants will cost, by evaluator: pi times the mean cost of one.

    For a unit decided once more it is what its pi rose by.
    """
    rows = read(
        "WITH cost AS (SELECT l.evaluator, avg(l.usd) AS usd FROM raw.ledger l"
        "   WHERE l.kind = 'spend' AND l.created_at > $now::TIMESTAMP - INTERVAL 2 DAY GROUP BY l.evaluator)"
        ", fresh AS (SELECT d.*, c.usd FROM raw.decisions d JOIN cost c ON c.evaluator = d.evaluator AND c.usd > 0"
        "   WHERE d.decided_at > $since AND d.decided_at <= $now)"
        " SELECT f.evaluator, sum(f.pi - coalesce(b.pi, 0)) * any_value(f.usd) FROM fresh f"
        " LEFT JOIN (SELECT * FROM raw.decisions"
        "   WHERE request_time >= (SELECT min(request_time) FROM fresh WHERE revision > 0)) b"
        " ON b.trace_id = f.trace_id AND b.span_id = f.span_id AND b.evaluator = f.evaluator"
        "   AND b.revision = f.revision - 1 GROUP BY 1",
        {"since": since, "now": until},
    ).rows
    return dict(rows)
