"""`GET status`: the counters of the collector, and its present problems with number, rate and time to clear.

`/metrics`: the same with quality estimates and watched judges as Prometheus text, with few label values.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from importlib.metadata import version
from operator import getitem
from pathlib import Path
from typing import Any

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Measured
from ragpulse_collector.api.params import Params
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import CollectorSettings, Settings
from ragpulse_collector.store import AnyStore, Store
from ragpulse_collector.store.ingest.prices import PriceTable
from ragpulse_collector.store.log import damaged_logs, log_path
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries import health
from ragpulse_collector.store.queries.jobs import spent_usd

VERSION = version("ragpulse")

RECENT = timedelta(minutes=10)
"""The window of the evaluation rates and of the judge's state."""
SOON_FULL_S = 3 * 86400.0
LOW_BYTES = 1024**3
_NOT_INSTALLED = re.compile(r"pip install|no module named", re.IGNORECASE)
SLOW_S = 3600.0
"""A backlog that needs longer than this is a problem."""


class Status:
    """Answers `GET status`; holds the start time of the process."""

    def __init__(
        self,
        store: AnyStore,
        settings: Settings,
        counters: Counters,
        *,
        budgets: Callable[[], Mapping[str, float]] = dict,
        prices: Callable[[], Mapping[str, str | None]] = lambda: PriceTable().about(),
        other_groups: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._store, self._settings, self._counters = store, settings, counters
        self._budgets, self._prices, self._other_groups = budgets, prices, other_groups
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self, params: Params) -> dict[str, Any]:
        """Return the counts of the process since its start, and those of the stored data."""
        del params
        collector, now = self._settings.collector, utc_now()
        sizes = _sizes(collector.db)
        used = sizes["size_bytes"] + sizes["wal_bytes"]
        status = {
            "version": VERSION,
            "started_at": self._started_at,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "db": sizes | {"problem": self._store.problem()},
            "retention": {"days": collector.retention_days, "gb": collector.retention_gb},
            **self._received(),
            "queue": asdict(self._store.backlog()),
            "disk": disk(self._store, collector, now, used),
            "undecided": self._undecided(),
            **self._evaluated(now),
            "unknown_price": unknown_price(self._store, now),
            "queries": asdict(self._store.query_times),
            "prices": self._prices(),
            "other_groups": {name: count for name, count in self._other_groups().items() if count},
            "roles": list(collector.roles),
        }
        return status | {"problems": problems(status)}

    def _received(self) -> dict[str, Any]:
        by_code = Counter[str]()
        for (_, code), count in sorted(self._counters.requests.items()):
            by_code[str(int(code))] += count
        stored = health.totals(self._store)
        return {
            "received": {
                "requests": by_code.pop("200", 0),
                "spans": stored.pop("spans"),
                "logs": self._counters.logs,
                "bytes": self._counters.body_bytes,
            },
            "rejected": {"spans": self._counters.rejected, "requests_by_code": by_code},
            "duplicates": self._counters.duplicates,
            "unmapped": self._counters.unmapped,
            "not_stored": {signal: dict(counts) for signal, counts in sorted(self._counters.not_stored.items())},
            **stored,
        }

    def _undecided(self) -> dict[str, Any]:
        """Return the number of undecided traces and the age of the oldest."""
        traces, oldest = health.undecided(self._store, utc_now())
        return {"traces": traces, "oldest_s": _age_s(oldest)}

    def _evaluated(self, now: datetime) -> dict[str, Any]:
        by_status = health.results_by_status(self._store)
        jobs, oldest = health.pending_jobs(self._store)
        recent = health.results_since(self._store, now - RECENT)
        evaluations = {
            "pending": jobs,
            "due": jobs,
            "oldest_s": _age_s(oldest),
            **pace(recent, jobs),
            "done": sum(count for status, count in by_status.items() if status != "error"),
            "dropped": health.dropped_by_reason(self._store),
            "by_status": by_status,
        }
        return {"evaluations": evaluations, "judge": self._judge(now) | judge_state(recent)}

    def _judge(self, now: datetime) -> dict[str, Any]:
        judge, read = self._settings.judge, self._store.read
        return {
            "model": next((one.model for one in self._settings.judges), None),
            "spent_today_usd": spent_usd(read, day=now),
            "budget_usd": judge.budget_usd_per_day,
            "rules": [
                {"name": name, "spent_today_usd": spent_usd(read, day=now, rule=name), "budget_usd": usd}
                for name, usd in self._budgets().items()
            ],
        }


