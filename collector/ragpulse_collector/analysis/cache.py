"""The buckets of a range read again only where something came or went since they were read last.

Verdicts and decisions are appended and deleted, never changed (but for which decision is the latest, which changes with
an append). So a bucket is what it was while the number of its rows and the sum of their instants are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.coverage import Decided, Queue, decided, queue
from ragpulse_collector.analysis.filters import Filter, dimensions, filter_of
from ragpulse_collector.analysis.quality import Bucket, estimates, in_order, version_markers
from ragpulse_collector.analysis.traffic import TrafficBucket, prompt_markers, traffic
from ragpulse_collector.analysis.window import Window, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Share, shares
from ragpulse_collector.store.queries.scores import CHANGES
from ragpulse_collector.store.rows import utc_now

__all__ = ["Reading", "Snapshot", "Snapshots", "read_again", "snapshot_of"]

_Marks = Mapping[datetime, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Every evaluator's buckets of a range without filter or grouping, and by what each is known to be unchanged."""

    buckets: Sequence[Bucket]
    marks: _Marks
    replays: frozenset[Share]
    """How much of each replay is done: while that moves, so does the weight of all that it scored."""


def read_again(store: Store, window: Window, older: Reading | None) -> Reading:
    """Read a range, of which an older reading (same bucket width) may hold most."""
    # Before the buckets: what comes in between is seen by the next reading.
    marks, replays = _marks(store, window), frozenset(shares(store, None))
    known = older.marks if older is not None and older.replays == replays else {}
    changed = sorted(at for at, mark in marks.items() if known.get(at) != mark)
    if older is None or 2 * len(changed) > len(marks):
        return Reading(estimates(store, None, window, Filter()), marks, replays)
    same = [one for one in older.buckets if one.at in marks and marks[one.at] == known.get(one.at)]
    fresh = [one for part in _runs(window, changed) for one in estimates(store, None, part, Filter())]
    return Reading(in_order([*same, *fresh]), marks, replays)


def _runs(window: Window, starts: Sequence[datetime]) -> Iterator[Window]:
    """The parts of the window that these buckets make up, neighbours together."""
    step = timedelta(seconds=window.step_s)
    first = last = None
    for at in starts:
        if last is not None and at != last:
            yield _part(window, first or at, last)
            first = None
        first, last = first or at, at + step
    if first is not None and last is not None:
        yield _part(window, first, last)


def _part(window: Window, first: datetime, last: datetime) -> Window:
    return replace(window, first=max(first, window.first), last=min(last, window.last))


def _marks(store: Store, window: Window) -> _Marks:
    rows = store.read(
        f"SELECT {window.bucket('request_time')} AS t, count(*), sum(epoch_us(came)) FROM ({CHANGES})"
        " WHERE request_time >= $first AND request_time < $last GROUP BY ALL",
        window.parameters,
    ).rows
    return {at: (count, total) for at, count, total in rows}


_MOST = 16
"""So many ranges and filters are held at once, those asked for last."""


