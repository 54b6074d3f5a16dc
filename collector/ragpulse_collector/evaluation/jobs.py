"""Jobs: pending jobs from the store, what a job needs (evaluator, case, score key), and pools.

There is no queue table: pending jobs are computed from the rows, so a crash loses none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NoReturn

from ragpulse_collector.evaluation.labelled import labelled
from ragpulse_collector.instants import EPOCH
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Read
from ragpulse_collector.store.queries import jobs as queries
from ragpulse_collector.store.queries.datasets import frozen_cases
from ragpulse_collector.store.queries.jobs import JobRow
from ragpulse_collector.store.queries.runs import ReplaySpec, Run
from ragpulse_collector.store.queries.scores import last_revision
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_collector.units.keys import ScoreKeys
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.protocol import anew, close_judge
from ragpulse_evaluators.runner import Work as EngineWork
from ragpulse_evaluators.runner import gate_of

_log = logging.getLogger(__name__)
LONG_AGO = EPOCH
_FIRST_STEP = timedelta(seconds=2)
_TICK = timedelta(microseconds=1)
Resolve = Callable[..., Evaluator]
"""(name, judge=, prompts=, loads=) → evaluator; a replay may ask for a judge, prompts and files of its own. Raises
a Refusal where it cannot be made."""


@dataclass(frozen=True, slots=True)
class Job:
    """One evaluator to be run on one unit."""

    job_id: str
    unit: Unit
    evaluator: str
    run_id: str | None
    """None: online; else the replay it belongs to."""
    u: float | None
    created_at: datetime
    attempts: int = 0
    """Errors so far."""
    rule: str | None = None
    """The rule that selected it; None: a replay or a person did."""

    @property
    def is_wanted_again(self) -> bool:
        """Whether a reply that could not be read is asked for again: somebody wants a verdict now."""
        return self.run_id is not None or self.u is None

    @property
    def stream(self) -> str:
        """The stream of the job: all jobs of one evaluator and replay."""
        return self.evaluator if self.run_id is None else f"{self.evaluator}\n{self.run_id}"


@dataclass(frozen=True, slots=True)
class Pending:
    """The first pending jobs: online before replays, replays in order of u."""

    jobs: list[Job]
    since: datetime
    """Every online job created before this time is finished: the next read may start here."""


def pending(
    store: Store,
    *,
    limit: int,
    since: datetime = LONG_AGO,
    runs: Collection[str] = (),
    claimed: Collection[str] = (),
    full: Collection[str] = (),
    skew: timedelta = timedelta(minutes=10),
) -> Pending:
    """Return up to `limit` pending jobs that are not `claimed` and whose `stream` is not `full`.

    Jobs of replays are returned only for the given `runs`. A job may become visible `skew` later than its `created_at`.
    """
    online = _online(store, since, skew, limit=limit, claimed=claimed, full=full)
    remaining = limit - len(online.jobs)
    if not remaining or not runs:
        return online
    rows = queries.pending_of_runs(store.read, runs, limit=remaining, claimed=claimed, full=full)
    return Pending(online.jobs + [_job(row) for row in rows], online.since)


def _online(
    store: Store, since: datetime, skew: timedelta, *, limit: int, claimed: Collection[str], full: Collection[str]
) -> Pending:
    """Read longer and longer ranges of time, so that the cost depends on the result, not on the backlog.

    If there are few jobs, one read returns all of them.
    """
    first, newest, count = queries.online_ends(store.read, since)
    if first is None:
        return Pending([], since)
    step = _FIRST_STEP if count > limit else newest - first + _FIRST_STEP
    until, rows = first, list[JobRow]()
    while len(rows) < limit and until <= newest:
        until, step = first + step, step * 2
        rows = queries.pending_online(store.read, first, until, limit=limit, claimed=claimed, full=full)
    if full or (claimed and not rows):  # jobs that were left out may be older
        return Pending([_job(row) for row in rows], since)
    oldest = rows[0].oldest if rows else None
    if len(rows) == limit:
        rows = _from_both_ends(store, rows, first, newest, claimed=claimed)
    return Pending([_job(row) for row in rows], max(since, (oldest or newest) - skew))


def _from_both_ends(
    store: Store, oldest: list[JobRow], first: datetime, newest: datetime, *, claimed: Collection[str]
) -> list[JobRow]:
    """Return the oldest and the newest jobs in turn: a drop of the quality shows before a backlog is gone."""
    step, latest, half = _FIRST_STEP, list[JobRow](), len(oldest) // 2
    while len(latest) < half and newest - step > first - 2 * step:
        latest = queries.pending_online(
            store.read, newest - step, newest + _TICK, limit=half, claimed=claimed, full=(), newest=True
        )
        step *= 2
    mixed = [row for pair in zip(oldest, latest, strict=False) for row in pair] + oldest[len(latest) :]
    return list({row.job_id: row for row in mixed}.values())[: len(oldest)]


def _job(row: JobRow) -> Job:
    unit = Unit(row.trace_id.hex, f"{row.span_id:016x}", row.request_time)
    return Job(row.job_id.hex, unit, row.evaluator, row.run_id, row.u, row.created_at, row.attempts, row.rule)


def by_ids(read: Read, job_ids: Sequence[str]) -> list[Job]:
    """Return the unfinished jobs of these ids."""
    return [_job(row) for row in queries.unfinished_by_id(read, job_ids)]


def of_run(read: Read, run_id: str, *, limit: int | None = None, job_ids: Sequence[str] | None = None) -> list[Job]:
    """Return the unfinished jobs of one replay in order of u: the first `limit`, or those of the given ids."""
    return [_job(row) for row in queries.unfinished_of_run(read, run_id, limit=limit, job_ids=job_ids)]


def stored_keys(read: Read, units: Sequence[Unit], keys: Sequence[str]) -> dict[str, bool]:
    """Return the keys under which a final score is stored already, and whether it is a verdict."""
    have_times = all(unit.request_time is not None for unit in units)
    times = [unit.request_time or LONG_AGO for unit in units] if have_times and units else [LONG_AGO, datetime.max]
    return queries.stored_keys(read, {unit.trace_id for unit in units}, keys, min(times), max(times))


def drop(tx: Transaction, job: Job) -> None:
    """Append the decision that the budget dropped this selected job: same pi, same u, reason `budget`."""
    queries.drop(tx, job.unit.trace_id, int(job.unit.span_id, 16), job.evaluator)


class Evaluators:
    """Makes each evaluator once. If one cannot be made, its jobs end as `error`, and the next job tries again."""

    def __init__(self, store: Store, resolve: Resolve, anew: Resolve) -> None:
        """`anew` makes evaluators whose judges are asked in any case, for checks of a judge."""
        self._store, self._resolve, self._anew = store, resolve, anew
        self._made: dict[tuple[str, ReplaySpec | None], Evaluator] = {}

    def __call__(self, name: str, run: Run | None) -> Evaluator:
        """Return the evaluator of this name, with the options of the replay."""
        key = (name, None if run is None else run.spec)
        if key not in self._made:
            try:
                self._made[key] = resolved(self._anew if run and run.kind else self._resolve, name, key[1])
            except Refusal as error:
                return _Unavailable(name, error)
            self._warn_of_changed_code(self._made[key])
        return self._made[key]

    def _warn_of_changed_code(self, evaluator: Evaluator) -> None:
        """Log that a user's function changed since its last scores, but not its version."""
        version = evaluator.version
        if version.beside != version.source:
            return
        former = last_revision(self._store, evaluator.name, version)
        if former not in (None, version.source):
            versions = (evaluator.name, version, former, version.source)
            _log.warning(
                "the code of evaluator %s changed, but not its version %s (source %s, now %s):"
                " old and new scores are one series; change version= in the code",
                *versions,
            )

    async def close_idle(self) -> None:
        """Close idle connections of the judges, and end evaluator processes; both reopen on demand."""
        for evaluator in self._made.values():
            await close_judge(evaluator.judge)
            if isinstance(evaluator, Isolated):
                await evaluator.aclose()


