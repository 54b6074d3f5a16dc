"""Single spans for tests: the rows of a batch, and batches of rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from ragpulse_collector.conventions.bodies import derive
from ragpulse_collector.records import SPAN_DEFAULTS, Batch, ContextRecord, SpanBatch

_IDS = ("trace_id", "span_id", "parent_span_id")


@dataclass(kw_only=True)
class Span:
    """One span as a test writes or reads it; ids are lower-case hex text."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_ns: int
    end_ns: int
    name: str
    kind: str = "other"
    service: str | None = None
    service_version: str | None = None
    environment: str | None = None
    status: str = "unset"
    status_message: str | None = None
    error_type: str | None = None
    query: str | None = None
    response: str | None = None
    contexts: list[ContextRecord] | None = None
    contexts_truncated: bool = False
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    service_tier: str | None = None
    usage_problem: str | None = None
    cost_usd: float | None = None
    cost_source: str | None = None
    cost_unknown_reason: str | None = None
    ttft_ms: float | None = None
    finish_reason: str | None = None
    agent: str | None = None
    data_source: str | None = None
    index_version: str | None = None
    top_k: int | None = None
    response_missing_reason: str | None = None
    control_flow: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    prompt_name: str | None = None
    prompt_version: str | None = None
    variant: str | None = None
    tags: list[str] | None = None
    metadata: str | None = None
    upstream_pi: float = 1.0
    dropped_attributes: int = 0
    attributes: str = "{}"
    resource: str = "{}"
    events: str | None = None
    links: str | None = None
    mapped_from: str = "{}"


COLUMNS = tuple(field.name for field in fields(Span) if field.name not in (*_IDS, "contexts"))


def spans_of(batch: Batch | SpanBatch) -> list[Span]:
    """Return the rows of a batch."""
    if isinstance(batch, Batch):
        return [span for part in batch.spans for span in spans_of(part)]
    assert batch.columns.keys() <= set(COLUMNS)
    columns = [batch.values(name) for name in COLUMNS]
    return [
        Span(
            trace_id=batch.trace_ids[row].hex(),
            span_id=batch.span_ids[row].hex(),
            parent_span_id=None if (parent := batch.parent_span_ids[row]) is None else parent.hex(),
            contexts=batch.contexts_of(row),
            **{name: column[row] for name, column in zip(COLUMNS, columns, strict=True)},
        )
        for row in range(len(batch))
    ]


def batch_of(spans: Iterable[Span], **parts: Any) -> Batch:
    """Return a batch of single spans; `parts` are its other fields."""
    rows = list(spans)
    return Batch(spans=[span_batch(rows)] if rows else [], **parts)


def span_batch(spans: list[Span]) -> SpanBatch:
    """Return spans by column, without columns that have only defaults."""
    columns = {name: [getattr(span, name) for span in spans] for name in COLUMNS}
    return SpanBatch(
        trace_ids=[bytes.fromhex(span.trace_id) for span in spans],
        span_ids=[bytes.fromhex(span.span_id) for span in spans],
        parent_span_ids=[None if span.parent_span_id is None else bytes.fromhex(span.parent_span_id) for span in spans],
        columns={name: column for name, column in columns.items() if any(v != SPAN_DEFAULTS.get(name) for v in column)},
        contexts=[span.contexts for span in spans] if any(span.contexts is not None for span in spans) else None,
    )


def remapped(span: Span) -> Span:
    """Return a stored span with its columns derived again."""
    (result,) = spans_of(derive(span_batch([span])))
    return result
