"""A bound on what a user's query may take: DuckDB counts its buffers, but not what a function makes on the way."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

ROOM_BYTES = 512 * 2**20
_STATUS = Path("/proc/self/status")


class Ceiling:
    """While at least one query is inside, this process may grow by so many bytes and no more (on Linux).

    `repeat('x', 2000000000)` then fails as out of memory at once. The limit is the system's own (RLIMIT_DATA), so that
    it holds for every allocation; it is lifted when the last query is done.
    """

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room_bytes, self._lock, self._inside = room_bytes, threading.Lock(), 0
        self._former: tuple[int, int] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._lower()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._former is not None:
                resource.setrlimit(resource.RLIMIT_DATA, self._former)

    def _lower(self) -> None:
        used = _data_bytes()
        if resource is None or used is None:
            return
        self._former = soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = used + self._room_bytes
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def _data_bytes() -> int | None:
    """Return what counts against RLIMIT_DATA now; None where the system does not tell."""
    try:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmData:"))
    except (OSError, StopIteration):
        return None
    return int(line.split()[1]) * 1024
