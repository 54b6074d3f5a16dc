"""The settings of the process: its log, and three settings of memory and threads that measurements justify.

The log is text or JSON lines, without floods of the same message.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

MAX_ALIKE = 5
"""Messages of one kind that one window writes; it counts the others."""
WINDOW_S = 10.0
MAX_KINDS = 1000


class JsonLines(logging.Formatter):
    """One JSON object a line, for log pipelines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class RateLimit(logging.Filter):
    """Passes `MAX_ALIKE` messages of one kind in each window; the next message has the number of the others.

    Without a free file descriptor asyncio logs an error with a traceback for each waiting connection, hundreds a
    second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}
        """The start of the window of each kind, and its number of messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a message. Messages of one kind come from the same line of code."""
        kind = (record.pathname, record.lineno, str(record.msg).partition("\n")[0])
        with self._lock:
            now = self._clock()
            began, count = self._kinds.get(kind, (now, 0))
            if now - began >= WINDOW_S:
                dropped, began, count = max(0, count - MAX_ALIKE), now, 0
                if dropped:
                    record.msg = f"{record.msg} ({dropped} more like this were dropped)"
            if len(self._kinds) >= MAX_KINDS:
                self._kinds.clear()
            self._kinds[kind] = (began, count + 1)
        return count < MAX_ALIKE


def log_to_stderr(*, as_json: bool) -> None:
    """Send every log message to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for noisy in ("uvicorn", "uvicorn.error", "LiteLLM", "httpx", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


_THRESHOLDS = (50_000, 10, 10)
_SWITCH_S = 0.0005
_LARGE = 8 * 2**20
"""Bytes of code above which a library is worth a call."""
_DONTNEED = 4
"""MADV_DONTNEED of linux/mman.h."""


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many cores this process may use: those it is bound to, fewer where its container has a quota."""
    bound = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    files = ([cgroup / "cpu.max"], [cgroup / "cpu" / name for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")])
    for written in files:
        with suppress(OSError, ValueError):  # no such file, or "max": no quota
            quota, period = map(int, " ".join(file.read_text(encoding="ascii") for file in written).split())
            return min(bound, quota / period) if quota > 0 else bound
    return bound


def collect_garbage_rarely() -> None:
    """Let Python look for garbage in cycles after 50,000 new objects instead of 700: spans are many and hold no cycles.

    Four senders, three runs each in turn: 4.70 CPU-s per 100,000 spans and 18,300 spans/s instead of 5.62 and 16,000.
    """
    gc.set_threshold(*_THRESHOLDS)


def switch_threads_often() -> None:
    """Let a thread keep Python's lock for 0.5 ms instead of 5 ms while another waits for it.

    Beside 5,120 spans/s, two runs each in turn on a busy machine: the trace list answers in 41 and 59 ms (median)
    instead of 80 and 281, `/healthz` in 1.3 ms instead of 5.4 and 9.3.
    """
    sys.setswitchinterval(_SWITCH_S)


def release_startup_code() -> None:
    """Return the code pages of large libraries to Linux; most of them run at startup only.

    An idle collector with gRPC has 85 MB resident instead of 122. Code is never written to: a page that is needed again
    comes from the page cache.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    for start, size in _large_code():
        libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED)


def _large_code() -> Iterator[tuple[int, int]]:
    """Yield address and size of the large code of every mapped file: readable, executable, not writable."""
    for mapping in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        span, access, _, _, _, *file = mapping.split(maxsplit=5)
        start, _, end = span.partition("-")
        size = int(end, 16) - int(start, 16)
        if file and file[0].startswith("/") and access.startswith("r-x") and size >= _LARGE:
            yield int(start, 16), size
