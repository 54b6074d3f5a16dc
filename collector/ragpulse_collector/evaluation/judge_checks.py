"""Checks of judges on labelled answers: a run whose cases belong to no trace, and a report at its end."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any
from uuid import UUID, uuid4

from pydantic import TypeAdapter, ValidationError

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation.budget import Ledger, bill, unknown_price
from ragpulse_collector.evaluation.judge import JudgePrices
from ragpulse_collector.evaluation.labelled import labelled
from ragpulse_collector.refusals import Conflict, Invalid
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.jobs import OPEN_RUN, add_replay_jobs
from ragpulse_collector.store.queries.runs import (
    LABELLED,
    ReplaySpec,
    Run,
    add_report,
    add_run,
    last_results,
    latest_runs,
    progress,
    reports,
    set_status,
)
from ragpulse_evaluators import EvaluationResult, Judge
from ragpulse_evaluators.judges.protocol import model_of
from ragpulse_evaluators.meta.judge_check import JudgeCheck, check_estimates, judge_report

_log = logging.getLogger("ragpulse.collector")
_REPORT = TypeAdapter(JudgeCheck)
_STOPPED = ("capped", "cancelled")
"""The next check goes on where one of these stopped."""


@dataclass(frozen=True, kw_only=True)
class StoredCheck:
    """A check and its time (UTC)."""

    at: datetime
    check: JudgeCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """How far the check is that `POST judge/check` started last."""

    judge: str
    running: bool
    done: int
    """Results so far, also failed ones."""
    n: int
    error: str | None
    """Why it ended without a report; after a cap the next one goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class StartedCheck:
    """A check that begins."""

    judge: str
    questions: int
    """As if nothing was recorded."""
    cost_usd: float | None
    """What they may cost; None where the price is unknown."""


@dataclass(frozen=True, slots=True)
class JudgeChecks:
    """The stored checks, newest first, and the configured judge."""

    judge: str | None
    """Its id, as in the checks."""
    command: str | None
    """What checks it: a line for a shell in the collector's working folder."""
    checks: Sequence[StoredCheck]
    started: CheckState | None = None
    """None until `POST judge/check` starts one."""

    @property
    def newest(self) -> StoredCheck | None:
        """The newest check of the configured judge."""
        return next((stored for stored in self.checks if stored.check.judge == self.judge), None)


