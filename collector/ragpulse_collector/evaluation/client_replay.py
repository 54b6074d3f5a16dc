"""Client-side replays: cases go out in order of u, results come back and are stored.

    caller ◀─ cases ─ jobs        caller ─ results ─▶ check ─▶ scores, ledger

No code of the caller runs here. The score key of a result comes from the collector's own case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NoReturn

from pydantic import JsonValue

from ragpulse_collector.evaluation.budget import Caps, Ledger, Reservation
from ragpulse_collector.evaluation.jobs import Job, Work, missing_span, of_run, prepare, stored_keys
from ragpulse_collector.evaluation.scores import Verdict, append_verdicts
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.jobs import ids_of_run, spent_usd
from ragpulse_collector.store.queries.runs import Declaration, Run, latest_runs, set_status
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.digest import Version

_NAME = re.compile(r"\w[\w.:/ -]{0,99}\Z")
_VERSION = re.compile(r"[\w.+-]{1,64}\Z")
_JUDGE = re.compile(r"[^\x00-\x1f\x7f]{1,400}\Z")
_FIELDS = frozenset(Case.model_fields)


class Declared(Evaluator):
    """Stands for the caller's evaluator in score keys and counts."""

    def __init__(self, declaration: Declaration) -> None:
        """Check what a caller declares; raises Invalid that names the mistake."""
        super().__init__()
        if unknown := set(declaration.needs) - _FIELDS:
            fields = ", ".join(sorted(_FIELDS))
            raise Invalid(f"external: needs is a list of case fields, not {min(unknown)!r}: {fields}")
        plain = {
            "evaluator": (declaration.evaluator, _NAME),
            "version": (declaration.version, _VERSION),
            "judge": (declaration.judge, _JUDGE),
            "label": (declaration.label, _VERSION),
        }
        for key, (text, pattern) in plain.items():
            if text is not None and not pattern.match(text):
                raise Invalid(f"external: {key} is a short plain text, not {text[:80]!r}")
        self.declaration = replace(declaration, needs=tuple(sorted(set(declaration.needs))))
        self.name, self.needs = declaration.evaluator, frozenset(declaration.needs)
        self.version = Version(declaration.version, declaration.label)

    @property
    def judge_id(self) -> str | None:
        """The judge's id from the caller."""
        return self.declaration.judge

    def run(self, case: Case) -> NoReturn:
        """Raise NotFound: its code is elsewhere."""
        raise NotFound(f"{self.name} is known to the caller only")


_MAX_ITEMS, _DEFAULT_ITEMS = 256, 64
"""The most cases or results of one request."""
_LONGEST_REASON = 300
_MAX_DEPTH = 16
"""Levels of `parts`: later readers need not expect more."""


@dataclass(frozen=True, slots=True)
class CallerResult:
    """One result of the caller."""

    job_id: str
    result: EvaluationResult
    elapsed_ms: float | None = None


@dataclass(frozen=True, slots=True)
class PendingCase:
    """A case for the caller to evaluate."""

    job_id: str
    trace_id: str
    span_id: str
    request_time: datetime | None
    u: float | None
    case: Case


class ClientReplays:
    """Returns the cases of client-side replays and stores their results."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = Ledger(store, Caps())

    def cases(self, run_id: str, *, limit: int | None = None) -> list[PendingCase]:
        """Return the first unfinished jobs of a replay with their cases; none after its end.

        Jobs with an equal stored verdict, or without a stored span, are finished here and not returned. Raises
        NotFound for an unknown replay, Invalid for one that the collector evaluates.
        """
        run, evaluator = self._run(run_id)
        limit = min(_MAX_ITEMS, limit or _DEFAULT_ITEMS)
        while run.status == "external":
            works = self._works(run, evaluator, of_run(self._store.read, run.run_id, limit=limit))
            if not works:
                self._store.write(lambda tx: _close(tx, run)).result()
                break
            if settled := [_verdict(work) for work in works if work.is_scored or work.case is None]:
                self._write(run, settled)
            if ready := [_pending(work.job, work.case) for work in works if work.case and not work.is_scored]:
                return ready
        return []

    def store_results(self, run_id: str, sent: Sequence[CallerResult], *, capped: str = "") -> int:
        """Store the caller's results for a replay; returns how many were new.

        A job that is finished already stays as it is, so that sending twice changes nothing. `capped` is the reason why
        the caller stops at the cap. Raises Invalid that names the first mistake,
        and then nothing is stored; NotFound for an unknown replay.
        """
        run, evaluator = self._run(run_id)
        results = _checked_results(sent, evaluator)
        if foreign := results.keys() - ids_of_run(self._store.read, run.run_id, list(results)):
            raise Invalid(f"results: {min(foreign)!r} is no job of replay {run.run_id}")
        works = self._works(run, evaluator, of_run(self._store.read, run.run_id, job_ids=list(results)))
        verdicts = [_verdict(work, results[work.job.job_id]) for work in works]
        return self._write(run, verdicts, capped=capped[:_LONGEST_REASON])

    def _run(self, run_id: str) -> tuple[Run, Declared]:
        run = latest_runs(self._store, run_id=run_id).get(run_id)
        if run is None:
            raise NotFound(f"no replay {run_id!r}")
        if run.spec.external is None:
            raise Invalid(f"replay {run_id} is evaluated by the collector, not by its caller")
        return run, Declared(run.spec.external)

    def _works(self, run: Run, evaluator: Declared, jobs: Sequence[Job]) -> list[Work]:
        """Return the jobs with their cases and keys, as the collector would evaluate them itself."""
        return prepare(self._store, [(job, run, evaluator) for job in jobs])

    def _write(self, run: Run, verdicts: Sequence[Verdict], *, capped: str = "") -> int:
        """Append the verdicts of open jobs in one transaction, then close or cap the replay at its end."""

        def work(tx: Transaction) -> int:
            open_verdicts = _of_open_jobs(tx, run, verdicts)
            append_verdicts(tx, self._ledger, open_verdicts)
            if not _close(tx, run):
                reason = capped or _beyond_cap(tx, run, open_verdicts)
                if reason:
                    set_status(tx, run.run_id, "capped", error=reason, only_from=("external",))
            return len(open_verdicts)

        return self._store.write(work).result()


def _verdict(work: Work, sent: CallerResult | None = None) -> Verdict:
    """Return the verdict of a job; without the caller's: an equal one exists, or the span is missing."""
    result = sent.result if sent else None if work.is_scored else missing_span(work.evaluator)
    now, job = utc_now(), work.job
    # The caller has spent the money already: it is booked without a reservation and never refused.
    booked = Reservation(evaluator=work.evaluator.name, usd=0.0, job_id=job.job_id, day=now, run_id=job.run_id)
    return Verdict(
        job=job,
        score_key=work.key,
        created_at=now,
        result=result,
        label_version=work.evaluator.version.beside,
        elapsed_ms=sent.elapsed_ms if sent else None,
        reservation=booked if result and result.calls else None,
    )


