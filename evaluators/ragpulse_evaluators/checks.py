"""Runs our own evaluators that never wait by the batch: in a process beside this one, else in a thread.

Checks ─ cases with their evaluators (pickle) ─▶ child process ─ results (JSON) ─▶ Checks
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict

from pydantic import TypeAdapter

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import EvaluatorStopped
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.isolated import Children, CpuPace, ProcessLimits
from ragpulse_evaluators.isolated_child import GRACE_S, Link, end_in, restrict
from ragpulse_evaluators.result import EvaluationResult

Check = tuple[Evaluator, Case]
"""An evaluator that never waits (`immediate`), and a case for it."""
Checked = tuple[float, EvaluationResult]
"""The milliseconds of a case, and its result."""
_CHECKED = TypeAdapter(list[Checked])
_AT_ONCE = 256
"""Cases of one request to the process: whoever asks in between waits a part of a second."""
_LIMITS = ProcessLimits(time_s=120.0, processes=1)
"""For such a request: the process gives way to all others."""
_NICE = 10


class Checks:
    """Scores batches in a process of their own, else in a thread of this one.

    A batch that ends the process is cut in halves, until the case that does it is alone and gets the error.
    """

    def __init__(self, *, own_process: bool = False) -> None:
        self.own_process = own_process
        setup = pickle.dumps({"limits": asdict(_LIMITS)})
        self._children = Children(setup, _LIMITS, CpuPace(None), "checks") if own_process else None

    async def score(self, works: Sequence[Check]) -> list[Checked]:
        """Return what comes of each case, in order."""
        found: list[Checked] = []
        for first in range(0, len(works), _AT_ONCE):
            found += await self._scored(works[first : first + _AT_ONCE])
        return found

    async def _scored(self, works: Sequence[Check]) -> list[Checked]:
        try:
            request = None if self._children is None else pickle.dumps(list(works))
        except (pickle.PicklingError, AttributeError, TypeError):  # an evaluator with parameters that cannot go there
            request = None
        if self._children is None or request is None:
            return await asyncio.to_thread(checked, works)
        try:
            return _CHECKED.validate_json(await self._children.ask(request))
        except EvaluatorStopped as error:
            if len(works) > 1:
                half = len(works) // 2
                return [*await self._scored(works[:half]), *await self._scored(works[half:])]
            ((evaluator, case),) = works
            return [(0.0, EvaluationResult.of(evaluator, case=case, status="error", explanation=str(error)))]

    async def aclose(self) -> None:
        """End the process; the next batch starts a new one."""
        if self._children is not None:
            await self._children.aclose()


def checked(works: Sequence[Check]) -> list[Checked]:
    """Score cases one after the other."""
    found = []
    for evaluator, case in works:
        began = time.perf_counter()
        result = evaluator.at_once(case)
        found.append(((time.perf_counter() - began) * 1000.0, result))
    return found


def main() -> None:
    """Score batches in this process until the parent closes the pipe, which ends it."""
    link = Link()
    restrict(_LIMITS.memory_mb, nice=_NICE)
    link.send(failure=None)
    while True:
        works, began_s = link.cases.get(), time.process_time()
        end_in(_LIMITS.time_s + GRACE_S)
        found = _CHECKED.dump_json(checked(works), fallback=str).decode()
        end_in(0)
        link.send(result=found, ends=False, cpu_s=time.process_time() - began_s)
