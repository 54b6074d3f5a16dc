"""What each operation answers, for the OpenAPI document; answers may hold more than is declared here.

Nothing is checked against these models while the collector runs: a test does.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """A JSON object; built when the document is first asked for."""

    model_config = ConfigDict(defer_build=True, extra="allow")


class Done(Answer):
    """A change that was made."""

    ok: bool


class Queued(Done):
    """Evaluations that were asked for."""

    queued: int


class TextFile(Answer):
    """A file as text, with the name to store it under."""

    filename: str
    text: str


class Table(Answer):
    """Rows of a SELECT."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


class Interval(Answer):
    """An estimate with its 95 % interval."""

    value: float | None
    lo: float | None
    hi: float | None


class Estimate(Interval):
    """An estimate, and how many units it rests on."""

    n: int
    n_eff: float
    users: int | None = None
    reason: str | None = None


class TraceScore(Answer):
    """The newest score of one evaluator."""

    normalized: float | None
    status: str
    passing: bool | None


class TraceRow(Answer):
    """A row of the view `traces`."""

    trace_id: str
    start_time: datetime
    latency_ms: float | None
    ttft_ms: float | None
    service: str | None
    environment: str | None
    name: str | None
    query: str | None
    response: str | None
    session_id: str | None
    user_id: str | None
    prompt_name: str | None
    prompt_version: str | None
    variant: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    cost_unknown_reason: str | None
    error: bool | None
    top_score: float | None
    n_spans: int | None
    n_units: int | None
    tags: list[str] | None
    metadata: dict[str, str | None] | None
    release: str | None


class ScoredTrace(TraceRow):
    """A trace with its scores, by evaluator."""

    scores: dict[str, TraceScore]


class FacetValue(Answer):
    """A value of a column, and how many traces have it."""

    value: Any
    n: int


class Traces(Answer):
    """A page of the list; `next` is the cursor of older traces, `newest` the one of newer traces."""

    traces: list[ScoredTrace]
    next: str | None
    newest: str | None
    facets: dict[str, list[FacetValue]] = {}
    total: int | None = None
    """The traces on all pages."""


class Session(Answer):
    """A row of the view `sessions`."""

    session_id: str
    start_time: datetime
    end_time: datetime
    n_turns: int
    user_id: str | None
    service: str | None
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    error: bool | None


class ScoredSession(Session):
    """A session with its lowest score and its first question."""

    worst_score: float | None
    query: str | None


class Sessions(Answer):
    """A page of sessions; `next` is the `offset` of what follows."""

    sessions: list[ScoredSession]
    next: int | None


class SessionTurns(Answer):
    """A session with its turns, the first one first."""

    session: Session
    turns: list[ScoredTrace]


class Neighbour(Answer):
    """A trace that began just before or after."""

    trace_id: str
    start_time: datetime


class Span(Answer):
    """A row of the view `spans`, or what a waterfall shows of it."""

    span_id: str
    parent_span_id: str | None
    start_time: datetime
    latency_ms: float | None
    name: str | None
    kind: str | None
    status: str | None
    error_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    ttft_ms: float | None
    status_message: str | None


class Context(Answer):
    """A row of the view `contexts`."""

    span_id: str
    rank: int
    id: str | None
    score: float | None
    text: str | None
    hash: str | None
    superseded: bool = False
    """Whether the answer was not made from it: a reranker replaced it, or it belongs to another part of the trace."""


class SpanScore(Answer):
    """A row of the view `scores`."""

    span_id: str | None
    evaluator: str
    version: str | None
    judge: str | None
    source: str
    status: str
    score: float | None
    normalized: float | None
    passing: bool | None
    label: str | None
    explanation: str | None
    ci95: list[float | None] | None


class Decision(Answer):
    """A row of the view `decisions`."""

    evaluator: str
    rule: str | None
    policy: str | None
    pi: float | None
    sampled: bool
    reason: str | None


class StoredLabel(Answer):
    """A person's verdict."""

    evaluator: str
    score: float | None
    passing: bool | None
    comment: str | None
    annotator: str | None
    created_at: datetime


class Trace(Answer):
    """One trace; `only` leaves a part of it out."""

    trace: TraceRow | None = None
    previous: Neighbour | None = None
    next: Neighbour | None = None
    spans: list[Span] = []
    contexts: list[Context] = []
    scores: list[SpanScore] = []
    decisions: list[Decision] = []
    labels: list[StoredLabel] = []


class Received(Answer):
    """What OTLP requests brought since the start; spans of all time."""

    requests: int
    spans: int
    logs: int
    bytes: int


