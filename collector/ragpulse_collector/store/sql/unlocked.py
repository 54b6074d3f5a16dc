"""A file system that reads a DuckDB file which another process has open.

DuckDB's own refuses, because the writer has locked the file. A query reads one state of the store only if the writer
makes no checkpoint meanwhile, which `Mark` shows.
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
    """The state of a file and its log: a checkpoint or a commit changes it."""

    headers: bytes
    file: tuple[int, int]
    """Device and inode."""
    log: tuple[int, int] | None
    """Inode and size of the write-ahead log."""

    def same_file(self, other: Mark) -> bool:
        """Whether there was no checkpoint between the two."""
        return (self.headers, self.file) == (other.headers, other.file)


def mark(path: Path) -> Mark:
    """Return the mark of a file; raises OSError."""
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

    def open(self, path: str, mode: str = "rb", **options: Any) -> _UnlockedFile:
        """Open a file; raises OSError for anything but reading."""
        del options
        if mode != "rb":
            raise OSError(f"{path} is open for reading only")
        return _UnlockedFile(self._strip_protocol(path))


class _UnlockedFile(io.RawIOBase):
    """A file with a position for each thread.

    DuckDB seeks and reads in two calls, from several threads, which must not move each other's position. Nothing is
    read ahead, so the data are never older than the call.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._position = threading.local()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: os.fstat(self._file).st_size}[whence]
        self._position.offset = start + offset
        return start + offset

    def tell(self) -> int:
        return int(getattr(self._position, "offset", 0))

    def read(self, size: int = -1) -> bytes:
        position = self.tell()
        remaining = size if size >= 0 else max(0, os.fstat(self._file).st_size - position)
        chunks: list[bytes] = []
        while remaining > 0 and (chunk := os.pread(self._file, remaining, position)):
            chunks.append(chunk)
            position, remaining = position + len(chunk), remaining - len(chunk)
        self._position.offset = position
        return b"".join(chunks)

    def close(self) -> None:
        if not self.closed:
            os.close(self._file)
        super().close()
