"""Blocks of spans to table columns: what rows.py does for one span, for many that look alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, repeat

import orjson

from ragpulse_collector.records import ContextRecord, SpanBlock
from ragpulse_collector.store.columnar import Part, Same
from ragpulse_collector.store.rows import contexts_state, microseconds, text_hash, top_score

Parts = dict[str, Part]

_AS_THEY_ARE = (
    "name", "kind", "service", "service_version", "environment", "status", "status_message", "error_type", "model",
    "provider", "response_id", "input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens",
    "reasoning_tokens", "cost_usd", "cost_source", "cost_unknown_reason", "ttft_ms", "session_id", "user_id",
    "prompt_name", "prompt_version", "variant", "metadata", "upstream_pi", "dropped_attributes", "attributes",
    "resource", "events", "mapped_from", "links",
)  # fmt: skip

_OF_CONTEXTS = ("contexts_state", "n_contexts", "top_score")


def table_parts(block: SpanBlock, at: datetime) -> dict[str, Parts]:
    """Return the block's part of each table it has rows in."""
    ids: Parts = {
        "trace_id": block.trace_ids,
        "span_id": block.span_ids,
        "start_time": list(map(microseconds, block.columns["start_ns"])),
    }
    texts = {name: _part(block, name) for name in ("query", "response")}
    has_text = any(type(part) is not Same or part.value is not None for part in texts.values())
    tables = {"spans": _span_parts(block, at, has_text=has_text) | ids}
    if has_text:
        tables["contents"] = ids | texts
    if any(block.columns.get("contexts", ())):
        tables["contexts"] = _context_parts(ids, block.columns["contexts"])
    return tables


def _span_parts(block: SpanBlock, at: datetime, *, has_text: bool) -> Parts:
    size = len(block)
    contexts = block.columns.get("contexts")
    tags = block.columns.get("tags")
    times = zip(block.columns["start_ns"], block.columns["end_ns"], strict=True)
    return {name: _part(block, name) for name in _AS_THEY_ARE} | {
        "parent_span_id": block.parent_span_ids,
        "received_at": Same(at, size),
        "duration_us": [(end - start) // 1000 for start, end in times],
        "tags": Same(None, size) if tags is None else [orjson.dumps(each).decode() for each in tags],
        "has_text": Same(has_text, size),
        **({name: Same(None, size) for name in _OF_CONTEXTS} if contexts is None else _summary(contexts)),
    }


def _part(block: SpanBlock, name: str) -> Part:
    column = block.columns.get(name)
    return Same(block.same(name), len(block)) if column is None else column


def _summary(contexts: Sequence[list[ContextRecord]]) -> Parts:
    """Return of each span's contexts what they are good for, how many there are, and the best score."""
    return {
        "contexts_state": [contexts_state(each, truncated=False) for each in contexts],
        "n_contexts": list(map(len, contexts)),
        "top_score": list(map(top_score, contexts)),
    }


def _context_parts(ids: Parts, contexts: Sequence[list[ContextRecord]]) -> Parts:
    every = list(chain.from_iterable(contexts))
    sizes = list(map(len, contexts))
    repeated: Parts = {name: list(chain.from_iterable(map(repeat, part, sizes))) for name, part in ids.items()}
    return repeated | {
        "rank": [c.rank for c in every],
        "id": [c.id for c in every],
        "score": [c.score for c in every],
        "text": [c.text for c in every],
        "metadata": [c.metadata for c in every],
        "hash": [None if c.text is None else text_hash(c.text) for c in every],
    }
