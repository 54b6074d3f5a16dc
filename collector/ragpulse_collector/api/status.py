"""`GET status`: what was received, rejected, late and truncated; which evaluations are pending, done and dropped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ragpulse_collector.api.params import Params
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store
from ragpulse_collector.store.log import damaged_logs, log_path
from ragpulse_collector.store.queries.deciding import MAX_DEDUPLICATED_SPANS
from ragpulse_collector.store.queries.jobs import pending
from ragpulse_collector.store.queue import Backlog
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import LOW

VERSION = version("ragpulse")
UNDECIDED = f"""
    WITH since AS (SELECT CASE WHEN {LOW} > $now THEN TIMESTAMP '1970-01-01' ELSE {LOW} END AS low)
    SELECT count(*), min(first_at) FROM (
        SELECT trace_id, min(received_at) AS first_at FROM raw.spans
        WHERE received_at >= (SELECT low FROM since) GROUP BY trace_id) s
    ANTI JOIN (SELECT trace_id FROM raw.trace_facts WHERE latest) f ON f.trace_id = s.trace_id"""
"""Traces received since the sampler's low-water mark that it has not decided; of all traces where the mark is wrong."""


class Status:
    """Answers the operation; holds when the process started."""

    def __init__(
        self, store: Store, settings: Settings, *, counters: Counters, backlog: Callable[[], Backlog] = Backlog
    ) -> None:
        self._store, self._settings, self._counters, self._backlog = store, settings, counters, backlog
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self, params: Params) -> dict[str, Any]:
        """Return the counts; those of the process since its start, those of the data from the store."""
        del params
        collector = self._settings.collector
        return {
            "version": VERSION,
            "started_at": self._started_at,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "db": _sizes(collector.db) | {"problem": self._store.problem()},
            "retention": {"days": collector.retention_days, "gb": collector.retention_gb},
            **self._received(),
            "queue": asdict(self._backlog()),
            "undecided": self._undecided(),
            "evaluations": self._evaluations(),
            "judge": self._judge(),
            "roles": list(collector.roles),
        }

    def _received(self) -> dict[str, Any]:
        by_code: dict[str, int] = {}
        taken = 0
        for (_, code), count in sorted(self._counters.requests.items()):
            if code == HTTPStatus.OK:
                taken += count
            else:
                by_code[str(code)] = by_code.get(str(code), 0) + count
        spans, newest, truncated = self._store.read(
            "SELECT count(*), max(start_time), count(*) FILTER (contexts_state = 'truncated') FROM raw.spans"
        ).rows[0]
        late, large = self._store.read(
            "SELECT coalesce(sum(late_spans), 0), count(*) FILTER (n_spans > $most) FROM raw.trace_facts WHERE latest",
            {"most": MAX_DEDUPLICATED_SPANS},
        ).rows[0]
        return {
            "received": {
                "requests": taken,
                "spans": spans,
                "logs": self._counters.logs,
                "bytes": self._counters.body_bytes,
            },
            "rejected": {"spans": self._counters.rejected, "requests_by_code": by_code},
            "duplicates": self._counters.duplicates,
            "unmapped": self._counters.unmapped,
            "newest_span": newest,
            "truncated": truncated,
            "late": int(late),
            "not_deduplicated": large,
        }

    def _undecided(self) -> dict[str, Any]:
        """Count the traces that the sampler has not looked at yet, and say how long the oldest is there."""
        traces, oldest = self._store.read(UNDECIDED, {"now": utc_now()}).rows[0]
        return {"traces": traces, "oldest_s": _age_s(oldest)}

    def _evaluations(self) -> dict[str, Any]:
        by_status = dict(self._store.read("SELECT status, count(*) FROM raw.scores GROUP BY 1").rows)
        dropped = self._store.read(
            "SELECT reason, count(*) FROM raw.decisions WHERE latest AND NOT sampled"
            " AND reason IN ('budget', 'throttled', 'filtered') GROUP BY 1"
        ).rows
        jobs, oldest = self._store.read(f"SELECT count(*), min(created_at) FROM ({pending()})").rows[0]
        done = sum(count for status, count in by_status.items() if status != "error")
        return {
            "pending": jobs,
            "due": jobs,
            "oldest_s": _age_s(oldest),
            "done": done,
            "dropped": dict(dropped),
            "by_status": by_status,
        }

    def _judge(self) -> dict[str, Any]:
        judge = self._settings.judge
        spent = self._store.read(
            "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE day = current_date AND run_id IS NULL"
        ).rows[0][0]
        return {"model": judge.model, "spent_today_usd": float(spent), "budget_usd": judge.budget_usd_per_day}


def _age_s(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else round(max(0.0, (utc_now() - oldest).total_seconds()), 3)


def _sizes(db: str) -> dict[str, Any]:
    path = Path(db)
    kept = [str(log) for log in damaged_logs(path)]
    return {"path": db, "size_bytes": _size(path), "wal_bytes": _size(log_path(path)), "damaged_logs": kept}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
