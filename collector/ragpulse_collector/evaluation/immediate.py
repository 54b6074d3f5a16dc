"""Scores jobs of evaluators that never wait in batches: one set of reads, one thread, one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from ragpulse_collector.evaluation.jobs import Job
from ragpulse_collector.evaluation.scores import Verdict
from ragpulse_collector.evaluation.work import Work, gone, prepared
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Run
from ragpulse_evaluators import EvaluationResult, Evaluator


def _nobody() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """Slows background work down while requests wait.

    Python runs one thread at a time, so requests wait for a slice of work. Work gets at least `share` of a core, so
    that evaluation goes on in a collector that is never idle.
    """

    busy: Callable[[], bool] = _nobody
    """Whether a request waits now; called once a slice, in any thread."""
    share: float = 0.15
    """Of a core, in CPU time, while a request waits."""
    slice_s: float = 0.005
    """CPU seconds of work between two looks."""
    spent: Callable[[], float] = time.thread_time
    """CPU seconds of the thread that works."""
    sleep: Callable[[float], object] = time.sleep

    def begin(self) -> Callable[[], None]:
        """Begin to work in this thread; call the returned function between small pieces of work, it may sleep."""
        began = self.spent()

        def rest() -> None:
            nonlocal began
            worked = self.spent() - began
            if worked < self.slice_s:
                return
            if self.busy():
                self.sleep(worked * (1.0 / self.share - 1.0))
            began = self.spent()

        return rest


@dataclass(frozen=True, slots=True)
class Scored:
    """The outcome of a batch; jobs in neither list were not reached and stay pending."""

    verdicts: list[Verdict] = field(default_factory=list)
    left: list[Work] = field(default_factory=list)
    """Jobs that need another attempt, or whose replay asked for another version."""


class ImmediateScorer:
    """Scores batches in the calling thread; the throttle slows it down while requests wait."""

    def __init__(self, store: Store, throttle: Throttle, clock: Callable[[], datetime]) -> None:
        self._store, self._throttle, self._clock = store, throttle, clock

    def __call__(self, asked: Iterable[tuple[Job, Run | None, Evaluator]], stopped: Callable[[], bool]) -> Scored:
        """Score the jobs in their order until `stopped`; equal verdicts are made once."""
        rest = self._throttle.begin()
        scored, met = Scored(), set[str]()
        for work in prepared(self._store, asked, rest=rest):
            if stopped():
                break
            rest()
            if work.run is not None and work.run.version != work.evaluator.version:
                scored.left.append(work)
                continue
            verdict = self._reused(work) if work.known or work.key in met else self._scored(work)
            if not verdict.final:
                scored.left.append(work)
                continue
            met.add(work.key)
            scored.verdicts.append(verdict)
        return scored

    def _reused(self, work: Work) -> Verdict:
        return Verdict(job=work.job, score_key=work.key, created_at=self._clock(), result=None)

    def _scored(self, work: Work) -> Verdict:
        began = time.perf_counter()
        result = self._result(work)
        return Verdict(
            job=work.job,
            score_key=work.key,
            created_at=self._clock(),
            result=result,
            label_version=work.evaluator.revision,
            elapsed_ms=(time.perf_counter() - began) * 1000.0,
        )

    def _result(self, work: Work) -> EvaluationResult:
        return gone(work.evaluator) if work.case is None else work.evaluator.at_once(work.case)
