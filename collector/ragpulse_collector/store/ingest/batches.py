"""Writes batches to tables: each span once, texts apart from figures, log events joined to their spans.

The writer's transaction appends rows by column, as an Arrow table that DuckDB reads in place.
"""

from __future__ import annotations

import contextlib
import struct
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import duckdb
import nanoarrow
from nanoarrow.c_array_stream import CArrayStream

from ragpulse_collector.records import Batch, Constant, Receipt, ScoreRecord, SpanBatch, Values, span_key
from ragpulse_collector.store.connection import fetch
from ragpulse_collector.store.ingest.joins import ContentEvents, ResponseScores
from ragpulse_collector.store.protocol import Parameters, Rows, Transaction
from ragpulse_collector.store.queries.forgotten import without_forgotten
from ragpulse_collector.store.rows import TableRows, instant
from ragpulse_collector.store.schema import column_types

_NEWEST = "SELECT max(start_time) FROM raw.spans"
_STORED = """
    SELECT replace(trace_id::VARCHAR, '-', ''), span_id FROM raw.spans
    WHERE start_time BETWEEN $lo AND $hi AND trace_id IN (SELECT unnest($traces::UUID[]))"""

CLOCK_SLACK_NS = 5_000_000_000
"""How far a client's clock may be ahead of ours before a span that is sent again after a restart may look new."""

_FAR = 2**64


@dataclass(slots=True)
class _Group:
    """Spans that the cache forgets together."""

    keys: list[int]
    newest_ns: int
    """The start of the newest span."""
    stored_ns: int
    """When the last span was stored."""


class RecentSpans:
    """The recent-span cache: the keys of at least the last `generation` spans, forgotten a hundredth at a time.

    `covers` returns whether a stored span of these times must be in the cache: it ended after the time since which all
    spans are remembered, or it starts after every span that is stored and not remembered. Other spans are looked up in
    the table. A key takes 95 bytes; the chance that a new span is taken for an old one is 1e-14.
    """

    def __init__(self, *, generation: int, since_ns: int) -> None:
        self._generation = generation
        self._remembered: set[int] = set()
        self._groups: deque[_Group] = deque()
        self._covered_ns = since_ns
        self._forgotten_ns = _FAR
        self.begun = False

    def begin(self, newest_ns: int) -> None:
        """Set the start of the newest span that was stored before this process began; needed once."""
        self._forgotten_ns = newest_ns
        self.begun = True

    def __contains__(self, key: int) -> bool:
        return key in self._remembered

    def covers(self, start_ns: int, end_ns: int) -> bool:
        """Return whether a span of these times that is not in the cache is not stored either."""
        return end_ns >= self._covered_ns + CLOCK_SLACK_NS or start_ns > self._forgotten_ns

    def add(self, keys: Iterable[int], *, newest_ns: int, now_ns: int) -> None:
        """Remember the keys of spans that are on disk now; the newest span starts at `newest_ns`."""
        if not self._groups or len(self._groups[-1].keys) >= self._generation // 100:
            self._groups.append(_Group([], newest_ns, now_ns))
        group = self._groups[-1]
        first = len(group.keys)
        group.keys += keys
        group.newest_ns, group.stored_ns = max(group.newest_ns, newest_ns), now_ns
        self._remembered.update(group.keys[first:])
        while len(self._remembered) - len(self._groups[0].keys) >= self._generation:
            oldest = self._groups.popleft()
            self._remembered.difference_update(oldest.keys)
            self._forgotten_ns = max(self._forgotten_ns, oldest.newest_ns)
            self._covered_ns = oldest.stored_ns


