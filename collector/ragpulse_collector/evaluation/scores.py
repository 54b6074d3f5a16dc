"""Stores results as scores; results that arrive during one commit are stored by the next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import TypeAdapter

from ragpulse_collector.evaluation.batcher import Batcher, commit
from ragpulse_collector.evaluation.budget import Ledger, Reservation
from ragpulse_collector.evaluation.jobs import Job, Work
from ragpulse_collector.store import Transaction
from ragpulse_collector.store.queries.forgotten import forgotten_traces
from ragpulse_collector.store.queries.jobs import (
    MAX_ATTEMPTS,
    ItemRow,
    ScoreRow,
    add_results,
    remove_calls,
)
from ragpulse_evaluators import EvaluationResult, JudgeCall
from ragpulse_evaluators.runner import Attempt

_CALLS = TypeAdapter(tuple[JudgeCall, ...])
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one attempt at a job, to be stored."""

    job: Job
    score_key: str
    created_at: datetime
    result: EvaluationResult | None
    """None: the job reuses an equal verdict that is stored already."""
    label_version: str | None = None
    elapsed_ms: float | None = None
    reservation: Reservation | None = None
    is_check: bool = False
    """Whether it tests a judge."""

    @classmethod
    def of(cls, attempt: Attempt[Work], now: datetime) -> Verdict:
        """Return what is to be stored of an attempt."""
        work, job = attempt.work, attempt.work.job
        return cls(
            job=job if job.attempts == attempt.number else replace(job, attempts=attempt.number),
            score_key=work.key,
            created_at=now,
            result=attempt.result,
            label_version=work.evaluator.version.beside,
            elapsed_ms=attempt.elapsed_ms,
            reservation=attempt.held,
            is_check=bool(work.run and work.run.kind),
        )

    @property
    def final(self) -> bool:
        """Whether the job is finished: by everything but an error."""
        return self.result is None or self.result.status != "error"

    @property
    def dead(self) -> bool:
        """Whether this was the last attempt: errors of code or configuration are not retried."""
        if self.result is None or self.final:
            return False
        return not self.result.retriable or self.job.attempts + 1 >= MAX_ATTEMPTS[self.result.judge is not None]

    @property
    def _attempt(self) -> int:
        """The attempt's number; the last number where it is not retried."""
        most = MAX_ATTEMPTS[self.result is not None and self.result.judge is not None]
        return max(most, self.job.attempts + 1) if self.dead else self.job.attempts + 1

    @property
    def spent_usd(self) -> float | None:
        """The amount to settle; None books the whole reservation, since the price is unknown."""
        return 0.0 if self.result is None else self.result.cost_usd

    @property
    def unreserved(self) -> Reservation:
        """An empty reservation, for metrics of other packages: their cost is known only afterwards."""
        job = self.job
        return Reservation(
            evaluator=job.evaluator,
            usd=0.0,
            job_id=job.job_id,
            day=self.created_at,
            run_id=job.run_id,
            rule=job.rule,
        )

    def score_row(self, result: EvaluationResult) -> ScoreRow:
        """Return the row of the score."""
        lo, hi = result.ci95 or (None, None)
        return ScoreRow(
            score_key=self.score_key,
            job_id=bytes.fromhex(self.job.job_id),
            trace_id=bytes.fromhex(self.job.unit.trace_id),
            span_id=bytes.fromhex(self.job.unit.span_id),
            request_time=self.job.unit.request_time,
            evaluator=result.evaluator,
            version=result.version,
            label_version=self.label_version,
            judge=result.judge,
            source="online" if self.job.run_id is None else "check" if self.is_check else "replay",
            status=result.status,
            score=result.score,
            normalized=result.normalized,
            passing=result.passing,
            label=result.label,
            explanation=result.explanation,
            parts=_JSON.encode(result.parts) if result.parts else None,
            ci_lo=lo,
            ci_hi=hi,
            calls=_CALLS.dump_json(result.calls).decode() if result.calls else None,
            cost_usd=result.cost_usd,
            elapsed_ms=self.elapsed_ms,
            attempt=self._attempt,
            created_at=self.created_at,
            run_id=self.job.run_id,
        )

    def item_row(self) -> ItemRow:
        """Return the row that links the job to its score."""
        return ItemRow(
            run_id=self.job.run_id,
            score_key=self.score_key,
            trace_id=bytes.fromhex(self.job.unit.trace_id),
            span_id=bytes.fromhex(self.job.unit.span_id),
            u=self.job.u,
            job_id=bytes.fromhex(self.job.job_id),
            reused=self.result is None,
        )


def outbox(ledger: Ledger) -> Batcher[Verdict, None]:
    """Return a batcher that stores verdicts; awaiting it returns once the verdict is on disk."""

    async def write(verdicts: list[Verdict]) -> Sequence[None]:
        await commit(ledger.store, lambda tx: append_verdicts(tx, ledger, verdicts))
        return [None] * len(verdicts)

    return Batcher(write, every_s=0.02)


def append_verdicts(tx: Transaction, ledger: Ledger, verdicts: Sequence[Verdict]) -> None:
    """Store verdicts and settle the reservations made for them; of a trace forgotten meanwhile nothing is stored."""
    forgotten = forgotten_traces(tx, {verdict.job.unit.trace_id for verdict in verdicts})
    stored = [verdict for verdict in verdicts if verdict.job.unit.trace_id not in forgotten]
    removed = [verdict.result for verdict in verdicts if verdict.result and verdict.job.unit.trace_id in forgotten]
    remove_calls(tx, [call.prompt for result in removed for call in result.calls])
    scored = [(verdict, verdict.result) for verdict in stored if verdict.result is not None]
    items = [v for v in stored if (v.final or v.dead) and (v.job.run_id is not None or v.result is None)]
    add_results(
        tx, [verdict.score_row(result) for verdict, result in scored], [verdict.item_row() for verdict in items]
    )
    booked = [v for v in verdicts if v.reservation or (v.spent_usd and ledger.limits(rule=v.job.rule))]
    ledger.settle(tx, [(v.reservation or v.unreserved, v.spent_usd) for v in booked])
    ledger.settle_interrupted(
        tx, [(v.job.job_id, v.result.calls if v.result else ()) for v in verdicts if v.final or v.dead]
    )
