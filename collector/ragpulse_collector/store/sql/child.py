"""The reader process: answers users' queries over a store that another process writes. It may be killed at any time.

It reads pickled questions from its standard input and writes pickled answers to its standard output. It ends with its
input. A query that exceeds its time and cannot be interrupted ends the process (SIGALRM).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import duckdb

from ragpulse_collector.refusals import Busy, TooSlow
from ragpulse_collector.store.connection import first_line, literal
from ragpulse_collector.store.protocol import Refused, Rows, StoreError
from ragpulse_collector.store.sql.limits import Question, answer

_TRIES = 4
_SPARE_BYTES = 640 * 2**20
"""Address space beside DuckDB's own memory limit: for threads, the answer, and intermediate values."""
_LATE_S = 2
_REWRITTEN = "the store's file was rewritten each time while the query ran: ask again, or for a shorter time"
_SETTINGS: dict[str, Any] = {
    "threads": 1, "max_temp_directory_size": "1GB", "python_enable_replacements": False,
    "autoinstall_known_extensions": False, "autoload_known_extensions": False,
}  # fmt: skip


@dataclass
class FileSource:
    """The file of the embedded store, read beside its writer and without its lock."""

    path: Path
    name: str
    memory_limit: str
    scratch: Path
    """Where a query may write what does not fit into memory."""

    def __post_init__(self) -> None:
        self._attached: tuple[duckdb.DuckDBPyConnection, Any] | None = None

    def prepare(self) -> None:
        """Load the file system and DuckDB: their memory is not counted as a query's."""
        import ragpulse_collector.store.sql.unlocked  # noqa: F401

        duckdb.connect(config=_SETTINGS).close()

    def answer(self, question: Question) -> Rows:
        """Answer from one state of the file: runs the query again after a checkpoint.

        Raises Refused, TooSlow or Busy, as a lake does.
        """
        deadline = time.monotonic() + question.timeout_s
        for _ in range(_TRIES):
            remaining_s = max(0.001, deadline - time.monotonic())
            with contextlib.suppress(_Changed):
                return self._from_one_state(replace(question, timeout_s=remaining_s))
        raise Busy(_REWRITTEN)

    def _from_one_state(self, question: Question) -> Rows:
        from ragpulse_collector.store.sql.unlocked import mark

        mark_before = mark(self.path)
        outcome = self._outcome(question, mark_before)
        if not mark(self.path).same_file(mark_before):
            self._detach()
            raise _Changed
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _outcome(self, question: Question, now: Any) -> Rows | Exception:
        """Return the answer or the error of a question; the caller checks whether the file changed meanwhile."""
        try:
            with contextlib.closing(self._connection(now).cursor()) as cursor:
                cursor.execute(f"USE {self.name}")
                return answer(cursor, question, self.name)
        except (Refused, TooSlow) as error:
            return error
        except duckdb.Error as error:
            self._detach()
            return Busy(f"the store cannot be read: {first_line(error)}")

    def _connection(self, now: Any) -> duckdb.DuckDBPyConnection:
        """Return a connection to the file in its present state; attaching again reads the write-ahead log."""
        if self._attached is not None and self._attached[1] == now:
            return self._attached[0]
        self._detach()
        connection = self._attach()
        self._attached = (connection, now)
        return connection

    def _attach(self) -> duckdb.DuckDBPyConnection:
        from ragpulse_collector.store.sql.unlocked import SCHEME, Unlocked

        options = {"memory_limit": self.memory_limit, "temp_directory": str(self.scratch)}
        connection = duckdb.connect(config=_SETTINGS | options)
        try:
            connection.execute("SET GLOBAL TimeZone = 'UTC'")
            connection.register_filesystem(Unlocked())
            connection.execute(f"ATTACH {literal(f'{SCHEME}{self.path.absolute()}')} AS {self.name} (READ_ONLY)")
            connection.execute(f"USE {self.name}")
            connection.execute("DETACH memory")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
        except BaseException:
            connection.close()
            raise
        return connection

    def _detach(self) -> None:
        if self._attached is not None:
            self._attached[0].close()
            self._attached = None


class _Changed(Exception):
    """There was a checkpoint while the query ran: its answer may mix two states."""


@dataclass
class LakeSource:
    """A lake, attached once more in this process."""

    catalog: str
    data_path: str
    s3: dict[str, str] | None
    memory_limit: str
    scratch: Path

    def __post_init__(self) -> None:
        self._connection: duckdb.DuckDBPyConnection | None = None

    def prepare(self) -> None:
        """Load the extensions, and attach if the lake answers: its connections have threads of their own."""
        with contextlib.suppress(duckdb.Error, StoreError):
            self._attached()

    def answer(self, question: Question) -> Rows:
        """Answer from the present state of the lake; attaches again after an outage."""
        from ragpulse_collector.store.connection import LAKE

        try:
            with contextlib.closing(self._attached().cursor()) as cursor:
                cursor.execute(f"USE {LAKE}")
                return answer(cursor, question, LAKE)
        except (duckdb.Error, StoreError) as error:
            if isinstance(error, Refused):
                raise
            self._forget()
            raise Busy(f"the lake does not answer: {first_line(error)}") from error

    def _attached(self) -> duckdb.DuckDBPyConnection:
        from ragpulse_collector.store.connection import attach_lake

        if self._connection is None:
            options = {"memory_limit": self.memory_limit, "temp_directory": str(self.scratch)}
            connection = duckdb.connect(config=_SETTINGS | options)
            try:
                attach_lake(connection, self.catalog, self.data_path, self.s3)
                connection.execute("SET lock_configuration = true")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def main() -> None:
    """Run until the input ends."""
    questions, answers = _pipes()
    source: FileSource | LakeSource = pickle.load(questions)
    source.prepare()
    _limit_memory(source.memory_limit)
    _send(answers, "ready")
    for question in _read(questions):
        _send(answers, _outcome(source, question))
    answers.flush()
    os._exit(0)  # nothing here is worth an orderly end, and DuckDB may hold a query that does not end


def _pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the two pipes; the output of libraries goes to standard error."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    return questions, answers


def _read(questions: IO[bytes]) -> Iterator[Question]:
    while True:
        try:
            yield pickle.load(questions)
        except EOFError:
            return


def _outcome(source: FileSource | LakeSource, question: Question) -> Rows | Exception:
    # Without its parent nothing else would end a query that cannot be interrupted.
    signal.setitimer(signal.ITIMER_REAL, question.timeout_s + _LATE_S)
    try:
        return source.answer(question)
    except (StoreError, TooSlow, Busy) as error:
        return type(error)(*error.args)  # without its causes, which hold the query's objects
    except OSError as error:
        return Busy(f"the store cannot be read: {error.strerror}")
    except MemoryError:
        return Refused("the query needs more memory than is allowed: narrow it, e.g. by start_time")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _send(answers: IO[bytes], outcome: object) -> None:
    pickle.dump(outcome, answers, protocol=pickle.HIGHEST_PROTOCOL)
    answers.flush()


def _limit_memory(memory_limit: str) -> None:
    """Limit this process's address space, and disable core dumps."""
    import resource  # not on Windows, where no reader process starts

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):  # not every system bounds it
        limit = _pages() * resource.getpagesize() + bytes_of(memory_limit) + _SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])


def bytes_of(limit: str) -> int:
    """Return a memory limit of DuckDB's, such as `128MB`, in bytes."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    number = limit.rstrip("KMGIBkmgib ")
    return int(float(number) * units[limit[len(number) :].strip().upper()])


if __name__ == "__main__":
    sys.exit("this is started by the collector")
