"""Blocks of spans to table columns: what rows.py does for one span, for many that look alike."""

from __future__ import annotations

from datetime import datetime
from itertools import accumulate, chain, pairwise, repeat

import orjson

from ragpulse_collector.records import ContextColumns, SpanBlock
from ragpulse_collector.store.columnar import Part, Same
from ragpulse_collector.store.rows import contexts_state, text_hash, top_score

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
        "start_time": [start // 1000 for start in block.columns["start_ns"]],  # 64 bits: within a TIMESTAMP's years
    }
    texts = {name: _part(block, name) for name in ("query", "response")}
    has_text = any(type(part) is not Same or part.value is not None for part in texts.values())
    tables = {"spans": _span_parts(block, at, has_text=has_text) | ids}
    if has_text:
        tables["contents"] = ids | texts
    if block.contexts is not None and block.contexts.ids:
        tables["contexts"] = _context_parts(ids, block.contexts)
    return tables


def _span_parts(block: SpanBlock, at: datetime, *, has_text: bool) -> Parts:
    size = len(block)
    tags = block.columns.get("tags")
    times = zip(block.columns["start_ns"], block.columns["end_ns"], strict=True)
    return {name: _part(block, name) for name in _AS_THEY_ARE} | {
        "parent_span_id": block.parent_span_ids if any(block.parent_span_ids) else Same(None, size),
        "received_at": Same(at, size),
        "duration_us": [(end - start) // 1000 for start, end in times],
        "tags": Same(None, size) if tags is None else [orjson.dumps(each).decode() for each in tags],
        "has_text": Same(has_text, size),
        **({name: Same(None, size) for name in _OF_CONTEXTS} if block.contexts is None else _summary(block.contexts)),
    }


def _part(block: SpanBlock, name: str) -> Part:
    column = block.columns.get(name)
    return Same(block.same(name), len(block)) if column is None else column


def _summary(contexts: ContextColumns) -> Parts:
    """Return of each span's contexts what they are good for, how many there are, and the best score."""
    ends = list(accumulate(contexts.sizes, initial=0))
    return {
        "contexts_state": [contexts_state(contexts.texts[start:end]) for start, end in pairwise(ends)],
        "n_contexts": contexts.sizes,
        "top_score": [top_score(contexts.scores[start:end]) for start, end in pairwise(ends)],
    }


def _context_parts(ids: Parts, contexts: ContextColumns) -> Parts:
    repeated: Parts = {name: list(chain.from_iterable(map(repeat, part, contexts.sizes))) for name, part in ids.items()}
    return repeated | {
        "rank": list(chain.from_iterable(range(1, size + 1) for size in contexts.sizes)),
        "id": contexts.ids,
        "score": contexts.scores,
        "text": contexts.texts,
        "metadata": contexts.metadata if any(contexts.metadata) else Same(None, len(contexts.metadata)),
        "hash": [None if text is None else text_hash(text) for text in contexts.texts],
    }