class Rejected(Answer):
    """What was refused since the start."""

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
    """Something that somebody should do something about; what is not known, or does not clear by itself, is null."""

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
    """Signal (`metrics`, `logs`) → service → how many were accepted and counted, not stored."""
    newest_span: datetime | None
    truncated: int
    late: int
    queue: Queue
    undecided: Undecided
    evaluations: Evaluations
    judge: dict[str, Any]
    prices: dict[str, str | None]
    """The price table and the day it was installed."""
    disk: dict[str, float | None]
    unknown_price: dict[str, Any]
    queries: dict[str, Any]
    problems: list[Finding]
    roles: list[str]


class Measured(Estimate):
    """An estimate with what is missing from it: selected answers without a verdict."""

    missing: int = 0
    replayed: int = 0
    """Scores that a replay made, of `n`."""
    missing_share: float = 0.0
    bounds: list[float] | None = None
    """The value if all that is missing failed, and if all of it passed."""
    least: float | None = None
    """The interval that decides: `lo` and `hi` with everything that is missing failed, and passed."""
    most: float | None = None
    words: str = ""


class Point(Measured):
    """A point of a series; null where nothing was measured."""

    t: datetime


class Series(Answer):
    """The points of one group, evaluator version and judge."""

    online_since: datetime | None = None
    """When rules began to score by this version and judge; points before rest on replays."""
    group: dict[str, Any]
    version: str | None
    judge: str | None
    points: list[Point]


class Metrics(Answer):
    """A metric over request time."""

    name: str
    unit: str | None
    step: float
    from_: datetime = Field(alias="from")
    to: datetime
    series: list[Series]
    markers: list[Any]


class ManyMetrics(Answer):
    """One answer per metric, where several are named."""

    metrics: list[Metrics]


class CoverageRow(Answer):
    """What became of the units of one evaluator."""

    evaluator: str
    eligible: int
    selected: int
    scored: int
    skipped: int
    invalid: int
    error: int
    dropped: int
    uncovered_share: float


class Coverage(Answer):
    """What was eligible, selected, scored and dropped."""

    coverage: list[CoverageRow]
    queued: int


class Headline(Measured):
    """The quality of one evaluator in a range."""

    evaluator: str
    version: str | None
    judge: str | None
    previous: Interval | None
    verdict: Literal["better", "worse", "undecided"] | None


class Level(Answer):
    """A value between two changes, with its interval and how many answers it rests on."""

    value: float
    lo: float
    hi: float
    n: int


class Change(Answer):
    """A level shift of a metric; `sureness` is its size in standard errors, `cause` the prompt that began then."""

    metric: str
    unit: str
    t: datetime
    before: Level
    after: Level
    sureness: float
    worse: bool
    cause: str | None


class Overview(Answer):
    """The headline of a range, read at `as_of`; `only=traffic` leaves quality and coverage out."""

    as_of: datetime
    newest_span: datetime | None
    lag_s: float | None
    n_traces: int
    error_rate: float | None
    error_interval: list[float | None] | None
    cost_usd: float | None
    cost_unknown_share: float | None
    tokens: int
    quality: list[Headline] = []
    coverage: list[CoverageRow] = []
    queued: int = 0
    dropped: int = 0
    changes: list[Change] = []


class Exemplars(Answer):
    """The traces behind a point."""

    worst: list[ScoredTrace]
    median: list[ScoredTrace]
    best: list[ScoredTrace]


class Explanation(Answer):
    """What is more common in a selection than outside."""

    metric: str
    n_selected: int
    n_baseline: int
    sampled: bool
    dip: dict[str, Any] | None
    """The stretch of time that `bad` found."""
    bars: list[dict[str, Any]]
    """Requests and bad ones of each bucket."""
    heatmap: dict[str, Any]
    attributes: list[dict[str, Any]]


class Side(Estimate):
    """One side of a comparison."""

    name: str


class Comparison(Answer):
    """Two sides and whether they differ."""

    evaluator: str
    a: Side
    b: Side
    difference: Interval | None
    effect_size: float | None
    test: dict[str, Any] | None
    verdict: str
    paired: bool
    shared: int
    """Answers, or of separate requests questions, that both sides have."""
    flips: list[Any]
    also: list[Any]
    by: str | None
    strata: list[Any]


class Check(Measured):
    """Whether quality is above a limit."""

    evaluator: str
    version: str | None
    judge: str | None
    min: float
    verdict: Literal["above", "below", "undecided"]
    note: str | None = None
    """How the scores meant something else before, where the store still holds such scores."""
    markdown: str