def resolved(resolve: Resolve, name: str, spec: ReplaySpec | None) -> Evaluator:
    """Return an evaluator with the options of a replay that are given (None: as configured); raises a Refusal."""
    options = {"judge": spec.judge, "prompts": spec.prompts, "loads": spec.loads} if spec else {}
    return resolve(name, **{key: value for key, value in options.items() if value})


class _Unavailable(Evaluator):
    """Stands for an evaluator whose code or configuration is missing, so that its jobs show why they fail."""

    label = "unavailable"

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__()
        self.name, self._error = name, error

    async def run(self, case: Case) -> NoReturn:
        raise self._error


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(EngineWork):
    """A claimed job with everything that it needs; without a case the store no longer has the span."""

    job: Job
    run: Run | None
    key: str
    """The key of its verdict; the job's id where there is no case."""
    is_scored: bool = False
    """Whether a final verdict is stored under that key already."""

    @property
    def judged(self) -> bool:
        """Whether a judge is asked: its gate and its budget apply."""
        return self.evaluator.judge is not None

    @property
    def counts_crashes(self) -> bool:
        """Whether a crash while it runs counts as an attempt: not if built-in code waits for a judge."""
        evaluator = self.evaluator
        is_built_in = type(evaluator).__module__.partition(".")[0] == "ragpulse_evaluators"
        return isinstance(evaluator, Isolated) or not (is_built_in and gate_of(evaluator))

    async def result(self) -> EvaluationResult:
        """Score the case once; without the span there is nothing to score."""
        return missing_span(self.evaluator) if self.case is None else await self.evaluator(self.case)


