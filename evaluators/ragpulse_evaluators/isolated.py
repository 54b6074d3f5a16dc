"""Runs users' evaluators and local models in processes of their own: a crash, a hang or full memory ends one alone.

    Isolated ─ case (pickle) ─▶ child process: the user's file, the evaluator ─ result (JSON) ─▶ Isolated
       ▲ │                                                     │
       │ └── judge: gate, budget, cache ◀── questions (JSON) ──┘

The child is started with the first case, restarted after it ended, and killed beyond the time limit.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import BaseModel

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, EvaluatorStopped
from ragpulse_evaluators.evaluator import AskingEvaluator, Estimate, Evaluator
from ragpulse_evaluators.isolated_child import Message, Source, framed
from ragpulse_evaluators.judges.protocol import Judge, max_tokens_of, model_of, with_sampling
from ragpulse_evaluators.registry import Entry, parameters_of, set_keywords
from ragpulse_evaluators.result import EvaluationResult, JudgeCall

_REMEMBERED = 20
"""Cases over which the mean CPU time is smoothed."""
_START_S = 120.0
"""For the start of a child with the imports of the user's file."""
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ragpulse_evaluators.{} import main; main()"
"""The modules of the parent are found wherever it found them."""
_OWN_OBJECTS = ("judge", "resolve")
"""Parameters that the child makes itself."""
_COPIED = (
    *("__doc__", "name", "language", "params", "needs", "scale", "cost_class"),
    *("judge", "wants_judge", "takes_all", "replaces", "version", "max_cpu_share"),
)
"""Attributes that are those of the user's evaluator."""
Relay = Callable[[Message], Awaitable[Message]]
"""Puts a question of the child to the judge; returns the reply for the child."""


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """The resources that one evaluator may use."""

    time_s: float = 30.0
    """For one case, counted again from each reply of the judge; beyond it the process is killed."""
    memory_mb: int = 2048
    """Address space of one process (POSIX only)."""
    processes: int = 2
    """The number of cases of one evaluator that may be scored at once."""


def isolated(item: Evaluator | Entry, source: Source, limits: ProcessLimits) -> Evaluator | Entry:
    """Return the evaluator, or the entry whose factory makes it, so that it runs in processes of its own.

    A YAML file holds no code: its evaluator stays in this process.
    """
    kind, path = source
    if kind == "file" and not path.endswith(".py"):
        return item
    if isinstance(item, Evaluator):
        return _isolated(item, source, item.name, {}, limits)

    def factory(**params: Any) -> Evaluator:
        return _isolated(item.factory(**params), source, item.name, params, limits)

    defaults = {p.name: p.default for p in inspect.signature(item.factory).parameters.values()}
    set_keywords(factory, parameters_of(item.factory), defaults)
    return replace(item, factory=factory)


def _isolated(
    evaluator: Evaluator, source: Source, name: str, params: Mapping[str, Any], limits: ProcessLimits
) -> Isolated:
    limits = replace(limits, memory_mb=limits.memory_mb + evaluator.own_memory_mb)
    if evaluator.max_cpu_share is not None:
        limits = replace(limits, processes=1)
    setup = {
        "source": source,
        "name": name,
        "params": {key: value for key, value in params.items() if key not in _OWN_OBJECTS},
        "resolves": "resolve" in params,
        "judged": evaluator.wants_judge or evaluator.judge is not None,
        "limits": asdict(limits),
    }
    try:
        return Isolated(evaluator, pickle.dumps(setup), limits)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{name}: its process cannot receive the parameters: {error}") from None


