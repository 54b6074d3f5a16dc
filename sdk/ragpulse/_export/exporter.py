"""Finished spans -> batches -> the collector, on one daemon thread that starts with the first span.

    offer (any thread)           the exporting thread
    queue of spans, by bytes ──▶ encode       ──▶ outbox of batches ──▶ POST ──▶ counted
                                                        └── while the collector is away, to the spool if there is one

Queue and outbox together are bounded by bytes; what does not fit is dropped, counted and said once a minute.
"""

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ragpulse._guard import GUARD

from .batch import Answer, Batch, Gzip
from .encoder import Origin, Record, encode_requests

_BATCH_SPANS = 512
_BATCH_BYTES = 4 * 1024 * 1024
_INTERVAL = 1.0
_SHORTEST_PAUSE, _FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_OBEYED = 0.1, 0.25, 5.0, 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stats:
    """What became of every finished span and score of this process."""

    exported: int = 0
    """Accepted by the collector."""
    dropped: int = 0
    """Never sent: the queue was full, or the process ended."""
    rejected: int = 0
    """Sent, and refused by the collector."""
    pending: int = 0
    """Waiting in memory."""
    spooled: int = 0
    """Written to disk while the collector was away, in all."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why: counts of what was dropped or rejected."""
    last_error: str = ""


class Transport(Protocol):
    """Carries one encoded batch."""

    def send(self, batch: Batch, timeout: float | None) -> Answer:
        """Deliver the batch; never raises."""
        ...

    def close(self) -> None:
        """Let connections go."""
        ...


class Spool(Protocol):
    """Keeps batches on disk while the collector is away."""

    def put(self, batch: Batch) -> bool:
        """Keep a batch; False when there is no room."""
        ...

    def head(self) -> tuple[str, Batch] | None:
        """The oldest batch and its key."""
        ...

    def remove(self, key: str) -> None:
        """Forget a delivered batch."""
        ...


