"""Scores jobs of evaluators that never wait by the batch: one set of reads, one thread, one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Run
from ragpulse_collector.worker.pressure import Pressure
from ragpulse_collector.worker.queue import Job
from ragpulse_collector.worker.verdict import Verdict
from ragpulse_collector.worker.work import Work, prepared
from ragpulse_evaluators import EvaluationResult, Evaluator

__all__ = ["Offline", "Scored"]


@dataclass(frozen=True, slots=True)
class Scored:
    """What became of a batch; jobs in neither list were not reached and stay pending."""

    verdicts: list[Verdict] = field(default_factory=list)
    left: list[Work] = field(default_factory=list)
    """Those that need more than one try, or whose replay asked for another version."""


class Offline:
    """Scores batches in the thread that calls it, and gives way to whoever waits meanwhile."""

    def __init__(self, store: Store, pressure: Pressure, clock: Callable[[], datetime]) -> None:
        self._store, self._pressure, self._clock = store, pressure, clock

    def __call__(self, asked: Iterable[tuple[Job, Run | None, Evaluator]], stopped: Callable[[], bool]) -> Scored:
        """Score the jobs in their order until `stopped`; equal verdicts are made once."""
        breathe = self._pressure.begin()
        scored, met = Scored(), set[str]()
        for work in prepared(self._store, asked, breathe=breathe):
            if stopped():
                break
            breathe()
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
            label_version=work.evaluator.label,
            elapsed_ms=(time.perf_counter() - began) * 1000.0,
        )

    def _result(self, work: Work) -> EvaluationResult:
        return work.gone() if work.case is None else work.evaluator.at_once(work.case)
