"""Jobs on the engine: equal jobs share a verdict, every result is stored, what the budget refuses is dropped."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from pathlib import Path

from ragpulse_collector.evaluation.batcher import commit
from ragpulse_collector.evaluation.budget import Ledger, Reservations
from ragpulse_collector.evaluation.jobs import Job, Work, by_ids, drop, missing_span
from ragpulse_collector.evaluation.scores import Verdict, append_verdicts, outbox
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import set_status
from ragpulse_evaluators import EvaluationResult, Evaluator
from ragpulse_evaluators.checks import Checks
from ragpulse_evaluators.errors import BudgetExceeded
from ragpulse_evaluators.judges.wrappers import Gate
from ragpulse_evaluators.runner import CASE_S, Attempt, Engine, Retry, gate_of

_log = logging.getLogger(__name__)
_NO_JUDGE = 3
"""After more errors in a row the check of a judge ends."""
_MAX_LOGGED = 1000
"""How many different reasons are logged."""
_RETRY = Retry(longest_s=60.0, jitter=0.5)
_UNJUDGED_CONCURRENCY = 8
"""How many cases of one evaluator without a judge run at once."""


@dataclass(frozen=True, kw_only=True)
class AttemptOptions:
    """Time limit and backoff of an attempt."""

    timeout_s: float = CASE_S
    """Time limit of an evaluator without a judge; a judge has a limit for each request."""
    retry: Retry = _RETRY
    """Waits between the attempts; the store counts the attempts themselves, over restarts."""


@dataclass(eq=False)
class JobRunner:
    """Runs jobs with the engine and stores what comes of them; used within the worker's event loop."""

    store: Store
    ledger: Ledger
    gate: Gate
    checks: Checks
    _: KW_ONLY
    options: AttemptOptions
    running: RunningJobs
    clock: Callable[[], datetime]
    counts: defaultdict[str, int]
    run_ended: Callable[[str], None]

    def __post_init__(self) -> None:
        self.engine: Engine[Work] = Engine(
            self._keep,
            retry=self.options.retry,
            timeout_s=self.options.timeout_s,
            purse=Reservations(self.ledger, self.clock),
            refused=self._drop,
            gate=self.gate,
            each=_UNJUDGED_CONCURRENCY,
            noted=lambda work: self.running.entry(work.job.job_id) if work.counts_crashes else nullcontext(),
        )
        self._outbox, self._checked = outbox(self.ledger), set[str]()
        self._keys: dict[str, asyncio.Future[bool]] = {}
        self._logged: set[str] = set()
        self._refusals: defaultdict[Gate, int] = defaultdict(int)

    async def check(self, works: Sequence[Work]) -> bool:
        """Run a batch of jobs whose evaluators never wait, and store it in one commit.

        Returns whether some are to be read again: those with an error, and of equal jobs all but one.
        """
        ready = [work for work in works if not await self._is_outdated(work)]
        new = {work.key: work for work in ready if not work.is_scored and work.key not in self._checked}
        self._checked |= new.keys()
        try:
            # The checks of one case follow one another: what they read of it they share.
            asked = sorted((work for work in new.values() if work.case), key=lambda work: work.job.unit.trace_id)
            scored = await self.checks.score([(work.evaluator, work.case) for work in asked if work.case])
            found = {work.key: one for work, one in zip(asked, scored, strict=True)}
            now, verdicts = self.clock(), []
            for work in ready:
                if work.is_scored:
                    verdicts.append(Verdict(job=work.job, score_key=work.key, created_at=now, result=None))
                elif new.get(work.key) is work:
                    elapsed_ms, result = found.get(work.key) or (0.0, missing_span(work.evaluator))
                    verdicts.append(Verdict.of(Attempt(work, work.attempts.start, result, elapsed_ms), now))
                    if verdicts[-1].dead:
                        self._log_failure(work, result)
            await commit(self.store, lambda tx: append_verdicts(tx, self.ledger, verdicts))
        finally:
            self._checked -= new.keys()
        for verdict in verdicts:
            self.counts["reused" if verdict.result is None else verdict.result.status] += 1
        return sum(verdict.final or verdict.dead for verdict in verdicts) < len(ready)

    async def _is_outdated(self, work: Work) -> bool:
        """Whether a run asked for another version ("": for any) or judge than the present one; that ends it."""
        run, evaluator = work.run, work.evaluator
        if run is None or (run.version in ("", evaluator.version) and run.judge == evaluator.judge_id):
            return False
        of = f"version {evaluator.version}" + (f" by {evaluator.judge_id}" if evaluator.judge_id else "")
        reason = f"{work.job.evaluator} is now {of}: start a new replay"
        await self._end_run(run.run_id, "failed", reason)
        return True

    async def __call__(self, work: Work) -> None:
        """Run the job; the result of an equal job that runs or has finished is reused."""
        if await self._is_outdated(work):
            return
        equal_job = self._keys.get(work.key)
        if work.is_scored or (equal_job is not None and await equal_job):
            self.counts["reused"] += 1
            await self._outbox(Verdict(job=work.job, score_key=work.key, created_at=self.clock(), result=None))
            return
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._keys[work.key] = ended
        try:
            last = await self.engine.finish(work)
            ended.set_result(last is not None and last.result.status != "error")
        finally:
            self._keys.pop(work.key, None)
            if not ended.done():
                ended.set_result(False)

    async def _keep(self, attempt: Attempt[Work]) -> None:
        """Store the result; returns once it is on disk."""
        work, result = attempt.work, attempt.result
        verdict = Verdict.of(attempt, self.clock())
        await self._outbox(verdict)
        self.counts[result.status] += 1
        if work.judged:
            gate = gate_of(work.evaluator) or self.gate
            refusals = self._refusals[gate] = self._refusals[gate] + 1 if result.status == "error" else 0
            if refusals > 1:
                gate.pause(self.options.retry.wait(refusals - 2))
            if verdict.dead and refusals > _NO_JUDGE and work.run is not None and work.run.spec.labelled:
                await self._end_run(work.run.run_id, "failed", result.explanation or "the judge cannot be asked")
        if verdict.dead:
            self._log_failure(work, result)

    async def _drop(self, work: Work, refusal: BudgetExceeded) -> None:
        """Apply the refusal of a cap: a sampled unit becomes a `budget` decision, a replay stops as `capped`."""
        job, reason = work.job, str(refusal)
        if job.run_id is not None:
            await self._end_run(job.run_id, "capped", reason)
        elif job.u is not None:
            await commit(self.store, lambda tx: drop(tx, job))
            self.counts["dropped"] += 1
        else:
            # A person requested it: no estimate depends on it, so an error with the reason ends the job.
            result = EvaluationResult.of(work.evaluator, status="error", explanation=reason)
            await self._outbox(Verdict(job=job, score_key=work.key, created_at=self.clock(), result=result))
        if self._is_new(reason):
            _log.warning("evaluation stopped: %s", reason)

    def _log_failure(self, work: Work, result: EvaluationResult) -> None:
        """Log one line, with the traceback, for each place in the code where an evaluator fails."""
        stack = (result.error or "").rstrip().rpartition("\n")[0]
        reason = result.explanation if result.retriable or not stack else stack
        if self._is_new(f"{result.evaluator} {result.version} {reason}"):
            failure = (result.evaluator, result.version, work.job.unit.trace_id, result.explanation)
            _log.error(
                "evaluator %s (version %s) failed on trace %s: %s%s", *failure, f"\n{result.error or ''}".rstrip()
            )

    def _is_new(self, reason: str) -> bool:
        """Whether this reason is new and may be logged."""
        if reason in self._logged or len(self._logged) >= _MAX_LOGGED:
            return False
        self._logged.add(reason)
        return True

    async def _end_run(self, run_id: str, status: str, reason: str) -> None:
        await commit(self.store, lambda tx: set_status(tx, run_id, status, error=reason))
        self.run_ended(run_id)


