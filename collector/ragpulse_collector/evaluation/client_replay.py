"""Client-side replays: cases go out in order of u, results come back and are stored.

    caller ◀─ cases ─ jobs        caller ─ results ─▶ check ─▶ scores, ledger

No code of the caller runs here. The score key of a result comes from the collector's own case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from ragpulse_collector.analysis.cases import cases_of, score_key
from ragpulse_collector.evaluation.budget import Caps, Ledger, Reservation
from ragpulse_collector.evaluation.jobs import Job, missing_span, of_run, stored_keys
from ragpulse_collector.evaluation.scores import Verdict, append_verdicts
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.jobs import ids_of_run, spent_usd
from ragpulse_collector.store.queries.runs import Run, latest_runs, set_status
from ragpulse_evaluators import Case, EvaluationResult, Evaluator
from ragpulse_evaluators.digest import Version

_NAME = re.compile(r"\w[\w.:/ -]{0,99}\Z")
_VERSION = re.compile(r"[\w.+-]{1,64}\Z")
_JUDGE = re.compile(r"[^\x00-\x1f\x7f]{1,400}\Z")
_FIELDS = frozenset(Case.model_fields)


class Declared(Evaluator):
    """Stands for the caller's evaluator in score keys and counts."""

    def __init__(self, name: str, version: str, judge: str | None, label: str, needs: frozenset[str]) -> None:
        super().__init__()
        self.name, self.version, self.needs = name, Version(version, label), needs
        self._judge_id = judge

    @property
    def judge_id(self) -> str | None:
        """The judge's id from the caller."""
        return self._judge_id

    @property
    def as_json(self) -> dict[str, Any]:
        """The JSON that `read_declaration` reads."""
        own = {"evaluator": self.name, "version": self.version, "judge": self._judge_id}
        return {**own, "label": self.version.beside, "needs": sorted(self.needs)}

    def run(self, case: Case) -> Any:
        """Raise NotFound: its code is elsewhere."""
        raise NotFound(f"{self.name} is known to the caller only")


def read_declaration(description: Any) -> Declared:
    """Read `{"evaluator", "version", "judge", "label", "needs"}`; raises Invalid that names the mistake."""
    if not isinstance(description, Mapping):
        raise Invalid("external: an object with evaluator and version is expected")
    needs = description.get("needs") or []
    if not isinstance(needs, list) or not all(isinstance(field, str) and field in _FIELDS for field in needs):
        raise Invalid(f"external: needs is a list of case fields: {', '.join(sorted(_FIELDS))}")
    judge = description.get("judge")
    return Declared(
        _text(description.get("evaluator"), "evaluator", _NAME),
        _text(description.get("version"), "version", _VERSION),
        None if judge is None else _text(judge, "judge", _JUDGE),
        _text(description.get("label", "1"), "label", _VERSION),
        frozenset(needs),
    )


def declaration_of(run: Run) -> Declared:
    """Return the evaluator of a client-side replay; raises Invalid for any other replay."""
    if run.external is None:
        raise Invalid(f"replay {run.run_id} is evaluated by the collector, not by its caller")
    return read_declaration(run.external)


