"""The figures of a collector's health, and the present problems among them with number, rate and time to clear."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ragpulse_collector.store.protocol import Backlog
from ragpulse_collector.store.reading import QueryTimes

RECENT = timedelta(minutes=10)
"""The window of the evaluation rates and of the judge's state."""
SOON_FULL_S = 3 * 86400.0
LOW_BYTES = 1024**3
_NOT_INSTALLED = re.compile(r"pip install|no module named", re.IGNORECASE)
SLOW_S = 3600.0
"""A backlog that needs longer than this is a problem."""
OLD_S = 300.0
"""Far more than `settle_s` and `quiet_s` by default, after which every trace is decided."""
SLOW_DISK_S = 10.0
"""What waits longer than this for the disk is a problem."""


@dataclass(frozen=True, slots=True)
class Received:
    """Received by OTLP since the start; spans of all time."""

    requests: int
    spans: int
    logs: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refused since the start."""

    spans: int
    requests_by_code: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Undecided:
    """Traces that the sampler has not looked at."""

    traces: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class Pace:
    """The rates of new and finished jobs, and the seconds until none is pending; None where they grow."""

    new_per_s: float
    done_per_s: float
    clears_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Pace):
    """The pending jobs of an evaluator, and when they are done."""

    evaluator: str
    pending: int
    oldest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluations(Pace):
    """Evaluation jobs and their results."""

    pending: int
    due: int
    """The same, under its former name."""
    oldest_s: float
    done: int
    dropped: Mapping[str, int]
    by_status: Mapping[str, int]
    keeps_up: Mapping[str, float]
    """Evaluator with a local model → the share of what its rules select that it reads in its CPU share."""
    waiting: Sequence[Waiting] = ()
    """The evaluators with pending jobs, the longest wait first."""


@dataclass(frozen=True, slots=True)
class RuleMoney:
    """What a rule with a budget of its own spent today."""

    name: str
    spent_today_usd: float
    budget_usd: float


@dataclass(frozen=True, slots=True)
class JudgeOutage:
    """The errors of the judge in the last ten minutes, and since when it has only failed."""

    errors: int
    down_since: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeHealth(JudgeOutage):
    """The judge: its money and whether it answers."""

    model: str | None
    spent_today_usd: float
    budget_usd: float
    budget_usd_per_month: float | None = None
    spent_this_month_usd: float = 0.0
    rules: Sequence[RuleMoney]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The free space, and when it is used up at the pace of the last day; None where that is unknown."""

    free_bytes: int | None = None
    growth_bytes_per_day: float | None = None
    full_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownPrice:
    """Calls of the last day without a known cost."""

    calls: int
    per_hour: float
    models: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Database:
    """The file of the store."""

    path: str
    size_bytes: int
    wal_bytes: int
    damaged_logs: Sequence[str]
    problem: str | None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long data is kept."""

    days: float
    gb: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem that needs a person; an unknown rate or time to clear is None."""

    name: str
    n: int
    per_s: float | None
    clears_in_s: float | None
    text: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorStatus:
    """Counts of the process and of the stored data."""

    version: str
    started_at: datetime
    uptime_s: float
    db: Database
    retention: Retention
    received: Received
    rejected: Rejected
    duplicates: int
    unmapped: int
    not_stored: Mapping[str, Mapping[str, int]]
    """Signal (`metrics`, `logs`) → service → the number of accepted items that are counted, not stored."""
    newest_span: datetime | None
    truncated: int
    late: int
    misdated: int
    not_deduplicated: int
    queue: Backlog
    """Accepted, not yet on disk."""
    disk: DiskSpace
    undecided: Undecided
    evaluations: Evaluations
    judge: JudgeHealth
    unknown_price: UnknownPrice
    queries: QueryTimes
    prices: Mapping[str, str | None]
    """The price table and its date."""
    other_groups: Mapping[str, int]
    """Monitor → the number of its groups that have no state of their own."""
    roles: Sequence[str]
    retired: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Evaluators that a rule evaluated once and none does now → the monitors and targets that read them."""
    problems: Sequence[Fault] = ()


def faults(status: CollectorStatus) -> Iterator[Fault]:
    """Yield the problems that need a person."""
    queue, unpriced = status.queue, status.unknown_price
    if queue.refused:
        text = f"nothing is written, {queue.bodies} bodies wait: {queue.refused}"
        fix = "free some space or repair the disk: senders keep their data, and writing continues by itself"
        yield Fault("store", queue.bodies, None, None, text, fix)
    elif queue.oldest_s > SLOW_DISK_S:
        text = f"the oldest request is not stored after {queue.oldest_s:.0f} s: the disk cannot keep up"
        yield Fault("queue", queue.bodies, None, None, text, "give the store a faster disk, or send less")
    yield from _of_disk(status.disk)
    traces, oldest_s = status.undecided.traces, status.undecided.oldest_s
    if oldest_s > OLD_S:
        text = f"{traces} traces are undecided, the oldest came {_length(oldest_s)} ago: nothing evaluates them"
        fix = "start a collector with the role evaluate, or look at the log and the clock of this one"
        yield Fault("undecided", traces, None, None, text, fix)
    yield from _of_backlog(status.evaluations)
    yield from _of_judge(status.judge)
    if unpriced.calls:
        model, count = next(iter(unpriced.models.items()))
        text = f"{unpriced.calls} calls of the last day ({unpriced.per_hour:g} an hour) have no price;"
        text += f" {count} of them use {model}"
        fix = f'add [prices."{model}"] input = ..., output = ... to ragpulse.toml, reload, then `ragpulse remap`'
        yield Fault("unknown_price", unpriced.calls, unpriced.per_hour / 3600, None, text, fix)
    for name, count in status.other_groups.items():
        text = f"monitor {name} has {count} groups beyond the largest, which have no state of their own"
        fix = "group by values that senders do not choose, or narrow where"
        yield Fault("other_groups", count, None, None, text, fix)
    for name, readers in status.retired.items():
        if readers:
            text = f"no rule evaluates {name} any more: {', '.join(readers)} gets no new data"
            yield Fault("retired", len(readers), None, None, text, f"name {name} in a rule, or remove what reads it")


def _of_disk(disk: DiskSpace) -> Iterator[Fault]:
    free, full, growth = disk.free_bytes, disk.full_in_s, disk.growth_bytes_per_day
    if free is not None and (free < LOW_BYTES or (full is not None and full < SOON_FULL_S)):
        when = "" if full is None else f"; full in {_length(full)} at the pace of the last day"
        text, fix = f"{free / 1e9:.1f} GB are free on the disk{when}", "free some space, or lower retention_gb"
        yield Fault("disk", free, growth and growth / 86400, full, text, fix)


def _of_backlog(jobs: Evaluations) -> Iterator[Fault]:
    clears = jobs.clears_in_s
    if jobs.pending and jobs.oldest_s > SLOW_S and (clears is None or clears > SLOW_S):
        when = "it grows" if clears is None else f"done in {_length(clears)} at this pace"
        age = _length(jobs.oldest_s)
        text = f"{jobs.pending} evaluations are pending, the oldest for {age},"
        text += f" {jobs.done_per_s * 60:.3g} a minute are done: {when}"
        fix = "lower the rate of a rule, or raise [judge] concurrency"
        yield Fault("backlog", jobs.pending, jobs.done_per_s, clears, text, fix)


def _of_judge(judge: JudgeHealth) -> Iterator[Fault]:
    if judge.down_since:
        text = f"the judge {judge.model} fails since {judge.down_since:%H:%M} UTC, {judge.errors} times: {judge.reason}"
        fix = "check its address, key and quota; failed jobs are tried again"
        if _NOT_INSTALLED.search(judge.reason or ""):
            fix = "install the package that the reason names where the collector runs, and start it again"
        yield Fault("judge", judge.errors, judge.errors / RECENT.total_seconds(), None, text, fix)
    budgets = [
        ("today", judge.spent_today_usd, judge.budget_usd),
        ("this month", judge.spent_this_month_usd, judge.budget_usd_per_month),
        *((f"today of rule {rule.name}", rule.spent_today_usd, rule.budget_usd) for rule in judge.rules),
    ]
    if spent := [name for name, usd, limit in budgets if limit and usd >= limit]:
        text = f"the judge's budget of {', '.join(spent)} is spent: sampling continues in the next day or month (UTC)"
        yield Fault("budget", len(spent), None, None, text, "raise the budget, or lower the rate of a rule")


def _length(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"
