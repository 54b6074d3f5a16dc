"""Do monitors keep their promise: false alarms where nothing changed, and how soon a planted change is seen.

    python benchmarks/alerts.py [--short] [--only NAME]

Traffic of weeks is written into a store: users who ask several times, whose answers are alike, with a daily rhythm of
volume and of quality, days that differ, and bursts of errors. The services in one store are independent replications:
a monitor with `group_by = ["service"]` watches all, and is looked at as often as the collector looks. Exit 1 where
false alarms exceed what was stated, or a change is not seen in time.
"""

from __future__ import annotations

import importlib
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from ragpulse_collector.analysis.cache import snapshot_of
from ragpulse_collector.analysis.changes import changes
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.records import Batch
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store import EmbeddedStore

sys.path.insert(0, str(Path(__file__).parent))
PROMISES = importlib.import_module("_promises")
Promise = PROMISES.Promise
END = datetime(2026, 11, 20)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class World:
    """What the requests of a service are like."""

    requests: float = 25.0
    """An hour, in the mean."""
    rhythm: float = 0.8
    """How far nights fall below the mean."""
    days: float = 0.15
    """The coefficient of variation from day to day."""
    each: float = 3.0
    """Requests of a user's visit, in the mean."""
    users: int = 150
    errors: float = 0.04
    bursts: float = 0.02
    """The share of visits in which everything fails."""
    quality: float = 0.88
    wave: float = 0.07
    """How far quality moves with the time of the day."""
    icc: float = 0.2
    before: int = 11
    """Days of traffic before the watched time."""


@dataclass(frozen=True)
class Planted:
    """A change `at` hours after the watched time begins: factors of the volume and the errors, and another quality."""

    at: int
    requests: float = 1.0
    errors: float = 1.0
    quality: float = 0.0