def _pending(job: Job, case: Case) -> PendingCase:
    return PendingCase(job.job_id, job.unit.trace_id, job.unit.span_id, job.unit.request_time, job.u, case)


def _of_open_jobs(tx: Transaction, run: Run, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Leave out jobs finished meanwhile; a verdict stored meanwhile under the same key is reused."""
    open_jobs = {job.job_id: job for job in of_run(tx.execute, run.run_id, job_ids=[v.job.job_id for v in verdicts])}
    keys = stored_keys(tx.execute, [v.job.unit for v in verdicts], [v.score_key for v in verdicts])
    open_verdicts = []
    for verdict in verdicts:
        job = open_jobs.get(verdict.job.job_id)
        if job is not None:
            reused = keys.get(verdict.score_key, False)
            open_verdicts.append(
                replace(verdict, job=job, result=None, reservation=None) if reused else replace(verdict, job=job)
            )
    return open_verdicts


def _close(tx: Transaction, run: Run) -> bool:
    """Mark the replay as done if no job is open."""
    if of_run(tx.execute, run.run_id, limit=1):
        return False
    set_status(tx, run.run_id, "done", only_from=("external",))
    return True


def _beyond_cap(tx: Transaction, run: Run, verdicts: Sequence[Verdict]) -> str | None:
    if run.max_usd is None:
        return None
    if any(verdict.result is not None and verdict.result.cost_usd is None for verdict in verdicts):
        return "the price of a judge call is unknown, so the cap cannot be kept: add it to [prices]"
    spent = spent_usd(tx.execute, run_id=run.run_id)
    return f"{spent:.4g} of {run.max_usd:.4g} USD are spent" if spent >= run.max_usd else None


def _checked_results(sent: Sequence[CallerResult], evaluator: Declared) -> dict[str, CallerResult]:
    """Return the results by job id; raises Invalid that names the first mistake."""
    if len(sent) > _MAX_ITEMS:
        raise Invalid(f"results: a list of at most {_MAX_ITEMS} is expected")
    results: dict[str, CallerResult] = {}
    for index, item in enumerate(sent):
        try:
            _check_result(item, evaluator)
        except Invalid as error:
            raise Invalid(f"results[{index}]: {error}") from error
        if item.job_id in results:
            raise Invalid(f"results[{index}]: {item.job_id!r} is there twice")
        results[item.job_id] = item
    return results


def _check_result(item: CallerResult, evaluator: Declared) -> None:
    result = item.result
    expected = (evaluator.name, evaluator.version, evaluator.judge_id)
    if (result.evaluator, result.version, result.judge) != expected:
        raise Invalid("evaluator, version and judge are not those of the replay")
    _require_valid_figures([item.elapsed_ms, *(call.cost_usd for call in result.calls)])
    if not all(math.isfinite(end) for end in result.ci95 or ()):
        raise Invalid("ci95 must be finite")
    _require_shallow(result.parts, _MAX_DEPTH)


def _require_valid_figures(figures: Sequence[float | None]) -> None:
    if any(figure is not None and not 0.0 <= figure < 1e12 for figure in figures):
        raise Invalid("costs and times are finite and not negative")


def _require_shallow(value: JsonValue, levels: int) -> None:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and not levels:
        raise Invalid("parts are too deeply nested")
    for child in children:
        _require_shallow(child, levels - 1)
