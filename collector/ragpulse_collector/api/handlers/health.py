"""What is wrong with the collector now, for `GET status`, Health and `ragpulse doctor`: number, rate, time to clear."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.health import growth, unpriced_calls

RECENT = timedelta(minutes=10)
"""Rates of evaluation, and whether the judge answers, are of the last ten minutes."""
SOON_FULL_S = 3 * 86400.0
LOW_BYTES = 1024**3
SLOW_S = 3600.0
"""A backlog that needs longer than this is a problem; below it is a queue."""


def unknown_price(store: Store, now: datetime) -> dict[str, Any]:
    """Return how many calls of the last day have no known cost, by model."""
    models = unpriced_calls(store, now - timedelta(days=1))
    calls = sum(models.values())
    return {"calls": calls, "per_hour": round(calls / 24, 3), "models": models}


def pace(recent: Mapping[str, Any], pending: int) -> dict[str, Any]:
    """Return how fast jobs come and are done, and when none is pending at this pace; null where they grow."""
    made, done, seconds = recent["made"], recent["done"], RECENT.total_seconds()
    clears = 0.0 if not pending else pending * seconds / (done - made) if done > made else None
    return {"new_per_s": made / seconds, "done_per_s": done / seconds, "clears_in_s": clears}


def judge_state(recent: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether the judge answers: its errors of the last ten minutes, and since when nothing else came."""
    answered, errors = recent["answered"], recent["errors"]
    down = errors > 0 and (answered is None or answered < recent["last_failed"])
    since = (answered or recent["first_failed"]) if down else None
    return {"errors": errors, "down_since": since, "reason": recent["reason"] if down else None}


def disk(store: Store, settings: CollectorSettings, now: datetime, used: int) -> dict[str, Any]:
    """Return the free space, and when it is used up at the pace of the last day; null where that is not known.

    Nothing grows beyond `retention_gb`. A lake's files are elsewhere.
    """
    if settings.on_a_lake:
        return {"free_bytes": None, "growth_bytes_per_day": None, "full_in_s": None}
    free = shutil.disk_usage(Path(settings.db).absolute().parent).free
    spans, recent, oldest = growth(store, now - timedelta(days=1))
    seconds = min(86400.0, (now - oldest).total_seconds()) if oldest else 0.0
    per_s = used / spans * recent / seconds if spans and seconds > RECENT.total_seconds() else None
    room = settings.retention_gb * 1e9 - used
    full = free / per_s if per_s and room > free else None
    return {"free_bytes": free, "growth_bytes_per_day": per_s and per_s * 86400, "full_in_s": full}


def problems(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what somebody should do something about: `name`, `text`, `fix`, `n`, `per_s`, `clears_in_s`."""
    fields = ("name", "n", "per_s", "clears_in_s", "text", "fix")
    return [dict(zip(fields, one, strict=True)) for one in _found(status)]


def _found(status: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    queue, room, unpriced = status["queue"], status["disk"], status["unknown_price"]
    if queue["refused"]:
        text = f"nothing is written, {queue['bodies']} bodies wait: {queue['refused']}"
        fix = "free some space or repair the disk: senders keep their data, and writing goes on by itself"
        yield "store", queue["bodies"], None, None, text, fix
    free, full = room["free_bytes"], room["full_in_s"]
    if free is not None and (free < LOW_BYTES or (full is not None and full < SOON_FULL_S)):
        when = "" if full is None else f"; full in {_length(full)} at the pace of the last day"
        growth = room["growth_bytes_per_day"]
        text, fix = f"{free / 1e9:.1f} GB are free on the disk{when}", "free some space, or lower retention_gb"
        yield "disk", free, growth and growth / 86400, full, text, fix
    yield from _of_evaluation(status["evaluations"], status["judge"])
    if calls := unpriced["calls"]:
        model, most = next(iter(unpriced["models"].items()))
        text = f"{calls} calls of the last day ({unpriced['per_hour']:g} an hour) have no price; of {model}: {most}"
        fix = f'add [prices."{model}"] input = ..., output = ... to ragpulse.toml, reload, then `ragpulse remap`'
        yield "unknown_price", calls, unpriced["per_hour"] / 3600, None, text, fix


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
