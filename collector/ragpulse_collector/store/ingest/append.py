"""The writer's transaction: rows are appended by column, as an Arrow table that DuckDB reads in place."""

from __future__ import annotations

import contextlib
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple
from uuid import UUID

import duckdb
import nanoarrow
from nanoarrow.c_array_stream import CArrayStream

from ragpulse_collector.records import Constant, Values
from ragpulse_collector.store.connection import fetch
from ragpulse_collector.store.protocol import Parameters, Rows
from ragpulse_collector.store.schema import column_types

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class Source:
    """A table for `duckdb.register`: each statement that reads it sees the rows of the last `fill`.

    `types` maps each column to its declared type. A type that `_TYPES` does not name is sent as text.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._types = {name: _TYPES.get(declared, _TEXT) for name, declared in types.items()}
        columns = {name: column_type.schema for name, column_type in self._types.items()}
        self._schema = nanoarrow.c_schema(nanoarrow.struct(columns))
        self._batches: list[Any] = []

    def fill(self, columns: Mapping[str, Sequence[Values]]) -> None:
        """Replace the rows. Each column comes in chunks of the same lengths; missing columns are null.

        Raises OverflowError, UnicodeError; then the rows stay as they were.
        """
        length = sum(map(_length, next(iter(columns.values()))))
        nulls = {kind: _column(kind, [Constant(None, length)], length) for kind in set(self._types.values())}
        arrays = [
            _column(kind, columns[name], length) if _has_values(columns.get(name, ())) else nulls[kind]
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
    """How the values of a declared type are encoded."""

    schema: Any
    null: Any
    """The value that is encoded in place of null."""
    convert: Callable[[Any], Any]
    """Converts a value that is not null to the form that `encode` accepts."""
    encode: Callable[[Sequence[Any]], Any]
    """Returns the values as bytes, texts one by one. Raises TypeError or struct.error for null and other forms."""


class _Chunk(NamedTuple):
    """An encoded chunk of a column: "1" for a value and "0" for a null, the values' bytes, the lengths of texts."""

    valid: str
    data: bytes
    lengths: Iterable[int]


def _column(kind: _Type, chunks: Sequence[Values], length: int) -> Any:
    encoded = [_constant(kind, chunk) if isinstance(chunk, Constant) else _encode(kind, chunk) for chunk in chunks]
    valid = "".join([chunk.valid for chunk in encoded])
    buffers = [_bits(valid) if "0" in valid else None, b"".join([chunk.data for chunk in encoded])]
    if kind is _TEXT:
        offsets = accumulate(chain.from_iterable([chunk.lengths for chunk in encoded]), initial=0)
        buffers.insert(1, struct.pack(f"{length + 1}q", *offsets))
    return nanoarrow.c_array_from_buffers(kind.schema, length, buffers)


def _constant(kind: _Type, constant: Constant) -> _Chunk:
    """Encode the value once and repeat its bytes."""
    valid, data, _ = _encode(kind, [constant.value])
    return _Chunk(valid * constant.length, data * constant.length, repeat(len(data), constant.length))


def _encode(kind: _Type, values: Sequence[Any]) -> _Chunk:
    """Encode values at once if all have the usual form; else convert each of them first."""
    valid = "1" * len(values)
    try:
        data = kind.encode(values)
    except (TypeError, struct.error):
        valid = "".join(["0" if value is None else "1" for value in values])
        data = _encode_strictly(kind, [kind.null if value is None else kind.convert(value) for value in values])
    return _Chunk(valid, b"".join(data), map(len, data)) if kind is _TEXT else _Chunk(valid, data, ())


def _encode_strictly(kind: _Type, values: Sequence[Any]) -> Any:
    try:
        return kind.encode(values)
    except struct.error as error:
        raise OverflowError(f"a value does not fit its column: {error}") from error


def _length(chunk: Values) -> int:
    return chunk.length if isinstance(chunk, Constant) else len(chunk)


def _has_values(chunks: Sequence[Values]) -> bool:
    return not all(isinstance(chunk, Constant) and chunk.value is None for chunk in chunks)


def _bits(digits: str) -> bytes:
    """Return the digits as bits, the first in the lowest."""
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


def _numbers(code: str) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: struct.pack(f"{len(values)}{code}", *values)


def _span_ids(values: Sequence[bytes]) -> bytes:
    """Encode ids of eight bytes as on the wire; the tables hold them as numbers."""
    numbers = array("Q", b"".join(values))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _span_id(value: Any) -> bytes:
    """Convert a number or hex text."""
    if isinstance(value, bytes):
        return value
    return (int(value, 16) if isinstance(value, str) else int(value)).to_bytes(8, "big")


def _uuid(value: Any) -> bytes:
    """Convert hex text, with or without dashes."""
    return value if isinstance(value, bytes) else UUID(str(value)).bytes


def _microseconds(value: Any) -> Any:
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def _unchanged(value: Any) -> Any:
    return value


_TEXT = _Type(nanoarrow.large_string(), "", str, lambda texts: list(map(str.encode, texts)))
_TYPES = {
    "UUID": _Type(nanoarrow.extension_type(nanoarrow.fixed_size_binary(16), "arrow.uuid"), bytes(16), _uuid, b"".join),
    "UBIGINT": _Type(nanoarrow.uint64(), bytes(8), _span_id, _span_ids),
    "BIGINT": _Type(nanoarrow.int64(), 0, _unchanged, _numbers("q")),
    "INTEGER": _Type(nanoarrow.int32(), 0, _unchanged, _numbers("i")),
    "DOUBLE": _Type(nanoarrow.float64(), 0, _unchanged, _numbers("d")),
    "BOOLEAN": _Type(nanoarrow.int8(), 0, _unchanged, _numbers("b")),
    "TIMESTAMP": _Type(nanoarrow.timestamp("us"), 0, _microseconds, _numbers("q")),
}
"""Declared type → how its values are encoded; booleans as small numbers, which DuckDB casts back."""


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
        """Append rows, all or none of them; span ids may be hex text. Raises OverflowError, UnicodeError."""
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
