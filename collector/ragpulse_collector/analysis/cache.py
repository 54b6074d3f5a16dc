"""The cache of overview data: what the headline and every chart of one range and filter need, read once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ragpulse_collector.analysis.quality import Bucket, estimates, estimates_and_whole, version_markers
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of, grouping, window_of
from ragpulse_collector.analysis.traffic import (
    ClusteredMean,
    DecisionCounts,
    Tail,
    TrafficBucket,
    decision_counts,
    failing,
    means,
    p95,
    prompt_markers,
    queue,
    tails,
    traffic,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.runs import shares
from ragpulse_collector.store.queries.traces import Filter, Grouping, bound_to, first_span

__all__ = ["Snapshot", "Snapshots", "snapshot_of"]

Part = TypeVar("Part")
_MAX_SNAPSHOTS = 16
"""Ranges and filters in the cache: the latest ones."""


class Snapshot:
    """The cached data of one range, filter and grouping. One thread reads each part at its first request."""

    def __init__(
        self, store: Store, window: Window, filters: Filter, groups: tuple[str, ...], *, now: datetime
    ) -> None:
        self.store, self.window, self.filters, self.group_by, self.now = store, window, filters, groups, now
        self._lock = threading.RLock()
        self._parts: dict[object, Any] = {}
        self._queue_since: datetime | None = None
        self.bound = Filter()
        """What the caller's key is bound to; markers of prompts ignore the other filters."""
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
        return self.part("grouping", lambda: grouping(self.store, self.window, self.filters, self.group_by))

    def traffic(self) -> list[TrafficBucket]:
        """Return every metric of the traffic per group and bucket."""
        return self.part("traffic", lambda: traffic(self.store, self.window, self.filters, self.groups))

    def failing(self) -> dict[tuple[Any, ...], ClusteredMean]:
        """Return the share of failed requests by bucket (None: the whole window) and group."""
        return self.part("failing", lambda: failing(self.store, self.window, self.filters, self.groups))

    def means(self, metric: str) -> dict[tuple[Any, ...], ClusteredMean]:
        """Return the mean of a metric with `each` by bucket and group."""
        return self.part(metric, lambda: means(self.store, metric, self.window, self.filters, self.groups))

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
        with self._lock:
            self.part((None, "quality"), lambda: self._quality_and_whole()[0])  # for the charts of the same range
            return self._quality_and_whole()[1]

    def _quality_and_whole(self) -> tuple[list[Bucket], list[Bucket]]:
        return self.part("quality and whole", lambda: estimates_and_whole(self.store, self.window, self.filters))

    def before(self) -> list[Bucket]:
        """Return every evaluator over the window of equal length before this one, as one bucket.

        It may come from an older snapshot (see `inherit`).
        """
        window = self.window.before.whole
        return self.part("before", lambda: (self.now, estimates(self.store, None, window, self.filters)))[1]

    def decided(self) -> list[DecisionCounts]:
        """Return how many units of each bucket were eligible and selected for each evaluator."""
        return self.part("decided", lambda: decision_counts(self.store, self.window, self.filters, self.groups))

    def part_of_size(self, part: str, size: int, read: Callable[[], Any]) -> Any:
        """Return a costly part; it is read again when the `size` of its data has changed by more than a thousandth."""
        with self._lock:
            entry = self._parts.get(part)
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

    def inherit(self, older: Snapshot) -> None:
        """Take parts from an older snapshot whose range has moved by less than a thousandth of its length since."""
        for part in ("before", "good"):
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
        last = min(start + timedelta(seconds=self.window.bucket_s), self.window.last, max(self.now, first))
        return max(1.0, (last - first).total_seconds())

    def scopes(self) -> set[tuple[str, str]]:
        """Return versions and conditions of replays that scored only some of the traces."""
        replays = self.part("replays", lambda: shares(self.store, None))
        return {(share.version, share.where) for share in replays if share.where}

    def markers(self, evaluator: str | None = None, family: str = "quality") -> list[dict[str, Any]]:
        """Return the starts of prompts, and of an evaluator's versions and judges: `{"t", "kind", "text"}` in order."""
        markers = list(self.part("prompts", lambda: prompt_markers(self.store, self.window, self.bound)))
        if evaluator is not None:
            markers += version_markers(evaluator, self.quality(evaluator, family))
        return sorted(markers, key=lambda marker: str(marker["t"]))

    def part(self, key: object, read: Callable[[], Part]) -> Part:
        """Return a part; `read` makes it at the first request."""
        with self._lock:
            if key not in self._parts:
                start = time.monotonic()
                self._parts[key] = read()
                self.read_s += time.monotonic() - start
            part: Part = self._parts[key]
            return part


def snapshot_of(store: Store, params: Mapping[str, Any], *, now: datetime, skip: tuple[str, ...] = ()) -> Snapshot:
    """Make the snapshot of a request's range, filter and grouping; raises Invalid naming the mistake."""
    snapshot = Snapshot(store, window_of(params, now=now), filter_of(params, skip=skip), dimensions(params), now=now)
    if binding := params.get("binding"):
        snapshot.bound = bound_to(binding)
    return snapshot


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
        clock: Callable[[], datetime] = utc_now,
        timer: Callable[[], float] = time.monotonic,
        max_age_s: float = 1.0,
    ) -> None:
        self._store, self._clock, self._timer, self._max_age_s = store, clock, timer, max_age_s
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def of(self, params: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> Snapshot:
        """Return a snapshot for a request, new or recent; raises Invalid naming the mistake."""
        store = self._store.limited() if params.get("where") else self._store
        snapshot = snapshot_of(store, params, now=self._clock(), skip=skip)
        key = repr((params.get("from"), params.get("to"), snapshot.window.step_s, snapshot.filters, snapshot.group_by))
        with self._lock:
            now = self._timer()
            entry = self._entries.pop(key, None) or _Entry(now, snapshot)
            if now - entry.made > self._max_age_s + 2.0 * entry.newest.read_s and not entry.is_young(now, params):
                snapshot.inherit(entry.newest)
                entry = _Entry(now, snapshot, entry.newest, entry.made)
            self._entries[key] = entry
            while len(self._entries) > _MAX_SNAPSHOTS:
                self._entries.pop(next(iter(self._entries)))
            return entry.snapshot(now, params)


@dataclass(frozen=True, slots=True)
class _Entry:
    """The newest snapshot of a key, and the older one, which serves until the newest is read."""

    made: float
    newest: Snapshot
    older: Snapshot | None = None
    older_made: float = 0.0

    def is_young(self, now: float, params: Mapping[str, Any]) -> bool:
        """Return whether the newest is young enough for the request's `max_age`."""
        return now - self.made <= float(params.get("max_age") or 0.0)

    def snapshot(self, now: float, params: Mapping[str, Any]) -> Snapshot:
        """Return the newest; the older one if it is young enough and the newest is still being read."""
        accepted = now - self.older_made <= float(params.get("max_age") or 0.0)
        return self.older if self.older and accepted and not self.newest.covers(self.older) else self.newest
