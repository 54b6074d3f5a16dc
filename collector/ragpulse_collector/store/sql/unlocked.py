"""A file system that reads a DuckDB file which another process has open.

DuckDB's own would refuse: the writer holds the file's lock. What is read so is one state of the store only while the
writer makes no checkpoint, so `Mark` shows whether it made one.
"""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

SCHEME = "unlocked://"
_HEADERS = 3 * 4096
"""The file's three header blocks; each checkpoint writes one of them again, with its number."""


class Mark(NamedTuple):
    """By what a checkpoint, or a further commit, is known."""

    headers: bytes
    file: tuple[int, int]
    """Device and inode."""
    log: tuple[int, int] | None
    """Inode and size of the write-ahead log."""

    def same_file(self, other: Mark) -> bool:
        """Whether no checkpoint lies between the two."""
        return (self.headers, self.file) == (other.headers, other.file)


def mark(path: Path) -> Mark:
    """Look at a file; raises OSError."""
    with path.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        headers = os.pread(file.fileno(), _HEADERS, 0)
    try:
        log = path.with_name(path.name + ".wal").stat()
    except FileNotFoundError:
        return Mark(headers, (status.st_dev, status.st_ino), None)
    return Mark(headers, (status.st_dev, status.st_ino), (log.st_ino, log.st_size))


class Unlocked(LocalFileSystem):  # type: ignore[misc, unused-ignore]
    """Local files for reading, under the scheme `unlocked`."""

    protocol = ("unlocked",)
    local_file = True

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(path).removeprefix(SCHEME)

    def open(self, path: str, mode: str = "rb", **options: Any) -> _Reading:
        """Open a file; raises OSError for anything but reading."""
        del options
        if mode != "rb":
            raise OSError(f"{path} is open for reading only")
        return _Reading(self._strip_protocol(path))


class _Reading(io.RawIOBase):
    """A file whose position belongs to the thread.

    DuckDB seeks and then reads, from several threads and in two calls: with one common position a thread would read
    what another one sought. Nothing is read ahead, so nothing read is older than the call.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._place = threading.local()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: os.fstat(self._file).st_size}[whence]
        self._place.at = start + offset
        return start + offset

    def tell(self) -> int:
        return int(getattr(self._place, "at", 0))

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        wanted = size if size >= 0 else max(0, os.fstat(self._file).st_size - at)
        parts: list[bytes] = []
        while wanted > 0 and (part := os.pread(self._file, wanted, at)):
            parts.append(part)
            at, wanted = at + len(part), wanted - len(part)
        self._place.at = at
        return b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()
