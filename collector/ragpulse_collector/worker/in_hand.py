"""Jobs in hand, noted in a file beside the database: what a crash of the whole process interrupted is an attempt.

The file outlives a process that is killed, at the price of a write without a wait for the disk; a power cut, which no
evaluator causes, may lose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from ragpulse_collector.budget import Ledger
from ragpulse_collector.store import Store
from ragpulse_collector.worker.outbox import append_verdicts
from ragpulse_collector.worker.queue import Job, by_ids
from ragpulse_collector.worker.verdict import Verdict
from ragpulse_evaluators import EvaluationResult, Evaluator

__all__ = ["InHand", "count_interrupted"]

_log = logging.getLogger(__name__)
_LONG = 2**20
"""Bytes beyond which a file that says nothing any more is emptied."""
_REASON = "the collector ended while this evaluator ran"


class InHand:
    """A line `+job` where a job begins and `-job` where it ends; None: nothing is noted."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._held, self._size = path, set[str](), 0

    def left(self) -> list[str]:
        """Return the jobs that a former process began and did not end."""
        if self._path is None or not self._path.is_file():
            return []
        begun: dict[str, None] = {}
        for line in self._path.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("+"):
                begun[line[1:]] = None
            else:
                begun.pop(line[1:], None)
        return [job_id for job_id in begun if len(job_id) == 32 and set(job_id) <= set("0123456789abcdef")]

    def clear(self) -> None:
        """Forget what was noted."""
        self._size = 0
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def holding(self, job_id: str) -> Iterator[None]:
        """Note the job for as long as the block runs."""
        self._held.add(job_id)
        self._note(f"+{job_id}\n")
        try:
            yield
        finally:
            self._held.discard(job_id)
            self._note(f"-{job_id}\n")

    def _note(self, line: str) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # a full disk stops no evaluation; then a crash is not counted
            if self._size > _LONG and not self._held:
                self.clear()
            with self._path.open("a", encoding="ascii") as file:
                self._size += file.write(line)


def count_interrupted(
    store: Store, ledger: Ledger, in_hand: InHand, *, made: Callable[[Job], Evaluator], now: datetime
) -> int:
    """Store an `error` attempt for each job that a former process had in hand when it ended; returns how many."""
    jobs = by_ids(store.read, in_hand.left())
    verdicts = [_interrupted(job, made(job), now) for job in jobs]
    if verdicts:
        store.write(lambda tx: append_verdicts(tx, ledger, verdicts)).result()
        _log.warning("%d evaluations were in hand when the collector ended; each counts as an attempt", len(jobs))
    in_hand.clear()
    return len(verdicts)


def _interrupted(job: Job, evaluator: Evaluator, now: datetime) -> Verdict:
    result = EvaluationResult(evaluator=evaluator.name, version=evaluator.version, status="error", explanation=_REASON)
    return Verdict(job=job, score_key=job.job_id, created_at=now, result=result, label_version=evaluator.label)
