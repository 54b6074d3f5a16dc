"""Replays whose evaluator only the caller has: cases go out in order of u, results come back and become rows.

    caller ◀─ cases ─ jobs        caller ─ results ─▶ check ─▶ scores, ledger

Nothing of the caller's is loaded or run here. Results are named by the collector's own reading of the case.
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
from ragpulse_collector.evaluation.jobs import Job, gone, of_run, stored_keys
from ragpulse_collector.evaluation.scores import Verdict, append_verdicts, cost_of
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.jobs import ids_of_run
from ragpulse_collector.store.queries.ledger import spent_usd
from ragpulse_collector.store.queries.runs import Run, latest_runs, set_status
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators import Case, EvaluationResult, Evaluator

_NAME = re.compile(r"\w[\w.:/ -]{0,99}\Z")
_VERSION = re.compile(r"[\w.+-]{1,64}\Z")
_JUDGE = re.compile(r"[^\x00-\x1f\x7f]{1,400}\Z")
_FIELDS = frozenset(Case.model_fields)


class Declared(Evaluator):
    """Stands for the caller's evaluator wherever verdicts are named and counted."""

    def __init__(self, name: str, version: str, judge: str | None, label: str, needs: frozenset[str]) -> None:
        super().__init__()
        self.name, self.version, self.label, self.needs = name, version, label, needs
        self._judge_id = judge

    @property
    def judge_id(self) -> str | None:
        """The judge's id as the caller named it."""
        return self._judge_id

    @property
    def revision(self) -> str:
        """The label or the digest, as the caller named it."""
        return self.label

    @property
    def written(self) -> dict[str, Any]:
        """Its JSON, as `declared` reads it."""
        own = {"evaluator": self.name, "version": self.version, "judge": self._judge_id}
        return {**own, "label": self.label, "needs": sorted(self.needs)}

    def run(self, case: Case) -> Any:
        """Refuse: its code is elsewhere."""
        raise LookupError(f"{self.name} is known to the caller only")


def declared(given: Any) -> Declared:
    """Read `{"evaluator", "version", "judge", "label", "needs"}`; raises ValueError that names the mistake."""
    if not isinstance(given, Mapping):
        raise ValueError("external: an object with evaluator and version is expected")
    needs = given.get("needs") or []
    if not isinstance(needs, list) or not all(isinstance(field, str) and field in _FIELDS for field in needs):
        raise ValueError(f"external: needs is a list of case fields: {', '.join(sorted(_FIELDS))}")
    judge = given.get("judge")
    return Declared(
        _text(given.get("evaluator"), "evaluator", _NAME),
        _text(given.get("version"), "version", _VERSION),
        None if judge is None else _text(judge, "judge", _JUDGE),
        _text(given.get("label", "1"), "label", _VERSION),
        frozenset(needs),
    )


def declared_by(run: Run) -> Declared:
    """The evaluator of a replay that its caller evaluates; raises ValueError for any other replay."""
    if run.external is None:
        raise ValueError(f"replay {run.run_id} is evaluated by the collector, not by its caller")
    return declared(run.external)


