"""`GET status`: what was received, rejected, late and truncated; what is due, done and dropped, and why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store

VERSION = version("ragpulse")


class Received(Protocol):
    """The receiver's counters, as far as they are reported."""

    body_bytes: int
    rejected: int
    duplicates: int

    def as_dict(self) -> dict[str, Any]:
        """Return `requests` by "signal code"."""
        ...


class Status:
    """Answers the operation; holds when the process started."""

    def __init__(
        self, store: Store, settings: Settings, *, counters: Received, queued_bytes: Callable[[], int] = lambda: 0
    ) -> None:
        self._store, self._settings, self._counters, self._queued_bytes = store, settings, counters, queued_bytes
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the counts; those of the process since its start, those of the data from the store."""
        del params
        collector = self._settings.collector
        return {
            "version": VERSION,
            "started_at": self._started_at,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "db": _sizes(collector.db),
            "retention": {"days": collector.retention_days, "gb": collector.retention_gb},
            **self._received(),
            "queue": {"bytes": self._queued_bytes()},
            "evaluations": self._evaluations(),
            "judge": self._judge(),
            "roles": list(collector.roles),
        }

    def _received(self) -> dict[str, Any]:
        by_code: dict[str, int] = {}
        taken = 0
        for told, count in self._counters.as_dict()["requests"].items():
            code = told.rpartition(" ")[2]
            if code == "200":
                taken += count
            else:
                by_code[code] = by_code.get(code, 0) + count
        spans, newest, truncated = self._store.read(
            "SELECT count(*), max(start_time), count(*) FILTER (contexts_state = 'truncated') FROM raw.spans"
        ).rows[0]
        late = self._store.read("SELECT coalesce(sum(late_spans), 0) FROM raw.trace_facts WHERE latest").rows[0][0]
        return {
            "received": {"requests": taken, "spans": spans, "bytes": self._counters.body_bytes},
            "rejected": {"spans": self._counters.rejected, "requests_by_code": by_code},
            "duplicates": self._counters.duplicates,
            "newest_span": newest,
            "truncated": truncated,
            "late": int(late),
        }

    def _evaluations(self) -> dict[str, Any]:
        by_status = dict(self._store.read("SELECT status, count(*) FROM raw.scores GROUP BY 1").rows)
        dropped = self._store.read(
            "SELECT reason, count(*) FROM raw.decisions WHERE latest AND NOT sampled"
            " AND reason IN ('budget', 'throttled', 'filtered') GROUP BY 1"
        ).rows
        due = self._store.read(
            "SELECT count(*) FROM raw.eval_jobs j WHERE NOT EXISTS (SELECT 1 FROM raw.scores s"
            " WHERE s.job_id = j.job_id AND (s.status <> 'error' OR s.attempt >= 5))"
            " AND NOT EXISTS (SELECT 1 FROM raw.run_items i WHERE i.job_id = j.job_id)"
        ).rows[0][0]
        done = sum(count for status, count in by_status.items() if status != "error")
        return {"due": due, "done": done, "dropped": dict(dropped), "by_status": by_status}

    def _judge(self) -> dict[str, Any]:
        judge = self._settings.judge
        spent = self._store.read(
            "SELECT coalesce(sum(usd), 0) FROM raw.ledger WHERE day = current_date AND run_id IS NULL"
        ).rows[0][0]
        return {"model": judge.model, "spent_today_usd": float(spent), "budget_usd": judge.budget_usd_per_day}


def _sizes(db: str) -> dict[str, Any]:
    path = Path(db)
    return {"path": db, "size_bytes": _size(path), "wal_bytes": _size(path.with_name(path.name + ".wal"))}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
