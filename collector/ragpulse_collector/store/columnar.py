"""Rows as columns that duckdb reads in place, through Arrow's C stream interface: the cheapest way into a table.

Building a column is a few calls that loop in C (join, accumulate, pack), and duckdb copies it without holding Python's
lock. It needs no pyarrow. https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class Same(NamedTuple):
    """One value that so many rows share."""

    value: Any
    length: int


Part: TypeAlias = "Sequence[Any] | Same"
"""Some rows' values of a column (None: null)."""
_Buffers: TypeAlias = "tuple[bytes | None, ...]"
"""A column as Arrow has it: which rows are valid (None: all), where texts begin and end, the values."""


class Source:
    """What `duckdb.register` takes, once: each statement that reads it finds the rows it was filled with last.

    `types`: column → declared type. Whatever is neither number, boolean, instant nor id is handed over as text.
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        self._kinds = {name: _KINDS.get(declared, _TEXT) for name, declared in types.items()}
        self._schema = _schema(self._kinds)
        self._batch = self._left = _END
        calls = _CALL(self._give_schema), _CALL(self._give_batch), _LAST_ERROR(lambda _: None)
        self._stream = _Struct(_STREAM.pack(*map(_entry, calls), _RELEASES[_STREAM], 0), calls)
        self._taken: Any = None

    def fill(self, parts: Mapping[str, Sequence[Part]]) -> None:
        """Put rows, given by column in parts of the same lengths, in place of the former; other columns are null.

        Raises OverflowError, UnicodeError.
        """
        length = sum(part.length if isinstance(part, Same) else len(part) for part in next(iter(parts.values())))
        nulls = bytes(_WIDEST * (length + 1))
        columns = [_column(kind, parts.get(name, ())) or (nulls,) * kind.buffers for name, kind in self._kinds.items()]
        self._batch = _batch(length, columns)

    def clear(self) -> None:
        """Forget the rows."""
        self._batch = self._left = _END

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule with a stream of one batch."""
        self._left = self._batch
        self._taken = ctypes.create_string_buffer(self._stream.packed)
        return _NEW_CAPSULE(ctypes.addressof(self._taken), b"arrow_array_stream", None)

    def _give_schema(self, _: int, out: int) -> int:
        return self._schema.hand_over(out)

    def _give_batch(self, _: int, out: int) -> int:
        batch, self._left = self._left, _END
        return batch.hand_over(out)


class _Kind(NamedTuple):
    """How the values of a declared type travel."""

    format: bytes
    buffers: int
    null: bytes
    """What stands where a value is null."""
    encode: Callable[[Sequence[Any]], bytes]
    """Raises TypeError or struct.error where a value is not in its usual form, null above all."""
    usual: Callable[[Any], Any]
    """Returns a value in its usual form, any for null."""


class _Piece(NamedTuple):
    """A part as bytes: what is valid ("1") and what null ("0"), the values one behind the other, lengths of texts."""

    valid: str
    data: bytes
    lengths: Iterable[int]


def _column(kind: _Kind, parts: Sequence[Part]) -> _Buffers | None:
    """Return the values of all parts, None where every one is null."""
    pieces = [_shared_piece(kind, *part) if isinstance(part, Same) else _piece(kind, part) for part in parts]
    valid = "".join([piece.valid for piece in pieces])
    if "1" not in valid:
        return None
    validity = _bits(valid) if "0" in valid else None
    data = b"".join([piece.data for piece in pieces])
    if kind is not _TEXT:
        return validity, data
    ends = accumulate(chain.from_iterable([piece.lengths for piece in pieces]), initial=0)
    return validity, struct.pack(f"{len(valid) + 1}q", *ends), data


def _shared_piece(kind: _Kind, value: Any, times: int) -> _Piece:
    if value is None:
        return _Piece("0" * times, kind.null * times, repeat(0, times))
    data = _encoded(kind, (kind.usual(value),))
    return _Piece("1" * times, data * times, repeat(len(data), times))


def _piece(kind: _Kind, values: Sequence[Any]) -> _Piece:
    valid = "1" * len(values)
    try:
        data = kind.encode(values)
    except (TypeError, struct.error):
        valid = "".join(["0" if value is None else "1" for value in values])
        values = list(map(kind.usual, values))
        data = _encoded(kind, values)
    return _Piece(valid, data, _lengths(values, data) if kind is _TEXT else ())


def _encoded(kind: _Kind, usual: Sequence[Any]) -> bytes:
    try:
        return kind.encode(usual)
    except struct.error as error:
        raise OverflowError(f"no column takes it: {error}") from error


def _lengths(texts: Sequence[str], data: bytes) -> Iterable[int]:
    return map(len, texts) if data.isascii() else [len(text.encode()) for text in texts]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _numbers(code: str) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: struct.pack(f"{len(values)}{code}", *values)


def _span_ids(values: Sequence[Any]) -> bytes:
    numbers = array("Q", b"".join(values))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _span_id(value: Any) -> bytes:
    """Eight bytes as on the wire; numbers in the tables, hex text where a caller holds them so."""
    if type(value) is bytes:
        return value
    return (int(value, 16) if type(value) is str else value or 0).to_bytes(8, "big")