def drawn(chance: Any, world: World, hours: int, change: Planted | None) -> dict[str, Any]:
    """The requests of one service over the baseline and `hours` more: hour, user, error, quality."""
    total = 24 * world.before + hours
    clock = np.arange(total)
    moved = (clock >= 24 * world.before + change.at) if change else np.zeros(total, bool)
    spread = math.sqrt(math.log1p(world.days**2))
    days = np.exp(chance.normal(-(spread**2) / 2, spread, total // 24 + 1))[clock // 24]
    volume = world.requests / world.each * days * (1 + world.rhythm * np.sin(2 * math.pi * clock / 24))
    volume *= np.where(moved, change.requests if change else 1.0, 1.0)
    visits = chance.poisson(volume)
    hour = np.repeat(clock, visits)
    size = chance.geometric(1.0 / world.each, len(hour))
    hour, visit = np.repeat(hour, size), np.repeat(np.arange(len(size)), size)
    ranks = 1.0 / np.arange(1, world.users + 1)
    user = chance.choice(world.users, len(size), p=ranks**0.7 / (ranks**0.7).sum())[visit]
    rate = world.errors * np.where(moved, change.errors if change else 1.0, 1.0)[hour]
    burst = (chance.random(len(size)) < world.bursts)[visit]
    error = burst | (chance.random(len(hour)) < rate)
    mean = world.quality + world.wave * np.sin(2 * math.pi * hour / 24)
    if change is not None:
        mean = mean + change.quality * moved[hour]
    alike = np.sqrt(world.icc) * chance.standard_normal(world.users)[user]
    latent = alike + math.sqrt(1 - world.icc) * chance.standard_normal(len(hour))
    return {
        "hour": hour,
        "user": user,
        "visit": visit,
        "error": error,
        "good": latent < _quantiles(np.clip(mean, 0.01, 0.99)),
    }


_GRID = np.linspace(0.0005, 0.9995, 2000)


def _quantiles(p: Any) -> Any:
    from statistics import NormalDist

    return np.interp(p, _GRID, [NormalDist().inv_cdf(float(one)) for one in _GRID])


def stored(path: Path, services: Sequence[dict[str, Any]], before: int, *, prompts: int | None = None) -> EmbeddedStore:
    """A store with these services, whose hours end at END; from the hour `prompts` on the prompt version is v2."""
    store = EmbeddedStore(path, decode=lambda _: Batch())
    begin = END - timedelta(hours=before)
    number, chance = 0, np.random.default_rng(0)
    for name, one in enumerate(services):
        rows: dict[str, list[Any]] = {"spans": [], "trace_facts": [], "decisions": [], "scores": []}
        seconds = one["hour"] * 3600 + chance.random(len(one["hour"])) * 3600
        columns = (seconds, *(one[key] for key in ("hour", "user", "visit", "error", "good")))
        for second, hour, user, visit, error, good in zip(*(column.tolist() for column in columns), strict=True):
            number += 1
            at, trace = begin + timedelta(seconds=second), UUID(int=number)
            new = prompts is not None and hour >= prompts
            facts = (f"s{name:03d}", f"u{name}-{user}", f"{name}-{visit}", "v2" if new else "v1")
            rows["spans"].append((trace, 1, at, at, 1000, "answer", "rag", *facts))
            rows["trace_facts"].append((trace, 0, True, at, 1, at, "answer", 1, 1, 0, 1.0, error, *facts))
            rows["decisions"].append((trace, 1, at, "judge", "r", "p", 1.0, 0.5, True, "sampled", at, 0, True))
            rows["scores"].append((f"k{number}", trace, 1, at, "judge", "v1", "online", "ok", float(good), float(good),
                                   at, good, 1))  # fmt: skip
        store.write(
            lambda tx, rows=rows: [tx.append(table, _COLUMNS[table], found) for table, found in rows.items()]
        ).result()
    return store


_FACTS = ("service", "user_id", "session_id", "prompt_version")
_COLUMNS = {
    "spans": ("trace_id", "span_id", "start_time", "received_at", "duration_us", "name", "kind", *_FACTS),
    "trace_facts": ("trace_id", "revision", "latest", "decided_at", "unit_span_id", "start_time", "name", "n_spans",
                    "n_units", "late_spans", "upstream_pi", "error", *_FACTS),
    "decisions": ("trace_id", "span_id", "request_time", "evaluator", "rule", "policy", "pi", "u", "sampled", "reason",
                  "decided_at", "revision", "latest"),
    "scores": ("score_key", "trace_id", "span_id", "request_time", "evaluator", "version", "source", "status", "score",
               "normalized", "created_at", "passing", "attempt"),
}  # fmt: skip


@dataclass(frozen=True)
class Watched:
    """The alarms of a monitor: by service, the hours at which it began to fire."""

    alarms: dict[str, list[int]]

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(map(len, self.alarms.values()))


def watched(store: EmbeddedStore, monitor: MonitorSettings, hours: int, *, per_hour: int = 1) -> Watched:
    """Look at a monitor as often as the collector does, over the last hours of the store."""
    monitors = Monitors(store, Settings.model_validate({"monitor": [monitor]}))
    known: dict[str, dict[str, Any]] = {}
    alarms: dict[str, list[int]] = {}
    for look in range(1, hours * per_hour + 1):
        at = END - timedelta(hours=hours) + look * _HOUR / per_hour
        for group, finding in monitors._findings(monitor, at, known).items():
            if finding.state == "firing" and known.get(group, {}).get("state") != "firing":
                alarms.setdefault(group, []).append(look // per_hour)
            known[group] = {"state": finding.state}
    return Watched(alarms)


WORLDS = {"quiet": World(), "few users": World(users=25), "busy": World(requests=120.0, bursts=0.05)}


def _store(
    folder: Path, worlds: Sequence[World], hours: int, change: Planted | None = None, *, prompts: int | None = None
) -> EmbeddedStore:
    chance = np.random.default_rng(len(worlds) + hours + (17 if change else 0))
    services, watched = [drawn(chance, one, hours, change) for one in worlds], 24 * worlds[0].before
    first = None if prompts is None else watched + prompts
    return stored(folder / "a.duckdb", services, watched + hours, prompts=first)


def quiet(services: int, hours: int) -> list[Promise]:
    """A/A: one monitor over all services; false alarms as stated for it (scaled to the watched time)."""
    found = []
    for name, world in list(WORLDS.items())[: 1 if services < 5 else None]:
        with tempfile.TemporaryDirectory() as folder:
            few = max(2, services // (4 if name == "busy" else 1))
            store = _store(Path(folder), [world] * few, hours)
            try:
                for metric, condition, year in (
                    ("quality:judge", "change", 200.0), ("error_rate", "change", 200.0), ("errors", "change", 200.0),
                    ("requests", "change", 200.0), ("quality:judge", f"< {world.quality - world.wave}", 200.0),
                    ("error_rate", f"> {1 - (1 - world.errors) * (1 - world.bursts):.4f}", 200.0),
                ):  # fmt: skip
                    monitor = MonitorSettings(name="m", metric=metric, condition=condition, group_by=("service",),
                                              false_alarms_per_year=year)  # fmt: skip
                    stated = year * hours / 8766.0
                    seen = watched(store, monitor, hours, per_hour=1 if condition == "change" else 4)
                    told = f"A/A {name}, {metric} {condition}, {few} services x {hours} h: false alarms"
                    found.append(
                        Promise(told, seen.count, high=stated + 3.0 * math.sqrt(stated), note=f"stated {stated:.1f}")
                    )
            finally:
                store.close()
    return found


def change(services: int, hours: int) -> list[Promise]:
    """A planted change is seen in most services, within hours."""
    found = []
    for metric, planted, within in (
        ("quality:judge", Planted(at=6, quality=-0.2), 12), ("error_rate", Planted(at=6, errors=5.0), 12),
        ("errors", Planted(at=6, errors=8.0), 12), ("requests", Planted(at=6, requests=0.2), 12),
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            world = World(requests=60.0, before=43) if metric == "requests" else World(requests=60.0)
            store = _store(Path(folder), [world] * services, hours, planted)
            try:
                monitor = MonitorSettings(name="m", metric=metric, condition="change", group_by=("service",),
                                          baseline="28d" if metric == "requests" else "7d",
                                          false_alarms_per_year=4.0 * services)  # fmt: skip
                seen = watched(store, monitor, hours)
            finally:
                store.close()
        delays = [next((at - planted.at for at in alarms if at > planted.at), hours) for alarms in seen.alarms.values()]
        delays += [hours] * (services - len(delays))
        told = f"{metric}, {_told(planted)}: hours until seen (median)"
        found.append(
            Promise(
                told, float(np.median(delays)), high=within, note=f"in {sum(d < hours for d in delays)} of {services}"
            )
        )
    return found


def _told(planted: Planted) -> str:
    if planted.quality:
        return f"quality {planted.quality:+.2f}"
    return f"errors x {planted.errors:g}" if planted.errors != 1.0 else f"requests x {planted.requests:g}"


def successor(services: int, hours: int) -> list[Promise]:
    """A new prompt version that is worse is seen against its predecessor; one that is not raises no alarm."""
    found = []
    for told, drop, most in (
        ("worse by 0.25: hours until seen (median)", -0.25, 12.0),
        ("no worse: false alarms", 0.0, 1.0),
    ):
        with tempfile.TemporaryDirectory() as folder:
            planted = Planted(at=6, quality=drop)
            store = _store(Path(folder), [World(requests=60.0)] * services, hours, planted, prompts=6)
            try:
                groups = ("service", "prompt_version")
                monitor = MonitorSettings(name="m", metric="quality:judge", condition="change", group_by=groups,
                                          false_alarms_per_year=4.0 * services)  # fmt: skip
                seen = {group: at for group, at in watched(store, monitor, hours).alarms.items() if '"v2"' in group}
            finally:
                store.close()
        delays = [at[0] - 6 for at in seen.values()] + [hours] * (services - len(seen))
        value = float(np.median(delays)) if drop else float(len(seen))
        found.append(Promise(f"new prompt version, {told}", value, high=most, note=f"in {len(seen)} of {services}"))
    return found


_REQUESTS = """
    INSERT INTO raw.trace_facts BY NAME
    SELECT uuid() AS trace_id, 0 AS revision, true AS latest, begun AS decided_at, i::UBIGINT AS unit_span_id,
           begun AS start_time, 'answer' AS name, false AS error, 1 AS n_spans, 1 AS n_units, 1.0 AS upstream_pi,
           (1 + {slower} * late::INTEGER) * 1000 * exp({sigma} * sqrt(-2 * ln(1 - u)) * cos(2 * pi() * v))
               AS latency_ms,
           latency_ms / 1e6 AS cost_usd
    FROM (SELECT i, drawn[1] AS u, drawn[2] AS v, drawn[3] < {by_day} AS late,
                 $end - (i % {days} + 1) * INTERVAL 1 DAY
                 + to_microseconds(((drawn[4] + late::INTEGER) * 43200e6)::BIGINT) AS begun
          FROM (SELECT i, [hash(i || text) / 18446744073709551616.0 for text in ['a', 'b', 'c', 'd']] AS drawn
                FROM range({days} * {requests}) t(i)))"""


def _days_that_change(days: int, *, requests: int, by_day: float, sigma: float, slower: float = 0.0) -> Counter[str]:
    """On how many days the overview tells of each metric; half of a day is night, with `1 - by_day` of the requests."""
    sql = _REQUESTS.format(days=days, requests=requests, by_day=by_day, sigma=sigma, slower=slower)
    with tempfile.TemporaryDirectory() as folder:
        store = EmbeddedStore(Path(folder) / "a.duckdb", decode=lambda _: Batch())
        try:
            store.write(lambda tx: tx.execute(sql, {"end": END})).result()
            return Counter(metric for back in range(days) for metric in _told_of(store, END - timedelta(days=back)))
        finally:
            store.close()


def _told_of(store: EmbeddedStore, end: datetime) -> list[str]:
    asked = {"from": f"{(end - timedelta(days=1)).isoformat()}Z", "to": f"{end.isoformat()}Z", "step": "30m"}
    return [one["metric"] for one in changes(snapshot_of(store, asked, now=end))]


def headline(cells: int, days: int) -> list[Promise]:
    """The overview's first sentence: p95 of lognormal latencies, and cost, few a bucket, and with quiet nights."""
    found = []
    noise = 3.0 * math.sqrt(0.05 * 0.95 / days)
    worlds = ((240, 0.9, 0.5), (384, 0.75, 1.0), (240, 0.5, 1.0), (480, 0.5, 1.5), (2880, 0.85, 1.0))
    for requests, by_day, sigma in worlds[:cells]:
        world = {"requests": requests, "by_day": by_day, "sigma": sigma}
        same, more = _days_that_change(days, **world), _days_that_change(days, **world, slower=2.0)
        for metric in ("latency_p95", "cost_usd"):
            told = f"{metric}, {requests / 48:.0f} requests in half an hour, {by_day:.0%} by day, sigma {sigma}"
            found.append(Promise(f"{told}: changed, A/A", same[metric] / days, high=0.05 + noise))
            if requests * (1 - by_day) > 90:  # a shift cannot be seen where one side is a handful
                found.append(Promise(f"{told}: three times, seen", more[metric] / days, low=0.5))
    return found


SHIFTS = {
    "15 heavy users, ICC 0.5": World(requests=20.0, each=10.0, users=15, icc=0.5, wave=0.0, days=0.0, before=0),
    "150 users, ICC 0.2": World(requests=20.0, icc=0.2, wave=0.0, days=0.0, before=0),
}


def shifts(services: int, hours: int) -> list[Promise]:
    """The overview's first sentence about quality; fifteen users who are alike are too few to tell of a drop."""
    found, noise = [], 3.0 * math.sqrt(0.05 * 0.95 / services)
    for name, world in SHIFTS.items():
        told = f"overview, {name}, {hours} h: quality"
        found.append(Promise(f"{told} changed, A/A", _shifted(world, services, hours), high=0.05 + noise))
        if world.users > 100:
            seen = _shifted(world, services, hours, Planted(at=hours // 2, quality=-0.35))
            found.append(Promise(f"{told} fell by 0.35, seen", seen, low=0.8))
    return found


def _shifted(world: World, services: int, hours: int, planted: Planted | None = None) -> float:
    """The share of services for which the overview tells of quality."""
    with tempfile.TemporaryDirectory() as folder:
        store = _store(Path(folder), [world] * services, hours, planted)
        try:
            asked = {"from": f"{(END - timedelta(hours=hours)).isoformat()}Z", "to": f"{END.isoformat()}Z",
                     "step": "auto", "width": 120}  # fmt: skip
            found = (changes(snapshot_of(store, {**asked, "service": f"s{one:03d}"}, now=END))
                     for one in range(services))  # fmt: skip
            return sum(any(one["metric"] == "quality:judge" for one in told) for told in found) / services
        finally:
            store.close()


SIMULATIONS: dict[str, tuple[Callable[[int, int], list[Promise]], tuple[int, int], tuple[int, int]]] = {
    "quiet": (quiet, (3, 4), (10, 48)),
    "change": (change, (2, 16), (8, 30)),
    "successor": (successor, (2, 12), (8, 24)),
    "headline": (headline, (2, 20), (5, 300)),
    "shifts": (shifts, (12, 24), (100, 24)),
}
"""Name → simulation, services and hours in the short form (of tests) and the whole one; `headline`: worlds, days."""


def main() -> int:
    """Run every simulation and print each figure against its bound."""
    sized = {
        name: (partial(simulate, *short), partial(simulate, *whole))
        for name, (simulate, short, whole) in SIMULATIONS.items()
    }
    return PROMISES.run(__doc__, sized)


if __name__ == "__main__":
    sys.exit(main())
