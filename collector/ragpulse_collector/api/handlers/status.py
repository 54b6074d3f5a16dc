"""The collector's own counters: `GET status` and `/metrics` (Prometheus text with a bounded set of labels)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ragpulse_collector.api.handlers import health
from ragpulse_collector.api.params import Params
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Store
from ragpulse_collector.store.ingest.price_table import PriceTable
from ragpulse_collector.store.ingest.queue import Backlog
from ragpulse_collector.store.log import damaged_logs, log_path
from ragpulse_collector.store.queries.deciding import MAX_DEDUPLICATED_SPANS
from ragpulse_collector.store.queries.jobs import pending
from ragpulse_collector.store.queries.ledger import spent_usd
from ragpulse_collector.store.reading import QueryTimes
from ragpulse_collector.store.rows import utc_now
from ragpulse_collector.store.views import LOW

VERSION = version("ragpulse")
UNDECIDED = f"""
    WITH since AS (SELECT CASE WHEN {LOW} > $now THEN TIMESTAMP '1970-01-01' ELSE {LOW} END AS low)
    SELECT count(*), min(first_at) FROM (
        SELECT trace_id, min(received_at) AS first_at FROM raw.spans
        WHERE received_at >= (SELECT low FROM since) GROUP BY trace_id) s
    ANTI JOIN (SELECT trace_id FROM raw.trace_facts WHERE latest) f ON f.trace_id = s.trace_id"""
"""Traces received since the sampler's low-water mark that it has not decided; of all traces where the mark is wrong."""


class Status:
    """Answers the operation; holds when the process started."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        counters: Counters,
        backlog: Callable[[], Backlog] = Backlog,
        queries: Callable[[], QueryTimes] = QueryTimes,
        budgets: Callable[[], Mapping[str, float]] = dict,
        prices: Callable[[], Mapping[str, str | None]] = lambda: PriceTable().about(),
    ) -> None:
        self._store, self._settings, self._counters = store, settings, counters
        self._backlog, self._queries, self._budgets, self._prices = backlog, queries, budgets, prices
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self, params: Params) -> dict[str, Any]:
        """Return the counts; those of the process since its start, those of the data from the store."""
        del params
        collector, now = self._settings.collector, utc_now()
        sizes = _sizes(collector.db)
        used = sizes["size_bytes"] + sizes["wal_bytes"]
        found = {
            "version": VERSION,
            "started_at": self._started_at,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "db": sizes | {"problem": self._store.problem()},
            "retention": {"days": collector.retention_days, "gb": collector.retention_gb},
            **self._received(),
            "queue": asdict(self._backlog()),
            "disk": health.disk(self._store, collector, now, used),
            "undecided": self._undecided(),
            "evaluations": self._evaluations(now),
            "judge": self._judge() | health.judge_state(self._store, now),
            "unknown_price": health.unknown_price(self._store, now),
            "queries": asdict(self._queries()),
            "prices": self._prices(),
            "roles": list(collector.roles),
        }
        return found | {"problems": health.problems(found)}

    def _received(self) -> dict[str, Any]:
        by_code: dict[str, int] = {}
        taken = 0
        for (_, code), count in sorted(self._counters.requests.items()):
            if code == HTTPStatus.OK:
                taken += count
            else:
                by_code[str(code)] = by_code.get(str(code), 0) + count
        spans, newest, truncated = self._store.read(
            "SELECT count(*), max(start_time), count(*) FILTER (contexts_state = 'truncated') FROM raw.spans"
        ).rows[0]
        late, misdated, large = self._store.read(
            "SELECT coalesce(sum(late_spans), 0), coalesce(sum(misdated_spans), 0),"
            " count(*) FILTER (n_spans > $most) FROM raw.trace_facts WHERE latest",
            {"most": MAX_DEDUPLICATED_SPANS},
        ).rows[0]
        return {
            "received": {
                "requests": taken,
                "spans": spans,
                "logs": self._counters.logs,
                "bytes": self._counters.body_bytes,
            },
            "rejected": {"spans": self._counters.rejected, "requests_by_code": by_code},
            "duplicates": self._counters.duplicates,
            "unmapped": self._counters.unmapped,
            "not_stored": {signal: dict(found) for signal, found in sorted(self._counters.not_stored.items())},
            "newest_span": newest,
            "truncated": truncated,
            "late": int(late),
            "misdated": int(misdated),
            "not_deduplicated": large,
        }

    def _undecided(self) -> dict[str, Any]:
        """Count the traces that the sampler has not looked at yet, and say how long the oldest is there."""
        traces, oldest = self._store.read(UNDECIDED, {"now": utc_now()}).rows[0]
        return {"traces": traces, "oldest_s": _age_s(oldest)}

    def _evaluations(self, now: datetime) -> dict[str, Any]:
        by_status = dict(self._store.read("SELECT status, count(*) FROM raw.scores GROUP BY 1").rows)
        dropped = self._store.read(
            "SELECT reason, count(*) FROM raw.decisions WHERE latest AND NOT sampled"
            " AND reason IN ('budget', 'throttled', 'filtered') GROUP BY 1"
        ).rows
        jobs, oldest = self._store.read(f"SELECT count(*), min(created_at) FROM ({pending()})").rows[0]
        done = sum(count for status, count in by_status.items() if status != "error")
        return {
            "pending": jobs,
            "due": jobs,
            "oldest_s": _age_s(oldest),
            **health.pace(self._store, now, jobs),
            "done": done,
            "dropped": dict(dropped),
            "by_status": by_status,
        }

    def _judge(self) -> dict[str, Any]:
        judge, read, today = self._settings.judge, self._store.read, utc_now().date()
        return {
            "model": judge.model,
            "spent_today_usd": spent_usd(read, day=today),
            "budget_usd": judge.budget_usd_per_day,
            "rules": [
                {"name": name, "spent_today_usd": spent_usd(read, day=today, rule=name), "budget_usd": usd}
                for name, usd in self._budgets().items()
            ],
        }


def _age_s(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else round(max(0.0, (utc_now() - oldest).total_seconds()), 3)


def _sizes(db: str) -> dict[str, Any]:
    path = Path(db)
    kept = [str(log) for log in damaged_logs(path)]
    return {"path": db, "size_bytes": _size(path), "wal_bytes": _size(log_path(path)), "damaged_logs": kept}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


MAX_LABEL_VALUES = 50


def render(
    status: Mapping[str, Any], quality: list[Mapping[str, Any]], watched: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Return the exposition text of a status answer, the current quality estimates and the watched judges."""
    return "\n".join([*_counters(status), *_gauges(status), *_quality(quality), *drift(watched)]) + "\n"


