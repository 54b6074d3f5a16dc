"""Replay: stored traces through an evaluator, on the same queue as online evaluation, with a bill before and a cap.

A run is rows in `raw.runs`, its jobs are rows in `raw.eval_jobs` in order of u, so that whatever is finished when it
stops is a random sample. The worker does the work; a verdict that exists under its score key is reused, not repeated.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.cases import Unit, cases_of
from ragpulse_collector.analysis.external import Declared, declared
from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.window import Window, iso, window_of
from ragpulse_collector.budget import Price
from ragpulse_collector.sampler import draw
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.runs import Run, latest_runs, set_status, shares
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators import Evaluator
from ragpulse_evaluators.evaluator import Estimate
from ragpulse_evaluators.judges.protocol import model_of

__all__ = ["Replays"]

_BILLED = 200
"""The bill extrapolates from this many cases, the first in order of u: a random sample of what matches."""
_SAMPLE = 50
"""So many cases go to a caller who alone can say what its judge will cost."""
_OPTIONS = ("judge", "prompts", "loads")
_RUN = ("run_id", "evaluator", "version", "judge", "spec", "status", "total", "max_usd", "error", "created_at")
_JOB = ("job_id", "trace_id", "span_id", "request_time", "evaluator", "run_id", "source", "u", "created_at")


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
        """Start one run per evaluator, or with `dry_run` only say what it would take.

        `evaluators`, `since` (or `from`, `to`), `where` and the other filters, `limit`, `max_usd`, `judge`, `prompts`,
        `loads`; or `external`: evaluators that only the caller has, who fetches the cases and sends the results.
        Raises ValueError for a wrong parameter, LookupError for an unknown evaluator.
        """
        options = {key: params[key] for key in _OPTIONS if params.get(key)}
        evaluators = self._evaluators(params, options)
        window, keep = self._scope(params)
        matching = self._select(self._store.limited() if params.get("where") else self._store, window, keep)
        limit = params.get("limit")
        selected = matching if limit is None else matching[: max(0, int(limit))]
        if _true(params.get("dry_run")):
            return self._bill(evaluators, selected)
        asked = {**options, "where": params.get("where"), "since": iso(window.first), "until": iso(window.last)}
        cap = None if params.get("max_usd") is None else float(params["max_usd"])
        runs = [
            self._start(name, evaluator, selected, {**asked, "limit": limit, "matching": len(matching)}, cap)
            for name, evaluator in evaluators.items()
        ]
        self._wake()
        return {"replays": [self.get(run_id) for run_id in runs]}

    def _evaluators(self, params: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Evaluator]:
        given = params.get("external")
        if not given:
            return {name: self._resolve(name, **options) for name in _names(params.get("evaluators"))}
        if options or params.get("evaluators") or not isinstance(given, Sequence) or isinstance(given, str):
            raise ValueError("external: a list of evaluators, without evaluators, judge, prompts and loads beside it")
        found = [declared(one) for one in given]
        return {one.name: one for one in found}

    def list(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return every replay with its progress, newest first."""
        del params
        return {"replays": [self._told(run) for run in latest_runs(self._store).values()]}

    def get(self, run_id: str) -> dict[str, Any]:
        """Return one replay with its progress; raises LookupError."""
        return self._told(self._run(run_id))

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Stop a running replay; what is finished stays, and it can be resumed."""
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
        found = latest_runs(self._store, run_id=run_id).get(run_id)
        if found is None:
            raise LookupError(f"no replay {run_id!r}")
        return found

    def _scope(self, params: Mapping[str, Any]) -> tuple[Window, Filter]:
        since = params.get("from") or params.get("since") or "7d"
        back = since if str(since).startswith("-") or "T" in str(since) or ":" in str(since) else f"-{since}"
        window = window_of({"from": back, "to": params.get("to"), "width": 1}, now=self._clock())
        return window, filter_of(params)

    def _select(self, store: Store, window: Window, keep: Filter) -> Sequence[_Selected]:
        """The units that match, in order of u: with several units a trace those that were decided."""
        rows = store.read(
            "WITH f AS (SELECT * FROM raw.trace_facts WHERE latest AND unit_span_id IS NOT NULL"
            f"   AND start_time >= $first AND start_time < $last AND {keep.sql}),"
            " d AS (SELECT DISTINCT trace_id, span_id, request_time, u FROM raw.decisions WHERE latest"
            "   AND reason <> 'late' AND request_time >= $first)"
            " SELECT f.trace_id, coalesce(d.span_id, f.unit_span_id), coalesce(d.request_time, f.start_time), d.u"
            " FROM f LEFT JOIN d ON d.trace_id = f.trace_id",
            {**window.parameters, **keep.parameters},
        ).rows
        found = [
            _Selected(Unit(trace.hex, f"{span:016x}", at), self._u(trace.hex, span, u)) for trace, span, at, u in rows
        ]
        return sorted(found, key=lambda one: (one.u, one.unit.trace_id, one.unit.span_id))

    def _u(self, trace_id: str, span_id: int, known: float | None) -> float:
        return draw(self._salt, trace_id, f"{span_id:016x}") if known is None else known

    def _bill(self, evaluators: Mapping[str, Evaluator], selected: Sequence[_Selected]) -> dict[str, Any]:
        parts = [self._bill_of(evaluator, selected) for evaluator in evaluators.values()]
        costs = [part["cost_usd"] for part in parts]
        reasons = [part["cost_unknown_reason"] for part in parts if part["cost_unknown_reason"]]
        total: dict[str, Any] = {
            key: sum(part[key] for part in parts) for key in ("count", "already", "input_tokens", "output_tokens")
        }
        total["cost_usd"] = None if None in costs else sum(costs)
        total["cost_unknown_reason"] = "; ".join(dict.fromkeys(reasons)) or None
        return total | {"evaluators": parts}

    def _bill_of(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> dict[str, Any]:
        """What one evaluator would take at most: tokens and cost from a sample of the cases, scaled up."""
        already = self._scored(evaluator, selected)
        units = [one.unit for one in selected[:_BILLED]]
        cases = cases_of(self._store, units).values()
        whole = sum((evaluator.estimate(case) for case in cases), Estimate())
        scale = max(0, len(selected) - already) / max(1, len(units))
        told: dict[str, Any] = {
            "evaluator": evaluator.name,
            "version": evaluator.version,
            "judge": evaluator.judge_id,
            "count": len(selected),
            "already": already,
            "input_tokens": round(whole.input_tokens * scale),
            "output_tokens": round(whole.output_tokens * scale),
        }
        if isinstance(evaluator, Declared) and evaluator.judge_id is not None:
            sample = [case.model_dump(mode="json") for case in list(cases)[:_SAMPLE]]
            return told | {"cost_usd": None, "cost_unknown_reason": "only the caller knows its judge", "sample": sample}
        cost, reason = self._cost(evaluator, told["input_tokens"], told["output_tokens"])
        return told | {"cost_usd": cost, "cost_unknown_reason": reason}

    def _cost(self, evaluator: Evaluator, input_tokens: int, output_tokens: int) -> tuple[float | None, str | None]:
        if evaluator.judge is None or input_tokens + output_tokens == 0:
            return 0.0, None
        model = model_of(evaluator.judge)
        cost = self._price(model, input_tokens, output_tokens) if self._price else None
        return cost, None if cost is not None else f"the price of {model} is unknown: add it to [prices]"

    def _scored(self, evaluator: Evaluator, selected: Sequence[_Selected]) -> int:
        """How many of the units have a final verdict of this version and judge."""
        rows = self._store.read(
            "SELECT count(DISTINCT (trace_id, span_id)) FROM raw.scores WHERE evaluator = $name AND version = $version"
            " AND judge IS NOT DISTINCT FROM $judge AND status IN ('ok', 'invalid', 'skipped')"
            " AND (trace_id, span_id) IN (SELECT (unnest($traces::UUID[]), unnest($spans::UBIGINT[])))",
            {
                "name": evaluator.name,
                "version": evaluator.version,
                "judge": evaluator.judge_id,
                "traces": [one.unit.trace_id for one in selected],
                "spans": [int(one.unit.span_id, 16) for one in selected],
            },
        ).rows
        return int(rows[0][0])

    def _start(
        self, name: str, evaluator: Evaluator, selected: Sequence[_Selected], asked: dict[str, Any], cap: float | None
    ) -> str:
        run_id = uuid.uuid4().hex[:12]
        if isinstance(evaluator, Declared):
            asked = {**asked, "external": evaluator.written}
        spec = json.dumps(asked, sort_keys=True, default=str)
        going = "external" if isinstance(evaluator, Declared) else "running"
        status = going if selected else "done"
        left = self._left_behind(evaluator, asked)
        run = (run_id, name, evaluator.version, evaluator.judge_id, spec, status, len(selected), cap, None)

        def work(tx: Transaction) -> None:
            for earlier in left:
                set_status(tx, earlier, "cancelled", error=f"replay {run_id} goes on with it", only_from=("external",))
            tx.append("runs", _RUN, [(*run, tx.at)])
            if selected:
                tx.append("eval_jobs", _JOB, [_job(run_id, name, one, tx.at) for one in selected])

        self._store.write(work).result()
        return run_id

    def _left_behind(self, evaluator: Evaluator, asked: Mapping[str, Any]) -> Sequence[str]:
        """External replays of the same evaluator over the same traces: their caller was killed and starts again."""
        if not isinstance(evaluator, Declared):
            return []
        wanted = (evaluator.written, asked.get("where"), asked.get("limit"))
        return [
            run.run_id
            for run in latest_runs(self._store, status="external").values()
            if (run.external, run.asked.get("where"), run.asked.get("limit")) == wanted
        ]

    def _told(self, run: Run) -> dict[str, Any]:
        done, counts, cost, unknown, first, last = self._progress(run.run_id)
        finished = done >= run.total
        going = run.status in ("running", "external")
        status = ("done" if finished else "running") if going else run.status
        rate = _rate(done, first, last)
        share = next((one for one in shares(self._store, run.evaluator) if one.run_id == run.run_id), None)
        created = self._store.read("SELECT min(created_at) FROM raw.runs WHERE run_id = ?", [run.run_id]).rows[0][0]
        return {
            "run_id": run.run_id,
            "evaluator": run.evaluator,
            "version": run.version,
            "judge": run.judge,
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

    def _progress(self, run_id: str) -> tuple[int, dict[str, int], float, bool, datetime | None, datetime | None]:
        """Finished units, verdicts by status, the cost of those made for this run, and when the first and last came."""
        rows = self._store.read(
            "WITH items AS (SELECT DISTINCT job_id, score_key FROM raw.run_items WHERE run_id = $run),"
            " verdicts AS (SELECT score_key, arg_max(status, created_at) AS status,"
            "   sum(cost_usd) FILTER (run_id = $run) AS cost, bool_or(cost_usd IS NULL AND run_id = $run) AS unknown,"
            "   min(created_at) FILTER (run_id = $run) AS first_at, max(created_at) FILTER (run_id = $run) AS last_at"
            "   FROM raw.scores WHERE score_key IN (SELECT score_key FROM items) GROUP BY score_key)"
            " SELECT v.status, count(*), sum(v.cost), bool_or(v.unknown), min(v.first_at), max(v.last_at)"
            " FROM items i JOIN verdicts v ON v.score_key = i.score_key GROUP BY v.status",
            {"run": run_id},
        ).rows
        counts = {row[0]: row[1] for row in rows}
        firsts, lasts = [row[4] for row in rows if row[4]], [row[5] for row in rows if row[5]]
        cost, unknown = sum(row[2] or 0.0 for row in rows), any(row[3] for row in rows)
        return sum(counts.values()), counts, cost, unknown, min(firsts, default=None), max(lasts, default=None)


def _job(run_id: str, evaluator: str, one: _Selected, at: datetime) -> tuple[Any, ...]:
    job_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{run_id}/{one.unit.trace_id}/{one.unit.span_id}").hex
    place = (one.unit.trace_id, int(one.unit.span_id, 16), one.unit.request_time)
    return (job_id, *place, evaluator, run_id, "replay", one.u, at)


def _rate(done: int, first: datetime | None, last: datetime | None) -> float | None:
    seconds = (last - first).total_seconds() if first and last else 0.0
    return done / seconds if seconds > 0 else None


def _names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else list(value or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("evaluators: name at least one")
    return list(dict.fromkeys(names))


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "1")
