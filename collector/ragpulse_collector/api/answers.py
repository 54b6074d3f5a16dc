"""The answers of the operations, for the OpenAPI document: traces, sessions, datasets and data; the form of errors.

`reports` has the answers about quality and traffic, `states` those about running components. An answer may hold more
fields than its model. A test compares answers with these models; the running collector does not.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """A JSON object; its schema is built with the first document."""

    model_config = ConfigDict(defer_build=True, extra="allow")


class Done(Answer):
    """A finished change."""

    ok: bool


class Queued(Done):
    """Queued evaluations."""

    queued: int


class TextFile(Answer):
    """A file as text, with its name."""

    filename: str
    text: str


class Table(Answer):
    """Rows of a SELECT."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


class Judged(Answer):
    """The key of an evaluator: name, version and judge."""

    evaluator: str
    version: str | None
    judge: str | None


class TraceScore(Answer):
    """The newest score of one evaluator."""

    normalized: float | None
    status: str
    passing: bool | None
    label: str | None
    score: float | None
    """On its own scale."""


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
    finish_reason: str | None
    agent: str | None
    data_source: str | None
    top_k: int | None
    answer: str | None
    """`answered`, `refused` or `empty`; null if that is unknown."""
    response_missing_reason: str | None
    control_flow: str | None
    feedback: float | None
    feedbacks: Any
    """The newest score of people by name."""


class ScoredTrace(TraceRow):
    """A trace with its scores, by evaluator."""

    scores: dict[str, TraceScore]


class FacetValue(Answer):
    """A value of a column, and the number of its traces."""

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
    """A session with its worst turn and its first question."""

    failing: bool | None
    """Whether a turn fails a check; null without checks."""
    worst_score: float | None
    query: str | None


class Sessions(Answer):
    """A page of sessions; `next` is the `offset` of the next page."""

    sessions: list[ScoredSession]
    next: int | None


class SessionScore(Answer):
    """A score about a whole session."""

    evaluator: str
    identifier: str | None
    source: str
    normalized: float | None
    score: float | None
    label: str | None
    explanation: str | None
    created_at: datetime


class SessionTurns(Answer):
    """A session with its turns, the first one first."""

    session: Session
    turns: list[ScoredTrace]
    scores: list[SessionScore]
    """Those about the session as a whole."""


class Neighbour(Answer):
    """The trace that started just before or after."""

    trace_id: str
    start_time: datetime


class Span(Answer):
    """A row of the view `spans`, or its columns for a waterfall."""

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


class TraceContext(Answer):
    """A row of the view `contexts`."""

    span_id: str
    rank: int
    id: str | None
    score: float | None
    text: str | None
    hash: str | None
    source: str | None = None
    """The document that the passage was cut from, as its metadata name it."""
    superseded: bool = False
    """Whether the answer is not from it: a reranker replaced it, or it belongs to another part of the trace."""


class SpanScore(Judged):
    """A row of the view `scores`."""

    span_id: str | None
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
    """A person's label."""

    evaluator: str
    score: float | None
    passing: bool | None
    comment: str | None
    annotator: str | None
    created_at: datetime


class Trace(Answer):
    """One trace; with `only` a part of it."""

    trace: TraceRow | None = None
    previous: Neighbour | None = None
    next: Neighbour | None = None
    spans: list[Span] = []
    contexts: list[TraceContext] = []
    scores: list[SpanScore] = []
    decisions: list[Decision] = []
    labels: list[StoredLabel] = []


class Dataset(Answer):
    """A dataset and its questions."""

    name: str
    items: list[dict[str, Any]]


class Datasets(Answer):
    """Datasets with their sizes."""

    datasets: list[dict[str, Any]]


class DatasetFilled(Answer):
    """The number of added questions; `more`: the filters match further traces."""

    name: str
    added: int
    new: int
    """Those that the dataset did not have."""
    more: bool


class Events(Answer):
    """A body for an OTLP receiver of logs."""

    resourceLogs: list[dict[str, Any]]


class Deleted(Answer):
    """Deleted rows by table."""

    deleted: dict[str, int]


class Pruned(Deleted):
    """The deleted rows, and the time up to which traces were deleted."""

    cutoff: datetime | None
    out_of_reach: list[str] = []
    """Places of copies that a prune of a person does not delete."""


class Remapped(Answer):
    """The numbers of read and of changed spans."""

    spans: int
    changed: int


class DemoTraffic(Answer):
    """The stored generated traffic."""

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