def _counters(status: Mapping[str, Any]) -> Iterator[str]:
    received, rejected = status["received"], status["rejected"]
    yield from _family("ragpulse_received_requests_total", "counter", "OTLP requests answered.", received["requests"])
    yield from _family("ragpulse_received_spans_total", "counter", "Spans accepted.", received["spans"])
    yield from _family("ragpulse_received_logs_total", "counter", "Log events kept.", received["logs"])
    yield from _family("ragpulse_received_bytes_total", "counter", "Inflated bytes accepted.", received["bytes"])
    yield from _family("ragpulse_rejected_spans_total", "counter", "Spans refused.", rejected["spans"])
    codes = rejected["requests_by_code"]
    yield from _labelled("ragpulse_rejected_requests_total", "counter", "Requests refused, by status.", "code", codes)
    yield from _family("ragpulse_duplicate_spans_total", "counter", "Spans sent again.", status["duplicates"])
    yield from _family("ragpulse_late_spans_total", "counter", "Spans after their unit was decided.", status["late"])
    yield from _family("ragpulse_misdated_spans_total", "counter", "Spans with a wrong clock.", status["misdated"])
    evaluations = status["evaluations"]
    by_status = evaluations["by_status"]
    yield from _labelled("ragpulse_evaluations_total", "counter", "Results, by status.", "status", by_status)
    dropped = evaluations["dropped"]
    yield from _labelled(
        "ragpulse_evaluations_dropped_total", "counter", "Not evaluated, by reason.", "reason", dropped
    )