class Ingest:
    """Writes batches inside a transaction; `remember` or `forget` follows its end."""

    def __init__(self, *, recent_spans: int, opened: datetime) -> None:
        self._recent = RecentSpans(generation=recent_spans, since_ns=_nanoseconds(opened))
        self._events = ContentEvents()
        self._scores = ResponseScores()
        self._keys: set[int] = set()
        """The keys of the spans that this transaction adds."""
        self._newest_ns = self._stored_ns = 0

    def write(self, transaction: Transaction, batches: list[Batch]) -> list[Receipt]:
        """Append the batches' spans, texts, contexts and scores; returns one receipt a batch."""
        if not batches:
            return []
        if not self._recent.begun:
            self._recent.begin(_newest_ns(transaction))
        rows = TableRows()
        stored = self._stored_before(transaction, batches)
        results = [self._take(batch, stored) for batch in batches]
        new_spans = [spans for new, _, _ in results for spans in new]
        contents = [record for batch in batches for record in batch.contents]
        self._events.join(transaction, rows, contents, new_spans)
        for spans in new_spans:
            rows.add_spans(spans, transaction.at)
        scores = without_forgotten(transaction, [score for _, new, _ in results for score in new])
        self._scores.join(transaction, scores, new_spans)
        for score in scores:
            rows.add_score(score, transaction.at)
        rows.append_to(transaction)
        self._stored_ns = _nanoseconds(transaction.at)
        self._newest_ns = max((max(spans.values("start_ns")) for spans in new_spans), default=0)
        return [receipt for _, _, receipt in results]

    def remember(self) -> None:
        """The transaction is on disk."""
        self._recent.add(self._keys, newest_ns=self._newest_ns, now_ns=self._stored_ns)
        self._events.remember()
        self._scores.remember()
        self._keys = set()

    def forget(self) -> None:
        """The transaction was rolled back."""
        self._events.forget()
        self._scores.forget()
        self._keys = set()

    def _take(self, batch: Batch, stored: set[int]) -> tuple[list[SpanBatch], list[ScoreRecord], Receipt]:
        """Return the new spans of a body, its scores without those of repeated spans, and its receipt."""
        new_spans = [new for spans in batch.spans if len(new := self._new(spans, stored))]
        accepted, sent = sum(map(len, new_spans)), sum(map(len, batch.spans))
        scores = batch.scores if accepted == sent else _of_new_spans(batch.scores, new_spans)
        return (
            new_spans,
            scores,
            Receipt(
                rejected=batch.rejected,
                message=batch.message,
                unmapped=batch.unmapped,
                not_stored=batch.not_stored,
                duplicates=sent - accepted,
                accepted=accepted + len(batch.contents) + len(scores),
            ),
        )

    def _new(self, spans: SpanBatch, stored: set[int]) -> SpanBatch:
        """Return the spans that are not stored yet, each once."""
        rows = []
        for row, key in enumerate(spans.keys()):
            if key not in self._keys and key not in self._recent and key not in stored:
                self._keys.add(key)
                rows.append(row)
        return spans if len(rows) == len(spans) else spans.take(rows)

    def _stored_before(self, transaction: Transaction, batches: Iterable[Batch]) -> set[int]:
        """Return the keys of stored spans in these traces, looked up where the recent-span cache does not suffice."""
        starts: list[int] = []
        traces: set[str] = set()
        for spans in (spans for batch in batches for spans in batch.spans):
            times = zip(spans.values("start_ns"), spans.values("end_ns"), strict=True)
            rows = [row for row, (start, end) in enumerate(times) if not self._recent.covers(start, end)]
            starts += [spans.values("start_ns")[row] for row in rows]
            traces.update(spans.trace_ids[row].hex() for row in rows)
        if not starts:
            return set()
        parameters = {"lo": instant(min(starts)), "hi": instant(max(starts)), "traces": list(traces)}
        matches = transaction.execute(_STORED, parameters).rows
        return {span_key(bytes.fromhex(trace_id), span_id.to_bytes(8, "big")) for trace_id, span_id in matches}


def _of_new_spans(scores: Iterable[ScoreRecord], new_spans: Iterable[SpanBatch]) -> list[ScoreRecord]:
    """Return the scores without those that were written on spans stored before."""
    span_ids = {
        (trace_id.hex(), span_id.hex())
        for spans in new_spans
        for trace_id, span_id in zip(spans.trace_ids, spans.span_ids, strict=True)
    }
    return [score for score in scores if score.written_on is None or score.written_on in span_ids]


def _newest_ns(transaction: Transaction) -> int:
    """Return the start of the newest stored span; the table has whole microseconds."""
    newest = transaction.execute(_NEWEST).rows[0][0]
    return 0 if newest is None else _nanoseconds(newest) + 999


def _nanoseconds(time: datetime) -> int:
    return int(time.replace(tzinfo=UTC).timestamp() * 1_000_000) * 1000


_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class Source:
    """A table for `duckdb.register`: each statement that reads it sees the rows of the last `fill`.

    `types` maps each column to its declared type. A type that `_TYPES` does not name is sent as text.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = {name: _TYPES.get(declared, _TEXT) for name, declared in types.items()}
        columns = {name: column_type.extension or column_type.storage for name, column_type in self._types.items()}
        self._schema = nanoarrow.c_schema(nanoarrow.struct(columns))
        self._batches: list[Any] = []

    def fill(self, columns: Mapping[str, Sequence[Values]]) -> None:
        """Replace the rows. Each column comes in chunks of the same lengths; missing columns are null.

        Raises ValueError for a value that does not fit its column; then the rows stay as they were.
        """
        length = sum(map(_length, next(iter(columns.values()))))
        nulls = {kind: kind.array([None] * length) for kind in set(self._types.values())}
        arrays = [
            kind.array(_joined(columns[name])) if _has_values(columns.get(name, ())) else nulls[kind]
            for name, kind in self._types.items()
        ]
        self._batches = [nanoarrow.c_array_from_buffers(self._schema, length, [None], children=arrays)]

    def clear(self) -> None:
        """Remove the rows."""
        self._batches = []

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule with a stream of at most one batch."""
        return CArrayStream.from_c_arrays(self._batches, self._schema).__arrow_c_stream__()


