"""`GET status`: the counters of the collector, and its present problems with number, rate and time to clear.

`/metrics`: the same with quality estimates and watched judges as Prometheus text, with few label values.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ragpulse_collector.analysis.answers import GroupValue, extended
from ragpulse_collector.analysis.quality import Measured
from ragpulse_collector.api.health import (
    RECENT,
    CollectorStatus,
    Database,
    DiskSpace,
    Evaluations,
    JudgeHealth,
    JudgeOutage,
    Pace,
    Received,
    Rejected,
    Retention,
    RuleMoney,
    Undecided,
    UnknownPrice,
    Waiting,
    faults,
)
from ragpulse_collector.api.shown_settings import shown_db
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import CollectorSettings, Settings
from ragpulse_collector.store import Store
from ragpulse_collector.store.ingest.prices import PriceTable
from ragpulse_collector.store.log import damaged_logs, log_path
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries import health
from ragpulse_collector.store.queries.jobs import spent_usd
from ragpulse_collector.store.reading import QueryTimes

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.drift import DriftReport

VERSION = version("ragpulse")


@dataclass(eq=False, repr=False)  # the settings hold secrets
class Status:
    """Answers `GET status`; holds the start time of the process."""

    store: Store
    settings: Settings
    counters: Counters
    _: KW_ONLY
    budgets: Callable[[], Mapping[str, float]] = dict
    prices: Callable[[], Mapping[str, str | None]] = lambda: PriceTable().about()
    other_groups: Callable[[], Mapping[str, int]] = dict
    keeps_up: Callable[[], Mapping[str, float]] = dict
    retired: Callable[[], Mapping[str, Sequence[str]]] = dict

    def __post_init__(self) -> None:
        self._started_at, self._started = datetime.now(UTC), time.monotonic()

    def __call__(self) -> CollectorStatus:
        """Return the counts of the process since its start, and those of the stored data."""
        collector, now, counters = self.settings.collector, utc_now(), self.counters
        database, stored = _database(collector.db, self.store.problem()), health.totals(self.store)
        by_code = Counter[str]()
        for (_, code), count in sorted(counters.requests.items()):
            by_code[str(int(code))] += count
        answered = by_code.pop("200", 0)
        recent = health.results_since(self.store, now - RECENT)
        traces, oldest = health.undecided(self.store, now)
        status = CollectorStatus(
            version=VERSION,
            started_at=self._started_at,
            uptime_s=round(time.monotonic() - self._started, 3),
            db=database,
            retention=Retention(collector.retention_days, collector.retention_gb),
            received=Received(answered, stored.spans, counters.logs, counters.body_bytes),
            rejected=Rejected(counters.rejected, by_code),
            duplicates=counters.duplicates,
            unmapped=counters.unmapped,
            not_stored={signal: dict(counts) for signal, counts in sorted(counters.not_stored.items())},
            newest_span=stored.newest_span,
            truncated=stored.truncated,
            late=stored.late,
            misdated=stored.misdated,
            not_deduplicated=stored.not_deduplicated,
            queue=self.store.backlog(),
            disk=disk(self.store, collector, now, database.size_bytes + database.wal_bytes),
            undecided=Undecided(traces, _age_s(oldest)),
            evaluations=self._evaluations(recent),
            judge=self._judge(now, recent),
            unknown_price=unknown_price(self.store, now),
            queries=self.store.query_times,
            prices=self.prices(),
            other_groups={name: count for name, count in self.other_groups().items() if count},
            roles=collector.roles,
            retired=self.retired(),
        )
        return replace(status, problems=list(faults(status)))

    def _evaluations(self, recent: health.Outcomes) -> Evaluations:
        by_status = health.results_by_status(self.store)
        waiting = waiting_jobs(self.store)
        jobs = sum(one.pending for one in waiting)
        return extended(
            Evaluations,
            pace(recent, jobs),
            pending=jobs,
            due=jobs,
            oldest_s=waiting[0].oldest_s if waiting else 0.0,
            done=sum(count for status, count in by_status.items() if status != "error"),
            dropped=health.dropped_by_reason(self.store),
            by_status=by_status,
            keeps_up=self.keeps_up(),
            waiting=waiting,
        )

    def _judge(self, now: datetime, recent: health.Outcomes) -> JudgeHealth:
        read = self.store.read
        return extended(
            JudgeHealth,
            judge_outage(recent),
            model=next((one.model for one in self.settings.judges), None),
            spent_today_usd=spent_usd(read, day=now),
            budget_usd=self.settings.judge.budget_usd_per_day,
            spent_this_month_usd=spent_usd(read, since=now.date().replace(day=1)),
            budget_usd_per_month=self.settings.judge.budget_usd_per_month,
            rules=[RuleMoney(name, spent_usd(read, day=now, rule=name), usd) for name, usd in self.budgets().items()],
        )


def _age_s(oldest: datetime | None) -> float:
    return 0.0 if oldest is None else round(max(0.0, (utc_now() - oldest).total_seconds()), 3)


def _database(db: str, problem: str | None) -> Database:
    path = Path(db)
    return Database(shown_db(db), _size(path), _size(log_path(path)), [str(log) for log in damaged_logs(path)], problem)


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def unknown_price(store: Store, now: datetime) -> UnknownPrice:
    """Return the number of calls of the last day without a known cost, by model."""
    models = health.unpriced_calls(store, now - timedelta(days=1))
    calls = sum(models.values())
    return UnknownPrice(calls, round(calls / 24, 3), models)


def waiting_jobs(store: Store) -> list[Waiting]:
    """Return what is pending by evaluator, the longest wait first."""
    pending = health.pending_jobs(store)
    counts = health.jobs_since(store, utc_now() - RECENT) if pending else {}
    return [
        extended(
            Waiting,
            pace(counts.get(name.partition("@")[0], health.JobCounts()), n),
            evaluator=name,
            pending=n,
            oldest_s=_age_s(oldest),
        )
        for name, n, oldest in pending
    ]


def pace(recent: health.Outcomes | health.JobCounts, pending: int) -> Pace:
    """Return the rates of new and finished jobs."""
    new, done, seconds = recent.made, recent.done, RECENT.total_seconds()
    clears = 0.0 if not pending else pending * seconds / (done - new) if done > new else None
    return Pace(new / seconds, done / seconds, clears)


def judge_outage(recent: health.Outcomes) -> JudgeOutage:
    """Return the errors of the judge, and since when it has only failed."""
    last_answer, last_failed = recent.answered, recent.last_failed
    down = last_failed is not None and (last_answer is None or last_answer < last_failed)
    since = (last_answer or recent.first_failed) if down else None
    return JudgeOutage(recent.errors, since, recent.reason if down else None)


def disk(store: Store, settings: CollectorSettings, now: datetime, used: int) -> DiskSpace:
    """Return the free space, and when it is used up.

    Nothing grows beyond `retention_gb`. A lake's files are elsewhere.
    """
    if settings.on_a_lake:
        return DiskSpace()
    free = shutil.disk_usage(Path(settings.db).absolute().parent).free
    spans, recent, oldest = health.growth(store, now - timedelta(days=1))
    seconds = min(86400.0, (now - oldest).total_seconds()) if oldest else 0.0
    per_s = used / spans * recent / seconds if spans and seconds > RECENT.total_seconds() else None
    growth_left = settings.retention_gb * 1e9 - used
    full = free / per_s if per_s and growth_left > free else None
    return DiskSpace(free, per_s and per_s * 86400, full)


MAX_LABEL_VALUES = 50
Sample = tuple[Mapping[str, GroupValue], float | None]
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
    (
        "evaluations_keeps_up",
        "evaluations.keeps_up",
        "Share of its rules' selection that a local model reads.",
        "evaluator",
    ),
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
    status: CollectorStatus,
    quality: Sequence[ExportedQuality],
    watched: Iterable[DriftReport] = (),
    *,
    other_services: int = 0,
) -> str:
    """Return the exposition text of a status answer, the current quality estimates and the watched judges."""
    others = _family(
        "other_services", "Services whose quality is exported together, as (other).", [({}, other_services)]
    )
    return "\n".join([*_status(status), *_quality(quality), *others, *drift(watched)]) + "\n"


def _status(status: CollectorStatus) -> Iterator[str]:
    for name, path, description, *label in _FIGURES:
        figure = attrgetter(path)(status)
        samples = [({label[0]: key}, value) for key, value in figure.items()] if label else [({}, figure)]
        yield from _family(name, description, samples)
    problems = [({"name": name}, 1) for name in dict.fromkeys(problem.name for problem in status.problems)]
    yield from _family("problem", "1: `GET status` has a problem of this name.", problems)
    spent = [({"rule": rule.name}, rule.spent_today_usd) for rule in status.judge.rules]
    yield from _family("rule_spent_usd", "Spent today (UTC) by rules with a budget of their own.", spent)
    yield from _query_times(status.queries)


def _query_times(times: QueryTimes) -> Iterator[str]:
    name, total = "ragpulse_query_seconds", 0
    yield f"# HELP {name} Duration of queries of the store."
    yield f"# TYPE {name} histogram"
    for bound, count in zip((*times.bounds, "+Inf"), times.counts, strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {times.seconds}"
    yield f"{name}_count {total}"


def _quality(quality: Sequence[ExportedQuality]) -> Iterator[str]:
    labels = [{"evaluator": row.evaluator, "service": row.service} for row in quality]
    for suffix, (figure, description) in _QUALITY.items():
        samples = zip(labels, (getattr(row.figures, figure) for row in quality), strict=True)
        yield from _family(f"quality{suffix}", description, samples)


def drift(watched: Iterable[DriftReport]) -> Iterator[str]:
    """Yield how far each watched judge has moved on its stored answers."""
    moved = [(report, report.checks[0].judge_move) for report in watched if report.checks]
    moves = [(report, move) for report, move in moved if move is not None]
    yield from _family(
        "judge_drift",
        "The judge's move on the stored answers.",
        [({"evaluator": report.evaluator}, move.value) for report, move in moves],
    )
    yield from _family(
        "judge_drift_sure",
        "1: the move is significant.",
        [({"evaluator": report.evaluator}, int(report.state == "firing")) for report, _ in moves],
    )


def _family(name: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    present = [(labels, value) for labels, value in samples if value is not None][:MAX_LABEL_VALUES]
    if not present:
        return
    yield f"# HELP ragpulse_{name} {description}"
    yield f"# TYPE ragpulse_{name} {'counter' if name.endswith('_total') else 'gauge'}"
    for labels, value in present:
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items() if text is not None)
        yield f"ragpulse_{name}{f'{{{pairs}}}' if pairs else ''} {value}"


def _escape(text: str | float) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
