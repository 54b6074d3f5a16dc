"""What the collector logs to stderr: text or JSON lines, and never a flood of the same message."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable

MAX_ALIKE = 5
"""Messages of one kind that are written in one window; the others are counted."""
WINDOW_S = 10.0
MAX_KINDS = 1000


class JsonLines(logging.Formatter):
    """One JSON object a line, for log pipelines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class RateLimit(logging.Filter):
    """Lets `MAX_ALIKE` messages of one kind through in each window; the next one says how many were left out.

    Where the process has no file descriptor left, asyncio logs an error with a traceback for each connection that
    waits, hundreds a second.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}
        """When the window of each kind began, and how many came in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a message. Messages of one kind come from the same line, whatever their values."""
        kind = (record.pathname, record.lineno, str(record.msg).partition("\n")[0])
        with self._lock:
            now = self._clock()
            began, count = self._kinds.get(kind, (now, 0))
            if now - began >= WINDOW_S:
                left_out, began, count = max(0, count - MAX_ALIKE), now, 0
                if left_out:
                    record.msg = f"{record.msg} ({left_out} more like this were left out)"
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
