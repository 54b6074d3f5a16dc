"""The bounded queues before the disk: full means Busy, never memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ragpulse_collector.records import Batch, RawBody, Receipt
from ragpulse_collector.store.protocol import Busy, Transaction


@dataclass(slots=True, eq=False)
class BodyItem:
    """A request body on its way to disk."""

    body: RawBody
    future: Future[Receipt] = field(default_factory=Future)
    batch: Batch | None = None
    """Set once decoded."""
    since: float = field(default_factory=time.monotonic)

    @property
    def size(self) -> int:
        """Bytes by which the queue is bounded."""
        return len(self.body.body)


@dataclass(slots=True, eq=False)
class WorkItem:
    """A unit of work on its way to the writer."""

    work: Callable[[Transaction], Any]
    future: Future[Any] = field(default_factory=Future)
    size: int = 0


Item = BodyItem | WorkItem


@dataclass(frozen=True, slots=True)
class Backlog:
    """What was accepted and is not on disk yet: bytes and number of bodies, and how long the oldest has waited."""

    bytes: int = 0
    bodies: int = 0
    oldest_s: float = 0.0


_ENOUGH = 8
"""Items that are worth a dear commit without waiting for another."""


class WriterQueue:
    """Items on their way to disk, in order: they wait, are decoded by one thread and committed in groups by another.

    Bounded by the bytes of bodies and by number, both counted until the committing thread takes an item. Decoding a
    body and making a group's rows take turns: both need Python's lock, and side by side each would wait for the other
    at every call into DuckDB. While a group is committed, which needs no lock, the next is decoded.

    A transaction costs what a thousand rows cost, whatever it holds. So a group is half of all that is there, and the
    other half is decoded while it is committed; with `again_s`, where a commit is dear, it is all that is there, and
    waits so long for each further one of those who were answered together and mostly come again together.
    """

    def __init__(self, *, max_bytes: int, max_items: int, group_bytes: int, again_s: float = 0.0) -> None:
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._group_bytes = group_bytes
        self._again_s = again_s
        self._waiting: deque[Item] = deque()
        self._decoded: deque[Item] = deque()
        self._bytes = self._decoded_bytes = self._items = self._last = 0
        self._decoding = self._asked = self._writing = False
        """Whether an item is being decoded, a group is waited for, and a group's rows are being made."""
        self._closed = self._drained = False
        self._changed = threading.Condition()

    def backlog(self) -> Backlog:
        """Return what waits, decoded or not."""
        with self._changed:
            since = [item.since for item in (*self._decoded, *self._waiting) if isinstance(item, BodyItem)]
            return Backlog(self._bytes, len(since), time.monotonic() - min(since) if since else 0.0)

    def put(self, item: Item) -> None:
        """Add an item; raises Busy when full or closed. A body larger than the whole queue passes when it is empty."""
        with self._changed:
            if self._closed:
                raise Busy("the collector is shutting down")
            if self._items and (self._bytes + item.size > self._max_bytes or self._items >= self._max_items):
                raise Busy("the queue before the disk is full")
            self._waiting.append(item)
            self._count(item.size, 1)

    def next(self) -> Item | None:
        """Wait for the next item to decode, and for the turn to do so; None means closed and drained."""
        with self._changed:
            self._changed.wait_for(self.may_decode)
            if self._waiting:
                self._decoding = True
                return self._waiting.popleft()
            self._drained = True
            self._changed.notify_all()
            return None

    def decoded(self, item: Item) -> None:
        """Pass an item on to be committed."""
        with self._changed:
            self._decoding = False
            self._decoded.append(item)
            self._decoded_bytes += item.size
            self._changed.notify_all()

    def dropped(self, item: Item) -> None:
        """Forget an item that was answered already."""
        with self._changed:
            self._decoding = False
            self._count(-item.size, -1)

    def take(self) -> list[Item]:
        """Wait for decoded items and return them, up to a group's size; an empty list means closed and drained.

        Nothing is decoded from then on until `written`.
        """
        with self._changed:
            self._asked = True
            self._gather()
            self._changed.wait_for(self._is_ready)
            self._asked, self._writing = False, True
            group: list[Item] = []
            size = 0
            while self._decoded and (not group or size < self._group_bytes):
                item = self._decoded.popleft()
                group.append(item)
                size += item.size
            self._decoded_bytes -= size
            self._count(-size, -len(group))
            self._last = min(len(group), _ENOUGH)
            return group

    def written(self) -> None:
        """The rows of the group that was taken are made; may be said more than once."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse what comes; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def has_group(self) -> bool:
        """Tell whether what is decoded is worth a transaction."""
        decoded = len(self._decoded)
        return self._is_full() or 0 < self._items <= (decoded if self._again_s else 2 * decoded)

    def may_decode(self) -> bool:
        """Tell whether another item may be decoded now, or whether there will be none."""
        if self._writing or self._is_full() or (self._asked and self.has_group()):
            return False
        return bool(self._waiting) or self._closed

    def _is_full(self) -> bool:
        return self._decoded_bytes >= self._group_bytes

    def _is_ready(self) -> bool:
        return self._drained or (self.has_group() and not self._decoding)

    def _gather(self) -> None:
        """Wait for as many as came last and one more, while they come in time; who came alone waits for none."""
        if not self._again_s:
            return
        self._changed.wait_for(self._is_ready)
        while 1 < self._last >= self._items and not (self._is_full() or self._closed):
            if not self._changed.wait_for(partial(self._has_more_than, self._items), self._again_s):
                return

    def _has_more_than(self, items: int) -> bool:
        return self._closed or self._items > items

    def _count(self, size: int, items: int) -> None:
        self._bytes += size
        self._items += items
        self._changed.notify_all()