class CpuPace:
    """Spreads CPU seconds over time: a case that used c of them keeps the next one away for c / share seconds."""

    def __init__(self, share: float | None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._share, self._now, self._next = share, now, now()
        self.last_s = 0.0
        """CPU seconds of the last case."""
        self.mean_s: float | None = None
        """CPU seconds of a case, the last ones above all; None before the second."""

    @property
    def wait_s(self) -> float:
        """Seconds until the next case may begin."""
        return max(0.0, self._next - self._now())

    def used(self, began: float, cpu_s: float, *, first: bool = False) -> None:
        """Note what a case used that began then; the `first` one of a process also loaded what it needs."""
        self.last_s = cpu_s
        if not first:
            self.mean_s = cpu_s if self.mean_s is None else self.mean_s + (cpu_s - self.mean_s) / _REMEMBERED
        if self._share:
            self._next = began + cpu_s / self._share


class Isolated(AskingEvaluator):
    """Stands for a user's evaluator: the same name, version and needs; `run` asks a child process."""

    def __init__(self, evaluator: Evaluator, setup: bytes, limits: ProcessLimits) -> None:
        super().__init__(threshold=evaluator.threshold)
        for name in _COPIED:
            setattr(self, name, getattr(evaluator, name))
        self.pace = CpuPace(self.max_cpu_share)
        self.limits, self._evaluator, self._children = limits, evaluator, Children(setup, limits, self.pace)

    @property
    def judge_id(self) -> str | None:
        """That of the judge it is given, or of the model that a metric of another package asks."""
        return self._evaluator.judge_id if self.judge is None else self.judge.id

    def estimate(self, case: Case) -> Estimate:
        """That of the user's evaluator."""
        return self._evaluator.estimate(case)

    async def aclose(self) -> None:
        """Kill the child processes; the next case starts new ones."""
        await self._children.aclose()

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> EvaluationResult:
        """Score one case in a child process; raises EvaluatorStopped where it ends or takes too long."""

        async def relay(question: Message) -> Message:
            return await self._ask_judge(question, calls)

        request = pickle.dumps((case, None if self.judge is None else _facts(self.judge)))
        result = EvaluationResult.model_validate_json(await self._children.ask(request, relay))
        return result.model_copy(update={"calls": tuple(calls)}) if calls else result

    async def _ask_judge(self, question: Message, calls: list[JudgeCall]) -> Message:
        """Put a question of the child to the judge of this process; the calls are recorded here."""
        sampling, schema = question.pop("sampling"), question.pop("schema")
        try:
            assert self.judge is not None, "the child has a judge where this process has one"
            judge = with_sampling(self.judge, **sampling) if sampling else self.judge
            answers = await judge.ask(**question, schema=schema and _as_model(**schema))
        except Exception as error:  # noqa: BLE001 - the boundary: the evaluator in the child receives it
            calls.extend(getattr(error, "calls", ()))  # a request without a reply may be billed all the same
            return {"error": (type(error).__name__, str(error), getattr(error, "retriable", False))}
        calls.extend(answers)
        return {"calls": [call.model_dump(mode="json") for call in answers]}


def _facts(judge: Judge) -> Message:
    """The attributes that an evaluator may read of its judge."""
    temperature = getattr(judge, "temperature", None)
    return {"id": judge.id, "model": model_of(judge), "temperature": temperature, "max_tokens": max_tokens_of(judge)}


def _as_model(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """A model that stands for one of the child's: judges read nothing but its name and JSON schema."""
    return type(name, (BaseModel,), {"model_json_schema": classmethod(lambda cls, *_, **__: dict(schema))})


async def _no_judge(_question: Message) -> Message:
    return {"error": ("ConfigurationError", "a judge is asked for a case, not while the evaluator is made", False)}


class Children:
    """The processes of one evaluator, each with one case at a time; they belong to one event loop."""

    def __init__(self, setup: bytes, limits: ProcessLimits, pace: CpuPace, child: str = "isolated_child") -> None:
        """`child` is the module that runs in a process."""
        self._setup, self._limits, self._pace, self._child = setup, limits, pace, child
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(limits.processes)
        self._free: list[_Child] = []

    async def ask(self, case: bytes, relay: Relay = _no_judge) -> str:
        """Have a case scored by a free process, or by a new one."""
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._free, self._turns = loop, [], asyncio.Semaphore(self._limits.processes)
        async with self._turns:
            await asyncio.sleep(self._pace.wait_s)
            first = not self._free
            child, began = await self._take(), time.monotonic()
            try:
                reply = await child.ask(case, self._limits.time_s, relay)
            except EvaluatorStopped:
                self._pace.used(began, time.monotonic() - began, first=True)  # nobody says what it used
                raise
            self._pace.used(began, reply["cpu_s"], first=first)
            if reply["ends"]:
                await child.aclose()
            else:
                self._free.append(child)
        return str(reply["result"])

    async def aclose(self) -> None:
        """End the processes that no case runs in; the others end with their case, or as it is cancelled."""
        free, self._free = self._free, []
        for child in free:
            await child.aclose()

    async def _take(self) -> _Child:
        while self._free:
            child = self._free.pop()
            if child.alive:
                return child
        child = await _Child.start(self._child)
        try:
            failure = (await child.ask(self._setup, _START_S)).get("failure")
        except EvaluatorStopped as error:
            failure = str(error)
        if failure:
            await child.aclose()
            raise EvaluatorStopped(f"the evaluator was not loaded in its process: {failure}")
        return child


class _Child:
    """One process, which answers one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self._replies = process, process.stdin, process.stdout

    @classmethod
    async def start(cls, module: str) -> _Child:
        """Start a process that runs a module of this package."""
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _CHILD.format(module), json.dumps(sys.path)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C at the terminal is for the parent
            )
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.returncode is None

    async def ask(self, request: bytes, within_s: float, relay: Relay = _no_judge) -> Message:
        """Return the reply; raises EvaluatorStopped, and then the process is gone, as after a cancellation."""
        questions: set[asyncio.Task[None]] = set()

        def finish(task: asyncio.Task[None]) -> None:
            questions.discard(task)
            if not questions and not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + within_s)

        try:
            async with asyncio.timeout(within_s) as limit:
                self._requests.write(framed(request))
                while "question" in (reply := await self._receive()):
                    limit.reschedule(None)  # the judge has limits of its own
                    questions.add(task := asyncio.create_task(self._relay(reply, relay)))
                    task.add_done_callback(finish)
            return reply
        except TimeoutError:
            await self.aclose()
            raise EvaluatorStopped(f"no result within {within_s:g} s") from None
        except (EOFError, OSError):
            raise EvaluatorStopped(await self._end()) from None
        except asyncio.CancelledError:
            await self.aclose()
            raise
        finally:
            for task in questions:
                task.remove_done_callback(finish)
                task.cancel()

    async def aclose(self) -> None:
        """Kill the process and those that it started, and release the pipes."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL) if os.name == "posix" else self._process.kill()
        self._requests.close()
        with suppress(OSError):
            await self._replies.read()
            await self._requests.wait_closed()
        await self._process.wait()

    async def _receive(self) -> Message:
        size = int.from_bytes(await self._replies.readexactly(8), "big")
        reply: Message = json.loads(await self._replies.readexactly(size))
        return reply

    async def _relay(self, message: Message, relay: Relay) -> None:
        reply = await relay(message["question"])
        self._requests.write(framed(pickle.dumps(reply | {"number": message["number"]})))

    async def _end(self) -> str:
        """Say how the process ended."""
        await self.aclose()  # where it closed its pipe and lives on
        code = await self._process.wait()
        if code >= 0:
            return f"the evaluator ended its process with exit code {code}"
        return f"the evaluator's process was ended by {signal.Signals(-code).name}"
