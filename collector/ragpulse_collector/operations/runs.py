"""`GET runs`: all that evaluates in one list, with one progress and one bill: rules, replays, checks of judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import uuid4

import orjson
from pydantic import Field, JsonValue

from ragpulse_collector.analysis.compare.results import ReplayResult, replay_result
from ragpulse_collector.api.health import Waiting
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Names
from ragpulse_collector.api.status import waiting_jobs
from ragpulse_collector.evaluation import DriftWatch
from ragpulse_collector.evaluation.drift import CheckReport
from ragpulse_collector.evaluation.judge_checks import checked_report
from ragpulse_collector.evaluation.replay import ReplayProgress, Replays
from ragpulse_collector.interface import Command
from ragpulse_collector.operations.rules import RuleInForce, rule_list
from ragpulse_collector.refusals import Conflict, Invalid, NotFound
from ragpulse_collector.sampling import Rules
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.runs import (
    LABELLED,
    ReplaySpec,
    Run,
    add_report,
    add_run,
    latest_runs,
    reports,
)

Purpose = Literal["live", "exploratory", "check"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What a run evaluates."""

    of: Literal["future", "range", "dataset", "labelled"]
    """What arrives from now on, stored requests of a range, a frozen dataset, or answers with known labels."""
    where: str | None = None
    since: str | None = None
    until: str | None = None
    dataset: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShown:
    """A run: who evaluates what, for which purpose, how far it is and what it costs."""

    run_id: str
    """A rule's is `rule:NAME`."""
    evaluators: Sequence[str]
    version: str | None = None
    judge: str | None = None
    purpose: Purpose
    """`live`: lists, charts and alerts read its scores; `exploratory`: only its result; `check`: it tests a judge."""
    population: Population
    order: Literal["arrival", "random"]
    by: Literal["collector", "caller"] = "collector"
    """Whose process evaluates."""
    state: str
    total: int | None = None
    """None: it has no end."""
    done: int | None = None
    error: int | None = None
    rate_per_s: float | None = None
    eta_s: float | None = None
    """Of a rule: until nothing of its evaluators waits; None where nothing does, or where more arrives than is done."""
    cost_usd: float | None
    """Of a rule with a budget of its own: today."""
    max_usd: float | None = None
    """Its cap; that of a rule is for a day."""
    reason: str | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None
    """The operation that shows what it found."""


@dataclass(frozen=True, slots=True)
class RunList:
    """Rules, then replays and checks of judges, the newest first."""

    runs: Sequence[RunShown]


_COLUMNS = {
    "run": "run_id", "evaluators": "evaluators", "state": "state", "done": "done", "total": "total",
    "eta": "eta_s", "cost": "cost_usd", "purpose": "purpose", "cap": "max_usd", "since": "created_at",
}  # fmt: skip


@operation("GET runs", command=Command("runs", columns={"runs": _COLUMNS}))
def run_list(store: Store, rules: Rules, replays: Replays, /, purpose: Purpose | None = None) -> RunList:
    """Everything that evaluates: rules, replays and checks of judges."""
    waiting = {each.evaluator: each for each in waiting_jobs(store)}
    shown = [
        *(_of_rule(rule, waiting) for rule in rule_list(store, rules).rules),
        *(_of_run(run, progress) for run, progress in replays.runs()),
    ]
    return RunList([one for one in shown if purpose in (None, one.purpose)])


@operation("GET runs/{id}")
def one_run(store: Store, rules: Rules, replays: Replays, /, id: str) -> RunShown:
    """One run."""
    runs = run_list(store, rules, replays).runs
    shown = next((one for one in runs if one.run_id == id), None)
    if shown is None:
        raise NotFound(f"no run {id!r}: GET runs lists them")
    return shown


