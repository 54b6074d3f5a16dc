"""Replay: stored traces through an evaluator, on the same queue as online evaluation, with a bill before and a cap.

Jobs run in order of u, so that a stopped replay is a random sample. A score that exists under the same key is reused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.evaluation.budget import Bill, EvaluatorBill, Price, bill, total
from ragpulse_collector.evaluation.client_replay import Declared
from ragpulse_collector.evaluation.jobs import Resolve, resolved
from ragpulse_collector.refusals import Conflict, Invalid, NotFound, Refusal
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.jobs import OPEN_RUN, add_replay_jobs, reply_tokens
from ragpulse_collector.store.queries.runs import (
    Declaration,
    Finished,
    ReplaySpec,
    ReplayUnit,
    Run,
    Share,
    add_run,
    latest_runs,
    progress,
    put_in_use,
    set_in_use,
    set_status,
    shares,
    units_scored,
    units_to_replay,
)
from ragpulse_collector.store.retention import Reason, audit, delete_run
from ragpulse_collector.store.units.numbers import sampling_number
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_evaluators import Evaluator
from ragpulse_evaluators.judges.protocol import model_of

__all__ = ["ReplayList", "ReplayProgress", "ReplayRequest", "Replays"]

_BILLED = 200
"""The bill extrapolates from this many cases, the first in order of u: a random sample."""
_SAMPLE = 50
"""Cases sent to a caller that computes the cost of its own judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What to replay: the requests of a query through evaluators of the collector or (`external`) of the caller."""

    query: Query
    evaluators: Sequence[str] = ()
    external: Sequence[Declaration] = ()
    judge: str | None = None
    prompts: str | None = None
    loads: Sequence[str] = ()
    where: str | None = None
    """The condition in the query's filters, as it was written."""
    limit: int | None = None
    max_usd: float | None = None

    def spec(self, matching: int, external: Declaration | None) -> ReplaySpec:
        """Return the request as it is stored."""
        return ReplaySpec(
            judge=self.judge,
            prompts=self.prompts,
            loads=tuple(self.loads),
            where=self.where,
            since=iso(self.query.window.first),
            until=iso(self.query.window.last),
            limit=self.limit,
            matching=matching,
            external=external,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """A replay with its progress."""

    run_id: str
    evaluator: str
    version: str
    judge: str | None
    current: bool
    """Whether a rule would evaluate with the same version and judge."""
    in_use: bool
    """Whether lists, charts, alerts and figures read its scores; else it is exploratory."""
    where: str | None
    since: str | None
    limit: int | None
    status: str
    total: int
    done: int
    ok: int
    skipped: int
    invalid: int
    error: int
    cost_usd: float | None
    max_usd: float | None
    reason: str | None
    rate_per_s: float | None
    eta_s: float | None
    created_at: datetime | None
    finished_at: datetime | None
    pi: float | None
    u_max: float | None


@dataclass(frozen=True, slots=True)
class ReplayList:
    """Replays, newest first."""

    replays: Sequence[ReplayProgress]


@dataclass(frozen=True)
class Replays:
    """Starts, bills, watches, stops and continues replays."""

    store: Store
    resolve: Resolve
    _: KW_ONLY
    price: Price | None = None
    wake: Callable[[], None] = lambda: None
    salt: str = "ragpulse"
    clock: Clock = utc_now
    in_force: Callable[[], Iterable[str]] = tuple
    """Returns the evaluators of the rules that evaluate something."""

    def start(self, request: ReplayRequest) -> ReplayList:
        """Start one run per evaluator; of the caller's evaluators it fetches the cases and sends the results.

        Those that ask a paid judge share the cap equally.
        Raises Invalid for a wrong request, NotFound for an unknown evaluator.
        """
        evaluators, matching = self._evaluators(request), self._select(request.query)
        paid = sum(map(self._is_paid, evaluators.values()))
        cap = None if request.max_usd is None else request.max_usd / max(1, paid)
        runs = [self._start(name, evaluator, matching, request, cap) for name, evaluator in evaluators.items()]
        self.wake()
        return ReplayList([self.get(run_id) for run_id in runs])

    def _is_paid(self, evaluator: Evaluator) -> bool:
        """Whether a judge is asked that is not known to be free."""
        if evaluator.judge is None or self.price is None:
            return evaluator.judge_id is not None
        return self.price(model_of(evaluator.judge), 1000, 1000) != 0.0

    def bill(self, request: ReplayRequest) -> Bill:
        """Return what a request would cost, without starting it; raises as `start` does."""
        evaluators, selected = self._evaluators(request), self._select(request.query)[: request.limit]
        return total([self._bill_of(evaluator, selected) for evaluator in evaluators.values()], request.max_usd)

    def _evaluators(self, request: ReplayRequest) -> dict[str, Evaluator]:
        spec = request.spec(0, None)
        if not request.external:
            if not request.evaluators or not all(request.evaluators):
                raise Invalid("evaluators: name at least one")
            return {name: resolved(self.resolve, name, spec) for name in request.evaluators}
        if spec.judge or spec.prompts or spec.loads or request.evaluators:
            raise Invalid("external: a list of evaluators, without evaluators, judge, prompts and loads beside it")
        return {item.name: item for item in map(Declared, request.external)}

    def list(self) -> ReplayList:
        """Return every replay with its progress, newest first."""
        return ReplayList(self._with_progress(latest_runs(self.store, checks=False).values()))

    def runs(self) -> Sequence[tuple[Run, ReplayProgress]]:
        """Return every replay and every check over frozen answers with its progress, newest first."""
        runs = latest_runs(self.store).values()
        return list(zip(runs, self._with_progress(runs), strict=True))

    def get(self, run_id: str) -> ReplayProgress:
        """Return one replay, or check of a judge, with its progress; raises NotFound."""
        (progress,) = self._with_progress([self._run(run_id, checks=None)])
        return progress

    def cancel(self, run_id: str) -> ReplayProgress:
        """Stop a running replay or check of a judge; finished results stay, and `resume` continues it."""
        self._run(run_id, checks=None)
        going = ("running", "external")
        self.store.write(lambda tx: set_status(tx, run_id, "cancelled", only_from=going)).result()
        self.wake()
        return self.get(run_id)

    def resume(self, run_id: str, *, max_usd: float | None = None) -> ReplayProgress:
        """Continue a cancelled or capped replay, with a new cap where given."""
        going = "running" if self._run(run_id, checks=None).spec.external is None else "external"
        stopped = ("cancelled", "capped", "failed")
        self.store.write(lambda tx: set_status(tx, run_id, going, max_usd=max_usd, only_from=stopped)).result()
        self.wake()
        return self.get(run_id)

    def use(self, run_id: str, *, actor: str, undo: bool = False) -> ReplayProgress:
        """Let lists, charts, alerts and figures read the scores of a replay, and later replays of its version at once.

        With `undo` it is exploratory again.
        """
        run = self._run(run_id)
        detail: Reason = {"replay": run_id, "evaluator": run.evaluator, "version": run.version, "judge": run.judge}

        def work(tx: Transaction) -> None:
            set_in_use(tx, run_id, in_use=not undo)
            audit(tx, actor=actor, action="set aside" if undo else "use", detail=detail)

        self.store.write(work).result()
        return self.get(run_id)

    def delete(self, run_id: str, *, actor: str) -> None:
        """Delete a replay with the scores that nothing else uses; raises Conflict while it runs."""
        if self._run(run_id).status in OPEN_RUN:
            raise Conflict(f"replay {run_id} is running: cancel it first")
        delete_run(self.store, run_id, actor=actor)

    def _is_in_force(self, evaluator: Evaluator) -> bool:
        """Whether a rule evaluates with this version and judge, or a replay of them was put in use."""
        wanted = (evaluator.version, evaluator.judge_id)
        names = [name for name in self.in_force() if name.partition("@")[0] == evaluator.name]
        return wanted in set(map(self._key, names)) | put_in_use(self.store.read, evaluator.name)

    def _run(self, run_id: str, *, checks: bool | None = False) -> Run:
        run = latest_runs(self.store, run_id=run_id, checks=checks).get(run_id)
        if run is None:
            raise NotFound(f"no replay {run_id!r}")
        return run

    def _select(self, query: Query) -> Sequence[ReplayUnit]:
        """Return the matching units with their numbers u, in order; of a trace with several units, the decided ones."""
        units = units_to_replay(query.reader(self.store).read, query.filters.sql, query.parameters)
        return sorted(map(self._numbered, units), key=lambda unit: (unit.u, unit.trace_id, unit.span_id))

    def _numbered(self, unit: ReplayUnit) -> ReplayUnit:
        if unit.u is not None:
            return unit
        return unit._replace(u=sampling_number(self.salt, unit.trace_id.hex, f"{unit.span_id:016x}"))

    def _bill_of(self, evaluator: Evaluator, selected: Sequence[ReplayUnit]) -> EvaluatorBill:
        """Return the bill of one evaluator: tokens and cost of a sample of the cases, scaled up."""
        already = self._scored(evaluator, selected)
        cases = list(cases_of(self.store, [_unit(each) for each in selected[:_BILLED]]).values())
        estimates = [evaluator.estimate(case) for case in cases]
        replies = reply_tokens(self.store.read, evaluator.name, evaluator.judge_id)
        cost = bill(estimates, evaluator.judge, max(0, len(selected) - already), self.price, replies)
        part = extended(
            EvaluatorBill,
            cost,
            evaluator=evaluator.name,
            version=evaluator.version,
            judge=evaluator.judge_id,
            count=len(selected),
            already=already,
        )
        if isinstance(evaluator, Declared) and evaluator.judge_id is not None:
            unknown = replace(part, cost_usd=None, cost_usd_low=None, cost_usd_at_most=None)
            why = "only the caller knows its judge"
            return replace(unknown, cost_unknown_reason=why, sample=cases[:_SAMPLE], replies=replies)
        return part

    def _scored(self, evaluator: Evaluator, selected: Sequence[ReplayUnit]) -> int:
        """Return how many of the units have a final verdict of this version and judge."""
        return units_scored(self.store.read, evaluator.name, evaluator.version, evaluator.judge_id, selected)

    def _start(
        self, name: str, evaluator: Evaluator, matching: Sequence[ReplayUnit], request: ReplayRequest, cap: float | None
    ) -> str:
        run_id, selected = uuid.uuid4().hex[:12], matching[: request.limit]
        external = evaluator.declaration if isinstance(evaluator, Declared) else None
        spec = request.spec(len(matching), external)
        status = "done" if not selected else "running" if external is None else "external"
        abandoned = self._abandoned(spec)
        key, in_use = (run_id, name, evaluator.version, evaluator.judge_id), self._is_in_force(evaluator)

        def work(tx: Transaction) -> None:
            for earlier in abandoned:
                set_status(tx, earlier, "cancelled", error=f"replay {run_id} goes on with it", only_from=("external",))
            add_run(tx, Run(*key, status, len(selected), cap, None, tx.at, in_use, spec))
            add_replay_jobs(tx, run_id, name, selected)

        self.store.write(work).result()
        return run_id

    def _abandoned(self, spec: ReplaySpec) -> Sequence[str]:
        """Return client-side replays of the same evaluator and traces: their caller was killed and starts again."""
        if spec.external is None:
            return []
        signature = (spec.external, spec.where, spec.limit)
        return [
            run.run_id
            for run in latest_runs(self.store, status="external").values()
            if (run.spec.external, run.spec.where, run.spec.limit) == signature
        ]

    def _with_progress(self, runs: Collection[Run]) -> Sequence[ReplayProgress]:
        """Return the runs with their progress, which few queries read for all of them."""
        ids, names = [run.run_id for run in runs], {run.evaluator for run in runs}
        finished, keys = progress(self.store.read, ids), {name: self._key(name) for name in names}
        only = next(iter(names)) if len(names) == 1 else None
        samples = {each.run_id: each for each in shares(self.store, only, exploratory=True)} if ids else {}
        return [
            _progress(
                run,
                finished[run.run_id],
                samples.get(run.run_id),
                current=keys[run.evaluator] == (run.version, run.judge),
            )
            for run in runs
        ]

    def _key(self, name: str) -> tuple[str, str | None] | None:
        """Return version and judge with which a rule would evaluate; None where it could not."""
        try:
            evaluator = self.resolve(name)
        except Refusal:
            return None
        return evaluator.version, evaluator.judge_id


def _unit(unit: ReplayUnit) -> Unit:
    return Unit(unit.trace_id.hex, f"{unit.span_id:016x}", unit.request_time)


def _progress(run: Run, finished: Sequence[Finished], share: Share | None, *, current: bool) -> ReplayProgress:
    counts = {each.status: each.n for each in finished}
    done = run.total if run.spec.sent else sum(counts.values())
    cost = sum(each.cost_usd or 0.0 for each in finished)
    last = max((each.last for each in finished if each.last), default=None)
    status = ("done" if done >= run.total else "running") if run.status in OPEN_RUN else run.status
    rate = _rate(finished, last)
    return ReplayProgress(
        run_id=run.run_id,
        evaluator=run.evaluator,
        version=run.version,
        judge=run.judge,
        current=current,
        in_use=run.in_use,
        where=run.spec.where,
        since=run.spec.since,
        limit=run.spec.limit,
        status=status,
        total=run.total,
        done=done,
        ok=counts.get("ok", 0),
        skipped=counts.get("skipped", 0),
        invalid=counts.get("invalid", 0),
        error=counts.get("error", 0),
        cost_usd=None if run.spec.sent or any(each.unpriced for each in finished) else cost,
        max_usd=run.max_usd,
        reason=run.error,
        rate_per_s=rate,
        eta_s=(run.total - done) / rate if rate and status == "running" else None,
        created_at=run.started_at,
        finished_at=None if status == "running" else last or run.created_at,
        pi=None if share is None else share.pi,
        u_max=None if share is None else min(1.0, share.below),
    )


def _rate(finished: Sequence[Finished], last: datetime | None) -> float | None:
    """Return the results a second since the run was started or continued."""
    since = next((each.going_since for each in finished), None)
    seconds = (last - since).total_seconds() if since and last else 0.0
    return sum(each.recent for each in finished) / seconds if seconds > 0 else None
