"""The process in which an evaluator runs: cases come in, results go out, until the input ends.

frame = length (8 bytes, big-endian) and payload
requests (pickle): the setup, then cases, and between them the replies of the judge
replies (JSON): `failure` of the setup; then `result`, or a `question` for the judge with its `number`
"""

from __future__ import annotations

import asyncio
import copy
import faulthandler
import json
import math
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any, BinaryIO, Self

from ragpulse_evaluators import errors
from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.judges.protocol import BaseJudge, JudgeQuestion
from ragpulse_evaluators.registry import Registry
from ragpulse_evaluators.result import EvaluationResult, JudgeCall

Message = dict[str, Any]
Source = tuple[str, str]
"""("file", path) or ("module", name): where the evaluator is loaded from."""
GRACE_S = 5.0
"""Beyond the time limit, after which the process ends itself: the parent that would kill it may be gone."""


def framed(payload: bytes) -> bytes:
    """The payload after its length."""
    return len(payload).to_bytes(8, "big") + payload


class Link:
    """The pipes to the parent; a thread sorts requests into cases and the judge's replies."""

    def __init__(self) -> None:
        """Take over standard input and output; the evaluator's prints go to standard error."""
        self._requests: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._replies: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.setup: Message = self._receive()
        self.cases: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._numbers, self._writing = count(), threading.Lock()
        self._pending: dict[int, Future[Message]] = {}
        threading.Thread(target=self._sort, daemon=True).start()

    def send(self, **reply: Any) -> None:
        """Write one reply."""
        with self._writing:
            self._replies.write(framed(json.dumps(reply, default=str).encode()))
            self._replies.flush()

    async def ask(self, **question: Any) -> Message:
        """Have the parent put a question to its judge."""
        number, reply = next(self._numbers), Future[Message]()
        self._pending[number] = reply
        end_in(0)  # the judge's time is not the evaluator's
        self.send(question=question, number=number)
        try:
            return await asyncio.wrap_future(reply)
        finally:
            self._pending.pop(number, None)
            if not self._pending:
                end_in(self.setup["limits"]["time_s"] + GRACE_S)

    def _receive(self) -> Any:
        size = int.from_bytes(self._requests.read(8), "big")
        payload = self._requests.read(size)
        return pickle.loads(payload) if payload else None

    def _sort(self) -> None:
        try:
            while (request := self._receive()) is not None:
                if isinstance(request, (tuple, list)):
                    self.cases.put(request)
                elif (reply := self._pending.get(request["number"])) and reply.set_running_or_notify_cancel():
                    reply.set_result(request)
        except Exception:  # noqa: BLE001 - the boundary: a request that cannot be read ends the process, with its reason
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)  # the parent is gone, whatever runs here: nobody reads its result


class RelayedJudge(BaseJudge):
    """The judge of the parent's process, asked over the pipe: gate, budget, cache and records are there.

    `facts` are the attributes of the parent's judge, which every copy shares; they come with the case.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sampling: Message = {}
        self.facts: Message = {"id": "", "model": "", "temperature": None, "max_tokens": 0}

    def __getattr__(self, name: str) -> Any:
        if name in ("temperature", "max_tokens", "model"):
            return (self.facts | self._sampling)[name]
        raise AttributeError(name)

    @property
    def id(self) -> str:
        """The id of the parent's judge."""
        return str(self.facts["id"])

    def with_sampling(self, **changes: Any) -> Self:
        """The same judge with other sampling parameters."""
        changed = copy.copy(self)
        changed._sampling = {**self._sampling, **changes}
        return changed

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Ask the parent; raises what its judge raised, as an error of this package."""
        schema = question.schema
        reply = await self._link.ask(
            messages=[dict(message) for message in question.messages],
            n=question.n,
            schema=schema and {"name": schema.__name__, "schema": schema.model_json_schema()},
            logprobs=question.logprobs,
            sampling=self._sampling,
        )
        if "error" in reply:
            raise _judge_error(*reply["error"])
        return [JudgeCall.model_validate(call) for call in reply["calls"]]


def _judge_error(name: str, text: str, retriable: bool) -> errors.JudgeError:
    kind: Any = getattr(errors, name, None)
    known = isinstance(kind, type) and issubclass(kind, errors.JudgeError)
    error = kind(text) if known else errors.JudgeError(f"{name}: {text}")
    error.retriable = retriable
    return error


def main() -> None:
    """Score cases in this process until the parent closes the pipe."""
    link = Link()
    restrict(link.setup["limits"]["memory_mb"], nice=5)
    judge = RelayedJudge(link)
    try:
        evaluator = _load(link.setup, judge)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: the parent reports why there is none
        link.send(failure=f"{type(error).__name__}: {error}")
        return
    link.send(failure=None)
    with asyncio.Runner() as runner:
        while True:
            case, facts = link.cases.get()
            if facts is not None:
                judge.facts.update(facts)
                evaluator.judge = judge
            if not _score(link, runner, evaluator, case):
                return  # what filled the memory may still be held; the next case gets a new process


def _score(link: Link, runner: asyncio.Runner, evaluator: Evaluator, case: Case) -> bool:
    """Score a case; returns whether there is memory for another."""
    limits = link.setup["limits"]
    end_in(limits["time_s"] + GRACE_S)
    began_s = time.process_time()
    result = runner.run(evaluator(case))
    end_in(0)
    full = result.status == "error" and "MemoryError" in (result.explanation or "").partition(":")[0]
    cpu_s = time.process_time() - began_s
    link.send(result=_dumped(result, limits["memory_mb"] if full else None), ends=full, cpu_s=cpu_s)
    return not full


def restrict(memory_mb: int, *, nice: int) -> None:
    """Limit the memory, let the collector go first, and leave the end to the parent (a signal may go to the group)."""
    faulthandler.enable()
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    if os.name != "posix":
        return
    import resource

    os.nice(nice)
    with suppress(ValueError, OSError):  # a system that does not know this limit, or sets a lower one
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * 2**20, memory_mb * 2**20))


def end_in(seconds: float) -> None:
    """Let the system end this process after so many seconds, even where Python does not run; 0: never."""
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(seconds))


def _load(setup: Mapping[str, Any], judge: RelayedJudge) -> Evaluator:
    """Make the evaluator as the parent did; its judge is the parent's."""
    from ragpulse_evaluators.loading import load, load_module  # imports all families, which the parent may not need
    from ragpulse_evaluators.registry import default_registry

    kind, path_or_name = setup["source"]
    registry = default_registry() if setup["resolves"] else Registry(())
    registry = registry.with_(*(load if kind == "file" else load_module)(path_or_name))
    return registry.get(setup["name"], judge=judge if setup["judged"] else None, **setup["params"])


def _dumped(result: EvaluationResult, memory_mb: int | None) -> str:
    if memory_mb is not None:
        explanation = f"{result.explanation} (beyond the memory limit of {memory_mb} MB)"
        result = result.model_copy(update={"explanation": explanation, "retriable": True})
    return result.model_dump_json(fallback=str)