def _text(value: Any, key: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise Invalid(f"external: {key} is a short plain text, not {str(value)[:80]!r}")
    return value


_MAX_ITEMS = 256
"""The most cases or results of one request."""
_LONGEST_REASON = 300
_MAX_DEPTH = 16
"""Levels of `parts`: later readers need not expect more."""


@dataclass(frozen=True, slots=True)
class _CallerResult:
    """One checked result of the caller."""

    result: EvaluationResult
    elapsed_ms: float | None


class ClientReplays:
    """Returns the cases of client-side replays and stores their results."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = Ledger(store, Caps())

    def cases(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return up to `limit` unfinished jobs of replay `id` with their cases; none after its end.

        Jobs with an equal stored verdict, or without a stored span, are finished here and not returned. Raises
        NotFound for an unknown replay, Invalid for one that the collector evaluates.
        """
        run, evaluator = self._run(params)
        limit = min(_MAX_ITEMS, max(1, int(params.get("limit") or 64)))
        while run.status == "external":
            jobs = of_run(self._store.read, run.run_id, limit=limit)
            if not jobs:
                self._store.write(lambda tx: _close(tx, run)).result()
                break
            cases = cases_of(self._store, [job.unit for job in jobs])
            keys = {job.job_id: _key(job, cases, evaluator) for job in jobs}
            stored = stored_keys(self._store.read, [job.unit for job in jobs], list(keys.values()))
            ready = [job for job in jobs if job.unit in cases and keys[job.job_id] not in stored]
            settled = [self._settled(job, keys[job.job_id], evaluator, stored) for job in jobs if job not in ready]
            if settled:
                self._write(run, settled)
            if ready:
                return [_case_json(job, cases[job.unit]) for job in ready]
        return []

    def results(self, params: Mapping[str, Any]) -> int:
        """Store the caller's `results` (`job_id`, `result`, `elapsed_ms`) for replay `id`; returns how many were new.

        A job that is finished already stays as it is, so that sending twice changes nothing. `capped` is the reason why
        the caller stops at the cap. Raises Invalid that names the first mistake,
        and then nothing is stored; NotFound for an unknown replay.
        """
        run, evaluator = self._run(params)
        results = _read_results(params.get("results"), evaluator)
        jobs = {job.job_id: job for job in of_run(self._store.read, run.run_id, job_ids=list(results))}
        self._require_own(run, results)
        cases = cases_of(self._store, [job.unit for job in jobs.values()])
        verdicts = [
            self._verdict(job, _key(job, cases, evaluator), evaluator, results[job_id]) for job_id, job in jobs.items()
        ]
        return self._write(run, verdicts, capped=str(params.get("capped") or "")[:_LONGEST_REASON])

    def _run(self, params: Mapping[str, Any]) -> tuple[Run, Declared]:
        run = latest_runs(self._store, run_id=str(params["id"])).get(str(params["id"]))
        if run is None:
            raise NotFound(f"no replay {params['id']!r}")
        return run, declaration_of(run)

    def _require_own(self, run: Run, results: Mapping[str, _CallerResult]) -> None:
        foreign = results.keys() - ids_of_run(self._store.read, run.run_id, list(results))
        if foreign:
            raise Invalid(f"results: {min(foreign)!r} is no job of replay {run.run_id}")

    def _settled(self, job: Job, key: str, evaluator: Declared, stored: set[str]) -> Verdict:
        """Return the verdict of a job without the caller: an equal verdict exists, or the span is missing."""
        if key in stored:
            return Verdict(job=job, score_key=key, created_at=utc_now(), result=None)
        return self._verdict(job, key, evaluator, _CallerResult(missing_span(evaluator), None))

    def _verdict(self, job: Job, key: str, evaluator: Declared, caller_result: _CallerResult) -> Verdict:
        now = utc_now()
        # The caller has spent the money already: it is booked without a reservation and never refused.
        booked = Reservation(evaluator=evaluator.name, usd=0.0, job_id=job.job_id, day=now, run_id=job.run_id)
        return Verdict(
            job=job,
            score_key=key,
            created_at=now,
            result=caller_result.result,
            label_version=evaluator.version.beside,
            elapsed_ms=caller_result.elapsed_ms,
            reservation=booked if caller_result.result.calls else None,
        )

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


def _key(job: Job, cases: Mapping[Any, Case], evaluator: Declared) -> str:
    case = cases.get(job.unit)
    return job.job_id if case is None else score_key(job.unit, case, evaluator)


def _case_json(job: Job, case: Case) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "trace_id": job.unit.trace_id,
        "span_id": job.unit.span_id,
        "request_time": job.unit.request_time,
        "u": job.u,
        "case": case.model_dump(mode="json"),
    }


def _of_open_jobs(tx: Transaction, run: Run, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Leave out jobs finished meanwhile; a verdict stored meanwhile under the same key is reused."""
    open_jobs = {job.job_id: job for job in of_run(tx.execute, run.run_id, job_ids=[v.job.job_id for v in verdicts])}
    keys = stored_keys(tx.execute, [v.job.unit for v in verdicts], [v.score_key for v in verdicts])
    open_verdicts = []
    for verdict in verdicts:
        job = open_jobs.get(verdict.job.job_id)
        if job is not None:
            changes: dict[str, Any] = {"result": None, "reservation": None} if verdict.score_key in keys else {}
            open_verdicts.append(replace(verdict, job=job, **changes))
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


def _read_results(items: Any, evaluator: Declared) -> dict[str, _CallerResult]:
    """Read the results by job id; raises Invalid that names the first mistake."""
    if not isinstance(items, list) or len(items) > _MAX_ITEMS:
        raise Invalid(f"results: a list of at most {_MAX_ITEMS} is expected")
    results: dict[str, _CallerResult] = {}
    for index, item in enumerate(items):
        try:
            job_id, result = _read_result(item, evaluator)
        except ValueError as error:
            raise Invalid(f"results[{index}]: {_message(error)}") from error
        if job_id in results:
            raise Invalid(f"results[{index}]: {job_id!r} is there twice")
        results[job_id] = result
    return results


def _read_result(item: Any, evaluator: Declared) -> tuple[str, _CallerResult]:
    if not isinstance(item, Mapping) or not isinstance(item.get("result"), Mapping):
        raise Invalid("an object with job_id and result is expected")
    job_id = item.get("job_id")
    if not isinstance(job_id, str) or len(job_id) != 32 or set(job_id) - set("0123456789abcdef"):
        raise Invalid(f"{str(job_id)[:80]!r} is no job id")
    result = EvaluationResult.model_validate(item["result"])
    expected = (evaluator.name, evaluator.version, evaluator.judge_id)
    if (result.evaluator, result.version, result.judge) != expected:
        raise Invalid("evaluator, version and judge are not those of the replay")
    elapsed = item.get("elapsed_ms")
    if elapsed is not None and not isinstance(elapsed, int | float):
        raise Invalid("elapsed_ms is a number")
    _require_valid_figures([elapsed, *(call.cost_usd for call in result.calls)])
    if not all(math.isfinite(end) for end in result.ci95 or ()):
        raise Invalid("ci95 must be finite")
    _require_shallow(result.parts, _MAX_DEPTH)
    return job_id, _CallerResult(result, elapsed)


def _require_valid_figures(figures: Sequence[float | None]) -> None:
    if any(figure is not None and not 0.0 <= figure < 1e12 for figure in figures):
        raise Invalid("costs and times are finite and not negative")


def _require_shallow(value: Any, levels: int) -> None:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and not levels:
        raise Invalid("parts are too deeply nested")
    for child in children:
        _require_shallow(child, levels - 1)


def _message(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