class Plan(Answer):
    """How many units to score for an interval of a wanted width."""

    evaluator: str
    half_width: float
    n: int
    traces_per_day: float | None
    rate_for_daily: float | None
    rate_for_weekly: float | None
    days_at_full_rate: float | None
    cost_usd_each: float | None
    cost_usd: float | None
    cost_usd_per_day: float | None


class Document(Answer):
    """A retrieved document and the quality of the answers that had it."""

    id: str
    retrieved: int


class Documents(Answer):
    """Quality by retrieved document."""

    evaluator: str
    documents: list[Document]
    never_used: int
    total: int


class Attribution(Answer):
    """How many answers failed by retrieval, how many by generation."""

    evaluators: Any
    cells: list[dict[str, Any]]


class Agreement(Answer):
    """How a version of an evaluator agrees with people."""

    version: str | None
    judge: str | None
    n: int
    drawn: int
    kappa: float | None
    lo: float | None
    hi: float | None
    sensitivity: float | None
    sensitivity_lo: float | None = None
    sensitivity_hi: float | None = None
    specificity: float | None
    specificity_lo: float | None = None
    specificity_hi: float | None = None
    judged: float | None
    corrected: Interval | None
    note: str | None


class Calibration(Answer):
    """An evaluator against people's labels."""

    evaluator: str
    versions: list[Agreement]


class Suggestion(ScoredTrace):
    """A trace worth a label, and the probability with which it was chosen."""

    label_pi: float


class Suggestions(Answer):
    """Traces worth a label."""

    traces: list[Suggestion]


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
    policy: str
    source: str
    enabled: bool


class Rules(Answer):
    """The rules in force."""

    rules: list[Rule]


class RulePreview(Answer):
    """What a rule would select, and cost."""

    traces_per_day: float
    selected_per_day: float
    cost_usd_per_day: float | None
    half_width_per_day: dict[str, float | None]
    uncovered_share: float | None


class Replay(Answer):
    """A replay with its progress."""

    run_id: str
    evaluator: str
    version: str | None
    judge: str | None
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
    eta_s: float | None
    created_at: datetime | None
    finished_at: datetime | None


class Replays(Answer):
    """Replays, newest first."""

    replays: list[Replay]


class Bill(Answer):
    """What a replay is likely to take, at least (`cost_usd_low`) and at most."""

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
    """How many results were new."""

    accepted: int


class Drift(Answer):
    """Whether a judge moved on kept answers, and whether the application did."""

    evaluator: str
    frozen_at: datetime
    checks: list[dict[str, Any]]
    verdict: str | None
    state: str
    next_check: datetime | None


class Watched(Answer):
    """The reports of all evaluators with kept answers."""

    watched: list[Drift]
    every: str | None


class Monitors(Answer):
    """Monitors with state and history, and the names of the destinations for their messages."""

    monitors: list[dict[str, Any]]
    destinations: list[str]


class Dataset(Answer):
    """A dataset and its questions."""

    name: str
    items: list[dict[str, Any]]


class Datasets(Answer):
    """Datasets with their sizes."""

    datasets: list[dict[str, Any]]


class DatasetFilled(Answer):
    """How many questions were added; `more`: the filters match traces beyond the first 1,000."""

    name: str
    added: int
    more: bool


class MonitorPreview(Answer):
    """What a monitor would have done in the last days, and what it can detect."""

    days: int
    would_have_fired: int
    firings: list[dict[str, Any]]
    detects: str | None


class MonitorSaved(Answer):
    """A monitor as it is kept now."""

    name: str
    metric: str
    condition: str


class AlertSent(Done):
    """Whether a test alert was delivered."""

    delivery: Any


class Target(Interval):
    """A target and whether it is met."""

    metric: str
    min: float | None
    max: float | None
    unit: str | None
    n: int | None
    state: Literal["met", "missed", "undecided"]


class Targets(Answer):
    """Where metrics should be."""

    targets: list[Target]


class Events(Answer):
    """A body for an OTLP receiver of logs."""

    resourceLogs: list[dict[str, Any]]


class Deleted(Answer):
    """Deleted rows by table."""

    deleted: dict[str, int]


class Pruned(Deleted):
    """What was deleted, and up to which time."""

    cutoff: datetime | None
    out_of_reach: list[str] = []
    """Where copies may be that a prune of a person does not delete."""


class Remapped(Answer):
    """How many spans were read, and how many changed."""

    spans: int
    changed: int


class DemoTraffic(Answer):
    """Generated traffic that was stored."""

    service: str
    traces: int
    from_: datetime = Field(alias="from")
    to: datetime


class FieldError(Answer):
    """A wrong parameter."""

    name: str
    detail: str


class Problem(Answer):
    """An error (RFC 9457); `error` repeats `detail`."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str
    errors: list[FieldError] = []