@operation("POST runs", scope="admin")
def keep_run(
    store: Store,
    rules: Rules,
    replays: Replays,
    /,
    evaluators: Annotated[Names, Field(min_length=1)],
    report: dict[str, JsonValue],
    total: Annotated[int, Field(ge=0, lt=2**31)],
    judge: str | None = None,
    dataset: Annotated[str | None, "What it asked; default: the labelled answers of a judge's check."] = None,
) -> RunShown:
    """Keep a check that the caller has run: `ragpulse judge check` and `regress` send their reports."""
    spec = ReplaySpec(labelled=dataset is None, dataset=dataset, sent=True)
    if spec.labelled:
        report = checked_report(report, judge)
    try:
        text = orjson.dumps(report).decode()
    except TypeError as error:  # what no answer could hold: half a surrogate, a nesting without end
        raise Invalid(f"report: {error}") from error
    key = (uuid4().hex[:12], LABELLED if spec.labelled else ", ".join(evaluators), "", judge, "done", total)

    def work(tx: Transaction) -> None:
        add_run(tx, Run(*key, None, None, tx.at, False, spec, "check"))
        add_report(tx, key[0], text)

    store.write(work).result()
    return one_run(store, rules, replays, key[0])


@operation("GET runs/{id}/result")
def run_result(
    store: Store, watch: DriftWatch, lead: Lead, /, id: str
) -> ReplayResult | CheckReport | dict[str, JsonValue]:
    """What a run found: the figures of a replay, how far a judge moved, or the report of a check."""
    run = latest_runs(store, run_id=id).get(id)
    if run is None:
        raise NotFound(f"no run {id!r} with a result: GET runs lists them; rules have metrics")
    if run.kind is None:
        return replay_result(store, id, lead())
    if run.spec.labelled or run.spec.sent:
        report = reports(store.read, [id]).get(id)
        if report is None:
            raise Conflict(f"run {id!r} has no report: it is {run.status}")
        sent: dict[str, JsonValue] = orjson.loads(report)
        return sent
    check = next((one for one in watch.report(run.evaluator).checks if one.run_id == id), None)
    if check is None:
        raise Conflict(f"run {id!r} has no result: it is {run.status}, or other answers are frozen since")
    return check


def _of_rule(rule: RuleInForce, waiting: Mapping[str, Waiting]) -> RunShown:
    rates = [rule.rate, *(stratum.rate for stratum in rule.strata)]
    left = [waiting[name] for name in rule.evaluators if name in waiting]
    clear = [each.clears_in_s for each in left if each.clears_in_s is not None]
    return RunShown(
        run_id=f"rule:{rule.name}",
        evaluators=rule.evaluators,
        purpose="live",
        population=Population(of="future", where=rule.where),
        order="arrival",
        state="running" if rule.enabled and any(rates) else "paused",
        rate_per_s=sum(each.done_per_s for each in left) if left else None,
        eta_s=max(clear) if left and len(clear) == len(left) else None,
        cost_usd=rule.spent_today_usd,
        max_usd=rule.budget_usd_per_day,
        result=f"GET metrics?name=quality:{rule.evaluators[0].partition('@')[0]}" if rule.evaluators else None,
    )


def _of_run(run: Run, progress: ReplayProgress) -> RunShown:
    spec = run.spec
    population = Population(
        of="labelled" if spec.labelled else "dataset" if spec.dataset else "range",
        where=spec.where,
        since=spec.since,
        until=spec.until,
        dataset=spec.dataset,
        limit=spec.limit,
    )
    return RunShown(
        run_id=run.run_id,
        evaluators=run.evaluator.split(", "),
        version=run.version or None,
        judge=run.judge,
        purpose=run.purpose,
        population=population,
        order="random",
        by="caller" if spec.external or spec.sent else "collector",
        state=progress.status,
        total=progress.total,
        done=progress.done,
        error=progress.error,
        rate_per_s=progress.rate_per_s,
        eta_s=progress.eta_s,
        cost_usd=progress.cost_usd,
        max_usd=progress.max_usd,
        reason=progress.reason,
        created_at=progress.created_at,
        finished_at=progress.finished_at,
        result=f"GET runs/{run.run_id}/result",
    )
