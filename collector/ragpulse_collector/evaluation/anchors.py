"""Judges a frozen set again, without recorded calls: the judge's answers may have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from ragpulse_collector.analysis.selection import duration_s, instant, iso
from ragpulse_collector.evaluation.budget import Ledger, Reservation
from ragpulse_collector.evaluation.drift import (
    Anchor,
    Anchors,
    Check,
    anchored_evaluators,
    draw_anchors,
    drift,
    load_anchors,
    store_anchors,
    store_check,
)
from ragpulse_collector.evaluation.jobs import Resolve
from ragpulse_collector.refusals import Conflict, Refusal
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_evaluators import Case, EvaluationResult, Evaluator, JudgeCall
from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.judges.protocol import close_judge

_log = logging.getLogger("ragpulse.collector")
_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class DriftWatch:
    """Freezes anchors, judges them again, and attributes a move of the live score to judge or application."""

    store: Store
    resolve: Resolve
    """Makes an evaluator without recorded calls: its judge is always asked."""
    ledger: Ledger
    concurrency: int = 4
    interval: str = "never"
    """How long after its freezing or last check `run_due` judges a set again."""
    on_check: Callable[[Mapping[str, Any]], object] | None = None
    """Called with the report after each check."""
    clock: Callable[[], datetime] = utc_now

    def report(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `GET drift`: the report of `evaluator`, or of all evaluators with a frozen set.

        Raises NotFound where the evaluator has none.
        """
        if params.get("evaluator"):
            report = drift(self.store, params, clock=self.clock)
            due = self._next_check(report)
            return report | {"next_check": None if due is None else iso(due)}
        reports = [self.report({**params, "evaluator": name}) for name in anchored_evaluators(self.store)]
        return {"watched": reports, "every": None if self.interval == "never" else self.interval}

    def _next_check(self, report: Mapping[str, Any]) -> datetime | None:
        if self.interval == "never":
            return None
        last = instant(report["checks"][0]["at"] if report["checks"] else report["frozen_at"], now=self.clock())
        return None if last is None else last + timedelta(seconds=duration_s(self.interval))

    def run_due(self) -> int:
        """Judge every set that is due; returns how many. A set that fails waits for the next call."""
        done = 0
        for report in self.report({})["watched"]:
            due = self._next_check(report)
            if due is None or due > self.clock():
                continue
            try:
                self.run({"evaluator": report["evaluator"]})
                done += 1
            except Refusal as error:
                _log.warning("the judge of %s was not checked: %s", report["evaluator"], error)
        return done

    def freeze(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Draw and store the anchors of `evaluator`, which replace earlier ones; returns the report."""
        anchors = draw_anchors(self.store, params, clock=self.clock)
        self.store.write(lambda tx: store_anchors(tx, anchors)).result()
        return self.report({"evaluator": anchors.evaluator})

    def run(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Judge the anchors of `evaluator` again, store the result, and return the report.

        Uses the day's judge budget; raises Conflict, with nothing stored, where that is spent.
        """
        anchors = load_anchors(self.store, str(params.get("evaluator") or ""))
        evaluator = self.resolve(anchors.evaluator)
        try:
            results = asyncio.run(self._judge(evaluator, anchors))
        except ExceptionGroup as failed:
            refusal = failed.exceptions[0]
            if isinstance(refusal, BudgetExceeded):
                raise Conflict(str(refusal)) from failed
            raise
        costs = [result.cost_usd for result in results]
        check = Check(
            evaluator=anchors.evaluator,
            version=evaluator.version,
            judge=evaluator.judge_id,
            frozen_at=anchors.frozen_at,
            at=iso(self.clock()) or "",
            values=tuple(result.normalized if result.status == "ok" else None for result in results),
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        )
        self.store.write(lambda tx: store_check(tx, check)).result()
        report = self.report({"evaluator": anchors.evaluator})
        if self.on_check is not None:
            self.on_check(report)
        return report

    async def _judge(self, evaluator: Evaluator, anchors: Anchors) -> list[EvaluationResult]:
        slots = asyncio.Semaphore(self.concurrency)

        async def judge(anchor: Anchor) -> EvaluationResult:
            async with slots:
                return await self._ask(evaluator, anchor)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(judge(anchor)) for anchor in anchors.anchors]
        finally:
            await close_judge(evaluator.judge)
        return [task.result() for task in tasks]

    async def _ask(self, evaluator: Evaluator, anchor: Anchor) -> EvaluationResult:
        case = Case.model_validate(anchor.case)
        reservation = await asyncio.to_thread(self._reserve, evaluator, case)
        try:
            result = await asyncio.wait_for(evaluator(case), _TIMEOUT_S)
        except TimeoutError:
            lost = (JudgeCall(finish_reason="lost"),)
            reason = "no result in time"
            result = EvaluationResult(evaluator=evaluator.name, status="error", explanation=reason, calls=lost)
        if reservation is not None:
            spent = result.cost_usd
            await asyncio.wrap_future(self.store.write(lambda tx: self.ledger.settle(tx, [(reservation, spent)])))
        return result

    def _reserve(self, evaluator: Evaluator, case: Case) -> Reservation | None:
        if not self.ledger.limits() or not (usd := self.ledger.max_cost(evaluator, case)):
            return None
        job_id = uuid4().hex
        reservation = Reservation(evaluator=evaluator.name, usd=usd, job_id=job_id, day=self.clock())
        (refusal,) = self.store.write(lambda tx: self.ledger.reserve(tx, [reservation])).result()
        if refusal is not None:
            raise refusal
        return reservation
