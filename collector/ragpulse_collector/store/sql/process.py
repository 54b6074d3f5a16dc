"""Runs users' queries in processes of their own, which can be killed: the parent's side.

A process starts with the first query, answers one at a time, and ends after a minute without any. There are at most
two. A process past its deadline is killed; after a crash another one gets the query once more.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ragpulse_collector.refusals import Busy, TooSlow
from ragpulse_collector.store.protocol import Refused, Rows
from ragpulse_collector.store.sql.limits import Question

MAX_PROCESSES = 2
POSSIBLE = hasattr(os, "pread")
"""Not on Windows, where DuckDB also locks its file against reading: queries then run in the collector."""
_MAX_WAITING = 16
"""The most queries that wait for their turn; each occupies one of the server's threads."""
_WAIT_S = 5.0
_START_S = 30.0
_GRACE_S = 1.0
"""The time after its deadline within which a query may end by itself."""
_IDLE_S = 60.0
_BUSY = "other queries are running: ask again"
_CLOSED = "the store is closed"
_CHILD = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ragpulse_collector.store.sql.child import main
main()"""

_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""Without it each thread reserves 64 MB more of the limited address space."""
_VARIABLES = frozenset({"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"})
"""The collector's environment variables that every process gets, without API keys and cloud keys."""

MakeSource = Callable[[Path], Any]
"""Makes what a process reads from, given its scratch folder."""


class _Ended(Exception):
    """The process ended before it answered."""


class Readers:
    """Hands questions to reader processes; one object per store.

    `needs` selects the environment variables that its source needs beside the common ones.
    """

    def __init__(
        self,
        source: MakeSource,
        scratch: Path,
        *,
        idle_s: float = _IDLE_S,
        needs: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._source, self._scratch, self._idle_s, self._needs = source, scratch, idle_s, needs
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(MAX_PROCESSES + _MAX_WAITING)
        self._turns = threading.BoundedSemaphore(MAX_PROCESSES)
        self._free: list[_Process] = []
        self._running: set[_Process] = set()
        self._numbers = list(range(MAX_PROCESSES))
        self._sweeper: threading.Timer | None = None
        self._closed = False

    def ask(self, question: Question) -> Rows:
        """Answer a question; raises Refused, TooSlow, or Busy if too many run at once."""
        with self._turn(min(question.timeout_s, _WAIT_S)):
            try:
                return self._ask_one(question)
            except _Ended:
                pass
            try:
                return self._ask_one(question)
            except _Ended as error:
                raise Refused(f"the query ended its process twice ({error}): it may need too much memory") from error

    def pids(self) -> list[int]:
        """Return the ids of the processes."""
        with self._lock:
            return sorted(process.pid for process in (*self._free, *self._running))

    def close(self) -> None:
        """End every process at once; running queries get Busy."""
        with self._lock:
            self._closed = True
            ending = [*self._free, *self._running]
            self._free.clear()
            if self._sweeper is not None:
                self._sweeper.cancel()
        for process in ending:
            process.kill()

    @contextlib.contextmanager
    def _turn(self, wait_s: float) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise Busy(_BUSY)
        try:
            if not self._turns.acquire(timeout=wait_s):
                raise Busy(_BUSY)
            try:
                yield
            finally:
                self._turns.release()
        finally:
            self._waiting.release()

    def _ask_one(self, question: Question) -> Rows:
        process = self._take()
        try:
            outcome = process.ask(question)
        except _Ended:
            self._drop(process)
            if self._closed:
                raise Busy(_CLOSED) from None
            raise
        except BaseException:
            self._drop(process)
            raise
        self._give_back(process)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _take(self) -> _Process:
        with self._lock:
            if self._closed:
                raise Busy(_CLOSED)
            if self._free:
                process = self._free.pop()
            else:
                process = self._start(self._numbers[-1])
                self._numbers.pop()
            self._running.add(process)
        return process

    def _start(self, number: int) -> _Process:
        try:
            return _Process(self._source, self._scratch, number, self._environment())
        except OSError as error:
            raise Busy(f"no process can be started for the query: {error.strerror}") from error

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process, without secrets that it does not need: it runs users' SQL."""
        passed_on = {name: value for name, value in os.environ.items() if name in _VARIABLES or self._needs(name)}
        return passed_on | _ENVIRONMENT

    def _give_back(self, process: _Process) -> None:
        with self._lock:
            self._running.discard(process)
            process.idle_since = time.monotonic()
            if not self._closed:
                self._free.append(process)
                self._sweep_later()
                return
        process.kill()

    def _drop(self, process: _Process) -> None:
        process.kill()
        with self._lock:
            self._running.discard(process)
            self._numbers.append(process.number)

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Timer(self._idle_s, self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        """End the processes that were idle for a while."""
        with self._lock:
            self._sweeper = None
            idle = [process for process in self._free if time.monotonic() - process.idle_since >= self._idle_s]
            self._free = [process for process in self._free if process not in idle]
            if self._free and not self._closed:
                self._sweep_later()
        for process in idle:
            self._drop(process)


class _Process:
    """One reader process."""

    def __init__(self, source: MakeSource, scratch: Path, number: int, environment: dict[str, str]) -> None:
        self.number, self.idle_since = number, 0.0
        self._folder = scratch.with_name(f"{scratch.name}{number + 1}.tmp")
        shutil.rmtree(self._folder, ignore_errors=True)  # what a killed one left
        self._source: Any = source(self._folder)
        self._killing = threading.Lock()
        # In a session of its own: only the collector handles Ctrl-C. Isolated: nothing is imported from the current
        # folder.
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-c", _CHILD, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._child.pid

    def ask(self, question: Question) -> Rows | Exception:
        """Send a question; raises _Ended if the process died, TooSlow if it was killed."""
        if self._source is not None:
            self._exchange(self._source, _START_S)
            self._source = None
        outcome: Rows | Exception = self._exchange(question, question.timeout_s + _GRACE_S)
        return outcome

    def _exchange(self, message: object, within_s: float) -> Any:
        late = threading.Event()
        timer = threading.Timer(within_s, self._kill_late, (late,))
        timer.daemon = True
        timer.start()
        try:
            pickle.dump(message, self._pipe(self._child.stdin))
            self._pipe(self._child.stdin).flush()
            return pickle.load(self._pipe(self._child.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            if late.is_set():
                raise TooSlow(f"the query took longer than {within_s - _GRACE_S:g} s") from error
            raise _Ended(self._exit_reason()) from error
        finally:
            timer.cancel()

    def _kill_late(self, late: threading.Event) -> None:
        late.set()
        self._child.kill()

    def kill(self) -> None:
        """End the process and remove its files. May be called twice, by any thread."""
        with self._killing:
            self._child.kill()
            self._child.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            for pipe in (self._child.stdin, self._child.stdout):
                with contextlib.suppress(OSError):
                    self._pipe(pipe).close()

    def _exit_reason(self) -> str:
        code = self._child.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe
