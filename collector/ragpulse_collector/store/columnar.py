"""Rows as columns that duckdb reads in place, through Arrow's C stream interface: the cheapest way into a table.

Building a column is a few calls that loop in C (join, accumulate, array), and duckdb copies it without holding Python's
lock. It needs no pyarrow. https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NULLABLE = 2


_Buffer: TypeAlias = "bytes | array[Any] | None"


class Column(NamedTuple):
    """One column: Arrow's format, its length, and the buffers (validity first, None: nothing is null)."""

    format: bytes
    length: int
    buffers: tuple[_Buffer, ...]


class Same(NamedTuple):
    """One value that so many rows share."""

    value: Any
    length: int


Part: TypeAlias = "Sequence[Any] | Same"
"""Some rows' values of a column (None: null)."""


def column(declared: str, parts: Sequence[Part]) -> Column | None:
    """Return the values of all parts as a column for a table's declared type; None where every value is null.

    Whatever is neither number, boolean, instant nor id is handed over as text. Raises OverflowError, UnicodeError.
    """
    kind = _KINDS.get(declared, _TEXT)
    pieces = [_piece(kind, part) for part in parts]
    valid = "".join([piece.valid for piece in pieces])
    if "1" not in valid:
        return None
    validity = _bits(valid) if "0" in valid else None
    data = b"".join([piece.data for piece in pieces])
    if kind is not _TEXT:
        return Column(kind.format, len(valid), (validity, data))
    lengths = chain.from_iterable([piece.lengths for piece in pieces])
    return Column(kind.format, len(valid), (validity, array("q", accumulate(lengths, initial=0)), data))


class Source:
    """What `duckdb.register` takes, once: each statement that reads it finds the columns it was filled with last."""

    def __init__(self) -> None:
        self._columns: Mapping[str, Column] = {}
        self._kept: list[Any] = []

    def fill(self, columns: Mapping[str, Column]) -> None:
        """Put columns of equal length in place of the former; their memory is kept until the next call."""
        self._columns = columns
        self._kept = []

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule with a stream of one batch."""
        batches = iter((self._batch(),))
        stream = _Stream(
            _CALL(lambda _, out: _hand_over(self._schema(), out)),
            _CALL(lambda _, out: _hand_over(next(batches, _Array()), out)),
            _LAST_ERROR(lambda _: None),
            _release(_Stream),
        )
        self._kept.append(stream)
        return _NEW_CAPSULE(ctypes.addressof(stream), b"arrow_array_stream", None)

    def _schema(self) -> _Schema:
        columns = [
            _Schema(part.format, name.encode(), _METADATA.get(part.format), _NULLABLE, release=_release(_Schema))
            for name, part in self._columns.items()
        ]
        return _Schema(b"+s", b"", None, 0, len(columns), self._pointers(_Schema, columns), release=_release(_Schema))

    def _batch(self) -> _Array:
        columns = [self._array(part.length, part.buffers) for part in self._columns.values()]
        whole = self._array(next(iter(self._columns.values())).length, (None,))
        whole.n_children, whole.children = len(columns), self._pointers(_Array, columns)
        return whole

    def _array(self, length: int, buffers: Sequence[_Buffer]) -> _Array:
        addresses = (ctypes.c_void_p * len(buffers))(*map(_address, buffers))
        self._kept.append(addresses)
        return _Array(length, 0 if buffers[0] is None else -1, 0, len(buffers), 0, addresses, release=_release(_Array))

    def _pointers(self, kind: type[ctypes.Structure], parts: Sequence[ctypes.Structure]) -> Any:
        pointers = (ctypes.POINTER(kind) * len(parts))(*map(ctypes.pointer, parts))
        self._kept += [parts, pointers]
        return pointers


class _Kind(NamedTuple):
    """How the values of a declared type travel."""

    format: bytes
    encode: Callable[[Sequence[Any]], bytes]
    """Raises TypeError where a value is not in its usual form, null above all."""
    usual: Callable[[Any], Any]
    """Returns a value in its usual form, any for null."""


class _Piece(NamedTuple):
    """A part as bytes: what is valid ("1") and what null ("0"), the values one behind the other, lengths of texts."""

    valid: str
    data: bytes
    lengths: list[int]


def _piece(kind: _Kind, part: Part) -> _Piece:
    values: Sequence[Any] = (part.value,) if isinstance(part, Same) else part
    times = part.length if isinstance(part, Same) else 1
    valid = "1" * len(values)
    try:
        data = kind.encode(values)
    except TypeError:
        valid = "".join(["0" if value is None else "1" for value in values])
        values = list(map(kind.usual, values))
        data = kind.encode(values)
    lengths = _lengths(values, data) if kind is _TEXT else []
    return _Piece(valid * times, data * times, lengths * times)


def _lengths(texts: Sequence[str], data: bytes) -> list[int]:
    return list(map(len, texts)) if data.isascii() else [len(text.encode()) for text in texts]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _numbers(code: str) -> Callable[[Sequence[Any]], bytes]:
    return lambda values: array(code, values).tobytes()


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


_TEXT = _Kind(b"U", lambda texts: "".join(texts).encode(), _text)
_UUID = _Kind(b"w:16", b"".join, _uuid)
_KINDS = {
    "UUID": _UUID,
    "UBIGINT": _Kind(b"L", _span_ids, _span_id),
    "BIGINT": _Kind(b"l", _numbers("q"), _number),
    "INTEGER": _Kind(b"i", _numbers("i"), _number),
    "DOUBLE": _Kind(b"g", _numbers("d"), _number),
    "BOOLEAN": _Kind(b"c", _numbers("b"), _number),
    "TIMESTAMP": _Kind(b"tsu:", _numbers("q"), _microseconds),
}
"""Declared type → how its values travel; booleans as small numbers, which duckdb makes booleans again."""


def _metadata(**pairs: str) -> bytes:
    """Return metadata of a column as Arrow's C interface wants it: counts and lengths before the texts."""
    texts = [text.encode() for pair in pairs.items() for text in pair]
    return struct.pack("=i", len(pairs)) + b"".join(struct.pack("=i", len(text)) + text for text in texts)


_METADATA = {_UUID.format: _metadata(**{"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""})}
"""Format → what says that these bytes are more than bytes."""
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)
_NEW_CAPSULE = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class _Schema(ctypes.Structure):
    """ArrowSchema."""


class _Array(ctypes.Structure):
    """ArrowArray."""


class _Stream(ctypes.Structure):
    """ArrowArrayStream."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p), ("release", _RELEASE), ("private_data", ctypes.c_void_p),
]  # fmt: skip
_Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))), ("dictionary", ctypes.c_void_p), ("release", _RELEASE),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip
_Stream._fields_ = [
    ("get_schema", _CALL), ("get_next", _CALL), ("get_last_error", _LAST_ERROR), ("release", _RELEASE),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip


def _address(buffer: _Buffer) -> int | None:
    if isinstance(buffer, bytes):
        return ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value
    return None if buffer is None else buffer.buffer_info()[0]


def _hand_over(struct: ctypes.Structure, out: int) -> int:
    """Copy a struct to where duckdb wants it; what it points at stays ours."""
    ctypes.memmove(out, ctypes.addressof(struct), ctypes.sizeof(struct))
    return 0


@lru_cache(maxsize=3)
def _release(kind: Any) -> Any:
    """Return the callback with which duckdb gives a struct back: by the standard it marks itself as gone."""
    return _RELEASE(lambda address: ctypes.memset(address + kind.release.offset, 0, ctypes.sizeof(ctypes.c_void_p)))