class Snapshot:
    """One range, filter and grouping; each part is read when first asked for, by one thread, and kept."""

    def __init__(self, store: Store, window: Window, keep: Filter, groups: tuple[str, ...], *, now: datetime) -> None:
        self.store, self.window, self.keep, self.groups, self.now = store, window, keep, groups, now
        self._lock = threading.RLock()
        self._kept: dict[object, Any] = {}
        self._queue_since: datetime | None = None
        self._reading: Reading | None = None
        self.took_s = 0.0
        """How long its parts took to read."""

    def traffic(self) -> list[TrafficBucket]:
        """Every metric of the traffic per group and bucket."""
        found: list[TrafficBucket] = self._once(
            "traffic", lambda: traffic(self.store, self.window, self.keep, self.groups)
        )
        return found

    def quality(self, evaluator: str | None, family: str = "quality") -> list[Bucket]:
        """The buckets of one evaluator; of all (None), which spares the reading when each is asked for afterwards."""

        def read() -> list[Bucket]:
            if evaluator is None and family == "quality" and self.window.step_s and not (self.keep or self.groups):
                self._reading = read_again(self.store, self.window, self._reading)
                return list(self._reading.buckets)
            return estimates(self.store, evaluator, self.window, self.keep, groups=self.groups, family=family)

        with self._lock:
            if evaluator is not None and (None, family) in self._kept:
                return [one for one in self._kept[None, family] if one.evaluator == evaluator]
            found: list[Bucket] = self._once((evaluator, family), read)
            return found

    def before(self) -> list[Bucket]:
        """Every evaluator over the window of equal length before this one, as one bucket; at times an older reading."""
        window = self.window.before.whole
        reading = self._once("before", lambda: (self.now, estimates(self.store, None, window, self.keep)))
        found: list[Bucket] = reading[1]
        return found

    def decided(self) -> list[Decided]:
        """How many units each evaluator could have scored per bucket, and how many it was to."""
        found: list[Decided] = self._once("decided", lambda: decided(self.store, self.window, self.keep, self.groups))
        return found

    def nearly(self, part: str, size: int, read: Callable[[], Any]) -> Any:
        """A part that is costly and moves little; `size` says how much it is drawn from."""
        with self._lock:
            kept = self._kept.get(part)
            if kept is None or abs(kept[1] - size) * 1000 > size:
                self._kept.pop(part, None)
                kept = self._once(part, lambda: (self.now, size, read()))
            return kept[2]

    def queued(self) -> int:
        """Evaluations that wait; what an older snapshot saw finished is not looked at again."""
        found: Queue = self._once("queued", lambda: queue(self.store, now=self.now, since=self._queue_since))
        return found.waiting

    def inherit(self, older: Snapshot) -> None:
        """Take over what moved by less than a thousandth of its length since, and what later readings begin with."""
        for part in ("before", "good"):
            kept = older._kept.get(part)
            if kept is not None and (self.now - kept[0]) * 1000 < self.window.last - self.window.first:
                self._kept[part] = kept
        self._reading = older._reading
        known = older._kept.get("queued")
        self._queue_since = known.since if known is not None else older._queue_since

    def scopes(self) -> set[tuple[str, str]]:
        """Versions and conditions of replays that were about some of the range's traces only."""
        found: list[Share] = self._once("replays", lambda: shares(self.store, None))
        return {(share.version, share.where) for share in found if share.where}

    def markers(self, evaluator: str | None = None, family: str = "quality") -> list[dict[str, Any]]:
        """Where a prompt, and where a version or judge of this evaluator began: `{"t", "kind", "text"}` in order."""
        found = list(self._once("prompts", lambda: prompt_markers(self.store, self.window)))
        if evaluator is not None:
            found += version_markers(evaluator, self.quality(evaluator, family))
        return sorted(found, key=lambda marker: str(marker["t"]))

    def _once(self, part: object, read: Callable[[], Any]) -> Any:
        with self._lock:
            if part not in self._kept:
                begun = time.monotonic()
                self._kept[part] = read()
                self.took_s += time.monotonic() - begun
            return self._kept[part]


def snapshot_of(store: Store, params: Mapping[str, Any], *, now: datetime, skip: tuple[str, ...] = ()) -> Snapshot:
    """Read range, filter and grouping of a question; raises ValueError that names the mistake."""
    return Snapshot(store, window_of(params, now=now), filter_of(params, skip=skip), dimensions(params), now=now)


class Snapshots:
    """Gives questions about the same range the same snapshot for a second: a page asks a dozen at once.

    One that takes longer to read serves longer, by twice that time. The window before a range is read again when it
    has moved by a thousandth of its length.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], datetime] = utc_now,
        timer: Callable[[], float] = time.monotonic,
        keep_s: float = 1.0,
    ) -> None:
        self._store, self._clock, self._timer, self._keep_s = store, clock, timer, keep_s
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Snapshot]] = {}

    def of(self, params: Mapping[str, Any], *, skip: tuple[str, ...] = ()) -> Snapshot:
        """Return the snapshot of a question, made now or just before; raises ValueError that names the mistake."""
        store = self._store.limited() if params.get("where") else self._store
        asked = snapshot_of(store, params, now=self._clock(), skip=skip)
        key = repr((params.get("from"), params.get("to"), asked.window.step_s, asked.keep, asked.groups))
        with self._lock:
            at = self._timer()
            made, known = self._known.pop(key, (at, asked))
            if at - made > self._keep_s + 2.0 * known.took_s:
                asked.inherit(known)
                made, known = at, asked
            self._known[key] = made, known
            while len(self._known) > _MOST:
                self._known.pop(next(iter(self._known)))
            return known
