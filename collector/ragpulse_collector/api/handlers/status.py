"""`GET status`: the counters of the collector, and its present problems with number, rate and time to clear."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ragpulse_collector.api.params import Params
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import CollectorSettings, Settings
from ragpulse_collector.store import AnyStore, Store
from ragpulse_collector.store.ingest.prices import PriceTable
from ragpulse_collector.store.log import damaged_logs, log_path
from ragpulse_collector.store.queries import health
from ragpulse_collector.store.queries.jobs import spent_usd
from ragpulse_collector.store.rows import utc_now

VERSION = version("ragpulse")

RECENT = timedelta(minutes=10)
"""The window of the evaluation rates and of the judge's state."""
SOON_FULL_S = 3 * 86400.0
LOW_BYTES = 1024**3
SLOW_S = 3600.0
"""A backlog that needs longer than this is a problem."""


class Status:
    """Answers `GET status`; holds the start time of the process."""

    def __init__(
        self,
        store: AnyStore,
        settings: Settings,
        counters: Counters,
        *,
        budgets: Callable[[], Mapping[str, float]] = dict,
        prices: Callable[[], Mapping[str, str | None]] = lambda: PriceTable().about(),
    ) -> None:
        self._store, self._settings, self._counters = store, settings, counters
        self._budgets, self._prices = budgets, prices
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self, params: Params) -> dict[str, Any]:
        """Return the counts of the process since its start, and those of the stored data."""
        del params
        collector, now = self._settings.collector, utc_now()
        sizes = _sizes(collector.db)
        used = sizes["size_bytes"] + sizes["wal_bytes"]
        status = {
            "version": VERSION,
            "started_at": self._started_at,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "db": sizes | {"problem": self._store.problem()},
            "retention": {"days": collector.retention_days, "gb": collector.retention_gb},
            **self._received(),
            "queue": asdict(self._store.backlog()),
            "disk": disk(self._store, collector, now, used),
            "undecided": self._undecided(),
            **self._evaluated(now),
            "unknown_price": unknown_price(self._store, now),
            "queries": asdict(self._store.query_times),
            "prices": self._prices(),
            "roles": list(collector.roles),
        }
        return status | {"problems": problems(status)}

    def _received(self) -> dict[str, Any]:
        by_code = Counter[str]()
        for (_, code), count in sorted(self._counters.requests.items()):
            by_code[str(int(code))] += count
        stored = health.totals(self._store)
        return {
            "received": {
                "requests": by_code.pop("200", 0),
                "spans": stored.pop("spans"),
                "logs": self._counters.logs,
                "bytes": self._counters.body_bytes,
            },
            "rejected": {"spans": self._counters.rejected, "requests_by_code": by_code},
            "duplicates": self._counters.duplicates,
            "unmapped": self._counters.unmapped,
            "not_stored": {signal: dict(counts) for signal, counts in sorted(self._counters.not_stored.items())},
            **stored,
        }

    def _undecided(self) -> dict[str, Any]:
        """Return the number of undecided traces and the age of the oldest."""
        traces, oldest = health.undecided(self._store, utc_now())
        return {"traces": traces, "oldest_s": _age_s(oldest)}

    def _evaluated(self, now: datetime) -> dict[str, Any]:
        by_status = health.results_by_status(self._store)
        jobs, oldest = health.pending_jobs(self._store)
        recent = health.results_since(self._store, now - RECENT)
        evaluations = {
            "pending": jobs,
            "due": jobs,
            "oldest_s": _age_s(oldest),
            **pace(recent, jobs),
            "done": sum(count for status, count in by_status.items() if status != "error"),
            "dropped": health.dropped_by_reason(self._store),
            "by_status": by_status,
        }
        return {"evaluations": evaluations, "judge": self._judge(now) | judge_state(recent)}

    def _judge(self, now: datetime) -> dict[str, Any]:
        judge, read = self._settings.judge, self._store.read
        return {
            "model": judge.model,
            "spent_today_usd": spent_usd(read, day=now),
            "budget_usd": judge.budget_usd_per_day,
            "rules": [
                {"name": name, "spent_today_usd": spent_usd(read, day=now, rule=name), "budget_usd": usd}
                for name, usd in self._budgets().items()
            ],
        }


