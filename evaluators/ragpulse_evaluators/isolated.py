"""Runs a user's evaluator in a process of its own, which a crash, a hang or growing memory ends alone.

    Isolated ─ case (pickle) ─▶ child process: the user's file, the evaluator ─ result (JSON) ─▶ Isolated

The child is started with the first case, restarted after it ended, and killed beyond the time limit.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.isolated_child import Source, read_frame, write_frame
from ragpulse_evaluators.registry import Registry
from ragpulse_evaluators.result import EvaluationResult

__all__ = ("EvaluatorStopped", "Isolated", "Limits", "isolated")

_START_S = 120.0
"""For the start of a child with the imports of the user's file."""
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from ragpulse_evaluators.isolated_child import main; main()"
)
"""The modules of the parent are found wherever it found them."""


class EvaluatorStopped(Exception):
    """The evaluator's process ended, or was killed at the time limit, before there was a result."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one evaluator may use."""

    time_s: float = 30.0
    """For one case; beyond it the process is killed."""
    memory_mb: int = 2048
    """Address space of one process (POSIX only)."""
    processes: int = 2
    """How many cases of one evaluator may be scored at once."""


def isolated(item: Evaluator | Entry, source: Source, limits: Limits) -> Evaluator | Entry:
    """Return the evaluator, or the entry whose factory makes it, so that it runs in processes of its own.

    One that asks a judge stays as it is: its calls pass the gate, the budget and the records of this process.
    """
    if isinstance(item, Evaluator):
        return _isolated(item, source, item.name, {}, limits)

    def factory(**params: Any) -> Evaluator:
        return _isolated(item.factory(**params), source, item.name, params, limits)

    known = inspect.signature(item.factory).parameters
    factory.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=known[name].default if name in known else None
            )
            for name in Registry([item]).accepts(item.name)
        ]
    )
    return replace(item, factory=factory)


def _isolated(made: Evaluator, source: Source, name: str, params: Mapping[str, Any], limits: Limits) -> Evaluator:
    if made.judge is not None or made.wants_judge or made.takes_all:
        return made
    try:
        json.dumps(params)
    except TypeError:  # an object of this process, which another one cannot have
        return made
    return Isolated(made, {"source": source, "name": name, "params": dict(params), "limits": asdict(limits)}, limits)


class Isolated(Evaluator):
    """Stands for a user's evaluator: the same name, version and needs; `run` asks a child process."""

    def __init__(self, made: Evaluator, setup: Mapping[str, Any], limits: Limits) -> None:
        super().__init__(threshold=made.threshold)
        self.__doc__ = made.__doc__
        self.name, self.label, self.language, self.params = made.name, made.label, made.language, made.params
        self.needs, self.scale, self.cost_class = made.needs, made.scale, made.cost_class
        self.limits, self._made, self._setup = limits, made, json.dumps(setup).encode()
        self._threads = ThreadPoolExecutor(limits.processes, thread_name_prefix=f"ragpulse-{made.name}")
        self._own = threading.local()
        self._children: set[_Child] = set()

    @cached_property
    def version(self) -> str:
        """That of the user's evaluator."""
        return self._made.version

    def fingerprint(self) -> dict[str, Any]:
        """That of the user's evaluator."""
        return self._made.fingerprint()

    async def run(self, case: Case) -> EvaluationResult:
        """Score one case in a child process; raises EvaluatorStopped where it ends or takes too long."""
        answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, pickle.dumps(case))
        return EvaluationResult.model_validate_json(answer)

    def close(self) -> None:
        """Kill the child processes; the next case starts new ones."""
        for child in list(self._children):
            child.close()
            self._children.discard(child)

    def _ask(self, case: bytes) -> bytes:
        """Each thread of the pool has a child of its own."""
        child: _Child | None = getattr(self._own, "child", None)
        if child is None or not child.alive:
            self._forget(child)
            child = self._own.child = _Child()
            self._children.add(child)
            child.begin(self._setup)
        return child.ask(case, self.limits.time_s)

    def _forget(self, child: _Child | None) -> None:
        if child is not None:
            self._children.discard(child)
            child.close()


class _Child:
    """One process; `ask` is called by one thread at a time, `kill` by any."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is for the parent
        )
        self._asking = threading.Lock()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, setup: bytes) -> None:
        """Wait until the evaluator is loaded; raises EvaluatorStopped with the reason why it is not."""
        try:
            failure = self.ask(setup, _START_S)
        except EvaluatorStopped as stopped:
            raise EvaluatorStopped(f"the evaluator was not loaded in its process: {stopped}") from None
        if failure:
            self.close()
            raise EvaluatorStopped(f"the evaluator was not loaded in its process: {failure.decode(errors='replace')}")

    def ask(self, request: bytes, within_s: float) -> bytes:
        """Return the answer; raises EvaluatorStopped, and then the process is gone."""
        late = threading.Event()
        timer = threading.Timer(within_s, self._expired, [late])
        timer.start()
        try:
            with self._asking:
                answer = self._exchange(request)
        finally:
            timer.cancel()
            timer.join()
        if answer is None:
            raise EvaluatorStopped(f"no result within {within_s:g} s" if late.is_set() else self._end())
        return answer

    def kill(self) -> None:
        """End the process and those that it started."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL) if os.name == "posix" else self._process.kill()

    def close(self) -> None:
        """Kill it and release its pipes, once nobody reads from them any more."""
        self.kill()
        with self._asking:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with suppress(OSError):  # what was not written yet
                    pipe.close()
        self._process.wait()

    def _exchange(self, request: bytes) -> bytes | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            write_frame(self._process.stdin, request)
            return read_frame(self._process.stdout)
        except (OSError, ValueError):  # a broken or closed pipe: the process is gone
            return None

    def _expired(self, late: threading.Event) -> None:
        late.set()
        self.kill()

    def _end(self) -> str:
        """Say how the process ended."""
        self.kill()  # where it closed its pipe and lives on
        code = self._process.wait()
        if code >= 0:
            return f"the evaluator ended its process with exit code {code}"
        return f"the evaluator's process was ended by {signal.Signals(-code).name}"