def missing_span(evaluator: Evaluator) -> EvaluationResult:
    """Return the result of a job whose span is not stored any more."""
    return EvaluationResult.of(evaluator, status="skipped", explanation="missing: the stored span")


def prepare(store: Store, jobs: Iterable[tuple[Job, Run | None, Evaluator]]) -> list[Work]:
    """Build the cases of many jobs with few reads."""
    claims, keys = list(jobs), ScoreKeys()
    frozen = {spec: _frozen(store, spec) for spec in {run.spec for _, run, _ in claims if run and run.spec.is_frozen}}
    units = list(dict.fromkeys(job.unit for job, run, _ in claims if not (run and run.spec.is_frozen)))
    judged = {job.unit for job, _, each in claims if each.judge_id is not None or "history" in each.needs}
    evaluators = {evaluator for _, _, evaluator in claims}
    turned, stepped = any(each.reads_history for each in evaluators), any("trace" in each.needs for each in evaluators)
    cases = cases_of(store, units, judged=judged, turned=turned, stepped=stepped)
    works = []
    for job, run, evaluator in claims:
        if run is not None and run.spec.is_frozen:
            fields = frozen[run.spec].get((job.unit.trace_id, job.unit.span_id))
            case, key = None if fields is None else Case.model_validate(fields), job.job_id  # no other run shares it
        else:
            case = cases.get(job.unit)
            key = job.job_id if case is None else keys(job.unit, case, evaluator)
        # The store counts attempts by the judge's id, which metrics of other packages have too.
        attempts = range(job.attempts, queries.MAX_ATTEMPTS[evaluator.judge_id is not None])
        works.append(Work(job=job, run=run, evaluator=evaluator, case=case, key=key, attempts=attempts))
    stored = stored_keys(store.read, units, [work.key for work in works])
    return [_beside(work, stored.get(work.key)) for work in works] if stored else works


def _frozen(store: Store, spec: ReplaySpec) -> Mapping[tuple[str, str], Any]:
    """Return the cases of a run that are not stored traces, by trace and span."""
    if spec.dataset is not None:
        return frozen_cases(store, spec.dataset)
    return {(trace.hex, f"{span:016x}"): each.case for (trace, span), each in labelled().items()}


def _beside(work: Work, has_verdict: bool | None) -> Work:
    """Return the work beside the score that is stored under its key: a verdict, or (False) a reply that holds none."""
    if has_verdict is None:
        return work
    if has_verdict or not work.job.is_wanted_again:
        return replace(work, is_scored=True)
    return replace(work, evaluator=_asking_anew(work.evaluator))


@lru_cache(maxsize=64)
def _asking_anew(evaluator: Evaluator) -> Evaluator:
    """Return the evaluator with a judge whose recorded replies do not answer."""
    changed = copy(evaluator)
    changed.judge = evaluator.judge and anew(evaluator.judge)
    return changed


def _time(job: Job) -> tuple[bool, datetime]:
    return (False, job.unit.request_time or LONG_AGO) if job.run_id is None else (True, LONG_AGO)


@dataclass(eq=False)
class Lane:
    """Jobs of one kind, with an engine's run of their own: a full lane does not block another."""

    at_once: int
    """Jobs that may run at once, including those that wait for a commit."""
    batch: int
    """Jobs whose cases are built with one set of reads."""
    claimed: deque[Job] = field(default_factory=deque)
    streams: set[str] = field(default_factory=set)
    """The streams whose jobs belong here."""
    by_time: bool = False
    """Whether requests of one time are read together, as they stand in the store."""
    more: bool = True
    """Whether the store may hold further jobs for it."""
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when jobs were added, or when it ends."""
    ended: bool = False

    def claim(self, jobs: Sequence[Job]) -> None:
        """Add claimed jobs; those of a replay keep their order, in which its figure is unbiased at any time."""
        self.claimed.extend(sorted(jobs, key=_time) if self.by_time else jobs)
        self.streams.update(job.stream for job in jobs)
        self.filled.set()

    def end(self) -> None:
        """Let its run end with the jobs that it has taken."""
        self.ended = True
        self.filled.set()

    @property
    def is_full(self) -> bool:
        """Whether it needs no more jobs from the store now."""
        return len(self.claimed) >= self.batch
