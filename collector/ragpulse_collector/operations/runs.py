"""`GET runs`: all that evaluates in one list, with one progress and one bill: rules, replays, checks of judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ragpulse_collector.api.operations import operation
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.evaluation.judge_checking import JudgeChecker
from ragpulse_collector.evaluation.judge_checks import checks_of
from ragpulse_collector.evaluation.replay import ReplayProgress, Replays
from ragpulse_collector.interface import Command
from ragpulse_collector.operations.rules import RuleInForce, rule_list
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.sampling import Rules
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Run

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
    """A rule's is `rule:NAME`, that of a check on labelled answers `judge:TIME`."""
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
def run_list(
    store: Store, rules: Rules, replays: Replays, settings: Settings, catalog: Catalog, checker: JudgeChecker, /,
    purpose: Purpose | None = None,
) -> RunList:  # fmt: skip
    """Everything that evaluates: rules, replays and checks of judges."""
    shown = [
        *map(_of_rule, rule_list(store, rules).rules),
        *(_of_run(run, progress) for run, progress in replays.runs()),
        *_of_checks(settings, catalog, checker),
    ]
    return RunList([one for one in shown if purpose in (None, one.purpose)])


@operation("GET runs/{id}")
def one_run(
    store: Store, rules: Rules, replays: Replays, settings: Settings, catalog: Catalog, checker: JudgeChecker, /,
    id: str,
) -> RunShown:  # fmt: skip
    """One run."""
    runs = run_list(store, rules, replays, settings, catalog, checker).runs
    found = next((one for one in runs if one.run_id == id), None)
    if found is None:
        raise NotFound(f"no run {id!r}: GET runs lists them")
    return found


def _of_rule(rule: RuleInForce) -> RunShown:
    rates = [rule.rate, *(stratum.rate for stratum in rule.strata)]
    return RunShown(
        run_id=f"rule:{rule.name}",
        evaluators=rule.evaluators,
        purpose="live",
        population=Population(of="future", where=rule.where),
        order="arrival",
        state="running" if rule.enabled and any(rates) else "paused",
        cost_usd=rule.spent_today_usd,
        max_usd=rule.budget_usd_per_day,
        result=f"GET metrics?name=quality:{rule.evaluators[0].partition('@')[0]}" if rule.evaluators else None,
    )


def _of_run(run: Run, progress: ReplayProgress) -> RunShown:
    spec = run.spec
    population = Population(
        of="dataset" if spec.dataset else "range",
        where=spec.where,
        since=spec.since,
        until=spec.until,
        dataset=spec.dataset,
        limit=spec.limit,
    )
    return RunShown(
        run_id=run.run_id,
        evaluators=[run.evaluator],
        version=run.version,
        judge=run.judge,
        purpose=run.purpose,
        population=population,
        order="random",
        by="caller" if spec.external else "collector",
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
        result=f"GET drift?evaluator={run.evaluator}" if run.kind else f"GET replays/{run.run_id}/result",
    )


def _of_checks(settings: Settings, catalog: Catalog, checker: JudgeChecker) -> Iterator[RunShown]:
    """Yield the checks on labelled answers: the one that runs, and those that ended."""
    answers = checks_of(settings, catalog.judge, checker.state)
    labelled, evaluators = Population(of="labelled"), ["faithfulness", "pairwise"]
    if (started := answers.started) is not None and (started.running or started.error):
        yield RunShown(
            run_id="judge:now",
            evaluators=evaluators,
            judge=started.judge,
            purpose="check",
            population=labelled,
            order="arrival",
            state="running" if started.running else "failed",
            total=started.n,
            done=started.done,
            cost_usd=None,
            reason=started.error,
            result=None,
        )
    for stored in answers.checks:
        yield RunShown(
            run_id=f"judge:{stored.at:%Y-%m-%dT%H:%M:%S}",
            evaluators=evaluators,
            judge=stored.check.judge,
            purpose="check",
            population=labelled,
            order="arrival",
            state="done",
            total=stored.check.questions,
            done=stored.check.questions,
            cost_usd=None,
            finished_at=stored.at,
            result="GET judge/checks",
        )
