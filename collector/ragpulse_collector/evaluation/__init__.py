"""Evaluation in the background: a durable job queue in the store, claims in memory, results as rows.

    jobs ─▶ cases ─▶ evaluator ─ reserve, settle ─▶ scores, ledger

Runs in its own thread with its own event loop, so that a judge's import and CPU never stall receiving.
"""

from ragpulse_collector.evaluation.attempts import AttemptOptions
from ragpulse_collector.evaluation.client_replay import ClientReplays
from ragpulse_collector.evaluation.drift import DriftWatch
from ragpulse_collector.evaluation.jobs import Job, Resolve, pending
from ragpulse_collector.evaluation.judge import RecordedCalls
from ragpulse_collector.evaluation.worker import Worker

__all__ = [
    "AttemptOptions",
    "ClientReplays",
    "DriftWatch",
    "Job",
    "RecordedCalls",
    "Resolve",
    "Worker",
    "pending",
]
