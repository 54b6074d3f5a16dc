"""The typed shapes that travel from the wire to the store: what decoding yields and the store appends.

Ids are lower-case hex text, instants are Unix nanoseconds, everything unknown is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

Kind = Literal[
    "rag", "retriever", "reranker", "embedding", "llm", "tool", "agent", "chain", "guardrail", "evaluator", "other"
]
Status = Literal["ok", "error", "unset"]
ScoreSource = Literal["online", "replay", "human", "code"]


@dataclass(slots=True, kw_only=True)
class RawBody:
    """One accepted request body, inflated, not yet decoded."""

    signal: Literal["traces", "logs", "metrics"]
    content_type: Literal["application/x-protobuf", "application/json"]
    body: bytes


@dataclass(slots=True)
class ContextRecord:
    """One retrieved document as the client sent it."""

    rank: int
    """Position in the ranking, from 1."""
    id: str | None = None
    score: float | None = None
    text: str | None = None
    """None where the client sent no text: such contexts are marked, never scored as empty."""
    metadata: str | None = None
    """JSON object text."""


@dataclass(kw_only=True)
class SpanRecord:
    """One span in canonical columns, whatever dialect it arrived in.

    Without slots, so that `made_of` need not set what is as declared.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    name: str
    kind: Kind = "other"
    service: str | None = None
    service_version: str | None = None
    environment: str | None = None
    status: Status = "unset"
    status_message: str | None = None
    error_type: str | None = None
    query: str | None = None
    response: str | None = None
    contexts: list[ContextRecord] | None = None
    """None: this span carries no contexts. Empty list: a retrieval that found nothing."""
    contexts_truncated: bool = False
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    """Includes cached tokens."""
    output_tokens: int | None = None
    """Includes reasoning tokens."""
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_source: str | None = None
    """`provider` where the client sent a figure, else the price table's name and date, else None."""
    cost_unknown_reason: str | None = None
    ttft_ms: float | None = None
    session_id: str | None = None
    user_id: str | None = None
    prompt_name: str | None = None
    prompt_version: str | None = None
    variant: str | None = None
    tags: list[str] | None = None
    metadata: str | None = None
    """JSON object text."""
    upstream_pi: float = 1.0
    """Probability with which an upstream sampler kept this trace."""
    dropped_attributes: int = 0
    attributes: str = "{}"
    """The raw attributes as JSON text; a value lifted whole into query or response is replaced by {"$lifted": "query"},
    texts of contexts likewise; `conventions.restore_attributes` rebuilds what was sent."""
    resource: str = "{}"
    events: str | None = None
    """Span events as JSON text: [{"name", "time", "attributes"}]."""
    links: str | None = None
    """Links to other spans as JSON text: [{"trace_id", "span_id", "attributes"}]."""
    mapped_from: str = "{}"
    """JSON object: canonical field → attribute it was taken from."""

    @classmethod
    def made_of(cls, fields: dict[str, Any]) -> SpanRecord:
        """Return the record with these fields, taking the dict over: a tenth of what the constructor costs."""
        record = cls.__new__(cls)
        record.__dict__ = fields
        return record


@dataclass(slots=True)
class ContextColumns:
    """Retrieved documents of several spans by column, one span's behind the other's, each span's in rank order."""

    sizes: Sequence[int]
    """How many documents each span has."""
    ids: Sequence[str | None]
    scores: Sequence[float | None]
    texts: Sequence[str | None]
    metadata: Sequence[str | None]

    @classmethod
    def of(cls, contexts: Sequence[Sequence[ContextRecord]]) -> ContextColumns:
        """Return the documents of spans by column."""
        every = list(chain.from_iterable(contexts))
        columns = [[getattr(context, name) for context in every] for name in ("id", "score", "text", "metadata")]
        return cls(list(map(len, contexts)), *columns)

    def records(self) -> list[list[ContextRecord]]:
        """Return the documents of each span one by one."""
        rows = zip(self.ids, self.scores, self.texts, self.metadata, strict=True)
        return [[ContextRecord(rank, *next(rows)) for rank in range(1, size + 1)] for size in self.sizes]


