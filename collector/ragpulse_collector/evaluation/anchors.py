"""Judges a frozen set again, without recorded calls: the judge's answers may have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import uuid4

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, duration_s, iso
from ragpulse_collector.evaluation.budget import Ledger, Reservation
from ragpulse_collector.evaluation.drift import (
    BACK,
    Anchor,
    AnchorSet,
    DriftReport,
    Recheck,
    Watched,
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
from ragpulse_collector.store.protocol import Clock, utc_now
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
    on_check: Callable[[DriftReport], object] | None = None
    """Called with the report after each check."""
    clock: Clock = utc_now

    def report(self, evaluator: str, query: Query | None = None, *, back: timedelta = BACK) -> DriftReport:
        """Answer `GET drift` for an evaluator; raises NotFound where it has no frozen set."""
        report = drift(self.store, query or self._all(), evaluator, back=back)
        return replace(report, next_check=self._next_check(report))

    def watched(self, query: Query | None = None, *, back: timedelta = BACK) -> Watched:
        """Answer `GET drift` for all evaluators with a frozen set."""
        reports = [self.report(name, query, back=back) for name in anchored_evaluators(self.store)]
        return Watched(reports, None if self.interval == "never" else self.interval)

    def _all(self) -> Query:
        now = self.clock()
        return Query(window=Window(now - BACK, now, 0), now=now)

    def _next_check(self, report: DriftReport) -> datetime | None:
        if self.interval == "never":
            return None
        last = report.checks[0].at if report.checks else report.frozen_at
        return last + timedelta(seconds=duration_s(self.interval))

    def run_due(self) -> int:
        """Judge every set that is due; returns how many. A set that fails waits for the next call."""
        done = 0
        for report in self.watched().watched:
            if report.next_check is None or report.next_check > self.clock():
                continue
            try:
                self.run(report.evaluator)
                done += 1
            except Refusal as error:
                _log.warning("the judge of %s was not checked: %s", report.evaluator, error)
        return done

    def freeze(self, evaluator: str, query: Query | None = None, *, n: int | None = None) -> DriftReport:
        """Draw and store the anchors of an evaluator, which replace earlier ones; returns the report."""
        anchors = draw_anchors(self.store, query or self._all(), evaluator, n=n)
        self.store.write(lambda tx: store_anchors(tx, anchors)).result()
        return self.report(anchors.evaluator)

    def run(self, name: str) -> DriftReport:
        """Judge the anchors of an evaluator again, store the result, and return the report.

        Uses the day's judge budget; raises Conflict, with nothing stored, where that is spent.
        """
        anchors = load_anchors(self.store, name)
        evaluator = self.resolve(anchors.evaluator)
        try:
            results = asyncio.run(self._judge(evaluator, anchors))
        except ExceptionGroup as failed:
            refusal = failed.exceptions[0]
            if isinstance(refusal, BudgetExceeded):
                raise Conflict(str(refusal)) from failed
            raise
        costs = [result.cost_usd for result in results]
        check = Recheck(
            evaluator=anchors.evaluator,
            version=evaluator.version,
            judge=evaluator.judge_id,
            frozen_at=anchors.frozen_at,
            at=iso(self.clock()) or "",
            values=tuple(result.normalized if result.status == "ok" else None for result in results),
            cost_usd=None if None in costs else sum(cost or 0.0 for cost in costs),
        )
        self.store.write(lambda tx: store_check(tx, check)).result()
        report = self.report(anchors.evaluator)
        if self.on_check is not None:
            self.on_check(report)
        return report

    async def _judge(self, evaluator: Evaluator, anchors: AnchorSet) -> list[EvaluationResult]:
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
        reservation = await asyncio.to_thread(self._reserve, evaluator, anchor.case)
        try:
            result = await asyncio.wait_for(evaluator(anchor.case), _TIMEOUT_S)
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
