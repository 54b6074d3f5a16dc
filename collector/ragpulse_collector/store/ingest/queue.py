"""The bounded queue before the writer, and the thread that decodes bodies while DuckDB writes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ragpulse_collector.records import Batch, DecodeError, RawBody, Receipt
from ragpulse_collector.refusals import Busy
from ragpulse_collector.store.connection import is_short_of_memory
from ragpulse_collector.store.ingest.prices import Prices
from ragpulse_collector.store.protocol import Backlog, Transaction


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


@dataclass(eq=False, kw_only=True)
class WriterQueue:
    """Items on their way to disk, in order: one thread decodes them, another commits them in groups.

    The bounds on bytes and number count an item until the committing thread takes it. A transaction costs what a
    thousand rows cost, whatever it holds, so a group is everything that is in the queue, up to `group_bytes`. The next
    group is decoded while this one is committed.
    """

    max_bytes: int
    max_items: int
    group_bytes: int

    def __post_init__(self) -> None:
        self._undecoded: deque[Item] = deque()
        self._decoded: deque[Item] = deque()
        self._bytes = self._decoded_bytes = self._items = 0
        self._closed = self._drained = False
        self.refused: str | None = None
        """Set by the committing thread."""
        self._changed = threading.Condition()

    def backlog(self) -> Backlog:
        """Return what is queued, decoded or not."""
        with self._changed:
            since = [item.since for item in (*self._decoded, *self._undecoded) if isinstance(item, BodyItem)]
            return Backlog(self._bytes, len(since), time.monotonic() - min(since) if since else 0.0, self.refused)

    def put(self, item: Item) -> None:
        """Add an item; raises Busy when full or closed. An empty queue accepts a body that is larger than its bound."""
        with self._changed:
            if self._closed:
                raise Busy("the collector is shutting down")
            if self._items and (self._bytes + item.size > self.max_bytes or self._items >= self.max_items):
                raise Busy("the queue before the disk is full")
            self._undecoded.append(item)
            self._count(item.size, 1)

    def next(self) -> Item | None:
        """Wait for the next item to decode, while less than a group is decoded; None means closed and drained."""
        with self._changed:
            self._changed.wait_for(self._may_decode)
            if self._undecoded:
                return self._undecoded.popleft()
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
        """Uncount an item that is answered already."""
        with self._changed:
            self._count(-item.size, -1)

    def take(self) -> list[Item]:
        """Wait until all is decoded and return it, up to a group's size; an empty list means closed and drained."""
        with self._changed:
            self._changed.wait_for(self._is_ready)
            group: list[Item] = []
            size = 0
            while self._decoded and (not group or size < self.group_bytes):
                item = self._decoded.popleft()
                group.append(item)
                size += item.size
            self._decoded_bytes -= size
            self._count(-size, -len(group))
            return group

    def close(self) -> None:
        """Refuse new items; queued items are still returned."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _may_decode(self) -> bool:
        return not self._is_full() and (bool(self._undecoded) or self._closed)

    def _is_full(self) -> bool:
        return self._decoded_bytes >= self.group_bytes

    def _is_ready(self) -> bool:
        return self._drained or self._is_full() or 0 < self._items == len(self._decoded)

    def _count(self, size: int, items: int) -> None:
        self._bytes += size
        self._items += items
        self._changed.notify_all()


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decoder:
    """Runs until the queue is closed and drained; a body that cannot be decoded is answered here and fails alone."""

    queue: WriterQueue
    decode: Callable[[RawBody], Batch]
    price: Prices | None

    def run(self) -> None:
        """Decode item after item, and pass it on."""
        while item := self.queue.next():
            if self._is_ready(item):
                self.queue.decoded(item)
            else:
                self.queue.dropped(item)
            del item  # while this thread waits for the next, the body must not stay in memory

    def _is_ready(self, item: Item) -> bool:
        """Decode a body; returns False for an item that was cancelled or cannot be decoded."""
        if not item.future.set_running_or_notify_cancel():
            return False
        if not isinstance(item, BodyItem):
            return True
        try:
            item.batch = self.decode(item.body)
            if self.price is not None:
                for spans in item.batch.spans:
                    self.price.settle(spans)
        except DecodeError as error:
            # The caught exception would keep this frame alive, and with it the body, until garbage is collected.
            item.future.set_exception(type(error)(str(error)))
        except Exception as error:  # noqa: BLE001 - the boundary: a bug about foreign bytes costs one body
            item.future.set_exception(_error_for_sender(error))
        else:
            return True
        return False


def _error_for_sender(error: Exception) -> Exception:
    """Return the error for the sender: a retry may help if memory was short, not if the decoder failed."""
    if is_short_of_memory(error):
        _log.error("a body could not be decoded: too little memory")
        return Busy("the collector has too little memory to decode this body")
    _log.error("a body could not be decoded", exc_info=error)
    return DecodeError(f"the body could not be decoded: {type(error).__name__}")