_MAX_BYTES = 2**20
"""Size beyond which the file is emptied while no job runs."""
_REASON = "the collector ended while this evaluator ran"


class RunningJobs:
    """The running jobs, in a file beside the database, so that a crash of the process counts as an attempt.

    The file has a line `+job` where a job begins and `-job` where it ends; without a path there is no file. It survives
    a killed process, but not always a power cut.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._active, self._size = path, set[str](), 0

    def interrupted(self) -> list[str]:
        """Return the jobs that a former process began and did not end."""
        if self._path is None or not self._path.is_file():
            return []
        running: dict[str, None] = {}
        for line in self._path.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("+"):
                running[line[1:]] = None
            else:
                running.pop(line[1:], None)
        return [job_id for job_id in running if len(job_id) == 32 and set(job_id) <= set("0123456789abcdef")]

    def clear(self) -> None:
        """Delete the file."""
        self._size = 0
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @contextmanager
    def entry(self, job_id: str) -> Iterator[None]:
        """Keep an entry for the job while the block runs."""
        self._active.add(job_id)
        self._append(f"+{job_id}\n")
        try:
            yield
        finally:
            self._active.discard(job_id)
            self._append(f"-{job_id}\n")

    def _append(self, line: str) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # a full disk stops no evaluation; then a crash is not counted
            if self._size > _MAX_BYTES and not self._active:
                self.clear()
            with self._path.open("a", encoding="ascii") as file:
                self._size += file.write(line)


def count_interrupted(
    store: Store, ledger: Ledger, running: RunningJobs, *, evaluator_of: Callable[[Job], Evaluator], now: datetime
) -> int:
    """Store an `error` attempt for each job that a crash interrupted; returns how many."""
    jobs = by_ids(store.read, running.interrupted())
    verdicts = [_interrupted(job, evaluator_of(job), now) for job in jobs]
    if verdicts:
        store.write(lambda tx: append_verdicts(tx, ledger, verdicts)).result()
        _log.warning("%d evaluations ran when the collector ended; each counts as an attempt", len(jobs))
    running.clear()
    return len(verdicts)


def _interrupted(job: Job, evaluator: Evaluator, now: datetime) -> Verdict:
    result = EvaluationResult.of(evaluator, explanation=_REASON, status="error", retriable=True)
    return Verdict(job=job, score_key=job.job_id, created_at=now, result=result, label_version=evaluator.version.beside)
