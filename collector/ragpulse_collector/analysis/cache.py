"""The cache of overview data: what the headline and every chart of one range and filter need, read once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from ragpulse_collector.analysis.answers import Marker, Place
from ragpulse_collector.analysis.figures import Read, percentiles
from ragpulse_collector.analysis.quality import Bucket, estimates, estimates_and_whole, markers_at, version_markers
from ragpulse_collector.analysis.quality.coverage import DecisionCounts, decision_counts, queue
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, grouping
from ragpulse_collector.analysis.traffic import (
    Tail,
    TrafficBucket,
    counting_markers,
    failing,
    means,
    p95,
    requests_by_service,
    start_markers,
    tails,
    traffic,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.datasets import LEADS, kept
from ragpulse_collector.store.queries.labels import STORED, labels_in, versions_of
from ragpulse_collector.store.queries.runs import shares
from ragpulse_collector.store.queries.traces import Filter, Grouping, first_span
from ragpulse_evaluators.statistics import Moments

__all__ = ["Snapshot", "Snapshots"]

Part = TypeVar("Part")
_MAX_SNAPSHOTS = 16
"""Ranges and filters in the cache: the latest ones."""


class Snapshot:
    """The cached data of one range, filter and grouping. One thread reads each part at its first request."""

    def __init__(self, store: Store, query: Query) -> None:
        self.store, self.query = query.reader(store), query
        self.window, self.filters, self.now = query.window, query.filters, query.now
        self._lock = threading.RLock()
        self._parts: dict[Hashable, Any] = {}
        self._queue_since: datetime | None = None
        self.read_s = 0.0
        """How long reading the parts took."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The columns to group by."""
        return self._grouping().columns

    @property
    def other_groups(self) -> int:
        """How many groups are one, because there are too many."""
        return self._grouping().others

    def _grouping(self) -> Grouping:
        return self.part("grouping", lambda: grouping(self.store, self.window, self.filters, self.query.groups))

    def traffic(self) -> list[TrafficBucket]:
        """Return every metric of the traffic per group and bucket."""
        return self.part("traffic", lambda: traffic(self.store, self.window, self.filters, self.groups))

    def failing(self) -> dict[Place, Moments]:
        """Return the share of failed requests by bucket (None: the whole window) and group."""
        return self.part("failing", lambda: failing(self.store, self.window, self.filters, self.groups))

    def means(self, metric: str) -> dict[Place, Moments]:
        """Return the mean of a metric with `each` by bucket and group."""
        return self.part(metric, lambda: means(self.store, metric, self.window, self.filters, self.groups))

    def percentiles(self, metric: str) -> dict[tuple[Any, ...], Read]:
        """Return a percentile with its interval by bucket and group."""
        asked = replace(self.query, groups=self.groups)
        return self.part(("interval", metric), lambda: percentiles(self.store, metric, asked))

    def quality(self, evaluator: str | None, family: str = "quality") -> list[Bucket]:
        """Return the buckets of one evaluator, or of all (None), which serve each of them."""

        def read() -> list[Bucket]:
            if evaluator is None and family == "quality" and not self.groups:
                return self._quality_and_whole()[0]
            return estimates(self.store, evaluator, self.window, self.filters, groups=self.groups, family=family)

        with self._lock:
            if evaluator is not None and (None, family) in self._parts:
                return [bucket for bucket in self._parts[None, family] if bucket.evaluator == evaluator]
            return self.part((evaluator, family), read)

    def whole(self) -> list[Bucket]:
        """Return every evaluator over the whole window: a user of several buckets counts once."""
        self.part((None, "quality"), lambda: self._quality_and_whole()[0])  # for the charts of the same range
        return self._quality_and_whole()[1]

    def _quality_and_whole(self) -> tuple[list[Bucket], list[Bucket]]:
        return self.part("quality and whole", lambda: estimates_and_whole(self.store, self.window, self.filters))

    def before(self) -> list[Bucket]:
        """Return every evaluator over the window of equal length before this one, as one bucket.

        It may come from an older snapshot (see `inherit`).
        """
        window = self.before_window
        return self.part("before", lambda: (self.now, estimates(self.store, None, window, self.filters)))[1]

    @property
    def before_window(self) -> Window:
        """The range to compare with."""
        return self.query.before

    def failing_before(self) -> Moments | None:
        """Return the share of failed requests in the range before."""
        return self.part("failing before", lambda: (
            self.now, failing(self.store, self.before_window, self.filters, ()).get(Place(None, ()))
        ))[1]  # fmt: skip

    def decided(self) -> list[DecisionCounts]:
        """Return how many units of each bucket were eligible and selected for each evaluator."""
        return self.part("decided", lambda: decision_counts(self.store, self.window, self.filters, self.groups))

    def part_of_size(self, part: str, size: int, read: Callable[[], Part]) -> Part:
        """Return a costly part; it is read again when the `size` of its data has changed by more than a thousandth."""
        with self._lock:
            entry: tuple[datetime, int, Part] | None = self._parts.get(part)
            if entry is None or abs(entry[1] - size) * 1000 > size:
                self._parts.pop(part, None)
                entry = self.part(part, lambda: (self.now, size, read()))
            return entry[2]

    def tails(self) -> list[Tail]:
        """Return how many requests of each bucket are slow for the range, and their cost without extremes."""
        return self.part("tails", lambda: tails(self.store, self.window, self.filters))

    def p95(self, first: datetime, last: datetime) -> float:
        """Return the 95th percentile of latency between two times of the range."""
        first, last = max(first, self.window.first), min(last, self.window.last)
        values: dict[tuple[datetime, datetime], float] = self.part("p95", dict)
        with self._lock:
            if (first, last) not in values:
                values[first, last] = p95(self.store, Window(first, last, 0), self.filters)
            return values[first, last]

    def queued(self) -> int:
        """Return the number of pending jobs; jobs that were finished for an older snapshot are not read again."""
        return self.part("queued", lambda: queue(self.store, now=self.now, since=self._queue_since)).pending

    def narrowed(self, filters: Filter) -> Snapshot:
        """Return a snapshot of those requests alone that pass these filters, too."""
        return Snapshot(self.store, replace(self.query, filters=self.query.filters & filters))

    def inherit(self, older: Snapshot) -> None:
        """Take parts from an older snapshot whose range has moved by less than a thousandth of its length since."""
        kept = ("before", "failing before") if older.before_window == self.before_window else ()
        for part in (*kept, "good"):
            entry = older._parts.get(part)
            if entry is not None and (self.now - entry[0]) * 1000 < self.window.last - self.window.first:
                self._parts[part] = entry
        jobs = older._parts.get("queued")
        self._queue_since = jobs.since if jobs is not None else older._queue_since

    def covers(self, older: Snapshot) -> bool:
        """Return whether every part that an older snapshot has read is read here too."""
        return older._parts.keys() <= self._parts.keys()

    def seconds_covered(self, start: datetime) -> float:
        """Return the seconds of a bucket that lie in the range, before now, and after the first span of the store."""
        first_start: datetime | None = self.part("begun", lambda: first_span(self.store))
        first = max(start, self.window.first, first_start or self.window.first)
        last = min(self.window.end(start), self.window.last, max(self.now, first))
        return max(1.0, (last - first).total_seconds())

    def scopes(self) -> set[tuple[str, str]]:
        """Return versions and conditions of replays that scored only some of the traces."""
        replays = self.part("replays", lambda: shares(self.store, None))
        return {(share.version, share.where) for share in replays if share.where}

    def markers(self, evaluator: str | None = None, family: str = "quality") -> list[Marker]:
        """Return the starts of prompts of these requests, and of an evaluator's versions and judges, in order."""
        markers = list(self.part("prompts", lambda: start_markers(self.store, self.query)))
        if evaluator is None:
            markers += self.part("counting", lambda: counting_markers(self.store, self.window))
        else:
            markers += version_markers(evaluator, self.quality(evaluator, family))
            markers += self.part("leads", lambda: list(_lead_markers(self.store, self.window)))
        for name in {*labels_in(self.query.groups), *self.filters.labels} - {evaluator, *STORED}:
            markers += markers_at(name, self.part(("label", name), partial(self._versions, name)))
        return sorted(markers, key=lambda marker: marker.t)

    def _versions(self, label: str) -> dict[tuple[str | None, str | None], datetime]:
        return versions_of(self.store, label, self.window.parameters)

    def shown_markers(self, evaluator: str | None = None, family: str = "quality") -> list[Marker]:
        """Return the markers for a chart: of prompts, where the services that use them have most of its requests.

        A chart with a line for each group shows all.
        """
        markers = self.markers(evaluator, family)
        if self.groups or not any(marker.services for marker in markers):
            return markers
        requests = self.part("services", lambda: requests_by_service(self.store, self.query))
        least = sum(requests.values()) / 2.0
        return [
            marker
            for marker in markers
            if not marker.services or sum(requests.get(service, 0.0) for service in marker.services) >= least
        ]

    def part(self, key: Hashable, read: Callable[[], Part]) -> Part:
        """Return a part; `read` makes it at the first request."""
        with self._lock:
            if key not in self._parts:
                start = time.monotonic()
                self._parts[key] = read()
                self.read_s += time.monotonic() - start
            part: Part = self._parts[key]
            return part


