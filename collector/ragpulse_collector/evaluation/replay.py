"""Replay: stored traces through an evaluator, on the same queue as online evaluation, with a bill before and a cap.

Jobs run in order of u, so that a stopped replay is a random sample. A score that exists under the same key is reused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.evaluation.budget import Bill, EvaluatorBill, Price, bill, total
from ragpulse_collector.evaluation.client_replay import Declared
from ragpulse_collector.evaluation.jobs import resolved
from ragpulse_collector.refusals import Conflict, Invalid, NotFound, Refusal
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.jobs import OPEN_RUN, add_replay_jobs, reply_tokens
from ragpulse_collector.store.queries.runs import (
    Declaration,
    ReplaySpec,
    Run,
    add_run,
    latest_runs,
    progress,
    put_in_use,
    set_in_use,
    set_status,
    shares,
    started_at,
    units_scored,
    units_to_replay,
)
from ragpulse_collector.store.retention import Reason, audit, delete_run
from ragpulse_collector.store.units.numbers import sampling_number
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_evaluators import Evaluator

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


@dataclass(frozen=True, slots=True)
class _Selected:
    """A unit that a replay would score, with its number in [0, 1)."""

    unit: Unit
    u: float


class Replays:
    """Starts, bills, watches, stops and continues replays."""

    def __init__(
        self,
        store: Store,
        resolve: Callable[..., Evaluator],
        *,
        price: Price | None = None,
        wake: Callable[[], None] = lambda: None,
        salt: str = "ragpulse",
        clock: Callable[[], datetime] = utc_now,
        in_force: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`in_force` returns the evaluators of the rules that evaluate something."""
        self._store, self._resolve, self._price, self._wake = store, resolve, price, wake
        self._in_force = in_force
        self._salt, self.clock = salt, clock

    def start(self, request: ReplayRequest) -> ReplayList:
        """Start one run per evaluator; of the caller's evaluators it fetches the cases and sends the results.

        Raises Invalid for a wrong request, NotFound for an unknown evaluator.
        """
        evaluators, matching = self._evaluators(request), self._select(request.query)
        cap = None if request.max_usd is None else request.max_usd / len(evaluators)
        runs = [self._start(name, evaluator, matching, request, cap) for name, evaluator in evaluators.items()]
        self._wake()
        return ReplayList([self.get(run_id) for run_id in runs])

    def bill(self, request: ReplayRequest) -> Bill:
        """Return what a request would cost, without starting it; raises as `start` does."""
        evaluators, selected = self._evaluators(request), self._select(request.query)[: request.limit]
        return total([self._bill_of(evaluator, selected) for evaluator in evaluators.values()], request.max_usd)

    def _evaluators(self, request: ReplayRequest) -> dict[str, Evaluator]:
        spec = request.spec(0, None)
        if not request.external:
            if not request.evaluators or not all(request.evaluators):
                raise Invalid("evaluators: name at least one")
            return {name: resolved(self._resolve, name, spec) for name in request.evaluators}
        if spec.judge or spec.prompts or spec.loads or request.evaluators:
            raise Invalid("external: a list of evaluators, without evaluators, judge, prompts and loads beside it")
        return {item.name: item for item in map(Declared.of, request.external)}

    def list(self) -> ReplayList:
        """Return every replay with its progress, newest first."""
        return ReplayList([self._with_progress(run) for run in latest_runs(self._store).values()])

    def get(self, run_id: str) -> ReplayProgress:
        """Return one replay with its progress; raises NotFound."""
        return self._with_progress(self._run(run_id))

    def cancel(self, run_id: str) -> ReplayProgress:
        """Stop a running replay; finished results stay, and `resume` continues it."""
        self._run(run_id)
        going = ("running", "external")
        self._store.write(lambda tx: set_status(tx, run_id, "cancelled", only_from=going)).result()
        self._wake()
        return self.get(run_id)

    def resume(self, run_id: str, *, max_usd: float | None = None) -> ReplayProgress:
        """Continue a cancelled or capped replay, with a new cap where given."""
        going = "running" if self._run(run_id).spec.external is None else "external"
        stopped = ("cancelled", "capped", "failed")
        self._store.write(lambda tx: set_status(tx, run_id, going, max_usd=max_usd, only_from=stopped)).result()
        self._wake()
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

        self._store.write(work).result()
        return self.get(run_id)

    def delete(self, run_id: str, *, actor: str) -> None:
        """Delete a replay with the scores that nothing else uses; raises Conflict while it runs."""
        if self._run(run_id).status in OPEN_RUN:
            raise Conflict(f"replay {run_id} is running: cancel it first")
        delete_run(self._store, run_id, actor=actor)

    def _is_in_force(self, evaluator: Evaluator) -> bool:
        """Whether a rule evaluates with this version and judge, or a replay of them was put in use."""
        wanted = (evaluator.version, evaluator.judge_id)
        names = [name for name in self._in_force() if name.partition("@")[0] == evaluator.name]
        return wanted in set(map(self._key, names)) | put_in_use(self._store.read, evaluator.name)

    def _run(self, run_id: str) -> Run:
        run = latest_runs(self._store, run_id=run_id).get(run_id)
        if run is None:
            raise NotFound(f"no replay {run_id!r}")
        return run

    def _select(self, query: Query) -> Sequence[_Selected]:
        """Return the matching units in order of u; of a trace with several units, the decided ones."""
        rows = units_to_replay(query.reader(self._store).read, query.filters.sql, query.parameters)
        units = [
            _Selected(Unit(trace.hex, f"{span:016x}", time), self._u(trace.hex, span, u))
            for trace, span, time, u in rows
        ]
        return sorted(units, key=lambda unit: (unit.u, unit.unit.trace_id, unit.unit.span_id))

    def _u(self, trace_id: str, span_id: int, u: float | None) -> float:
        return sampling_number(self._salt, trace_id, f"{span_id:016x}") if u is None else u

    def _bill_of(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> EvaluatorBill:
        """Return the bill of one evaluator: tokens and cost of a sample of the cases, scaled up."""
        already = self._scored(evaluator, selected)
        cases = list(cases_of(self._store, [selection.unit for selection in selected[:_BILLED]]).values())
        estimates = [evaluator.estimate(case) for case in cases]
        replies = reply_tokens(self._store.read, evaluator.name, evaluator.judge_id)
        cost = bill(estimates, evaluator.judge, max(0, len(selected) - already), self._price, replies)
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

    def _scored(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> int:
        """Return how many of the units have a final verdict of this version and judge."""
        units = [(selection.unit.trace_id, int(selection.unit.span_id, 16)) for selection in selected]
        return units_scored(self._store.read, evaluator.name, evaluator.version, evaluator.judge_id, units)

    def _start(
        self, name: str, evaluator: Evaluator, matching: Sequence[_Selected], request: ReplayRequest, cap: float | None
    ) -> str:
        run_id, selected = uuid.uuid4().hex[:12], matching[: request.limit]
        external = evaluator.declaration if isinstance(evaluator, Declared) else None
        spec = request.spec(len(matching), external)
        status = "done" if not selected else "running" if external is None else "external"
        abandoned = self._abandoned(spec)
        units = [
            (selection.unit.trace_id, int(selection.unit.span_id, 16), selection.unit.request_time, selection.u)
            for selection in selected
        ]
        key, in_use = (run_id, name, evaluator.version, evaluator.judge_id), self._is_in_force(evaluator)

        def work(tx: Transaction) -> None:
            for earlier in abandoned:
                set_status(tx, earlier, "cancelled", error=f"replay {run_id} goes on with it", only_from=("external",))
            add_run(tx, Run(*key, status, len(selected), cap, None, tx.at, in_use, spec))
            add_replay_jobs(tx, run_id, name, units)

        self._store.write(work).result()
        return run_id

    def _abandoned(self, spec: ReplaySpec) -> Sequence[str]:
        """Return client-side replays of the same evaluator and traces: their caller was killed and starts again."""
        if spec.external is None:
            return []
        signature = (spec.external, spec.where, spec.limit)
        return [
            run.run_id
            for run in latest_runs(self._store, status="external").values()
            if (run.spec.external, run.spec.where, run.spec.limit) == signature
        ]

    def _with_progress(self, run: Run) -> ReplayProgress:
        finished = progress(self._store.read, run.run_id)
        counts = {each.status: each.n for each in finished}
        done, cost = sum(counts.values()), sum(each.cost_usd or 0.0 for each in finished)
        first = min((each.first for each in finished if each.first), default=None)
        last = max((each.last for each in finished if each.last), default=None)
        going = run.status in ("running", "external")
        status = ("done" if done >= run.total else "running") if going else run.status
        rate = _rate(done, first, last)
        share = next(
            (each for each in shares(self._store, run.evaluator, exploratory=True) if each.run_id == run.run_id), None
        )
        return ReplayProgress(
            run_id=run.run_id,
            evaluator=run.evaluator,
            version=run.version,
            judge=run.judge,
            current=self._key(run.evaluator) == (run.version, run.judge),
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
            cost_usd=None if any(each.unpriced for each in finished) else cost,
            max_usd=run.max_usd,
            reason=run.error,
            rate_per_s=rate,
            eta_s=(run.total - done) / rate if rate and status == "running" else None,
            created_at=started_at(self._store.read, run.run_id),
            finished_at=None if status == "running" else last or run.created_at,
            pi=None if share is None else share.pi,
            u_max=None if share is None else min(1.0, share.below),
        )

    def _key(self, name: str) -> tuple[str, str | None] | None:
        """Return version and judge with which a rule would evaluate; None where it could not."""
        try:
            evaluator = self._resolve(name)
        except Refusal:
            return None
        return evaluator.version, evaluator.judge_id


def _rate(done: int, first: datetime | None, last: datetime | None) -> float | None:
    seconds = (last - first).total_seconds() if first and last else 0.0
    return done / seconds if seconds > 0 else None
