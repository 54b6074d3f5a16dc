"""The bounded queues before the disk: full means Busy, never memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
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


class WriterQueue:
    """Items on their way to disk, in order: they wait, are decoded by one thread and committed in groups by another.

    Bounded by the bytes of bodies and by number, both counted until the committing thread takes an item.
    """

    def __init__(self, *, max_bytes: int, max_items: int, group_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._group_bytes = group_bytes
        self._waiting: deque[Item] = deque()
        self._decoded: deque[Item] = deque()
        self._bytes = self._undecoded_bytes = self._decoded_bytes = self._items = 0
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
            self._undecoded_bytes += item.size
            self._count(item.size, 1)

    def next(self) -> Item | None:
        """Wait for the next item to decode, and until less than a group is decoded; None means closed and drained."""
        with self._changed:
            while self._decoded_bytes >= self._group_bytes or not (self._waiting or self._closed):
                self._changed.wait()
            if self._waiting:
                item = self._waiting.popleft()
                self._undecoded_bytes -= item.size
                self._changed.notify_all()
                return item
            self._drained = True
            self._changed.notify_all()
            return None

    def decoded(self, item: Item) -> None:
        """Pass an item on to be committed."""
        with self._changed:
            self._decoded.append(item)
            self._decoded_bytes += item.size
            self._changed.notify_all()

    def dropped(self, item: Item) -> None:
        """Forget an item that was answered already."""
        with self._changed:
            self._count(-item.size, -1)

    def take(self) -> list[Item]:
        """Wait for decoded items and return them, up to a group's size; an empty list means closed and drained.

        While more waits to be decoded than is, a group is not worth its transaction yet: its fixed cost is that of
        some hundred rows. Half of what waits at a time keeps both threads busy.
        """
        with self._changed:
            while not self._drained and not self.has_group():
                self._changed.wait()
            group: list[Item] = []
            size = 0
            while self._decoded and (not group or size < self._group_bytes):
                item = self._decoded.popleft()
                group.append(item)
                size += item.size
            self._decoded_bytes -= size
            self._count(-size, -len(group))
            return group

    def close(self) -> None:
        """Refuse what comes; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def has_group(self) -> bool:
        """Tell whether what is decoded is worth a transaction."""
        return bool(self._decoded) and self._decoded_bytes >= min(self._group_bytes, self._undecoded_bytes)

    def _count(self, size: int, items: int) -> None:
        self._bytes += size
        self._items += items
        self._changed.notify_all()
