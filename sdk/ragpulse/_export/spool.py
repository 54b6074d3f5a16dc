"""Keeps batches on disk while the collector is away: bounded, in order, each whole or absent.

Each process writes to a folder of its own under `spool_dir` and holds a lock on it. A process that finds a folder
whose owner has ended adopts it, so that what a crash or a restart left behind is still delivered.

Batches hold prompts: folders and files are for their owner alone, and a folder that is a link, or that another user
owns, is not used.
"""

import contextlib
import os
import stat
import time
import zlib
from pathlib import Path

from ragpulse._guard import GUARD

from .batch import EncodedBatch

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: a folder is then never taken over
    fcntl = None  # type: ignore[assignment]

_MAX_BYTES = 512 * 1024 * 1024
_SUFFIX = ".otlp"
_UNFINISHED = ".part"


class DiskSpool:
    """A bounded, ordered queue of batches in files."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._root = Path(folder)
        self._folder: Path | None = None
        self._pid = 0
        self._locks: list[int] = []
        self._files: list[Path] = []
        self._bytes = 0
        self._sequence = 0

    def _open(self) -> None:
        """Opens a folder of its own, and those of processes that have ended; again in a forked child."""
        pid = os.getpid()
        if self._pid == pid:
            return
        self._locks, self._files, self._bytes = [], [], 0
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_safe(self._root, _uids() | {0}):
            raise PermissionError(f"{self._root} is a link or belongs to another user")
        self._folder = self._root / f"{time.time_ns():020d}-{pid}"
        self._folder.mkdir(mode=0o700)
        self._lock(self._folder)
        for folder in sorted(self._root.iterdir()):
            if folder != self._folder and _is_safe(folder, _uids()) and self._lock(folder):
                self._adopt(folder)
        self._pid = pid

    def _lock(self, folder: Path) -> bool:
        if fcntl is None:
            return False
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._locks.append(descriptor)
        return True

    def _adopt(self, folder: Path) -> None:
        folder.chmod(0o700)  # earlier versions left it readable
        unfinished = list(folder.glob(f"*{_UNFINISHED}"))
        for path in unfinished:
            path.unlink()
        if unfinished:
            GUARD.limiter.warn("spool unfinished", f"{len(unfinished)} batches that a crash cut short were removed")
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                self._files.append(path)
                self._bytes += status.st_size

    def put(self, batch: EncodedBatch) -> bool:
        """Writes a batch; False when the spool is full or the disk refuses."""
        try:
            self._open()
            header = f"{batch.path} {batch.count} {int(batch.gzipped)} {zlib.crc32(batch.body)}\n".encode()
            if self._folder is None or self._bytes + len(header) + len(batch.body) > _MAX_BYTES:
                GUARD.limiter.warn("spool full", "the spool is full; records stay in memory")
                return False
            self._sequence += 1
            path = self._folder / f"{self._sequence:012d}{_SUFFIX}"
            _write(path, header + batch.body)
        except OSError as error:
            GUARD.limiter.warn("spool", f"the spool cannot be written: {error}")
            return False
        self._files.append(path)
        self._bytes += len(header) + len(batch.body)
        return True

    def head(self) -> tuple[str, EncodedBatch] | None:
        """The oldest batch and its key; damaged files are renamed."""
        with contextlib.suppress(OSError):
            self._open()
        while self._files:
            batch = _batch_in(self._files[0])
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


def _uids() -> set[int]:
    return {os.geteuid()} if hasattr(os, "geteuid") else {0}


def _is_safe(folder: Path, owners: set[int]) -> bool:
    """Whether it is a folder, no link to one, and belongs to one of these users."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid in owners


def _write(path: Path, content: bytes) -> None:
    """Writes a private file; it appears when it is complete and on disk."""
    unfinished = path.with_suffix(_UNFINISHED)
    try:
        with open(unfinished, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def _batch_in(path: Path) -> EncodedBatch | None:
    try:
        header, newline, body = path.read_bytes().partition(b"\n")
        name, count, gzipped, checksum = header.decode().split(" ")
        if not newline or zlib.crc32(body) != int(checksum):
            return None
        return EncodedBatch(name, body, int(count), gzipped == "1")
    except (OSError, ValueError):
        return None