def _age_s(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else round(max(0.0, (utc_now() - oldest).total_seconds()), 3)


def _sizes(db: str) -> dict[str, Any]:
    path = Path(db)
    damaged = [str(log) for log in damaged_logs(path)]
    return {"path": db, "size_bytes": _size(path), "wal_bytes": _size(log_path(path)), "damaged_logs": damaged}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def unknown_price(store: Store, now: datetime) -> dict[str, Any]:
    """Return the number of calls of the last day without a known cost, by model."""
    models = health.unpriced_calls(store, now - timedelta(days=1))
    calls = sum(models.values())
    return {"calls": calls, "per_hour": round(calls / 24, 3), "models": models}


def pace(recent: Mapping[str, Any], pending: int) -> dict[str, Any]:
    """Return the rates of new and finished jobs, and the seconds until none is pending; null where they grow."""
    new, done, seconds = recent["made"], recent["done"], RECENT.total_seconds()
    clears = 0.0 if not pending else pending * seconds / (done - new) if done > new else None
    return {"new_per_s": new / seconds, "done_per_s": done / seconds, "clears_in_s": clears}


def judge_state(recent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the errors of the judge in the last ten minutes, and since when it has only failed."""
    last_answer, errors = recent["answered"], recent["errors"]
    down = errors > 0 and (last_answer is None or last_answer < recent["last_failed"])
    since = (last_answer or recent["first_failed"]) if down else None
    return {"errors": errors, "down_since": since, "reason": recent["reason"] if down else None}


def disk(store: Store, settings: CollectorSettings, now: datetime, used: int) -> dict[str, Any]:
    """Return the free space, and when it is used up at the pace of the last day; null where that is unknown.

    Nothing grows beyond `retention_gb`. A lake's files are elsewhere.
    """
    if settings.on_a_lake:
        return {"free_bytes": None, "growth_bytes_per_day": None, "full_in_s": None}
    free = shutil.disk_usage(Path(settings.db).absolute().parent).free
    spans, recent, oldest = health.growth(store, now - timedelta(days=1))
    seconds = min(86400.0, (now - oldest).total_seconds()) if oldest else 0.0
    per_s = used / spans * recent / seconds if spans and seconds > RECENT.total_seconds() else None
    growth_left = settings.retention_gb * 1e9 - used
    full = free / per_s if per_s and growth_left > free else None
    return {"free_bytes": free, "growth_bytes_per_day": per_s and per_s * 86400, "full_in_s": full}


def problems(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the problems that need a person: `name`, `text`, `fix`, `n`, `per_s`, `clears_in_s`."""
    fields = ("name", "n", "per_s", "clears_in_s", "text", "fix")
    return [dict(zip(fields, problem, strict=True)) for problem in _problems(status)]


def _problems(status: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    queue, space, unpriced = status["queue"], status["disk"], status["unknown_price"]
    if queue["refused"]:
        text = f"nothing is written, {queue['bodies']} bodies wait: {queue['refused']}"
        fix = "free some space or repair the disk: senders keep their data, and writing continues by itself"
        yield "store", queue["bodies"], None, None, text, fix
    free, full = space["free_bytes"], space["full_in_s"]
    if free is not None and (free < LOW_BYTES or (full is not None and full < SOON_FULL_S)):
        when = "" if full is None else f"; full in {_length(full)} at the pace of the last day"
        growth = space["growth_bytes_per_day"]
        text, fix = f"{free / 1e9:.1f} GB are free on the disk{when}", "free some space, or lower retention_gb"
        yield "disk", free, growth and growth / 86400, full, text, fix
    yield from _of_evaluation(status["evaluations"], status["judge"])
    if calls := unpriced["calls"]:
        model, count = next(iter(unpriced["models"].items()))
        per_hour = unpriced["per_hour"]
        text = f"{calls} calls of the last day ({per_hour:g} an hour) have no price; {count} of them use {model}"
        fix = f'add [prices."{model}"] input = ..., output = ... to ragpulse.toml, reload, then `ragpulse remap`'
        yield "unknown_price", calls, per_hour / 3600, None, text, fix


def _of_evaluation(evaluations: Mapping[str, Any], judge: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    pending, clears = evaluations["pending"], evaluations["clears_in_s"]
    if pending and evaluations["oldest_s"] > SLOW_S and (clears is None or clears > SLOW_S):
        when = "it grows" if clears is None else f"done in {_length(clears)} at this pace"
        text = f"{pending} evaluations are pending, {evaluations['done_per_s'] * 60:.3g} a minute are done: {when}"
        fix = "lower the rate of a rule, or raise [judge] concurrency"
        yield "backlog", pending, evaluations["done_per_s"], clears, text, fix
    if judge["down_since"]:
        n, per_s = judge["errors"], judge["errors"] / RECENT.total_seconds()
        text = f"the judge {judge['model']} fails since {judge['down_since']:%H:%M} UTC, {n} times: {judge['reason']}"
        yield "judge", n, per_s, None, text, "check its address, key and quota; failed jobs are tried again"


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"
