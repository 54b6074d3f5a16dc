"""The embedded store: one DuckDB file that one process owns, and which store a `db` setting means."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import duckdb

from ragpulse_collector.records import RawBody, Receipt
from ragpulse_collector.store.connection import attach_file, duckdb_settings, lock_down, open_file
from ragpulse_collector.store.ingest.queue import Backlog
from ragpulse_collector.store.ingest.writer import WriteOptions
from ragpulse_collector.store.log import log_bytes
from ragpulse_collector.store.migrations import check_version, file_version, is_older, open_current
from ragpulse_collector.store.protocol import Refused, StoreError, Transaction
from ragpulse_collector.store.reading import Reading, outbox_folder
from ragpulse_collector.store.schema import SCHEMA_VERSION
from ragpulse_collector.store.sql.process import POSSIBLE, Readers
from ragpulse_collector.store.writing import Writing

_log = logging.getLogger(__name__)
T = TypeVar("T")

SHORT_LOG_BYTES = 16 * 2**20
"""The file is reopened to free memory only while its log is at most this long: reading it takes a tenth of a second."""
CHECKPOINT_ON_CLOSE_S = 3.0
"""Closing makes a checkpoint if the disk can write the log within this time; a stop may take 5 s in all.

DuckDB does not interrupt a checkpoint, so its time is estimated first: a log of 56 MB takes 0.2 s on an idle disk, but
a busy disk once took 4 MB a second. A log that stays is as durable, and the next start reads it.
"""
_PROBE_BYTES = 2**20


class EmbeddedStore(Writing):
    """The file that one process owns; `submit` and `write` go through one writer thread, `read` is answered at once.

    `options` are the fields of WriteOptions (decode, price, clock, ...). Raises StoreError when the file is locked,
    unreadable or of a newer version, or when the disk has no room to copy an older file before its migration. A
    statement runs on its caller's thread alone (`threads`): others run beside it anyway, and handing pieces of an
    INSERT to a second thread costs a third of it.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int = 1,
        memory_limit: str = "128MB",
        wal_limit: str = "64MB",
        **options: Any,
    ) -> None:
        self._config = duckdb_settings(threads=threads, memory_limit=memory_limit, wal_limit=wal_limit)
        super().__init__(Path(path), WriteOptions(**options))
        if POSSIBLE:
            self._readers = Readers(self._source, self.path.with_name(f"{self.path.name}.sql"))

    def _source(self, scratch: Path) -> object:
        from ragpulse_collector.store.sql.child import FileSource

        return FileSource(self.path, self._name, str(self._config["memory_limit"]), scratch)

    def _open(self) -> duckdb.DuckDBPyConnection:
        connection, _ = open_current(self.path, lambda: attach_file(self.path, self._name, self._config))
        lock_down(connection, writable=outbox_folder(self.path))
        self._identity = _identity(self.path)
        return connection

    def problem(self) -> str | None:
        """Return why nothing more is stored: the file was removed or replaced; None otherwise."""
        try:
            if _identity(self.path) == self._identity:
                return None
            event = "was replaced by another file"
        except FileNotFoundError:
            event = "was removed"
        except OSError as error:
            event = f"cannot be reached: {error.strerror}"
        return (
            f"{self.path} {event} while this collector runs; nothing is stored until it is back. To save what it held, "
            "run `ragpulse snapshot` before the collector stops (see Recovery in docs/operations.md)"
        )

    def used_bytes(self) -> int:
        """Return the bytes that hold data, after a checkpoint, which frees the blocks of deleted rows."""
        self.read("CHECKPOINT")
        return super().used_bytes()

    def _is_quiet(self) -> bool:
        return not self._read_cursors and log_bytes(self.path) <= SHORT_LOG_BYTES

    def _before_close(self, connection: duckdb.DuckDBPyConnection) -> None:
        if (problem := self.problem()) is not None:
            _log.error("%s", problem)
            return
        with contextlib.suppress(duckdb.Error, OSError):
            if 0 < log_bytes(self.path) <= CHECKPOINT_ON_CLOSE_S * _write_rate(self.path.absolute().parent):
                connection.execute("CHECKPOINT")


