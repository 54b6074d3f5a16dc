"""Promises of monitors: false alarms where nothing changed, and the delay until a planted change is detected.

    python benchmarks/alerts.py [--short] [--only NAME]

Weeks of traffic are written into a store: users who ask several times with correlated answers, a daily rhythm of
volume and of quality, days that differ, and bursts of errors. The services in one store are independent replications:
a monitor with `group_by = ["service"]` watches all, and is evaluated as often as in the collector. Exit 1 if there are
more false alarms than stated, or a change is not detected in time.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any
from uuid import UUID

import numpy as np

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes import changes
from ragpulse_collector.analysis.changes.usual import LENGTHS, Grid, Line, Sums
from ragpulse_collector.api.models import Buckets
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.records import Batch
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.zones import local

sys.path.insert(0, str(Path(__file__).parent))

from _promises import Promise, run

END = datetime(2026, 11, 20)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class World:
    """The traffic of a service."""

    requests: float = 25.0
    """An hour, on average."""
    rhythm: float = 0.8
    """The amplitude of the daily volume."""
    days: float = 0.15
    """The coefficient of variation from day to day."""
    each: float = 3.0
    """Requests of a user's visit, on average."""
    users: int = 150
    errors: float = 0.04
    bursts: float = 0.02
    """The share of visits in which everything fails."""
    quality: float = 0.88
    wave: float = 0.07
    """The amplitude of the daily quality."""
    icc: float = 0.2
    other: float = 0.05
    """The share of questions without a topic: more on weekends, and at the hours of the most requests."""
    known: float = 0.2
    """The share of the topic that is watched: less at these hours, and each user's own."""
    before: int = 11
    """Days of traffic before the watched time."""
    steep: float = 0.0
    """How suddenly the day begins and ends: 0 is a sine, 12 takes an hour."""
    weekend: float = 1.0
    """The factor of the volume on Saturdays and Sundays."""
    trend: float = 1.0
    """The factor of the volume over a week."""
    zone: str = "UTC"
    """The zone that the users' day follows."""
    end: datetime = END


@dataclass(frozen=True)
class Planted:
    """A change `at` hours after the watched time begins: factors of volume, errors and topics, and another quality."""

    at: int
    requests: float = 1.0
    errors: float = 1.0
    other: float = 1.0
    known: float = 1.0
    quality: float = 0.0


