"""Evaluates what was selected: a durable queue in the store, claims in memory, results as rows.

    raw.eval_jobs ─ queue ─▶ cases ─▶ evaluator ─ reserve/settle ─▶ outbox ─▶ raw.scores, raw.run_items, raw.ledger

Runs in its own thread with its own event loop, so that a judge's import and CPU never stall receiving.
"""

from ragpulse_collector.worker.drift import DriftWatch
from ragpulse_collector.worker.external import External
from ragpulse_collector.worker.perform import Patience
from ragpulse_collector.worker.pressure import Pressure
from ragpulse_collector.worker.queue import Job, dead_letters, pending, retry
from ragpulse_collector.worker.recorded import RecordedCalls
from ragpulse_collector.worker.work import Resolve
from ragpulse_collector.worker.worker import Worker

__all__ = [
    "DriftWatch",
    "External",
    "Job",
    "Patience",
    "Pressure",
    "RecordedCalls",
    "Resolve",
    "Worker",
    "dead_letters",
    "pending",
    "retry",
]