def _identity(path: Path) -> tuple[int, int]:
    """Return what identifies a file beside its name."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _write_rate(folder: Path) -> float:
    """Return the bytes that the disk writes in a second now."""
    data, start = os.urandom(_PROBE_BYTES), time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(data)
        probe.flush()
        os.fsync(probe.fileno())
    return _PROBE_BYTES / (time.perf_counter() - start)


def _check_current(path: Path, version: int) -> None:
    check_version(version, name=str(path))
    if is_older(version):
        raise StoreError(
            f"{path} has schema version {version}, this ragpulse reads {SCHEMA_VERSION}: "
            f"run `ragpulse migrate --db {shlex.quote(str(path))}`"
        )


_NEEDS_COLLECTOR = "this changes something: start `ragpulse serve` and omit --db"


class FileReader(Reading):
    """A closed file, read-only, for the command line with `--db`. Raises StoreError like EmbeddedStore.

    Each write is refused with the fix.
    """

    def __init__(self, path: str | Path) -> None:
        self._connection = open_file(Path(path), {"threads": 2}, read_only=True)
        try:
            _check_current(Path(path), file_version(lambda sql: self._connection.execute(sql).fetchall()))
            lock_down(self._connection, writable=outbox_folder(Path(path)))
        except BaseException:
            self._connection.close()
            raise
        super().__init__(Path(path), self._connection.cursor)
        self._name = str(self._connection.execute("SELECT current_catalog()").fetchall()[0][0])

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Refuse."""
        raise Refused("a closed file accepts no spans: start `ragpulse serve`")

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Refuse."""
        raise Refused(_NEEDS_COLLECTOR)

    def backlog(self) -> Backlog:
        """Return an empty backlog."""
        return Backlog()

    def check_files(self) -> None:
        """Refuse."""
        raise Refused(_NEEDS_COLLECTOR)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


AnyStore: TypeAlias = Writing | FileReader


_PASSWORD = re.compile(r"\bpassword\s*=|//[^/@]*:[^/@]*@")


def open_store(db: str, **options: Any) -> Writing:
    """Open a file, or the lake where `db` begins with `ducklake:`; raises StoreError.

    `options` are the fields of WriteOptions. A lake names its catalog and where its files are:
    `ducklake:postgres:host=db dbname=lake data_path=s3://bucket/prefix`. S3 keys are read from AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, never from the duckdb_settings.
    """
    if not db.startswith("ducklake:"):
        return EmbeddedStore(Path(db), **options)
    from ragpulse_collector.store.lake.store import LakeStore

    catalog, data_path = lake_parts(db)
    return LakeStore(catalog, data_path=data_path, s3=s3_secret(os.environ), **options)


def lake_parts(db: str) -> tuple[str, str]:
    """Split a lake's `db` into the catalog and the path of its files; raises StoreError that names the fix."""
    words = db.split()
    paths = [word.removeprefix("data_path=") for word in words if word.startswith("data_path=")]
    if len(paths) != 1:
        raise StoreError(
            f"{db!r} does not say where its files are: add data_path=s3://bucket/prefix or data_path=FOLDER"
        )
    catalog = " ".join(word for word in words if not word.startswith("data_path="))
    if _PASSWORD.search(catalog):
        raise StoreError("no password in `db`, it is shown and logged: put it into PGPASSWORD or ~/.pgpass")
    return catalog, paths[0]


def s3_secret(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the fields of DuckDB's S3 secret from the usual variables; None where there are no keys."""
    if "AWS_ACCESS_KEY_ID" not in environ:
        return None
    secret = {"KEY_ID": environ["AWS_ACCESS_KEY_ID"], "SECRET": environ.get("AWS_SECRET_ACCESS_KEY", "")}
    if "AWS_REGION" in environ:
        secret["REGION"] = environ["AWS_REGION"]
    if "AWS_ENDPOINT_URL" in environ:
        endpoint = urlsplit(environ["AWS_ENDPOINT_URL"])
        secret |= {"ENDPOINT": endpoint.netloc, "URL_STYLE": "path"}
        secret["USE_SSL"] = "true" if endpoint.scheme == "https" else "false"
    return secret