def _lead_markers(store: Store, window: Window) -> Iterator[Marker]:
    """Yield when another evaluator began to lead; the first one follows none."""
    for text in sorted(kept(store.read, LEADS))[1:]:
        time, _, name = text.partition(" ")
        start = datetime.fromisoformat(time)
        if window.first <= start < window.last:
            yield Marker(start, "lead", f"lead: {name} since {start:%b %d %H:%M}")


class Snapshots:
    """The cache of overview data: snapshots by range, step, filter and grouping, shared by the requests of a page.

    A request accepts data of the last second plus twice the time that reading took. With `max_age` (seconds) it accepts
    older data at once, also while another caller reads newer data. The key has no commit: a range like `-24h` moves
    with the clock and spans are committed many times a second.
    """

    def __init__(
        self,
        store: Store,
        *,
        timer: Callable[[], float] = time.monotonic,
        max_age_s: float = 1.0,
    ) -> None:
        self._store, self._timer, self._max_age_s = store, timer, max_age_s
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def of(self, query: Query, max_age: float = 0.0) -> Snapshot:
        """Return a snapshot for a request, new or recent."""
        key = repr((query.asked, query.window.step_s, query.window.zone, query.filters, query.groups))
        with self._lock:
            now = self._timer()
            entry = self._entries.pop(key, None) or _Entry(now, Snapshot(self._store, query))
            if now - entry.made > max(max_age, self._max_age_s + 2.0 * entry.newest.read_s):
                snapshot = Snapshot(self._store, query)
                snapshot.inherit(entry.newest)
                entry = _Entry(now, snapshot, entry.newest, entry.made)
            self._entries[key] = entry
            while len(self._entries) > _MAX_SNAPSHOTS:
                self._entries.pop(next(iter(self._entries)))
            return entry.snapshot(now, max_age)

    def clear(self) -> None:
        """Forget all: other scores count from now on."""
        with self._lock:
            self._entries.clear()


@dataclass(frozen=True, slots=True)
class _Entry:
    """The newest snapshot of a key, and the older one, which serves until the newest is read."""

    made: float
    newest: Snapshot
    older: Snapshot | None = None
    older_made: float = 0.0

    def snapshot(self, now: float, max_age: float) -> Snapshot:
        """Return the newest; the older one if it is young enough and the newest is still being read."""
        accepted = now - self.older_made <= max_age
        return self.older if self.older and accepted and not self.newest.covers(self.older) else self.newest
