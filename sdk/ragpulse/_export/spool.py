"""Keeps batches on disk while the collector is away: bounded, in order, each whole or absent.

Each process writes to a folder of its own under `spool_dir` and holds a lock on it. A process that finds a folder
whose owner has ended adopts it, so that what a crash or a restart left behind is still delivered.
"""

import contextlib
import os
import time
import zlib
from pathlib import Path

from ragpulse._guard import GUARD

from .batch import Batch

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: a folder is then never taken over
    fcntl = None  # type: ignore[assignment]

_MAX_BYTES = 512 * 1024 * 1024
_SUFFIX = ".otlp"


class DiskSpool:
    """A bounded, ordered queue of batches in files."""

    def __init__(self, folder: str | os.PathLike[str], *, max_bytes: int = _MAX_BYTES) -> None:
        self._root = Path(folder)
        self._max_bytes = max_bytes
        self._folder: Path | None = None
        self._pid = 0
        self._locks: list[int] = []
        self._files: list[Path] = []
        self._bytes = 0
        self._sequence = 0

    def _open(self) -> None:
        """Opens a folder of its own, and those of processes that have ended; again in a forked child."""
        if self._pid == os.getpid():
            return
        self._pid = os.getpid()
        self._locks, self._files, self._bytes = [], [], 0
        self._folder = self._root / f"{time.time_ns():020d}-{self._pid}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock(self._folder)
        for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
            if folder != self._folder and self._lock(folder):
                self._adopt(folder)

    def _lock(self, folder: Path) -> bool:
        if fcntl is None:
            return False
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True

    def _adopt(self, folder: Path) -> None:
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            self._files.append(path)
            self._bytes += path.stat().st_size

    def put(self, batch: Batch) -> bool:
        """Writes a batch; False when the spool is full or the disk refuses."""
        try:
            self._open()
            header = f"{batch.path} {batch.count} {int(batch.gzipped)} {zlib.crc32(batch.body)}\n".encode()
            if self._folder is None or self._bytes + len(header) + len(batch.body) > self._max_bytes:
                GUARD.limiter.warn("spool full", "the spool is full; records stay in memory")
                return False
            self._sequence += 1
            path = self._folder / f"{self._sequence:012d}{_SUFFIX}"
            unfinished = path.with_suffix(".part")
            with unfinished.open("wb") as file:
                file.write(header + batch.body)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
        except OSError as error:
            GUARD.limiter.warn("spool", f"the spool cannot be written: {error}")
            return False
        self._files.append(path)
        self._bytes += len(header) + len(batch.body)
        return True

    def head(self) -> tuple[str, Batch] | None:
        """The oldest batch and its key; damaged files are renamed."""
        with contextlib.suppress(OSError):
            self._open()
        while self._files:
            batch = _read(self._files[0])
            if batch is not None:
                return str(self._files[0]), batch
            GUARD.limiter.warn("spool damaged", f"{self._files[0].name} in the spool is damaged and is not sent")
            with contextlib.suppress(OSError):
                self._files[0].rename(self._files[0].with_suffix(".damaged"))
            self._files.pop(0)
        return None

    def remove(self, key: str) -> None:
        """Removes a delivered batch."""
        path = Path(key)
        with contextlib.suppress(OSError):
            self._bytes -= path.stat().st_size
            path.unlink()
        if self._files and self._files[0] == path:
            self._files.pop(0)


def _read(path: Path) -> Batch | None:
    try:
        header, newline, body = path.read_bytes().partition(b"\n")
        name, count, gzipped, checksum = header.decode().split(" ")
        if not newline or zlib.crc32(body) != int(checksum):
            return None
        return Batch(name, body, int(count), gzipped == "1")
    except (OSError, ValueError):
        return None
