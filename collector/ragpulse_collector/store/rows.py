"""Converts batches to table columns, the last pure step before they are appended."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import uuid4

import orjson

from ragpulse_collector.instants import microseconds
from ragpulse_collector.records import Constant, ContentRecord, ContextRecord, ScoreRecord, SpanBatch, Values
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Transaction
from ragpulse_evaluators.digest import sha256_hex

_INT32 = 2**31 - 1


def text_hash(text: str) -> str:
    """Return the identity of a context's text: sha256 (hex) of its NFKC form.

    A text with more than 30 combining marks in a row is hashed as it is: normalizing it takes quadratic time.
    """
    if text.isascii() or _many_marks().search(text):
        return sha256_hex(text)
    return sha256_hex(unicodedata.normalize("NFKC", text))


@cache
def _many_marks() -> re.Pattern[str]:
    """Return a pattern for more combining marks in a row than Unicode's stream-safe format allows."""
    decomposed = ((chr(code), unicodedata.normalize("NFKD", chr(code))) for code in range(0x300, 0x20000))
    marks = "".join(char for char, parts in decomposed if unicodedata.combining(parts[0]))
    return re.compile(f"[{marks}]{{31}}")


def binding_text(binding: Binding | None) -> str | None:
    """Return what a sender's key is bound to as JSON."""
    return None if binding is None else orjson.dumps(binding._asdict()).decode()


def contexts_state(contexts: Sequence[ContextRecord] | None, *, truncated: bool = False) -> str | None:
    """Return the state of a span's contexts: None (the span has none), empty, text, no_text, truncated."""
    if truncated:
        return "truncated"
    if contexts is None:
        return None
    if not contexts:
        return "empty"
    return "text" if all(context.text is not None for context in contexts) else "no_text"


def top_score(contexts: Sequence[ContextRecord]) -> float | None:
    """Return the highest score of a retrieval, None without scores."""
    return max([context.score for context in contexts if context.score is not None], default=None)


SPAN_COLUMNS = (
    "name", "kind", "service", "service_version", "environment", "status", "status_message", "error_type", "model",
    "provider", "response_id", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_usd", "cost_source", "cost_unknown_reason", "ttft_ms", "session_id", "user_id",
    "prompt_name", "prompt_version", "variant", "metadata", "upstream_pi", "attributes", "resource", "events",
    "mapped_from", "links", "finish_reason", "agent", "data_source", "top_k", "response_missing_reason", "control_flow",
    "index_version",
)  # fmt: skip
"""Columns of `raw.spans` that are stored as a batch has them."""