class Exporter:
    """The queue, its thread, and the counts."""

    def __init__(
        self,
        encode: Callable[[Any], tuple[Origin, bytes]],
        transport: Transport,
        *,
        max_bytes: int,
        gzip: Gzip = "sent",
        spool: Spool | None = None,
        interval: float = _INTERVAL,
    ) -> None:
        self._encode = encode
        self._transport = transport
        self._max_bytes = max_bytes
        self._gzip: Gzip = gzip
        self._spool = spool
        self._interval = interval
        self.on_start: Callable[[], None] = lambda: None
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self.last_error = ""
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[Record] = deque()
        self._sizes: deque[int] = deque()
        self._outbox: deque[Batch] = deque()
        self._queued_bytes = self._outbox_bytes = 0
        self._in_hand = 0
        self._thread: threading.Thread | None = None
        self._hurry_until: float | None = None
        self._round = 0
        self._closed = self._hasty = False
        self._pause = 0.0
        self._not_before = 0.0

    # --- any thread ------------------------------------------------------------------------------------------------
    def offer(self, record: Record, /) -> None:
        """Queue a finished record; drop and count it when there is no room."""
        size = record.size()
        with self._lock:
            queued = self._queued_bytes + size
            if self._closed or queued + self._outbox_bytes > self._max_bytes:
                self._drop(1, "shut down" if self._closed else "queue full")
                return
            self._queue.append(record)
            self._sizes.append(size)
            self._queued_bytes = queued
            waiting = len(self._queue)
            if self._thread is None:
                self._start()
            elif self._hasty or waiting == 1 or waiting % _BATCH_SPANS == 0 or size > _BATCH_BYTES:
                self._wake.notify()
        if self._hasty:
            self._try_once(0.25)

    def hasten(self, timeout: float) -> None:
        """Deliver what is finished, and from now on each record as it comes: the process is about to end."""
        self._try_once(timeout)
        self._hasty = True

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="ragpulse-export", daemon=True)
        self._thread.start()
        self.on_start()

    def flush(self, timeout: float) -> bool:
        """Send all that is finished; True when nothing is left, False when `timeout` seconds ran out first."""
        deadline = time.monotonic() + timeout
        with self._wake:
            if self._thread is None:
                return not self._pending()
            self._hurry_until = deadline
            self._not_before = 0.0
            self._wake.notify_all()
            return self._wake.wait_for(lambda: not self._pending(), max(timeout, 0.0))

    def shutdown(self, timeout: float) -> bool:
        """Flush within `timeout` seconds and stop; what is left goes to the spool, or is counted as dropped."""
        with self._wake:
            if self._closed:
                return True
        done = self._try_once(timeout)
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            left = list(self._outbox)
            unsent = len(self._queue)
            self._outbox.clear()
        if self._thread is not None:
            self._thread.join(0.2)
        for batch in left:
            if not (self._spool and self._keep(batch)):
                self._lost(batch.count, "not delivered before exit")
        if unsent:
            self._lost(unsent, "not delivered before exit")
        return done

    def _try_once(self, timeout: float) -> bool:
        """As flush, but an unreachable collector is given up after one round, so that an exit is quick."""
        deadline = time.monotonic() + timeout
        with self._wake:
            if self._thread is None or not self._thread.is_alive():
                return not self._pending()
            first = self._round
            self._hurry_until = deadline
            self._not_before = 0.0
            self._wake.notify_all()
            self._wake.wait_for(
                lambda: not self._pending() or (self._round > first + 1 and self._pause > 0), max(timeout, 0.0)
            )
            return not self._pending()

    def stats(self) -> Stats:
        """The counts as they are now."""
        with self._lock:
            return Stats(
                **self._counts, pending=self._pending(), reasons=dict(self._reasons), last_error=self.last_error
            )

    def forked(self) -> None:
        """In a forked child: the parent sends what was queued, the child begins empty."""
        self._reset()
        self._counts.clear()
        self._reasons.clear()

    def _pending(self) -> int:
        return len(self._queue) + self._in_hand + sum(batch.count for batch in self._outbox)

    def _drop(self, count: int, reason: str) -> None:
        self._counts["dropped"] += count
        self._reasons[reason] += count
        GUARD.limiter.warn(f"drop {reason}", f"spans are being dropped: {reason}")

    def _lost(self, count: int, reason: str) -> None:
        with self._lock:
            self._drop(count, reason)

    # --- the exporting thread --------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._closed:
                    self._wait()
                if self._closed:
                    break
                records = self._take()
            try:
                self._pack(records)
                self._deliver()
            except Exception as error:  # noqa: BLE001 - the thread must outlive any single batch
                self._failed_round(len(records), error)
            with self._wake:
                self._round += 1
                self._wake.notify_all()
        self._transport.close()

    def _failed_round(self, count: int, error: Exception) -> None:
        self.last_error = f"{type(error).__name__}: {error}"
        with self._lock:
            self._in_hand = 0
            self._drop(count, "could not be encoded")

    def _wait(self) -> None:
        """Until there is something to do: a full batch, an old one, a retry that is due, a flush, or the end."""
        began = time.monotonic()
        while not self._closed:
            now = time.monotonic()
            if self._hurry_until is not None:
                if now < self._hurry_until and self._pending() and now >= self._not_before:
                    return
                if not self._pending() or now >= self._hurry_until:
                    self._hurry_until = None
            if self._queue and (len(self._queue) >= _BATCH_SPANS or self._queued_bytes >= _BATCH_BYTES):
                return
            if self._queue and now - began >= self._interval:
                return
            due = self._not_before if self._has_unsent() else None
            if due is not None and now >= due:
                return
            self._wake.wait(self._patience(now, began, due))

    def _patience(self, now: float, began: float, due: float | None) -> float | None:
        waits = []
        if self._queue:
            waits.append(began + self._interval - now)
        if due is not None:
            waits.append(due - now)
        if self._hurry_until is not None:
            waits.append(max(self._not_before, now) - now)
        return max(min(waits), 0.001) if waits else None

    def _has_unsent(self) -> bool:
        return bool(self._outbox) or (self._spool is not None and self._spool.head() is not None)

    def _take(self) -> list[Record]:
        records: list[Record] = []
        size = 0
        while self._queue and len(records) < _BATCH_SPANS and size < _BATCH_BYTES:
            records.append(self._queue.popleft())
            size += self._sizes.popleft()
        self._queued_bytes -= size
        self._in_hand = len(records)
        return records

    def _pack(self, records: list[Record]) -> None:
        if not records:
            return
        batches = []
        for path, body, count in encode_requests(records, self._encode):
            batch = Batch(path, body, count, gzipped=False)
            batches.append(batch.compressed() if self._gzip == "sent" else batch)
        with self._lock:
            lost = len(records) - sum(batch.count for batch in batches)
            if lost:
                self._drop(lost, "could not be encoded")
            self._outbox.extend(batches)
            self._outbox_bytes += sum(len(batch.body) for batch in batches)
            self._in_hand = 0

    def _deliver(self) -> None:
        """Send what is due: the spool's oldest first, then the outbox; stop at the first that must wait."""
        if time.monotonic() < self._not_before:
            self._put_aside()
            return
        while self._spool is not None and (kept := self._spool.head()) is not None:
            if not self._settle(kept[1], self._send(kept[1])):
                self._put_aside()
                return
            self._spool.remove(kept[0])
        while self._outbox:
            batch = self._outbox[0]
            if not self._settle(batch, self._send(batch)):
                self._put_aside()
                return
            with self._lock:
                if self._outbox and self._outbox[0] is batch:
                    self._outbox.popleft()
                    self._outbox_bytes -= len(batch.body)
                self._wake.notify_all()

    def _send(self, batch: Batch) -> Answer:
        limit = None if self._hurry_until is None else max(self._hurry_until - time.monotonic(), 0.05)
        return self._transport.send(batch, limit)

    def _settle(self, batch: Batch, answer: Answer) -> bool:
        """Count the outcome; False when the batch must be sent again later."""
        if answer.retryable:
            self._postpone(answer)
            return False
        self._pause = 0.0
        with self._lock:
            refused = batch.count if not answer.accepted else min(answer.rejected, batch.count)
            self._counts["exported"] += batch.count - refused
            self._counts["rejected"] += refused
            if refused:
                self._reasons[f"HTTP {answer.status}"] += refused
        if refused:
            self.last_error = f"HTTP {answer.status}: {answer.message}"
            GUARD.limiter.warn(
                "rejected", f"the collector refused {refused} of {batch.count} records ({self.last_error})"
            )
        return True

    def _postpone(self, answer: Answer) -> None:
        self.last_error = answer.message or f"HTTP {answer.status}"
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        wait = self._pause * random.uniform(0.8, 1.2)
        if answer.retry_after is not None:
            wait = min(max(answer.retry_after, _SHORTEST_PAUSE), _LONGEST_OBEYED)
        self._not_before = time.monotonic() + wait
        GUARD.limiter.warn(
            "away", f"the collector is not answering ({self.last_error}); records wait and are sent again"
        )

    def _put_aside(self) -> None:
        """What has to wait takes less room, and goes to the spool if there is one."""
        for place, batch in enumerate(list(self._outbox) if self._gzip == "kept" else ()):
            small = batch.compressed()
            with self._lock:
                if place < len(self._outbox) and self._outbox[place] is batch:
                    self._outbox[place] = small
                    self._outbox_bytes -= len(batch.body) - len(small.body)
        while self._spool is not None and self._outbox and self._keep(self._outbox[0]):
            with self._lock:
                batch = self._outbox.popleft()
                self._outbox_bytes -= len(batch.body)

    def _keep(self, batch: Batch) -> bool:
        if self._spool is None or not self._spool.put(batch):
            return False
        with self._lock:
            self._counts["spooled"] += batch.count
        return True
