"""A result becomes a stored score; results that gather during one commit are stored by the next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from ragpulse_collector.evaluation.batcher import Batcher, committed
from ragpulse_collector.evaluation.budget import Ledger, Reservation
from ragpulse_collector.evaluation.jobs import Job
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.jobs import MAX_ATTEMPTS, add_results
from ragpulse_evaluators import EvaluationResult, JudgeCall

_CALLS = TypeAdapter(tuple[JudgeCall, ...])
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is to be written about one attempt at a job."""

    job: Job
    score_key: str
    created_at: datetime
    result: EvaluationResult | None
    """None: an equal verdict was stored before; the job is met by it."""
    label_version: str | None = None
    elapsed_ms: float | None = None
    reservation: Reservation | None = None

    @property
    def final(self) -> bool:
        """Whether the job is finished: everything but an error is."""
        return self.result is None or self.result.status != "error"

    @property
    def dead(self) -> bool:
        """Whether this was the last attempt: the error of code or configuration would only be repeated."""
        if self.result is None or self.final:
            return False
        return not self.result.retriable or self.job.attempts + 1 >= MAX_ATTEMPTS[self.result.judge is not None]

    @property
    def _attempt(self) -> int:
        """The attempt's number; one that is not tried again has the last number."""
        most = MAX_ATTEMPTS[self.result is not None and self.result.judge is not None]
        return max(most, self.job.attempts + 1) if self.dead else self.job.attempts + 1

    @property
    def spent_usd(self) -> float | None:
        """What to book for the reservation; None keeps it whole: an answer of unknown price may have cost all of it."""
        return 0.0 if self.result is None else cost_of(self.result)

    @property
    def unreserved(self) -> Reservation:
        """Nothing set aside, for what a metric of another package spent: its cost is known only afterwards."""
        job = self.job
        return Reservation(
            evaluator=job.evaluator,
            usd=0.0,
            job_id=job.job_id,
            day=self.created_at,
            run_id=job.run_id,
            rule=job.rule,
        )

    def score_row(self, result: EvaluationResult) -> dict[str, Any]:
        """The row of the score."""
        lo, hi = result.ci95 or (None, None)
        return {
            "score_key": self.score_key,
            "job_id": bytes.fromhex(self.job.job_id),
            "trace_id": bytes.fromhex(self.job.unit.trace_id),
            "span_id": bytes.fromhex(self.job.unit.span_id),
            "request_time": self.job.unit.request_time,
            "evaluator": result.evaluator,
            "version": result.version,
            "label_version": self.label_version,
            "judge": result.judge,
            "source": "online" if self.job.run_id is None else "replay",
            "status": result.status,
            "score": result.score,
            "normalized": result.normalized,
            "passing": result.passing,
            "label": result.label,
            "explanation": result.explanation,
            "parts": _JSON.encode(result.parts) if result.parts else None,
            "ci_lo": lo,
            "ci_hi": hi,
            "calls": _CALLS.dump_json(result.calls).decode() if result.calls else None,
            "cost_usd": cost_of(result),
            "elapsed_ms": self.elapsed_ms,
            "attempt": self._attempt,
            "created_at": self.created_at,
            "run_id": self.job.run_id,
        }

    def item_row(self) -> dict[str, Any]:
        """The row that names the score which meets this job (run None: online, met by an earlier score)."""
        return {
            "run_id": self.job.run_id,
            "score_key": self.score_key,
            "trace_id": bytes.fromhex(self.job.unit.trace_id),
            "span_id": bytes.fromhex(self.job.unit.span_id),
            "u": self.job.u,
            "job_id": bytes.fromhex(self.job.job_id),
        }


def cost_of(result: EvaluationResult) -> float | None:
    """What the judge cost for this result; None where a call's price is unknown, 0 where no judge was asked."""
    costs = [call.cost_usd for call in result.calls]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


class Outbox:
    """Hands verdicts to the store; `put` returns when they are on disk."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self.put: Batcher[Verdict, None] = Batcher(self._write, every_s=0.02)

    async def _write(self, verdicts: list[Verdict]) -> Sequence[None]:
        await committed(self._store, lambda tx: append_verdicts(tx, self._ledger, verdicts))
        return [None] * len(verdicts)


def append_verdicts(tx: Transaction, ledger: Ledger, verdicts: Sequence[Verdict]) -> None:
    """Store verdicts and settle the reservations made for them."""
    scored = [(verdict, verdict.result) for verdict in verdicts if verdict.result is not None]
    joined = [v for v in verdicts if (v.final or v.dead) and (v.job.run_id is not None or v.result is None)]
    add_results(
        tx, [verdict.score_row(result) for verdict, result in scored], [verdict.item_row() for verdict in joined]
    )
    booked = [v for v in verdicts if v.reservation or (v.spent_usd and ledger.limits(rule=v.job.rule))]
    ledger.settle(tx, [(v.reservation or v.unreserved, v.spent_usd) for v in booked])
    ledger.settle_left(tx, [(v.job.job_id, v.result.calls if v.result else ()) for v in verdicts if v.final or v.dead])
