"""Rows as columns that duckdb reads in place, through Arrow's C stream interface: the cheapest way into a table.

Building a column is a few calls that loop in C (join, accumulate, array), and duckdb copies it without holding Python's
lock. It needs no pyarrow. https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_NULLABLE = 2


_Buffer: TypeAlias = "bytes | array[Any] | None"


class Column(NamedTuple):
    """One column: Arrow's format, its length, and the buffers (validity first, None: nothing is null)."""

    format: bytes
    length: int
    buffers: tuple[_Buffer, ...]


def column(declared: str, values: Sequence[Any]) -> Column | None:
    """Return values (None: null) as a column for a table's declared type; None where every value is null.

    Whatever is neither number, boolean nor instant is handed over as text. Raises OverflowError, UnicodeError.
    """
    if not any(values) and values.count(None) == len(values):
        return None
    return _MAKERS.get(declared, _text)(values)


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
            _Schema(part.format, name.encode(), None, _NULLABLE, release=_release(_Schema))
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


def _text(values: Sequence[Any]) -> Column:
    validity = None
    try:
        joined = "".join(values)
    except TypeError:
        validity = _validity(values)
        values = ["" if value is None else value if type(value) is str else str(value) for value in values]
        joined = "".join(values)
    data = joined.encode()
    lengths = map(len, values) if len(data) == len(joined) else (len(value.encode()) for value in values)
    return Column(b"U", len(values), (validity, array("q", accumulate(lengths, initial=0)), data))


def _numbers(format_: bytes, code: str) -> Callable[[Sequence[Any]], Column]:
    def make(values: Sequence[Any]) -> Column:
        try:
            return Column(format_, len(values), (None, array(code, values)))
        except TypeError:
            validity = _validity(values)
            return Column(format_, len(values), (validity, array(code, [value or 0 for value in values])))

    return make


def _spans(values: Sequence[Any]) -> Column:
    """Span ids: numbers in the tables, hex text where a caller holds them so."""
    return _UNSIGNED([int(value, 16) if type(value) is str else value for value in values])


def _instants(values: Sequence[Any]) -> Column:
    return _MICROSECONDS(
        [(value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value for value in values]
    )


def _booleans(values: Sequence[Any]) -> Column:
    return Column(b"b", len(values), (_validity(values), _bits(["1" if value else "0" for value in values])))


def _validity(values: Sequence[Any]) -> bytes:
    return _bits(["0" if value is None else "1" for value in values])


def _bits(digits: Sequence[str]) -> bytes:
    """Return the digits as bits, the first in the lowest."""
    return int("".join(digits)[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


_UNSIGNED = _numbers(b"L", "Q")
_MICROSECONDS = _numbers(b"tsu:", "q")
_MAKERS: dict[str, Callable[[Sequence[Any]], Column]] = {
    "UBIGINT": _spans,
    "BIGINT": _numbers(b"l", "q"),
    "INTEGER": _numbers(b"i", "i"),
    "DOUBLE": _numbers(b"g", "d"),
    "BOOLEAN": _booleans,
    "TIMESTAMP": _instants,
}


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
