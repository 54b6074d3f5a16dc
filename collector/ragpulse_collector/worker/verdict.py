"""A result becomes a row of `raw.scores`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from ragpulse_collector.budget import Reservation
from ragpulse_collector.store.queries.jobs import MAX_ATTEMPTS
from ragpulse_collector.worker.queue import Job
from ragpulse_evaluators import EvaluationResult, JudgeCall

__all__ = ["Verdict", "cost_of"]

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
        """Whether this was the last attempt."""
        judged = self.result is not None and self.result.judge is not None
        return self.job.attempts + 1 >= MAX_ATTEMPTS[judged]

    @property
    def spent_usd(self) -> float | None:
        """What to book for the reservation; None keeps it whole: an answer of unknown price may have cost all of it."""
        if self.result is None or (self.result.status == "error" and not self.result.calls):
            return 0.0
        return cost_of(self.result)

    def score_row(self, result: EvaluationResult) -> dict[str, Any]:
        """The row of `raw.scores`."""
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
            "attempt": self.job.attempts + 1,
            "created_at": self.created_at,
            "run_id": self.job.run_id,
        }

    def item_row(self) -> dict[str, Any]:
        """The row of `raw.run_items`: which verdict meets this job (run None: online, met by an earlier score)."""
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