@dataclass(eq=False, repr=False)  # the settings hold secrets
class JudgeChecker:
    """Checks a configured judge when somebody asks; one at once."""

    store: Store
    settings: Settings
    catalog: Catalog
    """Its judges answer without the record."""
    _: KW_ONLY
    price: JudgePrices
    ledger: Ledger
    wake: Callable[[], None] = lambda: None
    """Announces jobs to the worker."""
    clock: Clock = utc_now

    def __post_init__(self) -> None:
        self._lock = Lock()

    def start(self, name: str | None, max_usd: float | None) -> StartedCheck:
        """Answer `POST judge/check`: start a check, or go on with one of this judge that stopped.

        Raises Invalid without a judge or the price that a cap needs, Conflict while one runs.
        """
        judge = self.catalog.judge_named(name)
        if (max_usd is not None or self.ledger.limits()) and self.price.rates(model_of(judge)) is None:
            raise Invalid(unknown_price(model_of(judge)))
        with self._lock:
            runs = self._runs()
            if any(run.status in OPEN_RUN for run in runs):
                raise Conflict("a check of a judge is running: GET judge/checks says how far it is")
            stopped = next((run for run in runs[:1] if run.judge == judge.id and run.status in _STOPPED), None)
            self.store.write(lambda tx: self._go(tx, judge, name, max_usd, stopped)).result()
        self.wake()
        estimates = check_estimates(judge)
        cost = bill(estimates, judge, len(estimates), self.price).cost_usd
        return StartedCheck(judge.id, sum(estimate.calls for estimate in estimates), cost)

    def _go(self, tx: Transaction, judge: Judge, name: str | None, max_usd: float | None, stopped: Run | None) -> None:
        configured = self.settings.judge
        if stopped is not None:
            add_run(tx, replace(stopped, status="running", max_usd=max_usd, error=None, created_at=tx.at))
            return
        run_id, spec = uuid4().hex[:12], ReplaySpec(judge=name or configured.name or configured.model, labelled=True)
        questions = labelled()
        key = (run_id, LABELLED, "", judge.id, "running")
        add_run(tx, Run(*key, len(questions), max_usd, None, tx.at, False, spec, "check"))
        for evaluator in dict.fromkeys(each.evaluator for each in questions.values()):
            jobs = [
                (trace, span, None, span / len(questions))
                for (trace, span), each in questions.items()
                if each.evaluator == evaluator
            ]
            add_replay_jobs(tx, run_id, evaluator, jobs, source="check")

    def ended(self) -> None:
        """Store the reports of the checks that are done and have none."""
        done = [run for run in self._runs() if run.status == "done"]
        found = reports(self.store.read, [run.run_id for run in done])
        for run in done:
            if run.run_id not in found:
                results = _results(last_results(self.store.read, run.run_id))
                self.store.write(partial(self._end, run=run, results=results)).result()

    def _end(self, tx: Transaction, run: Run, results: Sequence[EvaluationResult]) -> None:
        """Append the report; a check without any verdict has failed."""
        if any(result.status == "ok" for result in results):
            report = judge_report(run.judge or "", results, server=self._server(run))
            add_report(tx, run.run_id, json.dumps(asdict(report)))
            return
        reason = next((result.explanation for result in results if result.status == "error"), None)
        _log.warning("the check of the judge %s: %s", run.judge, reason)
        set_status(tx, run.run_id, "failed", error=reason or "no reply holds a verdict", only_from=("done",))

    def _server(self, run: Run) -> dict[str, Any]:
        """Return what the judge's server took, as far as the questions of the check showed."""
        return dict(getattr(self.catalog.judge_named(run.spec.judge), "accepted", {}))

    def checks(self) -> JudgeChecks:
        """Answer `GET judge/checks`."""
        runs, configured = self._runs(sent=True), self.settings.judge
        found = reports(self.store.read, [run.run_id for run in runs])
        stored = [
            StoredCheck(at=run.created_at, check=report)
            for run in runs
            if (report := _report(found.get(run.run_id))) is not None
        ]
        command = None
        if configured.model:
            command = shlex.join(
                ["ragpulse", "judge", "check", "--judge", configured.model, "--db", self.settings.collector.db]
            )
        judge = self.catalog.judge
        return JudgeChecks(None if judge is None else judge.id, command, stored, self._state(runs, found))

    def _state(self, runs: Sequence[Run], found: Collection[str]) -> CheckState | None:
        run = next((run for run in runs if not run.spec.sent), None)
        if run is None:
            return None
        done = sum(each.n for each in progress(self.store.read, [run.run_id])[run.run_id])
        running = run.status in OPEN_RUN or (run.status == "done" and run.run_id not in found)
        return CheckState(judge=run.judge or "", running=running, done=done, n=run.total, error=run.error)

    def _runs(self, *, sent: bool = False) -> list[Run]:
        """Return the checks, newest first, those of callers only if they are asked for."""
        checks = latest_runs(self.store, checks=True).values()
        return [run for run in checks if run.spec.labelled and (sent or not run.spec.sent)]


def checked_report(report: dict[str, Any], judge: str | None) -> dict[str, Any]:
    """Return the report of a check that somebody sent; raises Invalid where it is none, or that of another judge."""
    try:
        found = _read(json.dumps(report))
    except ValidationError as error:
        raise Invalid(f"report: not what `ragpulse judge check --json` prints: {error.errors()[0]['msg']}") from error
    if found.judge != judge:
        raise Invalid("judge: not the judge of the report")
    return asdict(found)


def _report(text: str | None) -> JudgeCheck | None:
    """Return a stored report; None for one of another version that lacks something."""
    try:
        return None if text is None else _read(text)
    except ValidationError:
        return None


def _read(text: str) -> JudgeCheck:
    """Read a report; before version 15 of the store an estimate had its value under `estimate` alone."""
    return _REPORT.validate_json(text.replace('"estimate":', '"value":'))


def _results(found: Mapping[tuple[UUID, int], str]) -> list[EvaluationResult]:
    """Return the results of a check in the order of its questions."""
    not_asked = EvaluationResult(status="error", explanation="it was not asked").model_dump_json()
    return [EvaluationResult.model_validate_json(found.get(unit, not_asked)) for unit in labelled()]
