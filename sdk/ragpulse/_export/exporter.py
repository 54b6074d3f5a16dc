"""Sends finished spans to the collector, on one daemon thread that starts with the first span.

    offer (any thread)           the exporting thread
    queue of spans, by bytes ──▶ encode       ──▶ outbox of batches ──▶ POST ──▶ counted
                                                        └── while the collector is away, to the spool if there is one

Queue and outbox together are bounded by bytes. What does not fit is dropped, counted and logged once a minute.
"""

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ragpulse._guard import GUARD

from .batch import EncodedBatch, Gzip, HttpAnswer, Stats
from .encoder import Record, encode_requests

if TYPE_CHECKING:
    from .spool import DiskSpool
    from .transport import HttpTransport

_BATCH_SPANS = 512
_BATCH_BYTES = 4 * 1024 * 1024
_INTERVAL, _FREQUENT_INTERVAL, _SHORT_INTERVAL = 1.0, 0.05, 0.005
_MIN_RETRY_AFTER, _FIRST_BACKOFF, _MAX_BACKOFF, _MAX_RETRY_AFTER = 0.1, 0.25, 5.0, 30.0
_AT_EXIT = "not delivered before exit"


class Exporter:
    """The queue, its thread, and the counts."""

    def __init__(
        self,
        connect: Callable[[], "HttpTransport"],
        *,
        max_bytes: int,
        gzip: Gzip = "sent",
        spool: "DiskSpool | None" = None,
        on_start: Callable[[], None] = lambda: None,
    ) -> None:
        self._connect = connect
        self._max_bytes = max_bytes
        self._gzip: Gzip = gzip
        self._spool = spool
        self._on_start = on_start
        self.forked()

    def forked(self) -> None:
        """Begins empty, as a forked child must: the parent sends what was queued."""
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self.last_error = ""
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[Record] = deque()
        self._sizes: deque[int] = deque()
        self._outbox: deque[EncodedBatch] = deque()
        self._queued_bytes = self._outbox_bytes = 0
        self._encoding = 0
        self._thread: threading.Thread | None = None
        self._flush_until: float | None = None
        self._rounds = 0
        self._closed = self._terminating = False
        self._interval = _INTERVAL
        self._waiting_since: float | None = None
        self.last_root: Record | None = None
        """The span that ended last with nothing of this process around it."""
        self._waited_seconds = 0.0
        self._backoff = 0.0
        self._not_before = 0.0

    # --- any thread ------------------------------------------------------------------------------------------------
    def offer(self, record: Record, /) -> None:
        """Queues a finished record; drops and counts it when there is no room."""
        size = record.size()
        with self._lock:
            queued = self._queued_bytes + size
            if self._closed or queued + self._outbox_bytes > self._max_bytes:
                self._drop(1, "shut down" if self._closed else "queue full")
                return
            self._queue.append(record)
            self._sizes.append(size)
            self._queued_bytes = queued
            count = len(self._queue)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ragpulse-export", daemon=True)
                self._thread.start()
                self._on_start()
            elif self._terminating or count == 1 or count % _BATCH_SPANS == 0 or size > _BATCH_BYTES:
                self._wake.notify()
        ends_here = record.ends_here()
        if ends_here and record.origin()[0] == "traces":
            self.last_root = record
        if self._terminating:
            self.flush(0.25, give_up=True)
        elif self._waiting_since is not None and ends_here:
            self._wait_for_delivery()

    def send_often(self) -> None:
        """Sends within 0.05 s: an unhandled SIGTERM may end this process at any time."""
        self._interval = _FREQUENT_INTERVAL

    def wait_for_roots(self) -> None:
        """Sends within milliseconds, and waits at the end of each local root: this process may end without notice."""
        self._interval = _SHORT_INTERVAL
        self._waiting_since = time.monotonic()

    def _wait_for_delivery(self) -> None:
        """Waits for delivery, for one second and a twentieth of the time in all; not while the collector is away."""
        began = time.monotonic()
        if not self._backoff and self._waited_seconds < 1.0 + (began - (self._waiting_since or began)) / 20:
            self.flush(0.25, give_up=True)
            self._waited_seconds += time.monotonic() - began

    def terminate(self) -> None:
        """Wakes the thread, and delivers each further record as it ends: the process is about to end.

        For a signal handler, which may have interrupted the holder of the lock: it takes the lock only if it is free.
        Otherwise the thread is awake, or the interrupted `offer` delivers.
        """
        self._terminating = True
        if self._wake.acquire(blocking=False):
            try:
                self._wake.notify_all()
            finally:
                self._wake.release()

    def flush(self, timeout: float, *, give_up: bool = False) -> bool:
        """Sends all that is finished; True when nothing is left, False when `timeout` seconds ran out first.

        With `give_up` it returns after one failed attempt, so that a process ends quickly without a collector.
        """
        with self._wake:
            if self._closed or self._thread is None or not self._thread.is_alive():
                return not self._pending()
            first_round = self._rounds
            self._flush_until = time.monotonic() + timeout
            self._not_before = 0.0
            self._wake.notify_all()

            def done() -> bool:
                failed = give_up and self._rounds > first_round + 1 and self._backoff > 0
                return failed or not self._pending()

            self._wake.wait_for(done, max(timeout, 0.0))
            return not self._pending()

    def shutdown(self, timeout: float) -> bool:
        """Flushes within `timeout` seconds and stops; the rest goes to the spool, or is counted as dropped."""
        with self._wake:
            if self._closed:
                return True
        done = self.flush(timeout, give_up=True)
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            batches, unsent = list(self._outbox), len(self._queue)
            self._outbox.clear()
        if self._thread is not None:
            self._thread.join(0.2)
        unsent += sum(batch.count for batch in batches if not self._put_in_spool(batch))
        if unsent:
            with self._lock:
                self._drop(unsent, _AT_EXIT)
        return done

    def stats(self) -> Stats:
        """The counts as they are now."""
        with self._lock:
            return Stats(
                **self._counts, pending=self._pending(), reasons=dict(self._reasons), last_error=self.last_error
            )

    def _pending(self) -> int:
        return len(self._queue) + self._encoding + sum(batch.count for batch in self._outbox)

    def _drop(self, count: int, reason: str) -> None:
        self._counts["dropped"] += count
        self._reasons[reason] += count
        GUARD.limiter.warn(f"drop {reason}", f"spans are being dropped: {reason}")

    # --- the exporting thread --------------------------------------------------------------------------------------
    def _run(self) -> None:
        transport = self._connect()
        while True:
            with self._wake:
                self._wait()
                if self._closed:
                    break
                records = self._take()
            try:
                self._pack(records)
                self._deliver(transport)
            except Exception as error:  # noqa: BLE001 - the thread must outlive any single batch
                self.last_error = f"{type(error).__name__}: {error}"
                with self._lock:
                    self._drop(self._encoding, "could not be encoded")
                    self._encoding = 0
            with self._wake:
                self._rounds += 1
                self._wake.notify_all()
        transport.close()

    def _wait(self) -> None:
        """Waits for the next round: a full batch, an old one, a retry, a flush, or the end."""
        began = time.monotonic()
        while not self._closed:
            now = time.monotonic()
            if self._flush_until is not None and (now >= self._flush_until or not self._pending()):
                self._flush_until = None
            start = self._due(began)
            if start is not None and start <= now:
                return
            self._wake.wait(None if start is None else start - now)

    def _due(self, began: float) -> float | None:
        """When the next round starts; None while nothing is queued."""
        times = []
        if self._queue:
            full = len(self._queue) >= _BATCH_SPANS or self._queued_bytes >= _BATCH_BYTES
            times.append(began if full or self._terminating else began + self._interval)
        if self._flush_until is not None or self._outbox or (self._spool is not None and self._spool.head()):
            times.append(self._not_before)
        return min(times, default=None)

    def _take(self) -> list[Record]:
        records: list[Record] = []
        size = 0
        while self._queue and len(records) < _BATCH_SPANS and size < _BATCH_BYTES:
            records.append(self._queue.popleft())
            size += self._sizes.popleft()
        self._queued_bytes -= size
        self._encoding = len(records)
        return records

    def _pack(self, records: list[Record]) -> None:
        batches = []
        for path, body, count in encode_requests(records):
            batch = EncodedBatch(path, body, count, gzipped=False)
            batches.append(batch.compressed() if self._gzip == "sent" else batch)
        with self._lock:
            lost = len(records) - sum(batch.count for batch in batches)
            if lost:
                self._drop(lost, "could not be encoded")
            self._outbox.extend(batches)
            self._outbox_bytes += sum(len(batch.body) for batch in batches)
            self._encoding = 0

    def _deliver(self, transport: "HttpTransport") -> None:
        """Sends the spool, oldest first, then the outbox; stops at the first batch that must be sent again."""
        if time.monotonic() < self._not_before:
            self._set_aside()
            return
        while self._spool is not None and (entry := self._spool.head()) is not None:
            if not self._send(transport, entry[1]):
                return
            self._spool.remove(entry[0])
        while self._outbox and self._send(transport, self._outbox[0]):
            with self._lock:
                if self._outbox:  # `shutdown` may have emptied it
                    self._outbox_bytes -= len(self._outbox.popleft().body)
                self._wake.notify_all()

    def _send(self, transport: "HttpTransport", batch: EncodedBatch) -> bool:
        """Sends and counts a batch; False when it must be sent again later."""
        limit = None if self._flush_until is None else max(self._flush_until - time.monotonic(), 0.05)
        answer = transport.send(batch, limit)
        if answer.retryable:
            self._back_off(answer)
            self._set_aside()
            return False
        self._backoff = 0.0
        refused = batch.count if not answer.accepted else min(answer.rejected, batch.count)
        with self._lock:
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

    def _back_off(self, answer: HttpAnswer) -> None:
        self.last_error = answer.message or f"HTTP {answer.status}"
        self._backoff = min(max(self._backoff * 2, _FIRST_BACKOFF), _MAX_BACKOFF)
        delay = self._backoff * random.uniform(0.8, 1.2)
        if answer.retry_after is not None:
            delay = min(max(answer.retry_after, _MIN_RETRY_AFTER), _MAX_RETRY_AFTER)
        self._not_before = time.monotonic() + delay
        GUARD.limiter.warn(
            "away", f"the collector does not answer ({self.last_error}); records are kept and sent again"
        )

    def _set_aside(self) -> None:
        """Compresses what has to be kept, and moves it to the spool if there is one."""
        for index, batch in enumerate(list(self._outbox) if self._gzip == "kept" else ()):
            small = batch.compressed()
            with self._lock:
                if index < len(self._outbox) and self._outbox[index] is batch:
                    self._outbox[index] = small
                    self._outbox_bytes -= len(batch.body) - len(small.body)
        while self._outbox and self._put_in_spool(self._outbox[0]):
            with self._lock:
                self._outbox_bytes -= len(self._outbox.popleft().body)

    def _put_in_spool(self, batch: EncodedBatch) -> bool:
        if self._spool is None or not self._spool.put(batch):
            return False
        with self._lock:
            self._counts["spooled"] += batch.count
        return True
