"""The bounded queue before the writer: full means Busy, never memory."""

from __future__ import annotations

import threading
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
    """Set once decoded, so that a second try does not decode again."""


@dataclass(slots=True, eq=False)
class WorkItem:
    """A unit of work on its way to the writer."""

    work: Callable[[Transaction], Any]
    future: Future[Any] = field(default_factory=Future)


Item = BodyItem | WorkItem


class WriterQueue:
    """Bodies bounded by bytes and by number; the writer takes everything that waits, up to a group's size."""

    def __init__(self, *, max_bytes: int, max_items: int, group_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._group_bytes = group_bytes
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the bodies that wait."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Add an item; raises Busy when full or closed. A body larger than the whole queue passes when it is empty."""
        size = len(item.body.body) if isinstance(item, BodyItem) else 0
        with self._changed:
            if self._closed:
                raise Busy("the collector is shutting down")
            if self._items and (self._bytes + size > self._max_bytes or len(self._items) >= self._max_items):
                raise Busy("the queue before the disk is full")
            self._items.append(item)
            self._bytes += size
            self._changed.notify()

    def take(self) -> list[Item]:
        """Wait for items and return the next group in order; an empty list means closed and drained."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            group: list[Item] = []
            size = 0
            while self._items and (not group or size < self._group_bytes):
                item = self._items.popleft()
                group.append(item)
                size += len(item.body.body) if isinstance(item, BodyItem) else 0
            self._bytes -= size
            return group

    def close(self) -> None:
        """Refuse what comes; what waits is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
