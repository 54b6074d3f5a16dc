"""The cache of overview data: what the headline and every chart of one range and filter need, read once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.quality import Bucket, estimates, estimates_and_whole, version_markers
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of, window_of
from ragpulse_collector.analysis.traffic import (
    Clustered,
    Decided,
    Queue,
    Tail,
    TrafficBucket,
    decided,
    failing,
    p95,
    prompt_markers,
    queue,
    tails,
    traffic,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Share, shares
from ragpulse_collector.store.queries.traces import Filter, bound_to, first_span
from ragpulse_collector.store.rows import utc_now

__all__ = ["Snapshot", "Snapshots", "snapshot_of"]

_MOST = 16
"""Ranges and filters in the cache: the ones last asked for."""


class Snapshot:
    """One range, filter and grouping. Each part is read by one thread when it is first asked for, and cached."""

    def __init__(self, store: Store, window: Window, keep: Filter, groups: tuple[str, ...], *, now: datetime) -> None:
        self.store, self.window, self.keep, self.groups, self.now = store, window, keep, groups, now
        self._lock = threading.RLock()
        self._parts: dict[object, Any] = {}
        self._queue_since: datetime | None = None
        self.bound = Filter()
        """What the caller's key is bound to; prompts are marked for the other filters together."""
        self.took_s = 0.0
        """How long its parts took to read."""

    def traffic(self) -> list[TrafficBucket]:
        """Every metric of the traffic per group and bucket."""
        found: list[TrafficBucket] = self.once(
            "traffic", lambda: traffic(self.store, self.window, self.keep, self.groups)
        )
        return found

    def failing(self) -> dict[tuple[Any, ...], Clustered]:
        """The share of failed requests by bucket (None: the whole window) and group."""
        found: dict[tuple[Any, ...], Clustered] = self.once(
            "failing", lambda: failing(self.store, self.window, self.keep, self.groups)
        )
        return found

    def quality(self, evaluator: str | None, family: str = "quality") -> list[Bucket]:
        """The buckets of one evaluator, or of all (None): then none of them has to be read by itself."""

        def read() -> list[Bucket]:
            if evaluator is None and family == "quality" and not self.groups:
                return self._quality_and_whole()[0]
            return estimates(self.store, evaluator, self.window, self.keep, groups=self.groups, family=family)

        with self._lock:
            if evaluator is not None and (None, family) in self._parts:
                return [one for one in self._parts[None, family] if one.evaluator == evaluator]
            found: list[Bucket] = self.once((evaluator, family), read)
            return found

    def whole(self) -> list[Bucket]:
        """Every evaluator over the whole window: a user who asks in several buckets is still one."""
        with self._lock:
            self.once((None, "quality"), lambda: self._quality_and_whole()[0])  # the charts of the same range read it
            return self._quality_and_whole()[1]

    def _quality_and_whole(self) -> tuple[list[Bucket], list[Bucket]]:
        found: tuple[list[Bucket], list[Bucket]] = self.once(
            "quality and whole", lambda: estimates_and_whole(self.store, self.window, self.keep)
        )
        return found

    def before(self) -> list[Bucket]:
        """Every evaluator over the window of equal length before this one, as one bucket.

        It may come from an older snapshot (see `inherit`).
        """
        window = self.window.before.whole
        reading = self.once("before", lambda: (self.now, estimates(self.store, None, window, self.keep)))
        found: list[Bucket] = reading[1]
        return found

    def decided(self) -> list[Decided]:
        """How many units each evaluator could have scored per bucket, and how many it was to."""
        found: list[Decided] = self.once("decided", lambda: decided(self.store, self.window, self.keep, self.groups))
        return found

    def nearly(self, part: str, size: int, read: Callable[[], Any]) -> Any:
        """A costly part that changes little: it is read again once the `size` of its data differs by a thousandth."""
        with self._lock:
            kept = self._parts.get(part)
            if kept is None or abs(kept[1] - size) * 1000 > size:
                self._parts.pop(part, None)
                kept = self.once(part, lambda: (self.now, size, read()))
            return kept[2]

    def tails(self) -> list[Tail]:
        """How many requests of each bucket are slow for the range, and what they cost without the extremes."""
        found: list[Tail] = self.once("tails", lambda: tails(self.store, self.window, self.keep))
        return found

    def p95(self, first: datetime, last: datetime) -> float:
        """The 95th percentile of latency between two instants of the range."""
        first, last = max(first, self.window.first), min(last, self.window.last)
        known: dict[tuple[datetime, datetime], float] = self.once("p95", dict)
        with self._lock:
            if (first, last) not in known:
                known[first, last] = p95(self.store, Window(first, last, 0), self.keep)
            return known[first, last]

    def queued(self) -> int:
        """The number of pending jobs; jobs that an older snapshot saw finished are not counted again."""
        found: Queue = self.once("queued", lambda: queue(self.store, now=self.now, since=self._queue_since))
        return found.waiting

    def inherit(self, older: Snapshot) -> None:
        """Take parts from an older snapshot whose range has moved by less than a thousandth of its length since."""
        for part in ("before", "good"):
            kept = older._parts.get(part)
            if kept is not None and (self.now - kept[0]) * 1000 < self.window.last - self.window.first:
                self._parts[part] = kept
        known = older._parts.get("queued")
        self._queue_since = known.since if known is not None else older._queue_since

    def covers(self, older: Snapshot) -> bool:
        """Whether everything that an older snapshot has read is read here too."""
        return older._parts.keys() <= self._parts.keys()

    def covered_s(self, at: datetime) -> float:
        """How much of the bucket from `at` on lies in the range, before now, and after the first span of the store."""
        begun: datetime | None = self.once("begun", lambda: first_span(self.store))
        first = max(at, self.window.first, begun or self.window.first)
        last = min(at + timedelta(seconds=self.window.bucket_s), self.window.last, max(self.now, first))
        return max(1.0, (last - first).total_seconds())

    def scopes(self) -> set[tuple[str, str]]:
        """Versions and conditions of replays that were about some of the range's traces only."""
        found: list[Share] = self.once("replays", lambda: shares(self.store, None))
        return {(share.version, share.where) for share in found if share.where}

    def markers(self, evaluator: str | None = None, family: str = "quality") -> list[dict[str, Any]]:
        """Where a prompt, and where a version or judge of this evaluator began: `{"t", "kind", "text"}` in order."""
        found = list(self.once("prompts", lambda: prompt_markers(self.store, self.window, self.bound)))
        if evaluator is not None:
            found += version_markers(evaluator, self.quality(evaluator, family))
        return sorted(found, key=lambda marker: str(marker["t"]))

    def once(self, part: object, read: Callable[[], Any]) -> Any:
        """Return a part, made by `read` when it is first asked for."""
        with self._lock:
            if part not in self._parts:
                begun = time.monotonic()
                self._parts[part] = read()
                self.took_s += time.monotonic() - begun
            return self._parts[part]