@dataclass(slots=True, kw_only=True)
class SpanBlock:
    """Spans that look alike, by column: what a `SpanRecord` holds, without one object a span."""

    trace_ids: Sequence[bytes]
    span_ids: Sequence[bytes]
    parent_span_ids: Sequence[bytes | None]
    columns: dict[str, Sequence[Any]]
    """Fields of `SpanRecord` that differ from span to span; `name`, `start_ns`, `end_ns` are always among them."""
    shared: dict[str, Any]
    """Fields of `SpanRecord` that are the same for all; what is in neither is as declared there."""
    contexts: ContextColumns | None = None
    """None: these spans carry no contexts."""

    def __len__(self) -> int:
        return len(self.span_ids)

    def same(self, name: str) -> Any:
        """Return the value that all spans share in a field that is no column."""
        return self.shared.get(name, getattr(SpanRecord, name, None))

    def values(self, name: str) -> Sequence[Any]:
        """Return the values of a field, one a span."""
        column = self.columns.get(name)
        return [self.same(name)] * len(self) if column is None else column

    def records(self) -> list[SpanRecord]:
        """Return the spans one by one."""
        ids = {
            "trace_id": list(map(bytes.hex, self.trace_ids)),
            "span_id": list(map(bytes.hex, self.span_ids)),
            "parent_span_id": [None if parent is None else parent.hex() for parent in self.parent_span_ids],
        }
        columns = ids | self.columns
        if self.contexts is not None:
            columns["contexts"] = self.contexts.records()
        rows = zip(*columns.values(), strict=True)
        return [SpanRecord.made_of(self.shared | dict(zip(columns, row, strict=True))) for row in rows]


@dataclass(slots=True, kw_only=True)
class ContentRecord:
    """Texts of a span that arrived on a log event, before or after the span itself."""

    trace_id: str
    span_id: str
    time_ns: int
    query: str | None = None
    response: str | None = None
    contexts: list[ContextRecord] | None = None
    attributes: str = "{}"


@dataclass(slots=True, kw_only=True)
class ScoreRecord:
    """A score that arrived over the wire: feedback of a person or another tool's evaluation."""

    trace_id: str | None
    """None: known by its response id only; the store finds the span, be it there already or yet to come."""
    span_id: str | None
    """None: the score belongs to the trace's first unit."""
    time_ns: int
    name: str
    score: float | None
    label: str | None = None
    explanation: str | None = None
    source: ScoreSource = "human"
    response_id: str | None = None
    """`gen_ai.response.id` of the scored call, where the sender gave one."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one request body decoded to."""

    records: list[SpanRecord] = field(default_factory=list)
    """Spans one by one; `spans` has all of them."""
    blocks: list[SpanBlock] = field(default_factory=list)
    """Spans that look alike, in no one's hands yet."""
    contents: list[ContentRecord] = field(default_factory=list)
    scores: list[ScoreRecord] = field(default_factory=list)
    rejected: int = 0
    """Spans or log records that were refused (bad ids); answered as partial success."""
    message: str | None = None
    """Why, in English; may be a warning with `rejected` 0."""
    failed_blocks: int = 0
    """Blocks that were mapped span by span because mapping them together raised an exception: a fault of ours."""

    @property
    def spans(self) -> list[SpanRecord]:
        """Every span as a record of its own: blocks are taken apart for it, once and for all."""
        while self.blocks:
            self.records += self.blocks.pop(0).records()
        return self.records


@dataclass(slots=True, kw_only=True)
class Receipt:
    """What the sender of a body is told once its content is on disk."""

    rejected: int = 0
    message: str | None = None
    duplicates: int = 0
    accepted: int = 0
    """Spans and log records that were written."""
    failed_blocks: int = 0
    """As in the batch."""


class DecodeError(ValueError):
    """The body is not what its content type promises; nothing of it was taken."""


JSON = Any
