"""Judges a frozen set again, without the recorded calls: the same question may get another answer by now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from ragpulse_collector.budget import Ledger, OverBudget, Reservation
from ragpulse_collector.metrics.drift import Anchor, Anchors, Check, choose, drift, frozen, keep_anchors, keep_check
from ragpulse_collector.metrics.window import iso
from ragpulse_collector.store import Store
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.worker.verdict import cost_of
from ragpulse_collector.worker.work import Resolve
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.judge import model_of, rest

__all__ = ["DriftWatch"]

_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class DriftWatch:
    """Freezes anchors, judges them again, and says whose a move of the live score is."""

    store: Store
    resolve: Resolve
    """Makes an evaluator whose judge is really asked, not its record."""
    ledger: Ledger
    concurrency: int = 4
    clock: Callable[[], datetime] = utc_now

    def report(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `GET drift`; raises LookupError where nothing is frozen."""
        return drift(self.store, params, clock=self.clock)

    def freeze(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Choose and keep the anchors of `evaluator`, instead of earlier ones; answers the report."""
        anchors = choose(self.store, params, clock=self.clock)
        self.store.write(lambda tx: keep_anchors(tx, anchors)).result()
        return self.report({"evaluator": anchors.evaluator})

    def run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Judge the anchors of `evaluator` again, store what was found, and answer the report.

        Draws on the day's judge budget; raises PermissionError, with nothing stored, where that is spent.
        """
        anchors = frozen(self.store, str(params.get("evaluator") or ""))
        evaluator = self.resolve(anchors.evaluator)
        try:
            results = asyncio.run(self._judge(evaluator, anchors))
        except ExceptionGroup as failed:
            refusal = failed.exceptions[0]
            if isinstance(refusal, OverBudget):
                raise PermissionError(str(refusal)) from failed
            raise
        costs = [cost_of(result) for result in results]
        check = Check(
            evaluator=anchors.evaluator,
            version=evaluator.version,
            judge=evaluator.judge_id,
            frozen_at=anchors.frozen_at,
            at=iso(self.clock()) or "",
            values=tuple(result.normalized if result.status == "ok" else None for result in results),
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        )
        self.store.write(lambda tx: keep_check(tx, check)).result()
        return self.report({"evaluator": anchors.evaluator})

    async def _judge(self, evaluator: Evaluator, anchors: Anchors) -> list[EvaluationResult]:
        slots = asyncio.Semaphore(self.concurrency)

        async def one(anchor: Anchor) -> EvaluationResult:
            async with slots:
                return await self._ask(evaluator, anchor)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(anchor)) for anchor in anchors.anchors]
        finally:
            await rest(evaluator.judge)
        return [task.result() for task in tasks]

    async def _ask(self, evaluator: Evaluator, anchor: Anchor) -> EvaluationResult:
        case = Case.model_validate(anchor.case)
        reservation = await asyncio.to_thread(self._reserve, evaluator, case)
        try:
            result = await asyncio.wait_for(evaluator(case), _TIMEOUT_S)
        except TimeoutError:
            result = EvaluationResult(evaluator=evaluator.name, status="error", explanation="no result in time")
        if reservation is not None:
            spent = cost_of(result) if result.calls or result.status != "error" else 0.0
            await asyncio.wrap_future(self.store.write(lambda tx: self.ledger.settle(tx, [(reservation, spent)])))
        return result

    def _reserve(self, evaluator: Evaluator, case: Case) -> Reservation | None:
        estimate = evaluator.estimate(case)
        if estimate.calls == 0 or evaluator.judge is None or not self.ledger.limits(evaluator.name):
            return None
        usd = self.ledger.estimate(model_of(evaluator.judge), estimate.input_tokens, estimate.output_tokens)
        job_id = uuid4().hex
        reservation = Reservation(evaluator=evaluator.name, usd=usd, job_id=job_id, day=self.clock())
        (refusal,) = self.store.write(lambda tx: self.ledger.reserve(tx, [reservation])).result()
        if refusal is not None:
            raise refusal
        return reservation