@dataclass(frozen=True, eq=False)
class _Type:
    """How the values of a declared type become an Arrow array."""

    storage: Any
    convert: Callable[[Any], Any]
    """Converts a value that is not null to the form that Arrow accepts."""
    prepare: Callable[[Sequence[Any]], Sequence[Any]] = lambda values: values
    """Converts a column of the usual form at once; Arrow rejects all others."""
    extension: Any = None
    """The type by which DuckDB knows the stored values, if it is another."""

    def array(self, values: Sequence[Any]) -> Any:
        """Return the values as an array; raises ValueError for a value that does not fit."""
        try:
            return nanoarrow.c_array(self.prepare(values), self.storage)
        except (ValueError, TypeError, struct.error):
            converted = [None if value is None else self.convert(value) for value in values]
        return nanoarrow.c_array(converted, self.storage)


def _length(chunk: Values) -> int:
    return chunk.length if isinstance(chunk, Constant) else len(chunk)


def _has_values(chunks: Sequence[Values]) -> bool:
    return not all(isinstance(chunk, Constant) and chunk.value is None for chunk in chunks)


def _joined(chunks: Sequence[Values]) -> Sequence[Any]:
    """Return the rows of all chunks."""
    rows = [[chunk.value] * chunk.length if isinstance(chunk, Constant) else chunk for chunk in chunks]
    return rows[0] if len(rows) == 1 else list(chain.from_iterable(rows))


def _span_ids(values: Sequence[Any]) -> Sequence[int]:
    """Convert ids of eight bytes, as on the wire, to the numbers in the tables; raises TypeError or struct.error."""
    return struct.unpack(f">{len(values)}Q", b"".join(values))


def _span_id(value: Any) -> int:
    """Convert eight bytes, hex text or a number."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    return int(value, 16) if isinstance(value, str) else int(value)


def _uuid(value: Any) -> bytes:
    """Convert hex text, with or without dashes."""
    return value if isinstance(value, bytes) else UUID(str(value)).bytes


def _microseconds(value: Any) -> Any:
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def _unchanged(value: Any) -> Any:
    return value


_UUID = nanoarrow.extension_type(nanoarrow.fixed_size_binary(16), "arrow.uuid")
_TEXT = _Type(nanoarrow.large_string(), str)
_TYPES = {
    "UUID": _Type(nanoarrow.fixed_size_binary(16), _uuid, extension=_UUID),
    "UBIGINT": _Type(nanoarrow.uint64(), _span_id, _span_ids),
    "BIGINT": _Type(nanoarrow.int64(), _unchanged),
    "INTEGER": _Type(nanoarrow.int32(), _unchanged),
    "DOUBLE": _Type(nanoarrow.float64(), _unchanged),
    "BOOLEAN": _Type(nanoarrow.bool_(), bool),
    "TIMESTAMP": _Type(nanoarrow.timestamp("us"), _microseconds),
}
"""Declared type → how its values are encoded."""


class WriterTransaction:
    """The writer's transactions on one cursor; see `Transaction`.

    Each table has a source, made with the first rows. The INSERT from it is planned each time: a prepared one saves
    2 to 7 % of what a body costs, and in a lake it does not outlive the maintenance of its table (DuckLake with duckdb
    1.5.5 ends the process then).
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._sources: dict[str, Source] = {}
        self.at = _EPOCH

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement; reads see everything written before in the same transaction."""
        return fetch(self._cursor, sql, parameters)

    def append(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Append rows, all or none of them; span ids may be hex text. Raises ValueError."""
        if rows:
            values = zip(*rows, strict=True)
            self.append_columns(table, {name: [column] for name, column in zip(columns, values, strict=True)})

    def append_columns(self, table: str, columns: Mapping[str, Sequence[Values]]) -> None:
        """Append rows. Each column comes in chunks of the same lengths; raises like `append`."""
        source = self._sources.get(table) or self._new_source(table)
        try:
            source.fill(columns)
            self._cursor.execute(f"INSERT INTO raw.{table} BY NAME FROM rows_of_{table}")
        finally:
            source.clear()

    def close(self) -> None:
        """Remove the sources from the cursor, and close it."""
        with contextlib.suppress(duckdb.Error):
            for table in self._sources:
                self._cursor.unregister(f"rows_of_{table}")
        self._cursor.close()

    def forget(self) -> None:
        """Forget the sources after a rollback, which has removed those that were registered in the transaction."""
        self._sources = {}

    def _new_source(self, table: str) -> Source:
        source = Source(column_types(table))
        self._cursor.register(f"rows_of_{table}", source)
        self._sources[table] = source
        return source
