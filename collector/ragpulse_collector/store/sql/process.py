"""Users' queries run in processes of their own, which can be killed: the parent's side.

A process starts with the first query, answers one at a time, and ends after a minute without any. There are at most
two. One that is past its deadline is killed; one that crashed is replaced, and its query asked once more.
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

from ragpulse_collector.store.protocol import Busy, Refused, Rows
from ragpulse_collector.store.sql.limits import Question

AT_A_TIME = 2
POSSIBLE = hasattr(os, "pread")
"""Not on Windows, where DuckDB also locks its file against reading: queries then run in the collector."""
_WAITING = 16
"""So many more may wait for their turn; each holds one of the server's threads."""
_PATIENCE_S = 5.0
_START_S = 30.0
_LATE_S = 1.0
"""So long after its time a query may take to end by itself."""
_IDLE_S = 60.0
_BUSY = "other queries are running: ask again"
_CLOSED = "the store is closed"
_CHILD = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from ragpulse_collector.store.sql.child import main
main()"""

_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""Each thread would reserve 64 MB more of the address space that is bounded."""
_PASSED_ON = frozenset({"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"})
"""The variables of the collector that every process has. API keys and cloud keys are not among them."""

MakeSource = Callable[[Path], Any]
"""Makes what a process reads from, given its scratch folder."""


def _nothing(_variable: str) -> bool:
    return False


class _Ended(Exception):
    """The process ended before it answered."""


class Readers:
    """Hands questions to reader processes; one object per store.

    `needs` tells which variables of the environment its source needs beside the common ones.
    """

    def __init__(
        self,
        source: MakeSource,
        scratch: Path,
        *,
        idle_s: float = _IDLE_S,
        needs: Callable[[str], bool] = _nothing,
    ) -> None:
        self._source, self._scratch, self._idle_s, self._needs = source, scratch, idle_s, needs
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(AT_A_TIME + _WAITING)
        self._turns = threading.BoundedSemaphore(AT_A_TIME)
        self._free: list[_Process] = []
        self._running: set[_Process] = set()
        self._places = list(range(AT_A_TIME))
        self._sweeper: threading.Timer | None = None
        self._closed = False

    def ask(self, question: Question) -> Rows:
        """Answer a question; raises Refused, TimeoutError, or Busy where too many are asked at once."""
        with self._turn(min(question.timeout_s, _PATIENCE_S)):
            try:
                return self._ask_one(question)
            except _Ended:
                pass
            try:
                return self._ask_one(question)
            except _Ended as error:
                raise Refused(f"the query ended its process twice ({error}): it may need too much memory") from error

    def pids(self) -> list[int]:
        """Return the ids of the processes there are."""
        with self._lock:
            return sorted(process.pid for process in (*self._free, *self._running))

    def close(self) -> None:
        """End every process at once; a query that runs is answered Busy."""
        with self._lock:
            self._closed = True
            ending = [*self._free, *self._running]
            self._free.clear()
            if self._sweeper is not None:
                self._sweeper.cancel()
        for process in ending:
            process.kill()

    @contextlib.contextmanager
    def _turn(self, patience_s: float) -> Iterator[None]:
        if not self._waiting.acquire(blocking=False):
            raise Busy(_BUSY)
        try:
            if not self._turns.acquire(timeout=patience_s):
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
                process = self._start(self._places[-1])
                self._places.pop()
            self._running.add(process)
        return process

    def _start(self, place: int) -> _Process:
        try:
            return _Process(self._source, self._scratch, place, self._environment())
        except OSError as error:
            raise Busy(f"no process can be started for the query: {error.strerror}") from error

    def _environment(self) -> dict[str, str]:
        """Return the environment of a process: users' SQL runs in it, so it holds no secret that it does not need."""
        passed_on = {name: value for name, value in os.environ.items() if name in _PASSED_ON or self._needs(name)}
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
            self._places.append(process.place)

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Timer(self._idle_s, self._sweep)
            self._sweeper.daemon = True
            self._sweeper.start()

    def _sweep(self) -> None:
        """End what nobody asked for a while."""
        with self._lock:
            self._sweeper = None
            idle = [one for one in self._free if time.monotonic() - one.idle_since >= self._idle_s]
            self._free = [one for one in self._free if one not in idle]
            if self._free and not self._closed:
                self._sweep_later()
        for process in idle:
            self._drop(process)


class _Process:
    """One reader process."""

    def __init__(self, source: MakeSource, scratch: Path, place: int, environment: dict[str, str]) -> None:
        self.place, self.idle_since = place, 0.0
        self._folder = scratch.with_name(f"{scratch.name}{place + 1}.tmp")
        shutil.rmtree(self._folder, ignore_errors=True)  # what a killed one left
        self._source: Any = source(self._folder)
        self._killing = threading.Lock()
        # In a session of its own: Ctrl-C is the collector's to handle. Isolated: nothing is imported from the folder
        # that the collector happens to run in.
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
        """Ask; raises _Ended where the process died, TimeoutError where it had to be killed."""
        if self._source is not None:
            self._exchange(self._source, _START_S)
            self._source = None
        outcome: Rows | Exception = self._exchange(question, question.timeout_s + _LATE_S)
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
                raise TimeoutError(f"the query took longer than {within_s - _LATE_S:g} s") from error
            raise _Ended(self._how()) from error
        finally:
            timer.cancel()

    def _kill_late(self, late: threading.Event) -> None:
        late.set()
        self._child.kill()

    def kill(self) -> None:
        """End the process and remove what it wrote. May be called twice, by any thread."""
        with self._killing:
            self._child.kill()
            self._child.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
            for pipe in (self._child.stdin, self._child.stdout):
                with contextlib.suppress(OSError):
                    self._pipe(pipe).close()

    def _how(self) -> str:
        code = self._child.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe
