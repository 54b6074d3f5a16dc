"""Records to table rows: the last pure step before the appender."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson

from ragpulse_collector.records import ContentRecord, ContextRecord, ScoreRecord, SpanRecord
from ragpulse_collector.store.columnar import Part
from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.schema import columns
from ragpulse_evaluators.digest import sha256_hex

Row = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1)
_LAST_US = (datetime(9999, 1, 1) - _EPOCH) // timedelta(microseconds=1)
_INT64 = 2**63
_INT32 = 2**31 - 1


def instant(nanoseconds: int) -> datetime:
    """Return the UTC instant (naive, as stored) of Unix nanoseconds; out-of-range values are moved to the edge."""
    return _EPOCH + timedelta(microseconds=microseconds(nanoseconds))


def microseconds(nanoseconds: int) -> int:
    """Return Unix microseconds, which a TIMESTAMP column takes as well and which cost less than a datetime."""
    return min(max(nanoseconds // 1000, 0), _LAST_US)


def utc_now() -> datetime:
    """Return the present as stored in the tables: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def text_hash(text: str) -> str:
    """Return the identity of a context's text: sha256 (hex) of its NFKC form."""
    normal = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return sha256_hex(normal)


def contexts_state(texts: Sequence[str | None] | None, *, truncated: bool = False) -> str | None:
    """Say what a span's contexts are good for, by their texts: None (carries none), empty, text, no_text, truncated."""
    if truncated:
        return "truncated"
    if texts is None:
        return None
    if not texts:
        return "empty"
    return "no_text" if None in texts else "text"


def top_score(scores: Sequence[float | None]) -> float | None:
    """Return the best score of a retrieval, None where it states none."""
    return max([score for score in scores if score is not None], default=None)


@dataclass(slots=True)
class Appendable:
    """Rows of one or more batches, by table: some one by one in column order, some in blocks."""

    spans: list[Row] = field(default_factory=list)
    contents: list[Row] = field(default_factory=list)
    contexts: list[Row] = field(default_factory=list)
    content_events: list[Row] = field(default_factory=list)
    feedback: list[Row] = field(default_factory=list)
    parts: list[dict[str, dict[str, Part]]] = field(default_factory=list)
    """Table → column → values of the spans of one block (block_rows.py)."""

    def add_span(self, span: SpanRecord, at: datetime) -> None:
        """Add a span, its texts and its contexts."""
        start = microseconds(span.start_ns)
        trace_id, span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        if span.query is not None or span.response is not None:
            self.contents.append((trace_id, span_id, start, span.query, span.response))
        if span.contexts:
            self.add_contexts(trace_id, span_id, start, span.contexts)
        self.spans.append(_span_row(span, trace_id, span_id, start, at))

    def add_contexts(
        self, trace_id: bytes, span_id: bytes, start: datetime | int, contexts: list[ContextRecord]
    ) -> None:
        """Add the retrieved documents of one span."""
        for c in contexts:
            digest = None if c.text is None else text_hash(c.text)
            self.contexts.append((trace_id, span_id, start, c.rank, c.id, c.score, c.text, c.metadata, digest))

    def add_score(self, score: ScoreRecord, at: datetime) -> None:
        """Add a score that came from outside."""
        span_id = None if score.span_id is None else int(score.span_id, 16)
        self.feedback.append(
            (
                uuid4().hex, score.trace_id, span_id, microseconds(score.time_ns), at, score.name, score.score,
                score.label, score.explanation, score.source, score.response_id,
            )
        )  # fmt: skip

    def add_content_event(self, record: ContentRecord, at: datetime, *, joined: bool) -> None:
        """Keep the texts of a log event as they came."""
        body = orjson.dumps({"query": record.query, "response": record.response, "contexts": record.contexts})
        self.content_events.append(
            (record.trace_id, int(record.span_id, 16), microseconds(record.time_ns), at, joined, body.decode())
        )

    def append_to(self, transaction: Transaction) -> None:
        """Append everything to its tables."""
        for table in ("spans", "contents", "contexts", "content_events", "feedback"):
            rows: list[Row] = getattr(self, table)
            found = [parts[table] for parts in self.parts if table in parts]
            if rows:
                found.append(dict(zip(columns(table), zip(*rows, strict=True), strict=True)))
            if found:
                transaction.append_columns(table, {name: [each[name] for each in found] for name in found[0]})


def _span_row(span: SpanRecord, trace_id: bytes, span_id: bytes, start: int, at: datetime) -> Row:
    contexts = span.contexts
    texts = None if contexts is None else [context.text for context in contexts]
    top = top_score([context.score for context in contexts or ()])
    parent = None if span.parent_span_id is None else bytes.fromhex(span.parent_span_id)
    return (
        trace_id, span_id, parent, start, at, min(max((span.end_ns - span.start_ns) // 1000, 0), _INT64 - 1),
        span.name, span.kind, span.service, span.service_version, span.environment, span.status, span.status_message,
        span.error_type, span.model, span.provider, span.response_id, _count(span.input_tokens),
        _count(span.output_tokens), _count(span.cached_tokens), _count(span.cache_write_tokens),
        _count(span.reasoning_tokens), span.cost_usd, span.cost_source, span.cost_unknown_reason, span.ttft_ms,
        span.session_id, span.user_id, span.prompt_name, span.prompt_version, span.variant,
        None if span.tags is None else orjson.dumps(span.tags).decode(), span.metadata, span.upstream_pi,
        contexts_state(texts, truncated=span.contexts_truncated), None if contexts is None else len(contexts), top,
        min(span.dropped_attributes, _INT32), span.query is not None or span.response is not None, span.attributes,
        span.resource, span.events, span.mapped_from, span.links,
    )  # fmt: skip


def _count(value: int | None) -> int | None:
    """Tokens as stored; a number no counter can reach is unknown, not a reason to refuse the body."""
    return value if value is None or 0 <= value < _INT64 else None