class TableRows:
    """Rows to append: table → column → chunks, each a list of values or a constant."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, list[Values]]] = {}

    def add(self, table: str, **columns: Values) -> None:
        """Add rows by column; every call for a table names the same columns."""
        table_columns = self._tables.setdefault(table, {})
        for name, values in columns.items():
            table_columns.setdefault(name, []).append(values)

    def add_row(self, table: str, **values: Any) -> None:
        """Add one row."""
        self.add(table, **{name: [value] for name, value in values.items()})

    def add_spans(self, batch: SpanBatch, received_at: datetime) -> None:
        """Add spans, their texts and their contexts."""
        starts = [start // 1000 for start in batch.values("start_ns")]
        queries, responses = batch.values("query"), batch.values("response")
        texts = [row for row, both in enumerate(zip(queries, responses, strict=True)) if both != (None, None)]
        with_text = set(texts)
        ids: dict[str, Sequence[Any]] = {"trace_id": batch.trace_ids, "span_id": batch.span_ids, "start_time": starts}
        self.add(
            "spans",
            **ids,
            **{name: batch.column(name) for name in SPAN_COLUMNS},
            **_contexts_summary(batch),
            parent_span_id=batch.parent_span_ids,
            received_at=Constant(received_at, len(batch)),
            duration_us=_durations(batch),
            tags=_json_lists(batch.column("tags")),
            dropped_attributes=[min(count, _INT32) for count in batch.values("dropped_attributes")],
            has_text=[row in with_text for row in range(len(batch))],
        )
        if texts:
            cells = {**ids, "query": queries, "response": responses}
            self.add("contents", **{name: [column[row] for row in texts] for name, column in cells.items()})
        if batch.contexts:
            contexts_by_row = [(row, contexts) for row, contexts in enumerate(batch.contexts) if contexts]
            self._add_contexts(ids, contexts_by_row)

    def add_contexts(
        self, trace_id: bytes, span_id: bytes, start: datetime | int, contexts: Sequence[ContextRecord]
    ) -> None:
        """Add the retrieved documents of one span."""
        self._add_contexts({"trace_id": [trace_id], "span_id": [span_id], "start_time": [start]}, [(0, contexts)])

    def _add_contexts(
        self, ids: Mapping[str, Sequence[Any]], contexts_by_row: Sequence[tuple[int, Sequence[ContextRecord]]]
    ) -> None:
        """Add the documents of some rows; those of all spans together make one piece of each column."""
        records = [context for _, contexts in contexts_by_row for context in contexts]
        if not records:
            return
        rows = [row for row, contexts in contexts_by_row for _ in contexts]
        columns: dict[str, Values] = {name: [column[row] for row in rows] for name, column in ids.items()}
        for name in ("rank", "id", "score", "text", "metadata"):
            columns[name] = [getattr(context, name) for context in records]
        columns["hash"] = [None if context.text is None else text_hash(context.text) for context in records]
        self.add("contexts", **columns)

    def add_score(self, score: ScoreRecord, received_at: datetime) -> None:
        """Add a score that came from outside."""
        self.add_row(
            "feedback",
            feedback_id=uuid4().hex,
            trace_id=score.trace_id,
            span_id=score.span_id,
            time=microseconds(score.time_ns),
            received_at=received_at,
            **{name: getattr(score, name) for name in _SCORE_COLUMNS},
            binding=binding_text(score.binding),
        )

    def add_content_event(self, record: ContentRecord, received_at: datetime, *, joined: bool) -> None:
        """Add a log event as it arrived."""
        binding = record.binding and record.binding._asdict()
        body = orjson.dumps({**{name: getattr(record, name) for name in EVENT_FIELDS}, "binding": binding})
        self.add_row(
            "content_events",
            trace_id=record.trace_id,
            span_id=record.span_id,
            time=microseconds(record.time_ns),
            received_at=received_at,
            joined=joined,
            record=body.decode(),
        )

    def append_to(self, transaction: Transaction) -> None:
        """Append everything to its tables."""
        for table, columns in self._tables.items():
            transaction.append_columns(table, columns)


EVENT_FIELDS = ("query", "response", "contexts", "error_type", "status_message")
"""The fields of a log event that `raw.content_events` has."""
_SCORE_COLUMNS = ("name", "score", "label", "explanation", "source", "response_id", "scope", "identifier", "session_id")


def _durations(batch: SpanBatch) -> list[int]:
    times = zip(batch.values("start_ns"), batch.values("end_ns"), strict=True)
    return [(end - start) // 1000 for start, end in times]


def _json_lists(column: Values) -> Values:
    if isinstance(column, Constant):
        return Constant(None if column.value is None else orjson.dumps(column.value).decode(), column.length)
    return [None if value is None else orjson.dumps(value).decode() for value in column]


def _contexts_summary(batch: SpanBatch) -> dict[str, Values]:
    """Return the state, the number and the highest score of each span's contexts."""
    truncated = batch.values("contexts_truncated")
    contexts = batch.contexts or [None] * len(batch)
    return {
        "contexts_state": [
            contexts_state(documents, truncated=is_cut) for documents, is_cut in zip(contexts, truncated, strict=True)
        ],
        "n_contexts": [None if documents is None else len(documents) for documents in contexts],
        "top_score": [None if not documents else top_score(documents) for documents in contexts],
    }