def _uuid(value: Any) -> bytes:
    """Sixteen bytes as on the wire; hex text, with or without dashes, where a caller holds them so."""
    if type(value) is bytes:
        return value
    return bytes(16) if value is None else UUID(str(value)).bytes


def _microseconds(value: Any) -> int:
    return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value or 0


def _number(value: Any) -> Any:
    return 0 if value is None else value


def _bits(digits: str) -> bytes:
    """Return the digits as bits, the first in the lowest."""
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


_WIDEST = 16
"""Bytes of the largest value of a fixed size."""
_TEXT = _Kind(b"U", 3, b"", lambda texts: "".join(texts).encode(), _text)
_UUID = _Kind(b"w:16", 2, bytes(16), b"".join, _uuid)
_KINDS = {
    "UUID": _UUID,
    "UBIGINT": _Kind(b"L", 2, bytes(8), _span_ids, _span_id),
    "BIGINT": _Kind(b"l", 2, bytes(8), _numbers("q"), _number),
    "INTEGER": _Kind(b"i", 2, bytes(4), _numbers("i"), _number),
    "DOUBLE": _Kind(b"g", 2, bytes(8), _numbers("d"), _number),
    "BOOLEAN": _Kind(b"c", 2, bytes(1), _numbers("b"), _number),
    "TIMESTAMP": _Kind(b"tsu:", 2, bytes(8), _numbers("q"), _microseconds),
}
"""Declared type → how its values travel; booleans as small numbers, which duckdb makes booleans again."""


class _Struct(NamedTuple):
    """A struct of Arrow's C interface as bytes, and what keeps alive what it points at."""

    packed: bytes
    kept: Any = None

    def hand_over(self, out: int) -> int:
        """Copy it to where duckdb wants it; what it points at stays ours."""
        ctypes.memmove(out, self.packed, len(self.packed))
        return 0


class _Children:
    """Structs in a row, and pointers to them."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        self._memory = ctypes.create_string_buffer(b"".join(packed))
        first, size = ctypes.addressof(self._memory), len(packed[0])
        self._pointers = (ctypes.c_void_p * len(packed))(*range(first, first + size * len(packed), size))
        self.address = ctypes.addressof(self._pointers)


def _schema(kinds: Mapping[str, _Kind]) -> _Struct:
    texts = [(kind.format, name.encode(), _METADATA.get(kind.format)) for name, kind in kinds.items()]
    pointers = (ctypes.c_char_p * (3 * len(texts) + 3))(*chain(*texts), b"+s", b"", None)
    addresses = [address or 0 for address in (ctypes.c_void_p * len(pointers)).from_buffer(pointers)]
    *columns, whole = zip(addresses[::3], addresses[1::3], addresses[2::3], strict=True)
    release = _RELEASES[_SCHEMA]
    children = _Children([_SCHEMA.pack(*column, _NULLABLE, 0, 0, 0, release, 0) for column in columns])
    return _Struct(_SCHEMA.pack(*whole, 0, len(columns), children.address, 0, release, 0), (pointers, children))


def _batch(length: int, columns: Sequence[_Buffers]) -> _Struct:
    pointers = (ctypes.c_char_p * (sum(map(len, columns)) + 1))(*chain(*columns), None)
    release = _RELEASES[_ARRAY]
    at = ctypes.addressof(pointers)
    packed = []
    for column in columns:
        nulls = 0 if column[0] is None else -1
        packed.append(_ARRAY.pack(length, nulls, 0, len(column), 0, at, 0, 0, release, 0))
        at += _POINTER * len(column)
    children = _Children(packed)
    whole = _ARRAY.pack(length, 0, 0, 1, len(columns), at, children.address, 0, release, 0)
    return _Struct(whole, (pointers, children))


def _metadata(**pairs: str) -> bytes:
    """Return metadata of a column as Arrow's C interface wants it: counts and lengths before the texts."""
    texts = [text.encode() for pair in pairs.items() for text in pair]
    return struct.pack("=i", len(pairs)) + b"".join(struct.pack("=i", len(text)) + text for text in texts)


def _release(layout: struct.Struct) -> Any:
    """Return the callback with which duckdb gives a struct back: by the standard it marks itself as gone."""
    return _RELEASE(lambda address: ctypes.memset(address + layout.size - 2 * _POINTER, 0, _POINTER))


def _entry(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


_POINTER = struct.calcsize("P")
_SCHEMA = struct.Struct("3P2q4P")
"""ArrowSchema: format, name, metadata, flags, n_children, children, dictionary, release, private_data."""
_ARRAY = struct.Struct("5q5P")
"""ArrowArray: length, null_count, offset, n_buffers, n_children; buffers, children, dictionary, release, private_data.
"""
_STREAM = struct.Struct("5P")
"""ArrowArrayStream: get_schema, get_next, get_last_error, release, private_data."""
_END = _Struct(bytes(_ARRAY.size))
"""What ends a stream: an array that is gone."""
_NULLABLE = 2
_METADATA = {_UUID.format: _metadata(**{"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""})}
"""Format → what says that these bytes are more than bytes."""
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_NEW_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_RELEASERS = {layout: _release(layout) for layout in (_SCHEMA, _ARRAY, _STREAM)}
_RELEASES = {layout: _entry(releaser) for layout, releaser in _RELEASERS.items()}