def _text(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.match(value):
        raise ValueError(f"external: {what} is a short plain text, not {str(value)[:80]!r}")
    return value


_MOST = 256
"""Cases handed out and results taken at once."""
_LONGEST_REASON = 300
_DEEPEST = 16
"""Levels of `parts`: whatever reads them later need not expect more."""


@dataclass(frozen=True, slots=True)
class _Given:
    """One checked result of the caller."""

    result: EvaluationResult
    elapsed_ms: float | None


class External:
    """Hands out the cases of external replays and takes their results."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ledger = Ledger(store, Caps())

    def cases(self, params: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return up to `limit` unfinished jobs of replay `id` with their cases; none once it ended or was stopped.

        Jobs that an equal verdict meets, or whose span is gone, are settled here and not handed out. Raises LookupError
        for an unknown replay, ValueError for one that the collector evaluates.
        """
        run, evaluator = self._run(params)
        limit = min(_MOST, max(1, int(params.get("limit") or 64)))
        while run.status == "external":
            jobs = of_run(self._store.read, run.run_id, limit=limit)
            if not jobs:
                self._store.write(lambda tx: _close(tx, run)).result()
                break
            cases = cases_of(self._store, [job.unit for job in jobs])
            keys = {job.job_id: _key(job, cases, evaluator) for job in jobs}
            met = stored_keys(self._store.read, [job.unit for job in jobs], list(keys.values()))
            ready = [job for job in jobs if job.unit in cases and keys[job.job_id] not in met]
            settled = [self._settled(job, keys[job.job_id], evaluator, met) for job in jobs if job not in ready]
            if settled:
                self._write(run, settled)
            if ready:
                return [_handed(job, cases[job.unit]) for job in ready]
        return []

    def results(self, params: Mapping[str, Any]) -> int:
        """Store the caller's `results` (`job_id`, `result`, `elapsed_ms`) for replay `id`; returns how many were new.

        A job that is finished already is left as it is, so that sending twice changes nothing. `capped` says that the
        caller stops because the next call would go beyond the cap. Raises ValueError that names the first mistake,
        and then nothing is stored; LookupError for an unknown replay.
        """
        run, evaluator = self._run(params)
        given = _checked(params.get("results"), evaluator)
        jobs = {job.job_id: job for job in of_run(self._store.read, run.run_id, job_ids=list(given))}
        self._demand_own(run, given)
        cases = cases_of(self._store, [job.unit for job in jobs.values()])
        verdicts = [
            self._verdict(job, _key(job, cases, evaluator), evaluator, given[job_id]) for job_id, job in jobs.items()
        ]
        return self._write(run, verdicts, capped=str(params.get("capped") or "")[:_LONGEST_REASON])

    def _run(self, params: Mapping[str, Any]) -> tuple[Run, Declared]:
        run = latest_runs(self._store, run_id=str(params["id"])).get(str(params["id"]))
        if run is None:
            raise LookupError(f"no replay {params['id']!r}")
        return run, declared_by(run)

    def _demand_own(self, run: Run, given: Mapping[str, _Given]) -> None:
        foreign = given.keys() - ids_of_run(self._store.read, run.run_id, list(given))
        if foreign:
            raise ValueError(f"results: {min(foreign)!r} is no job of replay {run.run_id}")

    def _settled(self, job: Job, key: str, evaluator: Declared, met: set[str]) -> Verdict:
        """What needs no caller: an equal verdict exists, or there is nothing left to look at."""
        if key in met:
            return Verdict(job=job, score_key=key, created_at=utc_now(), result=None)
        return self._verdict(job, key, evaluator, _Given(gone(evaluator), None))

    def _verdict(self, job: Job, key: str, evaluator: Declared, given: _Given) -> Verdict:
        now = utc_now()
        # What the caller spent is a fact by now: booked from nothing, never refused.
        booked = Reservation(evaluator=evaluator.name, usd=0.0, job_id=job.job_id, day=now, run_id=job.run_id)
        return Verdict(
            job=job,
            score_key=key,
            created_at=now,
            result=given.result,
            label_version=evaluator.revision,
            elapsed_ms=given.elapsed_ms,
            reservation=booked if given.result.calls else None,
        )

    def _write(self, run: Run, verdicts: Sequence[Verdict], *, capped: str = "") -> int:
        """Append in one transaction what is still wanted, then close or cap the replay where it is at its end."""

        def work(tx: Transaction) -> int:
            wanted = _still_wanted(tx, run, verdicts)
            append_verdicts(tx, self._ledger, wanted)
            if not _close(tx, run):
                reason = capped or _beyond_cap(tx, run, wanted)
                if reason:
                    set_status(tx, run.run_id, "capped", error=reason, only_from=("external",))
            return len(wanted)

        return self._store.write(work).result()


def _key(job: Job, cases: Mapping[Any, Case], evaluator: Declared) -> str:
    case = cases.get(job.unit)
    return job.job_id if case is None else score_key(job.unit, case, evaluator)


def _handed(job: Job, case: Case) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "trace_id": job.unit.trace_id,
        "span_id": job.unit.span_id,
        "request_time": job.unit.request_time,
        "u": job.u,
        "case": case.model_dump(mode="json"),
    }


