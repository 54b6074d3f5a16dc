"""The write-ahead log beside a file (`<file>.wal`): a damaged one is set aside, never dropped silently.

DuckDB ignores a log whose first bytes are damaged, and everything behind a record that is longer than the file. It
removes the log of a missing database file. With any other damage it does not open the file at all.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import mmap
import os
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb

_log = logging.getLogger(__name__)
_VARINT = rb"[\x80-\xff]*[\x00-\x7f]"
_HEAD = re.compile(rb"d\0be\0%b(?:f\0\x10(?:%b){16})?(?:g\0%b)?\xff\xff" % (_VARINT, _VARINT, _VARINT), re.DOTALL)
"""The first record: the log's version, the file it belongs to (16 bytes) and that file's number of checkpoints."""
_COMMIT = re.compile(rb"\x05\0{7}.{8}d\0d\xff\xff", re.DOTALL)
"""The record that ends a transaction: its length, its checksum and nothing but its type."""
_HEADER_BYTES = 16
"""Before each record: eight bytes of length, eight of checksum."""
_ERROR = re.compile(r'replaying WAL file "(?P<log>[^"]+)"(?:.*entry at byte position (?P<start>\d+))?', re.DOTALL)
_DAMAGE = ("orrupt", "does not match", "out of range")
"""In DuckDB's errors: a wrong checksum, a broken number, a log of another database file, a length beyond reason."""
_OF_ANOTHER_STATE = (duckdb.CatalogException, duckdb.BinderException, duckdb.ConstraintException)
"""A record does not fit to the file: records before it are missing."""
_LOGS = ("", ".checkpoint", ".recovery")
"""DuckDB writes a second and a third log while it checkpoints."""


class DamagedLog(Exception):
    """Part of the log cannot be read; the message says how much."""


def log_path(path: Path) -> Path:
    """Return where DuckDB keeps the log of a file."""
    return path.with_name(path.name + ".wal")


def damaged_logs(path: Path) -> list[Path]:
    """Return the damaged logs that were set aside for a file."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.wal*.damaged-*"))


def log_bytes(path: Path) -> int:
    """Return the size of a file's log, 0 where there is none."""
    try:
        return log_path(path).stat().st_size
    except FileNotFoundError:
        return 0


def has_commits(path: Path) -> bool:
    """Return whether a file's log holds a complete transaction; one that a crash cut short was never acknowledged."""
    if not log_bytes(path):
        return False
    with _mapped(log_path(path)) as log:
        return _COMMIT.search(log) is not None


@contextlib.contextmanager
def _mapped(log: Path) -> Iterator[mmap.mmap]:
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


class LogWatch:
    """Notices that another process removed, replaced or cut the log of an open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._now()

    def is_whole(self) -> bool:
        """Return whether the log is there and holds what it held; a checkpoint empties it too."""
        before, now = self._seen, self._now()
        return now is not None and (before is None or (now[0] == before[0] and now[1] >= before[1]))

    def look(self) -> None:
        """Remember the log as it is now."""
        self._seen = self._now()

    def _now(self) -> tuple[int, int] | None:
        """Return what identifies the log, and its size; the file must not be opened, that would release its lock."""
        with contextlib.suppress(FileNotFoundError):
            status = log_path(self._path).stat()
            return status.st_ino, status.st_size
        return None


def open_past_damage(path: Path, connect: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
    """Open a file for writing; a damaged log is copied first, and its readable beginning is used.

    Raises OSError where the log cannot be copied.
    """
    if not path.exists() and log_bytes(path):
        _set_aside(log_path(path), 0, f"the database file {path} is missing")
    for _ in _LOGS:
        try:
            connection = connect()
        except duckdb.Error as error:
            if not _set_damaged_aside(error):
                raise
        else:
            _keep_unread(path, connection)
            return connection
    return connect()


def check_log(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise DamagedLog if DuckDB opened the file and ignored complete transactions in its log."""
    start, size = unread_from(path, connection), log_bytes(path)
    if start is not None:
        raise DamagedLog(f"{log_path(path)} is damaged at byte {start} of {size}")


def unread_from(path: Path, connection: duckdb.DuckDBPyConnection) -> int | None:
    """Return the byte from which the log was ignored although transactions end behind it; None if all was read.

    A transaction that a crash cut short has no end, and it was never acknowledged.
    """
    if not log_bytes(path):
        return None
    with _mapped(log_path(path)) as log:
        head = _HEAD.match(log)
        if head is None and _has_replayed(connection):
            return None  # a log that another version of DuckDB wrote
        start = 0 if head is None else _end_of_records(log, head.end())
        return start if _COMMIT.search(log, start) else None


def _end_of_records(log: mmap.mmap, start: int) -> int:
    """Return the start of the first record that is longer than the rest of the log."""
    while start + _HEADER_BYTES <= len(log):
        end = start + _HEADER_BYTES + int.from_bytes(log[start : start + 8], "little")
        if end > len(log):
            break
        start = end
    return start


def _has_replayed(connection: duckdb.DuckDBPyConnection) -> bool:
    sizes = connection.execute("SELECT wal_size FROM pragma_database_size()").fetchall()
    return any(size != "0 bytes" for (size,) in sizes)


def _keep_unread(path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    """Copy a log that was read in part, before the next commit truncates it."""
    try:
        start = unread_from(path, connection)
        if start is not None:
            _report(log_path(path), _copy(log_path(path)), start, "its records end too early")
    except BaseException:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown")  # closing must not remove the log
        connection.close()
        raise


def _set_damaged_aside(error: duckdb.Error) -> bool:
    """Copy the log that an error names, and truncate it at the damage; returns False for any other error."""
    match = _ERROR.search(str(error))
    if match is None or not (isinstance(error, _OF_ANOTHER_STATE) or any(sign in str(error) for sign in _DAMAGE)):
        return False
    log = Path(match["log"])
    # DuckDB's position is behind the length and the checksum of the record.
    start = int(match["start"]) - _HEADER_BYTES if match["start"] else _readable_bytes(log)
    _set_aside(log, start, str(error).splitlines()[0])
    return True


def _readable_bytes(log: Path) -> int:
    """Return the start of the record whose length is wrong, 0 if there is none."""
    with _mapped(log) as data:
        head = _HEAD.match(data)
        end = 0 if head is None else _end_of_records(data, head.end())
        return end if end < len(data) else 0


def _set_aside(log: Path, start: int, reason: str) -> None:
    copy = _copy(log)
    _report(log, copy, start, reason)
    if start:
        os.truncate(log, start)
    else:
        log.unlink()


def _report(log: Path, copy: Path, start: int, reason: str) -> None:
    size = copy.stat().st_size
    _log.error(
        "%s is damaged from byte %d of %d (%s): %d bytes cannot be read, and spans that were acknowledged may be among "
        "them. The whole log is kept as %s; see Recovery in docs/recovery.md",
        log, start, size, reason, size - start, copy,
    )  # fmt: skip


def _copy(log: Path) -> Path:
    """Copy a log to `<log>.damaged-<UTC time>`, on disk when this returns."""
    copy = log.with_name(f"{log.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    shutil.copy(log, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    return copy