def requests_of(rng: Any, world: World, hours: int, change: Planted | None) -> dict[str, Any]:
    """The requests of one service over the baseline and `hours` more: hour, user, error, quality, topic."""
    total = 24 * world.before + hours
    clock = np.arange(total)
    begin, zone = world.end - total * _HOUR, zone_of(world.zone)
    phase = 2 * math.pi / 24 * np.array([((time := begin + hour * _HOUR) - begin + local(time, zone) - time) / _HOUR
                                         for hour in range(total)])  # fmt: skip
    changed = (clock >= 24 * world.before + change.at) if change else np.zeros(total, bool)
    rhythm = np.tanh(world.steep * np.sin(phase)) / math.tanh(world.steep) if world.steep else np.sin(phase)
    spread = math.sqrt(math.log1p(world.days**2))
    days = np.exp(rng.normal(-(spread**2) / 2, spread, total // 24 + 1))[clock // 24]
    volume = world.requests / world.each * days * (1 + world.rhythm * rhythm)
    volume *= np.where(_weekend(begin, total), world.weekend, 1.0) * world.trend ** (clock / 168)
    volume *= np.where(changed, change.requests if change else 1.0, 1.0)
    visits = rng.poisson(volume)
    hour = np.repeat(clock, visits)
    size = rng.geometric(1.0 / world.each, len(hour))
    hour, visit = np.repeat(hour, size), np.repeat(np.arange(len(size)), size)
    ranks = 1.0 / np.arange(1, world.users + 1)
    weights = ranks**0.7 / (ranks**0.7).sum()
    user = rng.choice(world.users, len(size), p=weights)[visit]
    rate = world.errors * np.where(changed, change.errors if change else 1.0, 1.0)[hour]
    burst = (rng.random(len(size)) < world.bursts)[visit]
    error = burst | (rng.random(len(hour)) < rate)
    mean = world.quality + world.wave * rhythm[hour]
    if change is not None:
        mean = mean + change.quality * changed[hour]
    of_user = np.sqrt(world.icc) * rng.standard_normal(world.users)[user]
    latent = of_user + math.sqrt(1 - world.icc) * rng.standard_normal(len(hour))
    return {
        "hour": hour,
        "user": user,
        "visit": visit,
        "error": error,
        "good": latent < _quantiles(np.clip(mean, 0.01, 0.99)),
        **_questions(
            rng.spawn(1)[0], world, weights, user, rhythm[hour], _weekend(begin, total)[hour], change, changed[hour]
        ),
    }


TILT, WEEKEND, NEAR, FAR = 0.3, 0.5, 0.35, 0.65
"""How far the mix of topics follows the day and the week, and the distance of a question with and without a topic."""


def _weekend(begin: datetime, total: int) -> Any:
    return np.array([(begin + hour * _HOUR).isoweekday() > 5 for hour in range(total)])


def _questions(
    rng: Any, world: World, weights: Any, user: Any, rhythm: Any, weekend: Any, change: Planted | None, changed: Any
) -> dict[str, Any]:
    """Topic and distance of each request: users keep to their topics, some ask unclear questions far more often."""
    unclear, keen = rng.gamma(2.0, size=world.users), rng.beta(0.8, 1.2, world.users)
    of_user = 0.05 * rng.standard_normal(world.users)
    unclear, keen, of_user = unclear / (weights @ unclear), keen / (weights @ keen), of_user - weights @ of_user
    factors = [np.where(changed, factor, 1.0) for factor in ((change.other, change.known) if change else (1.0, 1.0))]
    other_share = world.other * factors[0] * unclear[user] * (1 + TILT * rhythm + WEEKEND * weekend)
    known_share = world.known * factors[1] * keen[user] * (1 - TILT * rhythm)
    drawn = rng.random(len(user))
    other, known = drawn < other_share, drawn > 1 - known_share
    distance = np.where(other, FAR, NEAR) + of_user[user] + 0.1 * rng.standard_normal(len(user))
    topic = np.where(other, "other", np.where(known, "known", "another"))
    return {"topic": topic, "distance": np.clip(distance, 0.0, 1.0)}


_GRID = np.linspace(0.0005, 0.9995, 2000)


def _quantiles(p: Any) -> Any:
    return np.interp(p, _GRID, [NormalDist().inv_cdf(float(share)) for share in _GRID])


def store_of(
    path: Path, services: Sequence[dict[str, Any]], hours: int, *, prompts: int | None = None, end: datetime = END
) -> EmbeddedStore:
    """A store with these services, whose hours end at `end`; from the hour `prompts` on the prompt version is v2."""
    store = EmbeddedStore(path, decode=lambda _: Batch())
    begin = end - timedelta(hours=hours)
    number, rng = 0, np.random.default_rng(0)
    for index, service in enumerate(services):
        rows: dict[str, list[Any]] = {"spans": [], "trace_facts": [], "decisions": [], "scores": []}
        seconds = service["hour"] * 3600 + rng.random(len(service["hour"])) * 3600
        columns = (seconds, *(service[key] for key in _OF_REQUEST))
        for second, hour, user, visit, error, good, topic, distance in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            number += 1
            start, trace = begin + timedelta(seconds=second), UUID(int=number)
            version = "v2" if prompts is not None and hour >= prompts else "v1"
            facts = (f"s{index:03d}", f"u{index}-{user}", f"{index}-{visit}", version)
            rows["spans"].append((trace, 1, start, start, 1000, "answer", "rag", *facts))
            rows["trace_facts"].append((trace, 0, True, start, 1, start, "answer", 1, 1, 0, 1.0, error, topic,
                                        distance, *facts))  # fmt: skip
            rows["decisions"].append((trace, 1, start, "judge", "r", "p", 1.0, 0.5, True, "sampled", start, 0, True))
            rows["scores"].append((f"k{number}", trace, 1, start, "judge", "v1", "online", "ok", float(good),
                                   float(good), start, good, 1))  # fmt: skip
        store.write(
            lambda tx, rows=rows: [tx.append(table, _COLUMNS[table], values) for table, values in rows.items()]
        ).result()
    return store


_OF_REQUEST = ("hour", "user", "visit", "error", "good", "topic", "distance")
_FACTS = ("service", "user_id", "session_id", "prompt_version")
_COLUMNS = {
    "spans": ("trace_id", "span_id", "start_time", "received_at", "duration_us", "name", "kind", *_FACTS),
    "trace_facts": ("trace_id", "revision", "latest", "decided_at", "unit_span_id", "start_time", "name", "n_spans",
                    "n_units", "late_spans", "upstream_pi", "error", "topic",
                    "question_distance", *_FACTS),
    "decisions": ("trace_id", "span_id", "request_time", "evaluator", "rule", "policy", "pi", "u", "sampled", "reason",
                  "decided_at", "revision", "latest"),
    "scores": ("score_key", "trace_id", "span_id", "request_time", "evaluator", "version", "source", "status", "score",
               "normalized", "created_at", "passing", "attempt"),
}  # fmt: skip


def alarms_of(
    store: EmbeddedStore, monitor: MonitorSettings, hours: int, *, per_hour: int = 1, end: datetime = END
) -> dict[str, list[int]]:
    """Evaluate a monitor over the last hours of the store; by service, the hours at which it began to fire."""
    monitors = Monitors(store, Settings.model_validate({"monitor": [monitor]}))
    states: dict[str, State] = {}
    alarms: dict[str, list[int]] = {}
    for step in range(1, hours * per_hour + 1):
        now = end - timedelta(hours=hours) + step * _HOUR / per_hour
        for group, finding in monitors._findings(monitor, now, states).items():
            if finding.state == "firing" and states.get(group) != "firing":
                alarms.setdefault(group, []).append(step // per_hour)
            states[group] = finding.state
    return alarms


WORLDS = {"quiet": World(), "few users": World(users=25), "busy": World(requests=120.0, bursts=0.05)}


def _store(
    folder: Path, worlds: Sequence[World], hours: int, change: Planted | None = None, *, prompts: int | None = None
) -> EmbeddedStore:
    rng = np.random.default_rng(len(worlds) + hours + (17 if change else 0))
    services, before = [requests_of(rng, world, hours, change) for world in worlds], 24 * worlds[0].before
    return store_of(
        folder / "a.duckdb",
        services,
        before + hours,
        prompts=None if prompts is None else before + prompts,
        end=worlds[0].end,
    )


@contextmanager
def _temporary_store(*arguments: Any, **options: Any) -> Iterator[EmbeddedStore]:
    """A store as `_store` writes it, deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder, closing(_store(Path(folder), *arguments, **options)) as store:
        yield store


def quiet(services: int, hours: int) -> Iterator[Promise]:
    """A/A: one monitor over all services; false alarms as stated for it (scaled to the watched time)."""
    for name, world in list(WORLDS.items())[: 1 if services < 5 else None]:
        count = max(2, services // (4 if name == "busy" else 1))
        most = 1 - (1 - world.errors) * (1 - world.bursts)
        with _temporary_store([world] * count, hours) as store:
            yield from _false_alarms(store, name, count, hours, (
                ("quality:judge", "change"), ("error_rate", "change"), ("errors", "change"), ("requests", "change"),
                ("quality:judge", f"< {world.quality - world.wave}"), ("error_rate", f"> {most:.4f}"),
            ))  # fmt: skip


MONDAY = datetime(2026, 11, 23)
OF_TOPICS = ("other_share", "topic_share:known", "question_drift")


def topics(services: int, hours: int) -> Iterator[Promise]:
    """A/A on a weekend: its mix of topics is another one, as on each weekend. Then planted changes."""
    for name in ("quiet", "few users")[: 1 if services < 5 else None]:
        world = replace(WORLDS[name], end=MONDAY)
        most, least = world.other * (1 + TILT + WEEKEND), world.known * (1 - TILT)
        limits = (f"> {most:.4f}", f"< {least:.4f}", f"> {NEAR + (FAR - NEAR) * most:.4f}")
        with _temporary_store([world] * services, hours) as store:
            changes = [(metric, "change") for metric in OF_TOPICS]
            found = (*changes, *zip(OF_TOPICS, limits, strict=True))
            yield from _false_alarms(store, name, services, hours, found, end=MONDAY)
    if services < 5:  # too few to say when half of them have alarmed
        return
    unclear, keen = Planted(at=6, other=5.0), Planted(at=6, known=2.5)
    for planted, label, metrics in (
        (unclear, "no topic x 5", ("other_share", "question_drift")), (keen, "a topic x 2.5", ("topic_share:known",)),
    ):  # fmt: skip
        with _temporary_store([World(requests=60.0)] * services, hours, planted) as store:
            for metric in metrics:
                # The mean distance moves by a sixth only.
                most = 36 if metric == "question_drift" else 12
                yield replace(_seen(store, metric, label, planted, services, hours), high=most)


def _false_alarms(
    store: EmbeddedStore, world: str, services: int, hours: int, monitors: Iterable[tuple[str, str]],
    *, end: datetime = END,
) -> Iterator[Promise]:  # fmt: skip
    for metric, condition in monitors:
        monitor = MonitorSettings(name="m", metric=metric, condition=condition, group_by=("service",),
                                  false_alarms_per_year=200.0)  # fmt: skip
        stated = 200.0 * hours / 8766.0
        alarms = alarms_of(store, monitor, hours, per_hour=1 if condition == "change" else 4, end=end)
        label = f"A/A {world}, {metric} {condition}, {services} services x {hours} h: false alarms"
        high, note = stated + 3.0 * math.sqrt(stated), f"stated {stated:.1f}"
        yield Promise(label, sum(map(len, alarms.values())), high=high, note=note)


def _seen(
    store: EmbeddedStore, metric: str, label: str, planted: Planted, services: int, hours: int, baseline: str = "7d",
    *, end: datetime = END,
) -> Promise:  # fmt: skip
    """The hours until half of the services have an alarm."""
    monitor = MonitorSettings(name="m", metric=metric, condition="change", group_by=("service",), baseline=baseline,
                              false_alarms_per_year=4.0 * services)  # fmt: skip
    alarms = alarms_of(store, monitor, hours, end=end)
    delays = [next((hour - planted.at for hour in starts if hour > planted.at), hours) for starts in alarms.values()]
    delays += [hours] * (services - len(delays))
    note = f"in {sum(d < hours for d in delays)} of {services}"
    return Promise(f"{metric}, {label}: hours until seen (median)", float(np.median(delays)), high=12, note=note)


def change(services: int, hours: int) -> Iterator[Promise]:
    """A planted change is detected in most services, within hours."""
    for metric, planted, label in (
        ("quality:judge", Planted(at=6, quality=-0.2), "quality -0.20"),
        ("error_rate", Planted(at=6, errors=5.0), "errors x 5"), ("errors", Planted(at=6, errors=8.0), "errors x 8"),
        ("requests", Planted(at=6, requests=0.2), "requests x 0.2"),
    ):  # fmt: skip
        world = World(requests=60.0, before=43) if metric == "requests" else World(requests=60.0)
        with _temporary_store([world] * services, hours, planted) as store:
            baseline = "28d" if metric == "requests" else "7d"
            yield _seen(store, metric, label, planted, services, hours, baseline)


def successor(services: int, hours: int) -> list[Promise]:
    """A new prompt version that is worse is detected against its predecessor; an equal one raises no alarm."""
    promises = []
    for label, drop, high in (
        ("worse by 0.25: hours until seen (median)", -0.25, 12.0),
        ("no worse: false alarms", 0.0, 1.0),
    ):
        planted = Planted(at=6, quality=drop)
        with _temporary_store([World(requests=60.0)] * services, hours, planted, prompts=6) as store:
            groups = ("service", "prompt_version")
            monitor = MonitorSettings(name="m", metric="quality:judge", condition="change", group_by=groups,
                                      false_alarms_per_year=4.0 * services)  # fmt: skip
            alarms = [starts for group, starts in alarms_of(store, monitor, hours).items() if '"v2"' in group]
        delays = [starts[0] - 6 for starts in alarms] + [hours] * (services - len(alarms))
        value = float(np.median(delays)) if drop else float(len(alarms))
        note = f"in {len(alarms)} of {services}"
        promises.append(Promise(f"new prompt version, {label}", value, high=high, note=note))
    return promises


SPRING, AUTUMN = datetime(2026, 4, 14), datetime(2026, 11, 10)
"""Sixteen days after clocks were shifted in Berlin: nearly all of a baseline of 28 days lies before."""
OFFICE = World(requests=60.0, each=1.5, errors=0.25, bursts=0.0, quality=0.6, wave=0.35, rhythm=0.9, steep=12.0,
               before=43, zone="Europe/Berlin")  # fmt: skip
"""Users of an office: the hours in which their day begins and ends move by one against UTC."""


def daylight(services: int, hours: int) -> Iterator[Promise]:
    """A/A over both shifts of the users' clock, baseline 28 days; by the hours of UTC, the same services alarm."""
    stated = 200.0 * hours / 8766.0
    high = stated + 3.0 * math.sqrt(stated)
    for name, end in (("forward", SPRING), ("back", AUTUMN)):
        with _temporary_store([replace(OFFICE, end=end)] * services, hours) as store:
            for metric, zones in (
                ("requests", ("Europe/Berlin", None, "UTC")), ("errors", ("Europe/Berlin", None, "UTC")),
                ("quality:judge", (None, "UTC")), ("error_rate", (None,)),
            ):  # fmt: skip
                for tz in zones:
                    of_zone = {"UTC": "hours of UTC", None: "no tz"}.get(tz, "tz of the users")
                    label = f"clocks {name}, {metric} change, {of_zone}, {services} services x {hours} h: alarms"
                    alarms = _shifted_alarms(store, metric, tz, hours, end)
                    bounds = {"low": high} if tz == "UTC" else {"high": high}
                    yield Promise(label, alarms, **bounds, note=f"stated {stated:.1f}")


def _shifted_alarms(store: EmbeddedStore, metric: str, tz: str | None, hours: int, end: datetime) -> int:
    monitor = MonitorSettings(name="m", metric=metric, condition="change", group_by=("service",), baseline="28d",
                              false_alarms_per_year=200.0, tz=tz)  # fmt: skip
    return sum(map(len, alarms_of(store, monitor, hours, end=end).values()))


RHYTHMS = {
    "quiet": World(rhythm=0.0, wave=0.0, days=0.05),
    "weekly": World(weekend=0.2),
    "daily": World(),
    "trending": World(trend=1.2),
    "sparse": World(requests=1.5),
    "shifted": replace(OFFICE, requests=25.0, end=datetime(2026, 11, 1)),
}
"""Clocks of the last are shifted in the watched week; its users' zone is known."""
CHANGES = {
    "requests": ("x 0.2", Planted(at=30, requests=0.2)),
    "errors": ("x 8", Planted(at=30, errors=8.0)),
    "error_rate": ("x 5", Planted(at=30, errors=5.0)),
    "quality": ("-0.20", Planted(at=30, quality=-0.2)),
}


def rhythms(services: int, hours: int) -> Iterator[Promise]:
    """False alarms of each rhythm over a watched week, and how soon a planted change is seen; in memory."""
    for name, world in RHYTHMS.items():
        world = replace(world, before=37)
        for metric, (label, planted) in CHANGES.items():
            alarms = [len(_alarms(_line(world, metric, hours, seed), hours, 200.0)) for seed in range(services)]
            stated = 200.0 * hours * services / 8766.0
            text = f"{name}, {metric}: false alarms in {services} x {hours} h"
            yield Promise(text, sum(alarms), high=2.0 * stated, note=f"stated {stated:.1f}")
            delays = []
            for seed in range(services):
                found = _alarms(_line(world, metric, 72, seed, planted), 72, 4.0)
                delays.append(next((hour - planted.at for hour in found if hour > planted.at), 42))
            note = f"in {sum(delay < 42 for delay in delays)} of {services}"
            yield Promise(f"{name}, {metric} {label}: hours until seen (median)", float(np.median(delays)), note=note)


def _line(world: World, metric: str, hours: int, seed: int, planted: Planted | None = None) -> Line:
    """The hours of a service, on its users' clock."""
    rng, total = np.random.default_rng(1000 + seed), 24 * world.before + hours
    service, zone = requests_of(rng, world, hours, planted), zone_of(world.zone)
    begin = world.end - total * _HOUR
    shown = [local(begin + hour * _HOUR, zone) for hour in range(total)]
    place = np.array([(shown[-1] - time) // _HOUR for time in shown])
    y = {"requests": np.ones(len(service["hour"])), "quality": service["good"]}.get(metric, service["error"])
    users, where = np.unique(place[service["hour"]] * 10**6 + service["user"], return_inverse=True)
    w, s = np.bincount(where).astype(float), np.bincount(where, weights=y)
    columns = [np.bincount(users // 10**6, weights=part, minlength=total) for part in (w, s, w * w, w * s, s * s)]
    lasts = np.bincount(place, minlength=total)
    cells = [Sums(*map(float, sums), 0.0, float(last)) for *sums, last in zip(*columns, lasts, strict=False)]
    return Line("total" if metric in ("requests", "errors") else "share", cells, Grid(1, 28 * 24, 24))


def _alarms(line: Line, hours: int, a_year: float) -> list[int]:
    """The hours at which a monitor begins to fire."""
    strict, firing, found = a_year / LENGTHS / 2.0 / 8766.0, False, []
    for at in reversed(range(hours)):
        tail = 0.05 / LENGTHS / 2.0 if firing else strict
        is_sure = min((move.chance for move in line.moves(at, tail)), default=1.0) < tail
        if is_sure and not firing:
            found.append(hours - at)
        firing = is_sure
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


def _changed_days(days: int, *, requests: int, by_day: float, sigma: float, slower: float = 0.0) -> Counter[str]:
    """Metric → days on which the overview reports a change; half of a day is night, with `1 - by_day` of requests."""
    sql = _REQUESTS.format(days=days, requests=requests, by_day=by_day, sigma=sigma, slower=slower)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(EmbeddedStore(Path(folder) / "a.duckdb", decode=lambda _: Batch())) as store,
    ):
        store.write(lambda tx: tx.execute(sql, {"end": END})).result()
        ends = [END - timedelta(days=back) for back in range(days)]
        return Counter(metric for end in ends for metric in _changed(store, end, timedelta(days=1), step="30m"))


def _changed(store: EmbeddedStore, end: datetime, span: timedelta, **params: Any) -> list[str]:
    """The metrics of which the overview of a range reports a change."""
    query = Buckets.parse({"from": end - span, "to": end, **params}).query(end)
    return [shift.metric for shift in changes(Snapshot(store, query))]


def headline(cells: int, days: int) -> list[Promise]:
    """The overview's first sentence: p95 of lognormal latencies, and cost, few a bucket, and with quiet nights."""
    promises = []
    noise = 3.0 * math.sqrt(0.05 * 0.95 / days)
    worlds = ((240, 0.9, 0.5), (384, 0.75, 1.0), (240, 0.5, 1.0), (480, 0.5, 1.5), (2880, 0.85, 1.0))
    for requests, by_day, sigma in worlds[:cells]:
        world = {"requests": requests, "by_day": by_day, "sigma": sigma}
        same, slower = _changed_days(days, **world), _changed_days(days, **world, slower=2.0)
        for metric in ("latency_p95", "cost_usd"):
            label = f"{metric}, {requests / 48:.0f} requests in half an hour, {by_day:.0%} by day, sigma {sigma}"
            promises.append(Promise(f"{label}: changed, A/A", same[metric] / days, high=0.05 + noise))
            if requests * (1 - by_day) > 90:  # a few requests on one side cannot show a shift
                promises.append(Promise(f"{label}: three times, seen", slower[metric] / days, low=0.5))
    return promises


SHIFTS = {
    "15 heavy users, ICC 0.5": World(requests=20.0, each=10.0, users=15, icc=0.5, wave=0.0, days=0.0, before=0),
    "150 users, ICC 0.2": World(requests=20.0, icc=0.2, wave=0.0, days=0.0, before=0),
}


def shifts(services: int, hours: int) -> list[Promise]:
    """The overview's first sentence about quality; fifteen users with correlated answers are too few to show a drop."""
    promises, noise = [], 3.0 * math.sqrt(0.05 * 0.95 / services)
    for name, world in SHIFTS.items():
        label = f"overview, {name}, {hours} h: quality"
        promises.append(Promise(f"{label} changed, A/A", _shifted(world, services, hours), high=0.05 + noise))
        if world.users > 100:
            share = _shifted(world, services, hours, Planted(at=hours // 2, quality=-0.35))
            promises.append(Promise(f"{label} fell by 0.35, seen", share, low=0.8))
    return promises


def _shifted(world: World, services: int, hours: int, planted: Planted | None = None) -> float:
    """The share of services for which the overview reports a change of quality."""
    with _temporary_store([world] * services, hours, planted) as store:
        params = {"step": "auto", "width": 120}
        metrics = (
            _changed(store, END, timedelta(hours=hours), service=f"s{index:03d}", **params) for index in range(services)
        )
        return sum("quality:judge" in each for each in metrics) / services


SIMULATIONS: dict[str, tuple[Callable[[int, int], Iterable[Promise]], tuple[int, int], tuple[int, int]]] = {
    "quiet": (quiet, (3, 4), (10, 48)),
    "topics": (topics, (2, 8), (8, 48)),
    "change": (change, (2, 16), (8, 30)),
    "successor": (successor, (2, 12), (8, 24)),
    "rhythms": (rhythms, (2, 48), (12, 168)),
    "daylight": (daylight, (1, 3), (3, 24)),
    "headline": (headline, (2, 20), (5, 300)),
    "shifts": (shifts, (12, 24), (100, 24)),
}
"""Name → simulation, services and hours in the short form (of tests) and in the full one; `headline`: worlds, days."""


def main() -> int:
    """Run every simulation and print each figure with its bounds."""
    return run(
        __doc__, {name: (partial(f, *short), partial(f, *full)) for name, (f, short, full) in SIMULATIONS.items()}
    )


if __name__ == "__main__":
    sys.exit(main())
