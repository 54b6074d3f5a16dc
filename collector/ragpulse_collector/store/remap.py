"""Re-deriving the canonical columns of stored spans from their raw attributes, after an upgrade learnt new names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from ragpulse_collector.records import ContextRecord, SpanRecord
from ragpulse_collector.store.protocol import Store, Transaction
from ragpulse_collector.store.retention import audit
from ragpulse_collector.store.rows import Appendable, instant

_BATCH = 2_000

_SPANS = """
    SELECT replace(s.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', s.span_id) AS span_id,
           printf('%016x', s.parent_span_id) AS parent_span_id, s.* EXCLUDE (trace_id, span_id, parent_span_id),
           c.query, c.response
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time
    WHERE (s.start_time, s.trace_id, s.span_id) > ($after, $trace::UUID, $span::UBIGINT)
    ORDER BY s.start_time, s.trace_id, s.span_id LIMIT $most"""

_CONTEXTS = """
    SELECT replace(trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', span_id) AS span_id, rank, id, score, text,
           metadata
    FROM raw.contexts WHERE start_time BETWEEN $lo AND $hi ORDER BY trace_id, span_id, rank"""

_DELETE = """
    DELETE FROM raw.{table} t USING (SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id) d
    WHERE t.trace_id = d.trace_id AND t.span_id = d.span_id AND t.start_time BETWEEN $lo AND $hi"""

Key = tuple[str, str]
_NAMES = frozenset(field.name for field in fields(SpanRecord))


def remap(
    store: Store,
    derive: Callable[[SpanRecord], SpanRecord],
    *,
    price: Callable[[SpanRecord], None] | None = None,
    since: datetime | None = None,
    progress: Callable[[int, int], None] = lambda _seen, _changed: None,
) -> tuple[int, int]:
    """Run `derive` over the stored spans and rewrite those that changed; returns how many were seen and rewritten.

    Works in batches, each one transaction, oldest first; running it again changes nothing. Prices were frozen when a
    span came: only spans whose cost was unknown are priced anew. Rewritten traces are rolled up again by the sampler.
    """
    seen = changed = 0
    for spans in _batches(store, since or datetime(1970, 1, 1)):
        rewritten = [(old, new) for old in spans if (new := _derived(old, derive, price)) != old]
        if rewritten:
            store.write(partial(_rewrite, changes=rewritten)).result()
        seen, changed = seen + len(spans), changed + len(rewritten)
        progress(seen, changed)
    if changed:
        store.write(partial(audit, actor="remap", action="remap", detail={"spans": changed})).result()
    return seen, changed


def _derived(
    old: SpanRecord, derive: Callable[[SpanRecord], SpanRecord], price: Callable[[SpanRecord], None] | None
) -> SpanRecord:
    new = derive(old)
    if old.cost_usd is not None:
        new.cost_usd, new.cost_source, new.cost_unknown_reason = old.cost_usd, old.cost_source, None
    elif price is not None:
        new.cost_unknown_reason = None
        price(new)
    else:
        new.cost_unknown_reason = old.cost_unknown_reason
    return new


def _batches(store: Store, since: datetime) -> Iterator[list[SpanRecord]]:
    place: dict[str, Any] = {"after": since, "trace": "0" * 32, "span": 0, "most": _BATCH}
    while found := store.read(_SPANS, place).dicts():
        contexts = _contexts(store, found[0]["start_time"], found[-1]["start_time"])
        yield [_record(row, contexts.get((row["trace_id"], row["span_id"]))) for row in found]
        last = found[-1]
        place |= {"after": last["start_time"], "trace": last["trace_id"], "span": int(last["span_id"], 16)}


def _contexts(store: Store, lo: datetime, hi: datetime) -> dict[Key, list[ContextRecord]]:
    found: dict[Key, list[ContextRecord]] = {}
    for trace_id, span_id, rank, id_, score, text, metadata in store.read(_CONTEXTS, {"lo": lo, "hi": hi}).rows:
        record = ContextRecord(rank=rank, id=id_, score=score, text=text, metadata=metadata)
        found.setdefault((trace_id, span_id), []).append(record)
    return found


def _record(row: dict[str, Any], contexts: list[ContextRecord] | None) -> SpanRecord:
    start = int(row["start_time"].replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000
    state = row["contexts_state"]
    made = {
        "start_ns": start,
        "end_ns": start + row["duration_us"] * 1000,
        "contexts": contexts if contexts is not None else ([] if row["n_contexts"] == 0 else None),
        "contexts_truncated": state == "truncated",
        "tags": None if row["tags"] is None else orjson.loads(row["tags"]),
    }
    return SpanRecord(**{name: value for name, value in row.items() if name in _NAMES and name != "tags"} | made)


def _rewrite(transaction: Transaction, changes: list[tuple[SpanRecord, SpanRecord]]) -> None:
    rows = Appendable()
    for _, new in changes:
        rows.add_span(new, transaction.at)
    starts = [instant(new.start_ns) for _, new in changes]
    place = {
        "traces": [old.trace_id for old, _ in changes],
        "spans": [int(old.span_id, 16) for old, _ in changes],
        "lo": min(starts),
        "hi": max(starts),
    }
    for table in ("spans", "contents", "contexts"):
        transaction.execute(_DELETE.format(table=table), place)
    rows.append_to(transaction)
