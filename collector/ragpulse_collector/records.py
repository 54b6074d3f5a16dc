"""The types that pass from decoding to the store.

Ids are bytes in batches of spans and lower-case hex text elsewhere; instants are Unix nanoseconds; unknown values are
None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from ragpulse_collector.settings import Binding

Kind = Literal[
    "rag", "retriever", "reranker", "embedding", "llm", "tool", "agent", "chain", "guardrail", "evaluator", "other"
]
MODEL_KINDS: tuple[Kind, ...] = ("llm", "embedding", "reranker")
"""Kinds that pay for tokens themselves; usage on any other kind is a sum over spans below it. Its text is SQL, too."""
UNSAID = "None"
"""Python's name of no value, which a sender may have made a text. It is one unless a call below has another."""
Status = Literal["ok", "error", "unset"]
ScoreSource = Literal["online", "replay", "human", "code"]
Signal = Literal["traces", "logs", "metrics"]
ContentType = Literal["application/x-protobuf", "application/json"]


@dataclass(slots=True, kw_only=True)
class RawBody:
    """An accepted request body, inflated and not yet decoded."""

    signal: Signal
    content_type: ContentType
    body: bytes
    binding: Binding | None = None
    """What the sender's key is bound to."""


@dataclass(slots=True)
class ContextRecord:
    """One retrieved document as the client sent it."""

    rank: int
    """Position in the ranking, from 1."""
    id: str | None = None
    score: float | None = None
    text: str | None = None
    """None if the client sent no text: such contexts are marked, never scored as empty."""
    metadata: str | None = None
    """JSON object text."""


class Constant(NamedTuple):
    """A column in which every row has the same value."""

    value: Any
    length: int


Values: TypeAlias = "Sequence[Any] | Constant"
"""A column: one value for each row, None if unknown."""

SPAN_DEFAULTS: dict[str, Any] = {
    "kind": "other",
    "status": "unset",
    "upstream_pi": 1.0,
    "dropped_attributes": 0,
    "contexts_truncated": False,
    "attributes": "{}",
    "resource": "{}",
    "mapped_from": "{}",
}
"""The values of columns that a batch does not have; None for all others."""


@dataclass(slots=True, kw_only=True)
class SpanBatch:
    """All spans of one scope of one request body, in canonical columns, whatever their dialect.

    Columns, all optional but `name`, `start_ns` and `end_ns` (see SPAN_DEFAULTS):

    - `name`, `kind` (Kind), `status` (Status), `status_message`, `error_type`, `service`, `service_version`,
      `environment`, `session_id`, `user_id`, `prompt_name`, `prompt_version`, `variant`, `tags` (lists of text),
      `metadata` (JSON object);
    - `query`, `response`; `contexts_truncated`: documents were cut before they reached us;
    - `model`, `provider`, `response_id`, `input_tokens` (with cached ones), `output_tokens` (with reasoning ones),
      `cached_tokens`, `cache_write_tokens`, `reasoning_tokens`, `ttft_ms`;
    - `finish_reason`: why the model stopped, as the provider spells it; `agent`, `data_source`: their names or ids;
      `index_version`: the version of the index that a retriever searched;
      `top_k`: how many documents were asked for; `response_missing_reason`: why `response` is null;
      `control_flow`: what ended the function when that was no error;
    - `service_tier`: as the provider bills it (`batch`, `flex`, ...), `cache_write_1h_tokens`: those of
      `cache_write_tokens` that stay for an hour, `usage_problem`: why no cost can be computed from the tokens. These
      enter the price and are not stored;
    - `cost_usd`, `cost_source` (`provider`, or the price table's name and date), `cost_unknown_reason`;
    - `upstream_pi`: the probability with which an upstream sampler kept the trace;
    - `attributes`: the raw attributes as JSON, with references in place of query, response and contexts (see
      conventions.lifting); `dropped_attributes`: how many the sender dropped; `resource`: JSON, scope included;
    - `events`, `links`: JSON lists; `mapped_from`: JSON object, canonical field to the attribute it was read from.
    """

    trace_ids: Sequence[bytes]
    span_ids: Sequence[bytes]
    parent_span_ids: Sequence[bytes | None]
    columns: dict[str, Values]
    contexts: list[list[ContextRecord] | None] | None = None
    """Retrieved documents of each span, in rank order. None: the span has none. Empty list: a search found nothing."""

    def __len__(self) -> int:
        return len(self.span_ids)

    def keys(self) -> list[int]:
        """Return the key of each span (`span_key`)."""
        return list(map(hash, zip(self.trace_ids, self.span_ids, strict=True)))

    def ids(self) -> Iterator[tuple[str, str]]:
        """Yield trace and span of each row as hex text."""
        return zip(map(bytes.hex, self.trace_ids), map(bytes.hex, self.span_ids), strict=True)

    def column(self, name: str) -> Values:
        """Return a column, a constant one if the batch does not have it."""
        column = self.columns.get(name)
        return Constant(SPAN_DEFAULTS.get(name), len(self)) if column is None else column

    def values(self, name: str) -> Sequence[Any]:
        """Return a column as one value for each row."""
        column = self.column(name)
        return [column.value] * column.length if isinstance(column, Constant) else column

    def value(self, name: str, row: int) -> Any:
        """Return one value of a column."""
        column = self.column(name)
        return column.value if isinstance(column, Constant) else column[row]

    def contexts_of(self, row: int) -> list[ContextRecord] | None:
        """Return the documents of one span."""
        return None if self.contexts is None else self.contexts[row]

    def set(self, name: str, row: int, value: Any) -> None:
        """Replace one value of a column."""
        column = self.columns.get(name)
        if not isinstance(column, list):
            column = self.columns[name] = list(self.values(name))
        column[row] = value

    def set_contexts(self, row: int, contexts: list[ContextRecord]) -> None:
        """Replace the documents of one span."""
        self.contexts = self.contexts or [None] * len(self)
        self.contexts[row] = contexts

    def take(self, rows: Sequence[int]) -> SpanBatch:
        """Return a batch of these rows."""

        def select(column: Values) -> Values:
            if isinstance(column, Constant):
                return Constant(column.value, len(rows))
            return [column[row] for row in rows]

        return SpanBatch(
            trace_ids=[self.trace_ids[row] for row in rows],
            span_ids=[self.span_ids[row] for row in rows],
            parent_span_ids=[self.parent_span_ids[row] for row in rows],
            columns={name: select(column) for name, column in self.columns.items()},
            contexts=None if self.contexts is None else [self.contexts[row] for row in rows],
        )