def snapshot_of(store: Store, params: Mapping[str, Any], *, now: datetime, skip: tuple[str, ...] = ()) -> Snapshot:
    """Read range, filter and grouping of a question; raises ValueError that names the mistake."""
    asked = Snapshot(store, window_of(params, now=now), filter_of(params, skip=skip), dimensions(params), now=now)
    if binding := params.get("binding"):
        asked.bound = bound_to(binding)
    return asked


class Snapshots:
    """The one cache of overview data: snapshots by range, step, filter and grouping, shared by a page's questions.

    A question accepts figures of a second and twice the time that they took to read; with `max_age` (seconds) also
    older ones, at once and also while another caller reads newer ones. An age is needed because a range like `-24h`
    moves with the clock and spans are committed many times a second: figures of the last commit are never found again.
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
        self._known: dict[str, _Held] = {}

    def of(self, params: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> Snapshot:
        """Return the snapshot of a question, made now or just before; raises ValueError that names the mistake."""
        store = self._store.limited() if params.get("where") else self._store
        asked = snapshot_of(store, params, now=self._clock(), skip=skip)
        key = repr((params.get("from"), params.get("to"), asked.window.step_s, asked.keep, asked.groups))
        with self._lock:
            at = self._timer()
            held = self._known.pop(key, None) or _Held(at, asked)
            if at - held.made > self._max_age_s + 2.0 * held.newest.took_s and not held.serves(at, params):
                asked.inherit(held.newest)
                held = _Held(at, asked, held.newest, held.made)
            self._known[key] = held
            while len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)))
            return held.chosen(at, params)


@dataclass(frozen=True, slots=True)
class _Held:
    """The newest snapshot of a question, and the one before it, which serves until the newest is read."""

    made: float
    newest: Snapshot
    older: Snapshot | None = None
    older_made: float = 0.0

    def serves(self, at: float, params: Mapping[str, Any]) -> bool:
        """Whether the newest is young enough for one who accepts older figures."""
        return at - self.made <= float(params.get("max_age") or 0.0)

    def chosen(self, at: float, params: Mapping[str, Any]) -> Snapshot:
        """The newest; the older one where that is young enough and the newest is still being read."""
        accepted = at - self.older_made <= float(params.get("max_age") or 0.0)
        return self.older if self.older and accepted and not self.newest.covers(self.older) else self.newest