def _age_s(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else round(max(0.0, (utc_now() - oldest).total_seconds()), 3)


def _sizes(db: str) -> dict[str, Any]:
    path = Path(db)
    damaged = [str(log) for log in damaged_logs(path)]
    return {"path": db, "size_bytes": _size(path), "wal_bytes": _size(log_path(path)), "damaged_logs": damaged}


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def unknown_price(store: Store, now: datetime) -> dict[str, Any]:
    """Return the number of calls of the last day without a known cost, by model."""
    models = health.unpriced_calls(store, now - timedelta(days=1))
    calls = sum(models.values())
    return {"calls": calls, "per_hour": round(calls / 24, 3), "models": models}


def pace(recent: Mapping[str, Any], pending: int) -> dict[str, Any]:
    """Return the rates of new and finished jobs, and the seconds until none is pending; null where they grow."""
    new, done, seconds = recent["made"], recent["done"], RECENT.total_seconds()
    clears = 0.0 if not pending else pending * seconds / (done - new) if done > new else None
    return {"new_per_s": new / seconds, "done_per_s": done / seconds, "clears_in_s": clears}


def judge_state(recent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the errors of the judge in the last ten minutes, and since when it has only failed."""
    last_answer, errors = recent["answered"], recent["errors"]
    down = errors > 0 and (last_answer is None or last_answer < recent["last_failed"])
    since = (last_answer or recent["first_failed"]) if down else None
    return {"errors": errors, "down_since": since, "reason": recent["reason"] if down else None}


def disk(store: Store, settings: CollectorSettings, now: datetime, used: int) -> dict[str, Any]:
    """Return the free space, and when it is used up at the pace of the last day; null where that is unknown.

    Nothing grows beyond `retention_gb`. A lake's files are elsewhere.
    """
    if settings.on_a_lake:
        return {"free_bytes": None, "growth_bytes_per_day": None, "full_in_s": None}
    free = shutil.disk_usage(Path(settings.db).absolute().parent).free
    spans, recent, oldest = health.growth(store, now - timedelta(days=1))
    seconds = min(86400.0, (now - oldest).total_seconds()) if oldest else 0.0
    per_s = used / spans * recent / seconds if spans and seconds > RECENT.total_seconds() else None
    growth_left = settings.retention_gb * 1e9 - used
    full = free / per_s if per_s and growth_left > free else None
    return {"free_bytes": free, "growth_bytes_per_day": per_s and per_s * 86400, "full_in_s": full}


def problems(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the problems that need a person: `name`, `text`, `fix`, `n`, `per_s`, `clears_in_s`."""
    fields = ("name", "n", "per_s", "clears_in_s", "text", "fix")
    return [dict(zip(fields, problem, strict=True)) for problem in _problems(status)]


def _problems(status: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    queue, space, unpriced = status["queue"], status["disk"], status["unknown_price"]
    if queue["refused"]:
        text = f"nothing is written, {queue['bodies']} bodies wait: {queue['refused']}"
        fix = "free some space or repair the disk: senders keep their data, and writing continues by itself"
        yield "store", queue["bodies"], None, None, text, fix
    free, full = space["free_bytes"], space["full_in_s"]
    if free is not None and (free < LOW_BYTES or (full is not None and full < SOON_FULL_S)):
        when = "" if full is None else f"; full in {_length(full)} at the pace of the last day"
        growth = space["growth_bytes_per_day"]
        text, fix = f"{free / 1e9:.1f} GB are free on the disk{when}", "free some space, or lower retention_gb"
        yield "disk", free, growth and growth / 86400, full, text, fix
    yield from _of_evaluation(status["evaluations"], status["judge"])
    if calls := unpriced["calls"]:
        model, count = next(iter(unpriced["models"].items()))
        per_hour = unpriced["per_hour"]
        text = f"{calls} calls of the last day ({per_hour:g} an hour) have no price; {count} of them use {model}"
        fix = f'add [prices."{model}"] input = ..., output = ... to ragpulse.toml, reload, then `ragpulse remap`'
        yield "unknown_price", calls, per_hour / 3600, None, text, fix
    for name, count in status["other_groups"].items():
        text = f"monitor {name} has {count} groups beyond the largest, which have no state of their own"
        yield "other_groups", count, None, None, text, "group by values that senders do not choose, or narrow where"


def _of_evaluation(evaluations: Mapping[str, Any], judge: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    pending, clears = evaluations["pending"], evaluations["clears_in_s"]
    if pending and evaluations["oldest_s"] > SLOW_S and (clears is None or clears > SLOW_S):
        when = "it grows" if clears is None else f"done in {_length(clears)} at this pace"
        text = f"{pending} evaluations are pending, {evaluations['done_per_s'] * 60:.3g} a minute are done: {when}"
        fix = "lower the rate of a rule, or raise [judge] concurrency"
        yield "backlog", pending, evaluations["done_per_s"], clears, text, fix
    if judge["down_since"]:
        n, per_s = judge["errors"], judge["errors"] / RECENT.total_seconds()
        text = f"the judge {judge['model']} fails since {judge['down_since']:%H:%M} UTC, {n} times: {judge['reason']}"
        fix = "check its address, key and quota; failed jobs are tried again"
        if _NOT_INSTALLED.search(judge["reason"] or ""):
            fix = "install the package that the reason names where the collector runs, and start it again"
        yield "judge", n, per_s, None, text, fix


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"


MAX_LABEL_VALUES = 50
Sample = tuple[Mapping[str, Any], Any]
"""Labels and a value; null labels and null values are omitted."""
_FIGURES = (
    ("received_requests_total", "received.requests", "OTLP requests answered."),
    ("received_spans_total", "received.spans", "Spans accepted."),
    ("received_logs_total", "received.logs", "Log events kept."),
    ("received_bytes_total", "received.bytes", "Inflated bytes accepted."),
    ("rejected_spans_total", "rejected.spans", "Spans refused."),
    ("rejected_requests_total", "rejected.requests_by_code", "Requests refused, by status.", "code"),
    ("duplicate_spans_total", "duplicates", "Spans sent again."),
    ("late_spans_total", "late", "Spans after their unit was decided."),
    ("misdated_spans_total", "misdated", "Spans with a wrong clock."),
    ("evaluations_total", "evaluations.by_status", "Results, by status.", "status"),
    ("evaluations_dropped_total", "evaluations.dropped", "Not evaluated, by reason.", "reason"),
    ("uptime_seconds", "uptime_s", "Seconds since start."),
    ("queue_bytes", "queue.bytes", "Accepted, not yet on disk."),
    ("queue_bodies", "queue.bodies", "Requests waiting for the disk."),
    ("queue_oldest_seconds", "queue.oldest_s", "How long the oldest waits."),
    ("undecided_traces", "undecided.traces", "Traces without a decision yet."),
    ("undecided_oldest_seconds", "undecided.oldest_s", "Age of the oldest."),
    ("evaluations_pending", "evaluations.pending", "Jobs that have no result yet."),
    ("evaluations_due", "evaluations.pending", "The same, under its former name."),
    ("evaluations_oldest_seconds", "evaluations.oldest_s", "Age of the oldest."),
    ("database_bytes", "db.size_bytes", "Size of the file."),
    ("log_bytes", "db.wal_bytes", "Size of the write-ahead log."),
    ("disk_free_bytes", "disk.free_bytes", "Free space."),
    ("unknown_price_calls", "unknown_price.calls", "Calls of the last day without a price."),
    ("judge_spent_usd", "judge.spent_today_usd", "Spent today (UTC)."),
)
"""Metric, its path in the answer of `GET status`, its help, and for several values their label."""
_QUALITY = {
    "": ("value", "Estimate over the last day, 0..1."),
    "_lo": ("least", "Lower end of its interval, with all missing answers failed."),
    "_hi": ("most", "Upper end of its interval, with all missing answers passed."),
    "_n": ("n", "Scored units behind it."),
    "_users": ("users", "Users of these units."),
    "_missing_share": ("missing_share", "Share of the selected answers without a result."),
}
"""Suffix of a gauge → the figure of a headline and its help."""


@dataclass(frozen=True, slots=True)
class ExportedQuality:
    """The quality by one evaluator: of all services, or of one."""

    evaluator: str
    figures: Measured
    service: GroupValue = None


def render(
    status: Mapping[str, Any],
    quality: Sequence[ExportedQuality],
    watched: Iterable[Mapping[str, Any]] = (),
    *,
    other_services: int = 0,
) -> str:
    """Return the exposition text of a status answer, the current quality estimates and the watched judges."""
    others = _family(
        "other_services", "Services whose quality is exported together, as (other).", [({}, other_services)]
    )
    return "\n".join([*_status(status), *_quality(quality), *others, *drift(watched)]) + "\n"


def _status(status: Mapping[str, Any]) -> Iterator[str]:
    for name, path, description, *label in _FIGURES:
        figure: Any = reduce(getitem, path.split("."), status)
        samples = [({label[0]: key}, value) for key, value in figure.items()] if label else [({}, figure)]
        yield from _family(name, description, samples)
    problems = [({"name": problem["name"]}, 1) for problem in status["problems"]]
    yield from _family("problem", "1: `GET status` has a problem of this name.", problems)
    spent = [({"rule": rule["name"]}, rule["spent_today_usd"]) for rule in status["judge"]["rules"]]
    yield from _family("rule_spent_usd", "Spent today (UTC) by rules with a budget of their own.", spent)
    yield from _query_times(status["queries"])


def _query_times(times: Mapping[str, Any]) -> Iterator[str]:
    name, total = "ragpulse_query_seconds", 0
    yield f"# HELP {name} Duration of queries of the store."
    yield f"# TYPE {name} histogram"
    for bound, count in zip((*times["bounds"], "+Inf"), times["counts"], strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {times['seconds']}"
    yield f"{name}_count {total}"


def _quality(quality: Sequence[ExportedQuality]) -> Iterator[str]:
    labels = [{"evaluator": row.evaluator, "service": row.service} for row in quality]
    for suffix, (figure, description) in _QUALITY.items():
        samples = zip(labels, (getattr(row.figures, figure) for row in quality), strict=True)
        yield from _family(f"quality{suffix}", description, samples)


def drift(watched: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how far each watched judge has moved on its stored answers (reports of `GET drift`)."""
    moves, significant = [], []
    for report in watched:
        move = next((check["judge_move"] for check in report["checks"]), None)
        if move is not None:
            labels = {"evaluator": report["evaluator"]}
            moves.append((labels, move["value"]))
            significant.append((labels, int(report["state"] == "firing")))
    yield from _family("judge_drift", "The judge's move on the stored answers.", moves)
    yield from _family("judge_drift_sure", "1: the move is significant.", significant)


def _family(name: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    present = [(labels, value) for labels, value in samples if value is not None][:MAX_LABEL_VALUES]
    if not present:
        return
    yield f"# HELP ragpulse_{name} {description}"
    yield f"# TYPE ragpulse_{name} {'counter' if name.endswith('_total') else 'gauge'}"
    for labels, value in present:
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items() if text is not None)
        yield f"ragpulse_{name}{f'{{{pairs}}}' if pairs else ''} {value}"


def _escape(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
