"""What a job needs to be evaluated (evaluator, case, score key), and the pools that jobs pass through."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ragpulse_collector.analysis.cases import ScoreKeys, cases_of
from ragpulse_collector.evaluation.jobs import Job, stored_keys
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.jobs import MAX_ATTEMPTS
from ragpulse_collector.store.queries.runs import Run
from ragpulse_collector.store.queries.scores import last_revision
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.isolated import Isolated
from ragpulse_evaluators.judges.limits import Gate
from ragpulse_evaluators.judges.protocol import close_judge

_log = logging.getLogger(__name__)
Resolve = Callable[..., Evaluator]
"""(name, judge=, prompts=, loads=) → evaluator; a replay may ask for a judge, prompts and files of its own. Raises
ValueError or LookupError where it cannot be made."""


class Evaluators:
    """Makes each evaluator once; one that cannot be made answers `error`, and is asked for again with the next job."""

    def __init__(self, store: Store, resolve: Resolve) -> None:
        self._store, self._resolve = store, resolve
        self._made: dict[tuple[str, str], Evaluator] = {}

    def __call__(self, name: str, run: Run | None) -> Evaluator:
        """Return the evaluator of this name, as the replay asked for it."""
        key = (name, "" if run is None else run.spec)
        if key not in self._made:
            asked = {} if run is None else run.asked
            try:
                self._made[key] = self._resolve(name, **{key: asked[key] for key in _OPTIONS if asked.get(key)})
            except (ValueError, LookupError) as error:
                return _Unavailable(name, error)
            self._warn_of_changed_code(self._made[key])
        return self._made[key]

    def _warn_of_changed_code(self, made: Evaluator) -> None:
        """Log where a user's function changed since its last scores and kept its version."""
        if made.revision != made.source_digest:
            return
        former = last_revision(self._store, made.name, made.version)
        if former not in (None, made.revision):
            versions = (made.name, made.version, former, made.revision)
            _log.warning(
                "the code of evaluator %s changed, but not its version %s (source %s, now %s):"
                " old and new scores are one series; change version= in the code",
                *versions,
            )

    async def rest(self) -> None:
        """Close idle connections of the judges, and end evaluator processes; both reopen on demand."""
        for evaluator in self._made.values():
            await close_judge(evaluator.judge)
            if isinstance(evaluator, Isolated):
                await evaluator.aclose()


_OPTIONS = ("judge", "prompts", "loads")


class _Unavailable(Evaluator):
    """Stands for an evaluator whose code or configuration is gone, so that its jobs show why they fail."""

    label = "unavailable"

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__()
        self.name, self._error = name, error

    async def run(self, case: Case) -> Any:
        raise self._error


@dataclass(frozen=True, slots=True)
class Work:
    """A claimed job with everything it takes."""

    job: Job
    run: Run | None
    evaluator: Evaluator
    case: Case | None
    """None: the store no longer has the span."""
    key: str
    """The name of its verdict; made from the job where there is no case."""
    known: bool = False
    """Whether a final verdict is stored under that name already."""

    @property
    def judged(self) -> bool:
        """Whether a judge is asked: its gate and its budget apply."""
        return self.evaluator.judge is not None

    @property
    def most_attempts(self) -> int:
        """How many attempts there are; the store counts by the judge's id, which a metric of another package has."""
        return MAX_ATTEMPTS[self.evaluator.judge_id is not None]

    @property
    def isolated(self) -> Isolated | None:
        """The evaluator, where it runs in processes of its own."""
        return self.evaluator if isinstance(self.evaluator, Isolated) else None

    @property
    def gated(self) -> bool:
        """Whether the judge passes the gate with each request by itself."""
        return isinstance(getattr(self.evaluator.judge, "gate", None), Gate)

    @property
    def noted(self) -> bool:
        """Whether a crash while it runs counts as an attempt: not if our own code only waits for a judge."""
        own = type(self.evaluator).__module__.partition(".")[0] == "ragpulse_evaluators" and not self.isolated
        return not (self.gated and own)


def gone(evaluator: Evaluator) -> EvaluationResult:
    """Return the result of a job whose span is not stored any more."""
    return EvaluationResult.of(evaluator, status="skipped", explanation="missing: the stored span")


def _on() -> None:
    """Go on at once."""


def prepared(
    store: Store, asked: Iterable[tuple[Job, Run | None, Evaluator]], *, rest: Callable[[], None] = _on
) -> list[Work]:
    """Build the works of many jobs with few reads; `rest` is called between them."""
    made, keys = list(asked), ScoreKeys()
    units = list(dict.fromkeys(job.unit for job, _, _ in made))
    cases = cases_of(store, units)
    works = []
    for job, run, evaluator in made:
        rest()
        case = cases.get(job.unit)
        key = job.job_id if case is None else keys(job.unit, case, evaluator)
        works.append(Work(job, run, evaluator, case, key))
    known = stored_keys(store.read, units, [work.key for work in works])
    return [replace(work, known=True) if work.key in known else work for work in works] if known else works


@dataclass(eq=False)
class JobPool:
    """Jobs of one kind: claimed, then ready (with their case), then running. A full pool does not block another."""

    at_once: int
    """Jobs that may run at once, including those that wait for their commit."""
    batch: int
    """Jobs whose cases are built with one set of reads."""
    claimed: deque[Job] = field(default_factory=deque)
    ready: deque[Work] = field(default_factory=deque)
    running: int = 0
    streams: set[str] = field(default_factory=set)
    """The streams whose jobs belong here."""
    more: bool = True
    """Whether the store may hold further jobs for it."""

    def claim(self, job: Job) -> None:
        """Take a job in."""
        self.claimed.append(job)
        self.streams.add(job.stream)

    @property
    def low(self) -> bool:
        """Whether it is time to prepare more: what is ready would soon be used up."""
        return len(self.ready) < self.at_once

    @property
    def full(self) -> bool:
        """Whether it needs no more jobs from the store for now."""
        return len(self.claimed) >= self.batch or not self.low

    @property
    def free(self) -> int:
        """How many more jobs may run."""
        return self.at_once - self.running