def _still_wanted(tx: Transaction, run: Run, verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Leave out jobs finished meanwhile; a verdict stored meanwhile under the same key is reused, not repeated."""
    open_jobs = {job.job_id: job for job in of_run(tx.execute, run.run_id, job_ids=[v.job.job_id for v in verdicts])}
    keys = stored_keys(tx.execute, [v.job.unit for v in verdicts], [v.score_key for v in verdicts])
    found = []
    for verdict in verdicts:
        job = open_jobs.get(verdict.job.job_id)
        if job is not None:
            met: dict[str, Any] = {"result": None, "reservation": None} if verdict.score_key in keys else {}
            found.append(replace(verdict, job=job, **met))
    return found


def _close(tx: Transaction, run: Run) -> bool:
    """Mark the replay as done where no job is left."""
    if of_run(tx.execute, run.run_id, limit=1):
        return False
    set_status(tx, run.run_id, "done", only_from=("external",))
    return True


def _beyond_cap(tx: Transaction, run: Run, verdicts: Sequence[Verdict]) -> str | None:
    if run.max_usd is None:
        return None
    if any(verdict.result is not None and cost_of(verdict.result) is None for verdict in verdicts):
        return "the price of a judge call is unknown, so the cap cannot be kept: add it to [prices]"
    spent = spent_usd(tx.execute, run_id=run.run_id)
    return f"{spent:.4g} of {run.max_usd:.4g} USD are spent" if spent >= run.max_usd else None


def _checked(given: Any, evaluator: Declared) -> dict[str, _Given]:
    """Read the results by job id; raises ValueError that names the first mistake."""
    if not isinstance(given, list) or len(given) > _MOST:
        raise ValueError(f"results: a list of at most {_MOST} is expected")
    found: dict[str, _Given] = {}
    for place, one in enumerate(given):
        try:
            job_id, result = _one(one, evaluator)
        except ValueError as error:
            raise ValueError(f"results[{place}]: {_plain(error)}") from error
        if job_id in found:
            raise ValueError(f"results[{place}]: {job_id!r} is there twice")
        found[job_id] = result
    return found


def _one(one: Any, evaluator: Declared) -> tuple[str, _Given]:
    if not isinstance(one, Mapping) or not isinstance(one.get("result"), Mapping):
        raise ValueError("an object with job_id and result is expected")
    job_id = one.get("job_id")
    if not isinstance(job_id, str) or len(job_id) != 32 or set(job_id) - set("0123456789abcdef"):
        raise ValueError(f"{str(job_id)[:80]!r} is no job id")
    result = EvaluationResult.model_validate(one["result"])
    own = (evaluator.name, evaluator.version, evaluator.judge_id)
    if (result.evaluator, result.version, result.judge) != own:
        raise ValueError("evaluator, version and judge are not those of the replay")
    elapsed = one.get("elapsed_ms")
    if elapsed is not None and not isinstance(elapsed, int | float):
        raise ValueError("elapsed_ms is a number")
    _demand_sane([elapsed, *(call.cost_usd for call in result.calls)])
    if not all(math.isfinite(end) for end in result.ci95 or ()):
        raise ValueError("ci95 must be finite")
    _demand_flat(result.parts, _DEEPEST)
    return job_id, _Given(result, elapsed)


def _demand_sane(figures: Sequence[float | None]) -> None:
    if any(figure is not None and not 0.0 <= figure < 1e12 for figure in figures):
        raise ValueError("costs and times are finite and not negative")


def _demand_flat(value: Any, levels: int) -> None:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if children and not levels:
        raise ValueError("parts are too deeply nested")
    for child in children:
        _demand_flat(child, levels - 1)


def _plain(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
