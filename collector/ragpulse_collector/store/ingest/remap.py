"""Derives the canonical columns of stored spans again from their raw attributes, after an upgrade with new rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from ragpulse_collector.instants import EPOCH, instant, unix_ns
from ragpulse_collector.records import ContextRecord, SpanBatch
from ragpulse_collector.store.ingest.prices import CallCost
from ragpulse_collector.store.protocol import Store, Transaction
from ragpulse_collector.store.retention import audit
from ragpulse_collector.store.rows import SPAN_COLUMNS, TableRows
from ragpulse_collector.store.schema import REQUESTS_SINCE
from ragpulse_collector.store.units.row import ASKS

_BATCH = 2_000

_SPANS = """
    SELECT replace(s.trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', s.span_id) AS span_id,
           printf('%016x', s.parent_span_id) AS parent_span_id, s.* EXCLUDE (trace_id, span_id, parent_span_id),
           CASE WHEN c.query_from IS NULL THEN c.query END AS query,
           CASE WHEN c.response_from IS NULL THEN c.response END AS response
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time
    WHERE (s.start_time, s.trace_id, s.span_id) > ($after, $trace::UUID, $span::UBIGINT)
    ORDER BY s.start_time, s.trace_id, s.span_id LIMIT $most"""

_CONTEXTS = """
    SELECT replace(trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', span_id) AS span_id, rank, id, score, text,
           metadata
    FROM raw.contexts WHERE start_time BETWEEN $lo AND $hi ORDER BY trace_id, span_id, rank"""

_DOUBTFUL = f"""
    SELECT trace_id, span_id FROM raw.spans WHERE start_time BETWEEN $lo AND $hi AND ({ASKS}) = false
       AND (trace_id, span_id) IN (
        SELECT (trace_id, unit_span_id) FROM raw.trace_facts
        WHERE latest AND start_time BETWEEN $lo - INTERVAL 1 DAY AND $hi + INTERVAL 1 DAY
          AND decided_at < (SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = '{REQUESTS_SINCE}'))"""
"""The units that an older version counted, and that may be no requests."""

_DELETE = """
    DELETE FROM raw.{table} t USING (SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id) d
    WHERE t.trace_id = d.trace_id AND t.span_id = d.span_id AND t.start_time BETWEEN $lo AND $hi"""

_FIELDS = (
    *SPAN_COLUMNS, "query", "response", "tags", "dropped_attributes", "start_ns", "end_ns", "contexts_truncated",
)  # fmt: skip
Key = tuple[bytes, bytes]
Derive = Callable[[SpanBatch], SpanBatch]


def remap(
    store: Store,
    derive: Derive,
    *,
    price: Callable[[SpanBatch], None] | None = None,
    since: datetime = EPOCH,
) -> tuple[int, int]:
    """Run `derive` over the stored spans and rewrite those that change; returns how many were seen and rewritten.

    Each batch is one transaction, oldest first; a second run changes nothing. A known cost stays: only spans whose cost
    is unknown are priced again. The sampler decides rewritten traces again, and those whose root was counted as a
    request by an older version and may be none.
    """
    seen = changed = 0
    for batches, doubtful in _batches(store, since):
        rewritten = [new for old in batches if len(new := _changed(old, derive, price, doubtful))]
        if rewritten:
            store.write(partial(_rewrite, batches=rewritten)).result()
        seen, changed = seen + sum(map(len, batches)), changed + sum(map(len, rewritten))
    if since == EPOCH:
        store.write(lambda tx: tx.execute(f"DELETE FROM raw.meta WHERE key = '{REQUESTS_SINCE}'")).result()
    if changed:
        store.write(partial(audit, actor="remap", action="remap", detail={"spans": changed})).result()
    return seen, changed


def _changed(
    old: SpanBatch, derive: Derive, price: Callable[[SpanBatch], None] | None, doubtful: Container[Key]
) -> SpanBatch:
    """Return the spans of a batch with other values than before, and the doubtful ones."""
    new = derive(old)
    is_known = [usd is not None for usd in old.values("cost_usd")]
    if price is not None:
        price(new)
    for name in CallCost._fields:
        pairs = zip(is_known, old.values(name), new.values(name), strict=True)
        new.columns[name] = [was if is_known or price is None else now for is_known, was, now in pairs]
    changed = {row for row, key in enumerate(zip(old.trace_ids, old.span_ids, strict=True)) if key in doubtful}
    changed.update(row for row in range(len(old)) if old.contexts_of(row) != new.contexts_of(row))
    for name in _FIELDS:
        values = zip(old.values(name), new.values(name), strict=True)
        changed.update(row for row, (was, now) in enumerate(values) if was != now)
    return new.take(sorted(changed))


def _batches(store: Store, since: datetime) -> Iterator[tuple[list[SpanBatch], set[Key]]]:
    """Yield stored spans, oldest first, as one batch for each resource, with those that may be no requests any more."""
    position: dict[str, Any] = {"after": since, "trace": "0" * 32, "span": 0, "most": _BATCH}
    while rows := store.read(_SPANS, position).dicts():
        within = {"lo": rows[0]["start_time"], "hi": rows[-1]["start_time"]}
        contexts, doubtful = _contexts(store, **within), store.read(_DOUBTFUL, within).rows
        by_resource: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            by_resource.setdefault(row["resource"], []).append(row)
        keys = {(trace_id.bytes, span_id.to_bytes(8, "big")) for trace_id, span_id in doubtful}
        yield [_batch(rows, contexts) for rows in by_resource.values()], keys
        last = rows[-1]
        position |= {"after": last["start_time"], "trace": last["trace_id"], "span": int(last["span_id"], 16)}


def _contexts(store: Store, lo: datetime, hi: datetime) -> dict[Key, list[ContextRecord]]:
    contexts: dict[Key, list[ContextRecord]] = {}
    for trace_id, span_id, rank, id_, score, text, metadata in store.read(_CONTEXTS, {"lo": lo, "hi": hi}).rows:
        record = ContextRecord(rank=rank, id=id_, score=score, text=text, metadata=metadata)
        contexts.setdefault((bytes.fromhex(trace_id), bytes.fromhex(span_id)), []).append(record)
    return contexts


def _batch(rows: Sequence[dict[str, Any]], contexts: Mapping[Key, list[ContextRecord]]) -> SpanBatch:
    for row in rows:
        start = unix_ns(row["start_time"])
        row |= {
            "start_ns": start,
            "end_ns": start + row["duration_us"] * 1000,
            "contexts_truncated": row["contexts_state"] == "truncated",
            "tags": None if row["tags"] is None else orjson.loads(row["tags"]),
        }
    ids = [(bytes.fromhex(row["trace_id"]), bytes.fromhex(row["span_id"])) for row in rows]
    empty: list[list[ContextRecord] | None] = [[] if row["n_contexts"] == 0 else None for row in rows]
    parents = [row["parent_span_id"] for row in rows]
    return SpanBatch(
        trace_ids=[trace_id for trace_id, _ in ids],
        span_ids=[span_id for _, span_id in ids],
        parent_span_ids=[None if parent is None else bytes.fromhex(parent) for parent in parents],
        columns={name: [row[name] for row in rows] for name in _FIELDS},
        contexts=[contexts.get(key, otherwise) for key, otherwise in zip(ids, empty, strict=True)],
    )


def _rewrite(transaction: Transaction, batches: Sequence[SpanBatch]) -> None:
    rows = TableRows()
    for batch in batches:
        rows.add_spans(batch, transaction.at)
    starts = [instant(start) for batch in batches for start in batch.values("start_ns")]
    parameters = {
        "traces": [trace_id.hex() for batch in batches for trace_id in batch.trace_ids],
        "spans": [int.from_bytes(span_id, "big") for batch in batches for span_id in batch.span_ids],
        "lo": min(starts),
        "hi": max(starts),
    }
    for table in ("spans", "contents", "contexts"):
        transaction.execute(_DELETE.format(table=table), parameters)
    rows.append_to(transaction)