def _gauges(status: Mapping[str, Any]) -> Iterator[str]:
    yield from _family("ragpulse_uptime_seconds", "gauge", "Seconds since start.", status["uptime_s"])
    queue = status["queue"]
    yield from _family("ragpulse_queue_bytes", "gauge", "Accepted, not yet on disk.", queue["bytes"])
    yield from _family("ragpulse_queue_bodies", "gauge", "Requests waiting for the disk.", queue["bodies"])
    yield from _family("ragpulse_queue_oldest_seconds", "gauge", "How long the oldest waits.", queue["oldest_s"])
    undecided = status["undecided"]
    yield from _family("ragpulse_undecided_traces", "gauge", "Traces without a decision yet.", undecided["traces"])
    yield from _family("ragpulse_undecided_oldest_seconds", "gauge", "Age of the oldest.", undecided["oldest_s"])
    evaluations = status["evaluations"]
    yield from _family("ragpulse_evaluations_pending", "gauge", "Jobs that have no result yet.", evaluations["pending"])
    yield from _family("ragpulse_evaluations_due", "gauge", "The same, under its former name.", evaluations["pending"])
    yield from _family("ragpulse_evaluations_oldest_seconds", "gauge", "Age of the oldest.", evaluations["oldest_s"])
    yield from _family("ragpulse_database_bytes", "gauge", "Size of the file.", status["db"]["size_bytes"])
    yield from _family("ragpulse_log_bytes", "gauge", "Size of the write-ahead log.", status["db"]["wal_bytes"])
    yield from _family("ragpulse_disk_free_bytes", "gauge", "Free space.", status["disk"]["free_bytes"])
    unpriced = status["unknown_price"]["calls"]
    yield from _family("ragpulse_unknown_price_calls", "gauge", "Calls of the last day without a price.", unpriced)
    counts = {one["name"]: 1 for one in status["problems"]}
    yield from _labelled("ragpulse_problem", "gauge", "1: `GET status` has a problem of this name.", "name", counts)
    yield from _query_times(status["queries"])
    yield from _family("ragpulse_judge_spent_usd", "gauge", "Spent today (UTC).", status["judge"]["spent_today_usd"])
    spent = {one["name"]: one["spent_today_usd"] for one in status["judge"]["rules"]}
    yield from _labelled("ragpulse_rule_spent_usd", "gauge", "Spent today by rules with a budget.", "rule", spent)


_QUALITY = {
    "": ("value", "Estimate over the last day, 0..1."),
    "_lo": ("least", "Lower end of its interval, whatever the missing answers would have said."),
    "_hi": ("most", "Upper end of its interval."),
    "_n": ("n", "Scored units behind it."),
    "_users": ("users", "Users who asked for them."),
    "_missing_share": ("missing_share", "Share of the selected answers without a verdict."),
}
"""Suffix of a gauge → the figure of a headline and its help."""


def _query_times(times: Mapping[str, Any]) -> Iterator[str]:
    name, total = "ragpulse_query_seconds", 0
    yield f"# HELP {name} Time that queries of the store took."
    yield f"# TYPE {name} histogram"
    for bound, count in zip((*times["bounds"], "+Inf"), times["counts"], strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {times['seconds']}"
    yield f"{name}_count {total}"


def _quality(quality: list[Mapping[str, Any]]) -> Iterator[str]:
    for suffix, (figure, told) in _QUALITY.items():
        yield f"# HELP ragpulse_quality{suffix} {told}\n# TYPE ragpulse_quality{suffix} gauge"
        for entry in quality[:MAX_LABEL_VALUES]:
            if entry[figure] is not None:
                service = "" if entry.get("service") is None else f',service="{_escape(entry["service"])}"'
                evaluator = _escape(entry["evaluator"])
                yield f'ragpulse_quality{suffix}{{evaluator="{evaluator}"{service}}} {entry[figure]}'


def _escape(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def drift(watched: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Tell how far each watched judge has moved since its answers were frozen (reports of `GET drift`)."""
    moves, sure = {}, {}
    for report in watched:
        move = next((check["judge_move"] for check in report["checks"]), None)
        if move is not None:
            moves[report["evaluator"]], sure[report["evaluator"]] = move["value"], int(report["state"] == "firing")
    yield from _labelled("ragpulse_judge_drift", "gauge", "Judge's move on frozen answers.", "evaluator", moves)
    yield from _labelled("ragpulse_judge_drift_sure", "gauge", "1: the move is sure.", "evaluator", sure)


def _family(name: str, kind: str, description: str, value: Any) -> Iterator[str]:
    if value is not None:
        yield f"# HELP {name} {description}"
        yield f"# TYPE {name} {kind}"
        yield f"{name} {value}"


def _labelled(name: str, kind: str, description: str, label: str, values: Mapping[str, Any]) -> Iterator[str]:
    known = {key: value for key, value in list(values.items())[:MAX_LABEL_VALUES] if value is not None}
    if not known:
        return
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    for key, value in known.items():
        yield f'{name}{{{label}="{_escape(key)}"}} {value}'
