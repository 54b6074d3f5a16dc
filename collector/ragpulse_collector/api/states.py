"""Answers about running components: the collector, evaluators, rules, replays, judges, monitors."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ragpulse_collector.analysis.calibration import Agreement


class Answer(BaseModel):
    """A JSON object; its schema is built with the first document."""

    model_config = ConfigDict(defer_build=True, extra="allow")


class Judged(Answer):
    """The key of an evaluator: name, version and judge."""

    evaluator: str
    version: str | None
    judge: str | None


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


class Evaluator(Answer):
    """An evaluator of this installation."""

    name: str
    version: str | None
    source_digest: str | None
    needs: list[str]
    scale: dict[str, Any] | None
    cost_class: str | None
    source: str
    description: str
    online: list[dict[str, Any]]
    stats_24h: dict[str, Any] | None
    calibration: Agreement | None


class Evaluators(Answer):
    """All evaluators."""

    evaluators: list[Evaluator]


class Stratum(Answer):
    """A condition with its own rate."""

    where: str
    rate: float


class Rule(Answer):
    """A rule in force."""

    name: str
    evaluators: list[str]
    rate: float
    where: str | None = None
    strata: list[Stratum] = []
    unit: Literal["trace", "session"] = "trace"
    budget_usd_per_day: float | None = None
    spent_today_usd: float | None = None
    policy: str
    source: str
    enabled: bool


class Rules(Answer):
    """The rules in force."""

    rules: list[Rule]


class RulePreview(Answer):
    """The selection and the cost of a rule."""

    traces_per_day: float
    selected_per_day: float
    cost_usd_per_day: float | None
    budget_usd_per_day: float | None
    half_width_per_day: dict[str, float | None]
    uncovered_share: float | None


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


class Drift(Answer):
    """Whether a judge moved on its stored answers, and whether the application did."""

    evaluator: str
    frozen_at: datetime
    checks: list[dict[str, Any]]
    verdict: str | None
    state: str
    next_check: datetime | None


class Watched(Answer):
    """The reports of all evaluators with stored answers."""

    watched: list[Drift]
    every: str | None
