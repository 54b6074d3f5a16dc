"""Rows as columns that duckdb reads in place, through Arrow's C stream interface: the cheapest way into a table.

Building a column is a few calls that loop in C (join, accumulate, pack), and duckdb copies it without holding Python's
lock. It needs no pyarrow. https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ragpulse_collector.records import Constant, Values

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


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

    def fill(self, parts: Mapping[str, Sequence[Values]]) -> None:
        """Put rows, given by column in parts of the same lengths, in place of the former; other columns are null.

        Raises OverflowError, UnicodeError.
        """
        shapes = [
            _Rows(part.length if isinstance(part, Constant) else len(part)) for part in next(iter(parts.values()))
        ]
        length = sum(rows.length for rows in shapes)
        nulls = bytes(_WIDEST * (length + 1))
        columns = [
            _column(kind, parts.get(name, ()), shapes) or (nulls,) * kind.buffers for name, kind in self._kinds.items()
        ]
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
    encode: Callable[[Sequence[Any]], list[bytes]]
    """Returns pieces to be joined, of texts one each. Raises TypeError or struct.error where a value is not in its
    usual form, null above all."""
    usual: Callable[[Any], Any]
    """Returns a value in its usual form, any for null."""


class _Rows:
    """The rows of a part, for what is counted once for all columns."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._ones = self._counted = 0

    def ends(self, start: int, size: int) -> bytes:
        """Return where texts of one size end that begin at `start`: two large products instead of a sum a text."""
        if not self._ones:
            numbers = struct.pack(f"<{self.length}q", *range(1, self.length + 1))
            self._ones = int.from_bytes((1).to_bytes(8, "little") * self.length, "little")
            self._counted = int.from_bytes(numbers, "little")
        return _turned((self._ones * start + self._counted * size).to_bytes(8 * self.length, "little"), "little")


class _Column:
    """A column that grows part by part: what is valid ("1") and what null ("0"), values, ends of texts."""

    def __init__(self, kind: _Kind) -> None:
        self._kind = kind
        self._valid: list[str] = []
        self._data: list[bytes] = []
        self._ends = [bytes(8)]
        self._end = 0

    def share(self, value: Any, rows: _Rows) -> None:
        """Add one value, which may be null, for each of the rows."""
        said = self._kind.null if value is None else b"".join(_encoded(self._kind, (self._kind.usual(value),)))
        self._valid.append(("0" if value is None else "1") * rows.length)
        self._data.append(said * rows.length)
        if self._kind is _TEXT:
            self._ends.append(rows.ends(self._end, len(said)))
            self._end += len(said) * rows.length

    def add(self, values: Sequence[Any]) -> None:
        """Add a value for each row."""
        valid = "1" * len(values)
        try:
            data = self._kind.encode(values)
        except (TypeError, struct.error):
            valid = "".join(["0" if value is None else "1" for value in values])
            data = _encoded(self._kind, list(map(self._kind.usual, values)))
        self._valid.append(valid)
        self._data += data
        if self._kind is _TEXT:
            _, *ends = accumulate(map(len, data), initial=self._end)
            self._ends.append(struct.pack(f"{len(ends)}q", *ends))
            self._end = ends[-1]

    def buffers(self) -> _Buffers:
        """Return the column as Arrow has it."""
        valid = "".join(self._valid)
        validity, data = _bits(valid) if "0" in valid else None, b"".join(self._data)
        return (validity, b"".join(self._ends), data) if self._kind is _TEXT else (validity, data)


def _column(kind: _Kind, parts: Sequence[Values], shapes: Sequence[_Rows]) -> _Buffers | None:
    """Return the values of all parts, None where every one is null."""
    if all(isinstance(part, Constant) and part.value is None for part in parts):
        return None
    column = _Column(kind)
    for part, rows in zip(parts, shapes, strict=True):
        if isinstance(part, Constant):
            column.share(part.value, rows)
        else:
            column.add(part)
    return column.buffers()


def _encoded(kind: _Kind, usual: Sequence[Any]) -> list[bytes]:
    try:
        return kind.encode(usual)
    except struct.error as error:
        raise OverflowError(f"no column takes it: {error}") from error


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _numbers(code: str) -> Callable[[Sequence[Any]], list[bytes]]:
    return lambda values: [struct.pack(f"{len(values)}{code}", *values)]


def _span_ids(values: Sequence[Any]) -> list[bytes]:
    return [_turned(b"".join(values), "big")]


def _turned(numbers: bytes, order: str) -> bytes:
    """Return numbers of eight bytes as this machine has them."""
    if sys.byteorder == order:
        return numbers
    turned = array("Q", numbers)
    turned.byteswap()
    return turned.tobytes()


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
_TEXT = _Kind(b"U", 3, b"", lambda texts: list(map(str.encode, texts)), _text)
_UUID = _Kind(b"w:16", 2, bytes(16), lambda ids: [b"".join(ids)], _uuid)
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
