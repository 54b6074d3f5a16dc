"""The status of a collector without a problem."""

from __future__ import annotations

from datetime import datetime

from ragpulse_collector.api.health import (
    CollectorStatus,
    Database,
    DiskSpace,
    Evaluations,
    JudgeHealth,
    Received,
    Rejected,
    Retention,
    Undecided,
    UnknownPrice,
)
from ragpulse_collector.store.ingest.queue import Backlog
from ragpulse_collector.store.reading import QueryTimes

HEALTHY = CollectorStatus(
    version="0.2.0",
    started_at=datetime(2026, 1, 1),
    uptime_s=1.0,
    db=Database(path="x.duckdb", size_bytes=0, wal_bytes=0, damaged_logs=(), problem=None),
    retention=Retention(days=30, gb=10),
    received=Received(requests=1, spans=1, logs=0, bytes=1),
    rejected=Rejected(spans=0, requests_by_code={}),
    duplicates=0,
    unmapped=0,
    not_stored={},
    newest_span=None,
    truncated=0,
    late=0,
    misdated=0,
    not_deduplicated=0,
    queue=Backlog(),
    disk=DiskSpace(free_bytes=50 * 10**9, growth_bytes_per_day=10**9),
    undecided=Undecided(traces=0, oldest_s=0.0),
    evaluations=Evaluations(
        new_per_s=1.0,
        done_per_s=1.0,
        clears_in_s=5.0,
        pending=5,
        due=5,
        oldest_s=1.0,
        done=0,
        dropped={},
        by_status={},
        keeps_up={},
    ),
    judge=JudgeHealth(errors=0, down_since=None, reason=None, model="m", spent_today_usd=0.0, budget_usd=1.0, rules=()),
    unknown_price=UnknownPrice(calls=0, per_hour=0.0, models={}),
    queries=QueryTimes(),
    prices={},
    other_groups={},
    roles=("ingest", "evaluate", "maintain"),
)
