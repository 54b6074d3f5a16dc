"""Answers about running components: the collector, evaluators, rules, replays, judges, monitors."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ragpulse_collector.api.answers import Answer, Done, Judged


class Received(Answer):
    """Received by OTLP since the start; spans of all time."""

    requests: int
    spans: int
    logs: int
    bytes: int


class Rejected(Answer):
    """Refused since the start."""

    spans: int
    requests_by_code: dict[str, int]


class Queue(Answer):
    """Accepted, not yet on disk."""

    bytes: int
    bodies: int
    oldest_s: float
    refused: str | None


class Undecided(Answer):
    """Traces that the sampler has not looked at."""

    traces: int
    oldest_s: float


class Evaluations(Answer):
    """Evaluation jobs and their results."""

    due: int
    oldest_s: float
    new_per_s: float
    done_per_s: float
    clears_in_s: float | None
    done: int
    dropped: dict[str, int]
    by_status: dict[str, int]


class Finding(Answer):
    """A problem that needs a person; an unknown rate or time to clear is null."""

    name: str
    text: str
    fix: str
    n: int
    per_s: float | None
    clears_in_s: float | None


class Status(Answer):
    """Counts of the process and of the stored data."""

    version: str
    started_at: datetime
    uptime_s: float
    db: dict[str, Any]
    retention: dict[str, Any]
    received: Received
    rejected: Rejected
    duplicates: int
    unmapped: int
    not_stored: dict[str, dict[str, int]]
    """Signal (`metrics`, `logs`) → service → the number of accepted items that are counted, not stored."""
    newest_span: datetime | None
    truncated: int
    late: int
    queue: Queue
    undecided: Undecided
    evaluations: Evaluations
    judge: dict[str, Any]
    prices: dict[str, str | None]
    """The price table and its date."""
    disk: dict[str, float | None]
    unknown_price: dict[str, Any]
    queries: dict[str, Any]
    other_groups: dict[str, int]
    """Monitor → the number of its groups that have no state of their own."""
    problems: list[Finding]
    roles: list[str]


class Replay(Judged):
    """A replay with its progress."""

    run_id: str
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
    current: bool
    eta_s: float | None
    created_at: datetime | None
    finished_at: datetime | None


class Replays(Answer):
    """Replays, newest first."""

    replays: list[Replay]


class Bill(Answer):
    """The likely tokens and cost of a replay, at least (`cost_usd_low`) and at most."""

    count: int
    already: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    cost_usd_low: float | None
    cost_usd_at_most: float | None
    cost_unknown_reason: str | None
    evaluators: list[dict[str, Any]]


class Cases(Replay):
    """Cases for the caller to evaluate."""

    cases: list[dict[str, Any]]


class Accepted(Replay):
    """The number of new results."""

    accepted: int


class Monitors(Answer):
    """Monitors with state and history, and the names of the destinations for their messages."""

    monitors: list[dict[str, Any]]
    destinations: list[str]


class MonitorPreview(Answer):
    """The alerts that a monitor would have sent in the last days, and the change that it can detect."""

    days: int
    would_have_fired: int
    firings: list[dict[str, Any]]
    detects: str | None


class MonitorSaved(Answer):
    """A stored monitor."""

    name: str
    metric: str
    condition: str


class AlertSent(Done):
    """Whether a test alert was delivered."""

    delivery: Any