def span_key(trace_id: bytes, span_id: bytes) -> int:
    """Return the key of a span in memory: Python's keyed 64-bit hash, which no sender can aim at."""
    return hash((trace_id, span_id))


@dataclass(slots=True, kw_only=True)
class ContentRecord:
    """A log event about a span, which may arrive before or after it: texts, or the exception that ended it."""

    trace_id: str
    span_id: str
    time_ns: int
    query: str | None = None
    response: str | None = None
    contexts: list[ContextRecord] | None = None
    error_type: str | None = None
    """Counts only if the span failed: an exception that was handled is logged too."""
    status_message: str | None = None
    binding: Binding | None = None
    """What the sender's key is bound to: the event fills no span of others."""

    @property
    def key(self) -> int:
        """The key of its span."""
        return span_key(bytes.fromhex(self.trace_id), bytes.fromhex(self.span_id))


@dataclass(slots=True, kw_only=True)
class ScoreRecord:
    """A score that arrived over OTLP: a person's feedback or another tool's evaluation."""

    trace_id: str | None
    """None: only its response id is known; the store finds the span, which may arrive later."""
    span_id: str | None
    """None: the score belongs to the trace's first unit."""
    time_ns: int
    name: str
    score: float | None
    label: str | None = None
    explanation: str | None = None
    source: ScoreSource = "human"
    response_id: str | None = None
    """`gen_ai.response.id` of the scored call, if known."""
    scope: Literal["trace", "session"] | None = None
    """What is scored, if it is not the span."""
    session_id: str | None = None
    """The session that is scored; None: that of the trace."""
    identifier: str | None = None
    """Which of several judges with one name gave the score."""
    written_on: tuple[str, str] | None = None
    """Trace and span whose attributes hold the score; it is stored once, with this span."""
    binding: Binding | None = None
    """What the sender's key is bound to: the score counts for no request of others."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """The content of one request body."""

    spans: list[SpanBatch] = field(default_factory=list)
    contents: list[ContentRecord] = field(default_factory=list)
    scores: list[ScoreRecord] = field(default_factory=list)
    rejected: int = 0
    """Spans or log records that were refused (invalid ids); answered as partial success."""
    message: str | None = None
    """The reason; a warning if `rejected` is 0."""
    unmapped: int = 0
    """Spans stored with their raw attributes only, because a rule raised an exception: a fault of the collector."""
    not_stored: dict[str, int] = field(default_factory=dict)
    """Service → ordinary log records, which are counted only."""


@dataclass(slots=True, kw_only=True)
class Receipt:
    """The answer to the sender of a body once its content is on disk."""

    rejected: int = 0
    message: str | None = None
    duplicates: int = 0
    accepted: int = 0
    """Spans and log records that were written."""
    unmapped: int = 0
    """As in the batch."""
    not_stored: dict[str, int] = field(default_factory=dict)
    """Service → metrics or ordinary log records, which are counted only."""


class DecodeError(ValueError):
    """The body does not have its content type; nothing of it was stored."""


class TooLarge(DecodeError):
    """The body holds more than one body may; nothing of it was stored."""
