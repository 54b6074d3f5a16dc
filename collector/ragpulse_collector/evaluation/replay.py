"""Replay: stored traces through an evaluator, on the same queue as online evaluation, with a bill before and a cap.

Jobs run in order of u, so that a stopped replay is a random sample. A score that exists under the same key is reused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.cases import Unit, cases_of
from ragpulse_collector.analysis.selection import Window, filter_of, iso, range_of
from ragpulse_collector.evaluation.budget import COSTS, Price, bill, total
from ragpulse_collector.evaluation.client_replay import Declared, read_declaration
from ragpulse_collector.refusals import Invalid, NotFound, Refusal
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.decisions import sampling_number
from ragpulse_collector.store.queries.jobs import add_replay_jobs, reply_tokens
from ragpulse_collector.store.queries.runs import (
    Run,
    add_run,
    latest_runs,
    progress,
    set_status,
    shares,
    started_at,
    units_scored,
    units_to_replay,
)
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators import Evaluator

__all__ = ["Replays"]

_BILLED = 200
"""The bill extrapolates from this many cases, the first in order of u: a random sample."""
_SAMPLE = 50
"""Cases sent to a caller that computes the cost of its own judge."""
_OPTIONS = ("judge", "prompts", "loads")


@dataclass(frozen=True, slots=True)
class _Selected:
    """A unit that a replay would score, with its number in [0, 1)."""

    unit: Unit
    u: float


class Replays:
    """Starts, bills, watches, stops and continues replays; answers are the JSON of the API."""

    def __init__(
        self,
        store: Store,
        resolve: Callable[..., Evaluator],
        *,
        price: Price | None = None,
        wake: Callable[[], None] = lambda: None,
        salt: str = "ragpulse",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store, self._resolve, self._price, self._wake = store, resolve, price, wake
        self._salt, self._clock = salt, clock

    def create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Start one run per evaluator; with `dry_run` only return the bill.

        `evaluators`, `since` (or `from`, `to`), `where` and the other filters, `limit`, `max_usd`, `judge`, `prompts`,
        `loads`; or `external`: evaluators of the caller, which fetches the cases and sends the results.
        Raises Invalid for a wrong parameter, NotFound for an unknown evaluator.
        """
        options = {key: params[key] for key in _OPTIONS if params.get(key)}
        evaluators = self._evaluators(params, options)
        window, filters = self._scope(params)
        matching = self._select(self._store.limited() if params.get("where") else self._store, window, filters)
        limit, cap = params.get("limit"), None if params.get("max_usd") is None else float(params["max_usd"])
        selected = matching if limit is None else matching[: max(0, int(limit))]
        if _is_true(params.get("dry_run")):
            return self._bill(evaluators, selected, cap)
        spec = {**options, "where": params.get("where"), "since": iso(window.first), "until": iso(window.last)}
        cap_per_run = None if cap is None else cap / len(evaluators)
        runs = [
            self._start(name, evaluator, selected, {**spec, "limit": limit, "matching": len(matching)}, cap_per_run)
            for name, evaluator in evaluators.items()
        ]
        self._wake()
        return {"replays": [self.get(run_id) for run_id in runs]}

    def _evaluators(self, params: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Evaluator]:
        external = params.get("external")
        if not external:
            return {name: self._resolve(name, **options) for name in _names(params.get("evaluators"))}
        if options or params.get("evaluators") or not isinstance(external, Sequence) or isinstance(external, str):
            raise Invalid("external: a list of evaluators, without evaluators, judge, prompts and loads beside it")
        declarations = [read_declaration(item) for item in external]
        return {item.name: item for item in declarations}

    def list(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return every replay with its progress, newest first."""
        del params
        return {"replays": [self._as_json(run) for run in latest_runs(self._store).values()]}

    def get(self, run_id: str) -> dict[str, Any]:
        """Return one replay with its progress; raises NotFound."""
        return self._as_json(self._run(run_id))

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Stop a running replay; finished results stay, and `resume` continues it."""
        self._run(run_id)
        going = ("running", "external")
        self._store.write(lambda tx: set_status(tx, run_id, "cancelled", only_from=going)).result()
        self._wake()
        return self.get(run_id)

    def resume(self, run_id: str, *, max_usd: float | None = None) -> dict[str, Any]:
        """Continue a cancelled or capped replay, with a new cap where given."""
        going = "running" if self._run(run_id).external is None else "external"
        stopped = ("cancelled", "capped", "failed")
        self._store.write(lambda tx: set_status(tx, run_id, going, max_usd=max_usd, only_from=stopped)).result()
        self._wake()
        return self.get(run_id)

    def _run(self, run_id: str) -> Run:
        run = latest_runs(self._store, run_id=run_id).get(run_id)
        if run is None:
            raise NotFound(f"no replay {run_id!r}")
        return run

    def _scope(self, params: Mapping[str, Any]) -> tuple[Window, Filter]:
        since = params.get("from") or params.get("since") or "7d"
        start = since if str(since).startswith("-") or "T" in str(since) or ":" in str(since) else f"-{since}"
        window = range_of({"from": start, "to": params.get("to")}, now=self._clock())
        return window, filter_of(params)

    def _select(self, store: Store, window: Window, filters: Filter) -> Sequence[_Selected]:
        """Return the matching units in order of u; of a trace with several units, the decided ones."""
        rows = units_to_replay(store.read, filters.sql, {**window.parameters, **filters.parameters})
        units = [
            _Selected(Unit(trace.hex, f"{span:016x}", time), self._u(trace.hex, span, u))
            for trace, span, time, u in rows
        ]
        return sorted(units, key=lambda unit: (unit.u, unit.unit.trace_id, unit.unit.span_id))

    def _u(self, trace_id: str, span_id: int, u: float | None) -> float:
        return sampling_number(self._salt, trace_id, f"{span_id:016x}") if u is None else u

    def _bill(
        self, evaluators: Mapping[str, Evaluator], selected: Sequence[_Selected], cap: float | None
    ) -> dict[str, Any]:
        return total([self._bill_of(evaluator, selected) for evaluator in evaluators.values()], cap)

    def _bill_of(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> dict[str, Any]:
        """Return the bill of one evaluator: tokens and cost of a sample of the cases, scaled up."""
        already = self._scored(evaluator, selected)
        units = [selection.unit for selection in selected[:_BILLED]]
        cases = list(cases_of(self._store, units).values())
        estimates = [evaluator.estimate(case) for case in cases]
        replies = reply_tokens(self._store.read, evaluator.name, evaluator.judge_id)
        part: dict[str, Any] = {
            "evaluator": evaluator.name,
            "version": evaluator.version,
            "judge": evaluator.judge_id,
            "count": len(selected),
            "already": already,
            **bill(estimates, evaluator.judge, max(0, len(selected) - already), self._price, replies),
        }
        if isinstance(evaluator, Declared) and evaluator.judge_id is not None:
            sample = [case.model_dump(mode="json") for case in cases[:_SAMPLE]]
            unknown = dict.fromkeys(COSTS) | {"cost_unknown_reason": "only the caller knows its judge"}
            return part | unknown | {"sample": sample, "replies": replies}
        return part

    def _scored(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> int:
        """Return how many of the units have a final verdict of this version and judge."""
        units = [(selection.unit.trace_id, int(selection.unit.span_id, 16)) for selection in selected]
        return units_scored(self._store.read, evaluator.name, evaluator.version, evaluator.judge_id, units)

    def _start(
        self, name: str, evaluator: Evaluator, selected: Sequence[_Selected], spec: dict[str, Any], cap: float | None
    ) -> str:
        run_id = uuid.uuid4().hex[:12]
        if isinstance(evaluator, Declared):
            spec = {**spec, "external": evaluator.as_json}
        spec_json = json.dumps(spec, sort_keys=True, default=str)
        going = "external" if isinstance(evaluator, Declared) else "running"
        status = going if selected else "done"
        abandoned = self._abandoned(evaluator, spec)
        run = (run_id, name, evaluator.version, evaluator.judge_id, spec_json, status, len(selected), cap)
        units = [
            (selection.unit.trace_id, int(selection.unit.span_id, 16), selection.unit.request_time, selection.u)
            for selection in selected
        ]

        def work(tx: Transaction) -> None:
            for earlier in abandoned:
                set_status(tx, earlier, "cancelled", error=f"replay {run_id} goes on with it", only_from=("external",))
            add_run(tx, run)
            add_replay_jobs(tx, run_id, name, units)

        self._store.write(work).result()
        return run_id

    def _abandoned(self, evaluator: Evaluator, spec: Mapping[str, Any]) -> Sequence[str]:
        """Return client-side replays of the same evaluator and traces: their caller was killed and starts again."""
        if not isinstance(evaluator, Declared):
            return []
        signature = (evaluator.as_json, spec.get("where"), spec.get("limit"))
        return [
            run.run_id
            for run in latest_runs(self._store, status="external").values()
            if (run.external, run.asked.get("where"), run.asked.get("limit")) == signature
        ]

    def _as_json(self, run: Run) -> dict[str, Any]:
        done, counts, cost, unknown, first, last = self._progress(run.run_id)
        finished = done >= run.total
        going = run.status in ("running", "external")
        status = ("done" if finished else "running") if going else run.status
        rate = _rate(done, first, last)
        share = next(
            (candidate for candidate in shares(self._store, run.evaluator) if candidate.run_id == run.run_id), None
        )
        created = started_at(self._store.read, run.run_id)
        return {
            "run_id": run.run_id,
            "evaluator": run.evaluator,
            "version": run.version,
            "judge": run.judge,
            "current": self._current(run),
            "where": run.asked.get("where"),
            "since": run.asked.get("since"),
            "limit": run.asked.get("limit"),
            "status": status,
            "total": run.total,
            "done": done,
            **{status: counts.get(status, 0) for status in ("ok", "skipped", "invalid", "error")},
            "cost_usd": None if unknown else cost,
            "max_usd": run.max_usd,
            "reason": run.error,
            "rate_per_s": rate,
            "eta_s": (run.total - done) / rate if rate and status == "running" else None,
            "created_at": iso(created),
            "finished_at": None if status == "running" else iso(last or run.created_at),
            "pi": None if share is None else share.pi,
            "u_max": None if share is None else min(1.0, share.below),
        }

    def _current(self, run: Run) -> bool:
        """Whether a rule would evaluate with the same version and judge."""
        try:
            evaluator = self._resolve(run.evaluator)
        except Refusal:
            return False
        return (evaluator.version, evaluator.judge_id) == (run.version, run.judge)

    def _progress(self, run_id: str) -> tuple[int, dict[str, int], float, bool, datetime | None, datetime | None]:
        """Return finished units, verdicts by status, the cost of new ones, and the times of the first and last."""
        rows = progress(self._store.read, run_id)
        counts = {row[0]: row[1] for row in rows}
        firsts, lasts = [row[4] for row in rows if row[4]], [row[5] for row in rows if row[5]]
        cost, unknown = sum(row[2] or 0.0 for row in rows), any(row[3] for row in rows)
        return sum(counts.values()), counts, cost, unknown, min(firsts, default=None), max(lasts, default=None)


def _rate(done: int, first: datetime | None, last: datetime | None) -> float | None:
    seconds = (last - first).total_seconds() if first and last else 0.0
    return done / seconds if seconds > 0 else None


def _names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(value or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise Invalid("evaluators: name at least one")
    return list(dict.fromkeys(names))


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1")
