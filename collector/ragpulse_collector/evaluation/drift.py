"""Did a judge move? A frozen dataset of judged answers, judged again by a run that asks anew, and compared.

freeze ─▶ dataset ─▶ run (purpose: check) ─▶ paired difference: again - frozen
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID, uuid4

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.quality import Bucket, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, duration_s, iso
from ragpulse_collector.evaluation.jobs import Resolve
from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.datasets import (
    Frozen,
    Item,
    add_items,
    dataset_items,
    delete_dataset,
    frozen_name,
    frozen_sets,
)
from ragpulse_collector.store.queries.jobs import OPEN_RUN, add_replay_jobs
from ragpulse_collector.store.queries.runs import (
    Finished,
    ReplaySpec,
    Run,
    add_run,
    checked_values,
    latest_runs,
    progress,
)
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_evaluators.statistics import Interval, hajek

_log = logging.getLogger("ragpulse.collector")
_MAX_FROZEN, _MIN_FROZEN, _DEFAULT_FROZEN = 500, 10, 50
BACK = timedelta(days=7)
"""The range of the answers that are frozen, where the caller names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMove(Interval):
    """How far a judge moved on the frozen answers."""

    n: int
    """Answers with a verdict again."""
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One run over the frozen answers."""

    at: datetime
    run_id: str
    version: str
    judge: str | None
    same_version_and_judge: bool
    judge_move: JudgeMove | None
    failed: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Whether a judge moved on its frozen answers."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: datetime
    dataset: str
    """The dataset that holds the answers."""
    n: int
    checks: Sequence[CheckReport]
    """Those that ended, the newest first."""
    running: str | None
    """The run that judges them now."""
    live: None = None
    """Always null, as `application` and `judge_share`: `compare` shows how the live score moved."""
    application: None = None
    judge_share: None = None
    verdict: str = "not checked yet"
    state: Literal["ok", "firing", "undecided"] = "undecided"
    next_check: datetime | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """The reports of all evaluators with frozen answers."""

    watched: Sequence[DriftReport]
    every: str | None


@dataclass(frozen=True, kw_only=True)
class DriftWatch:
    """Freezes judged answers, starts the runs that judge them again, and compares."""

    store: Store
    resolve: Resolve
    wake: Callable[[], None] = lambda: None
    """Announces jobs to the worker."""
    interval: str = "never"
    """How long after its freezing or last check `run_due` judges a set again."""
    on_check: Callable[[DriftReport], object] | None = None
    """Called with the report after each check."""
    clock: Clock = utc_now

    def report(self, evaluator: str) -> DriftReport:
        """Answer `GET drift` for an evaluator; raises NotFound where it has no frozen set."""
        name = evaluator.partition("@")[0]
        dataset = frozen_sets(self.store.read).get(name)
        items = dataset_items(self.store, dataset) if dataset else []
        if not dataset or not items:
            raise NotFound(f"{name} has no frozen set: POST drift/anchors draws it")
        runs = [run for run in latest_runs(self.store, checks=True).values() if run.spec.dataset == dataset]
        series = (str(items[0].scores[0]["version"]), items[0].scores[0]["judge"])
        done = [run for run in runs if run.status == "done"]
        finished = progress(self.store.read, [run.run_id for run in done])
        checks = [self._check(run, finished[run.run_id], items, series) for run in done]
        frozen_at = datetime.fromisoformat(items[0].at)
        move = checks[0].judge_move if checks else None
        state: Literal["ok", "firing", "undecided"] = "undecided"
        if move is not None:
            state = "firing" if move.lo > 0.0 or move.hi < 0.0 else "ok"
        every = None if self.interval == "never" else timedelta(seconds=duration_s(self.interval))
        last = max((run.created_at for run in runs), default=frozen_at)
        return DriftReport(
            evaluator=name,
            version=series[0],
            judge=None if series[1] is None else str(series[1]),
            frozen_at=frozen_at,
            dataset=dataset,
            n=len(items),
            checks=checks,
            running=next((run.run_id for run in runs if run.status in OPEN_RUN), None),
            verdict="not checked yet" if not checks else "judge moved" if state == "firing" else "no sure move",
            state=state,
            next_check=None if every is None else last + every,
        )

    def watched(self) -> Watched:
        """Answer `GET drift` for all evaluators with a frozen set."""
        reports = [self.report(name) for name in frozen_sets(self.store.read)]
        return Watched(reports, None if self.interval == "never" else self.interval)

    def run_due(self) -> int:
        """Start a run over every set that is due; returns how many. A set that fails waits for the next call."""
        done = 0
        for report in self.watched().watched:
            if report.running or report.next_check is None or report.next_check > self.clock():
                continue
            try:
                self.run(report.evaluator)
                done += 1
            except Refusal as error:
                _log.warning("the judge of %s was not checked: %s", report.evaluator, error)
        return done

    def freeze(self, evaluator: str, query: Query | None = None, *, n: int | None = None) -> DriftReport:
        """Draw the judged answers of an evaluator, which replace earlier ones; returns the report."""
        name, now = evaluator.partition("@")[0], self.clock()
        query = query or Query(window=Window(now - BACK, now, 0), now=now)
        former, items = frozen_sets(self.store.read).get(name), _drawn(self.store, query, name, n)
        dataset = frozen_name(name, iso(query.now) or "")
        if former is not None:
            self.store.write(lambda tx: delete_dataset(tx, former)).result()
        self.store.write(lambda tx: add_items(tx, dataset, items)).result()
        return self.report(name)

    def run(self, name: str) -> DriftReport:
        """Start a run that judges the frozen answers again, and return the report.

        Its questions draw on the day's judge budget.
        """
        report = self.report(name)
        if report.running:
            return report
        evaluator, run_id = self.resolve(report.evaluator), uuid4().hex[:12]
        items = dataset_items(self.store, report.dataset)
        spec = ReplaySpec(dataset=report.dataset, matching=len(items))
        key = (run_id, report.evaluator, evaluator.version, evaluator.judge_id)
        jobs = [
            (UUID(item.trace_id), int(item.frozen.span_id, 16), None, number / len(items))
            for number, item in enumerate(items)
            if item.frozen is not None
        ]

        def work(tx: Transaction) -> None:
            add_run(tx, Run(*key, "running", len(jobs), None, None, self.clock(), False, spec, "check"))
            add_replay_jobs(tx, run_id, report.evaluator, jobs, source="check")

        self.store.write(work).result()
        self.wake()
        return self.report(name)

    def ended(self, run_ids: Iterable[str]) -> None:
        """Tell whoever wants to know of the runs among these that judged frozen answers again."""
        for run_id, run in latest_runs(self.store, checks=True).items():
            if run_id in set(run_ids) and run.spec.dataset and self.on_check is not None:
                self.on_check(self.report(run.evaluator))

    def _check(
        self, run: Run, finished: Sequence[Finished], items: Sequence[Item], series: tuple[str, object]
    ) -> CheckReport:
        again = checked_values(self.store.read, run.run_id)
        costs = [each.cost_usd or 0.0 for each in finished]
        return CheckReport(
            at=run.created_at,
            run_id=run.run_id,
            version=run.version,
            judge=run.judge,
            same_version_and_judge=(run.version, run.judge) == series,
            judge_move=_move(items, again),
            failed=sum(again.get(_unit_of(item)) is None for item in items),
            cost_usd=None if any(each.unpriced for each in finished) else sum(costs),
        )


def _unit_of(item: Item) -> tuple[str, str]:
    return item.trace_id, item.frozen.span_id if item.frozen else ""


def _move(items: Sequence[Item], again: dict[tuple[str, str], float | None]) -> JudgeMove | None:
    """Return the paired difference, weighted like the live score."""
    moves, pis, users = list[float](), list[float](), list[str]()
    for item in items:
        score, frozen = again.get(_unit_of(item)), item.scores[0]
        if score is not None:
            moves.append(score - float(frozen["normalized"] or 0.0))
            pis.append(float(frozen["pi"] or 1.0))
            users.append((item.frozen and item.frozen.user) or item.trace_id)
    estimate = hajek(moves, pis, clusters=users, bounds=(-1.0, 1.0))
    interval = Interval.of(estimate) if len(moves) > 1 else None
    return None if interval is None else extended(JudgeMove, interval, n=len(moves), changed=sum(map(bool, moves)))


def _drawn(store: Store, query: Query, evaluator: str, n: int | None) -> list[Item]:
    """Draw up to `n` (default 50) judged units of an evaluator at random.

    Of several versions and judges the latest is used. Raises NotFound where fewer than 10 units exist.
    """
    limit, store = min(_MAX_FROZEN, max(_MIN_FROZEN, n or _DEFAULT_FROZEN)), query.reader(store)
    bucket = current(estimates(store, evaluator, query.window, query.filters))
    items = [] if bucket is None else _items(store, query, bucket, limit)
    if len(items) < _MIN_FROZEN:
        raise NotFound(f"{evaluator} has {len(items)} verdicts in this window; a frozen set needs at least 10")
    return items


def _items(store: Store, query: Query, bucket: Bucket, limit: int) -> list[Item]:
    sample = sample_of(store, bucket.evaluator, query.window.parameters, query.filters)
    rows = store.read(
        f"SELECT trace_id, span_id, request_time, normalized, pi, cluster FROM ({sample.sql}) s WHERE pi IS NOT NULL"
        " AND status = 'ok' AND normalized IS NOT NULL AND version = $line_version"
        " AND judge IS NOT DISTINCT FROM $line_judge ORDER BY md5(trace_id::VARCHAR || span_id::VARCHAR) LIMIT $wanted",
        {**sample.parameters, "line_version": bucket.version, "line_judge": bucket.judge, "wanted": limit},
    ).rows
    units = [Unit(trace.hex, f"{span:016x}", time) for trace, span, time, *_ in rows]
    cases = cases_of(store, units)
    series: dict[str, str | float | None] = {"evaluator": bucket.evaluator, "version": bucket.version or ""}
    return [
        Item(
            query=cases[unit].query or "(no question)",
            response=cases[unit].response,
            trace_id=unit.trace_id,
            at=(iso(query.now) or "").removesuffix("Z"),
            scores=[{**series, "judge": bucket.judge, "normalized": value, "pi": pi}],
            frozen=Frozen(cases[unit].model_dump(mode="json", exclude_none=True), unit.span_id, str(user)),
        )
        for unit, (_, _, _, value, pi, user) in zip(units, rows, strict=True)
        if unit in cases
    ]
