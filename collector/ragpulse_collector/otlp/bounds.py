"""What one body may hold: 65 kB of gzip can hold thirty million empty messages. Pure.

Everything is counted before objects are built from it. Protobuf is cut into pieces on the bytes: the objects of one
piece take little memory whatever it holds, and they are counted before the next piece is parsed. Fields that are not
read are skipped on the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import DecodeError as ProtobufError

from ragpulse_collector.records import TooLarge

MAX_ROWS = 50_000
"""Spans, log records and metrics of a body, with resources and scopes: decoded, each takes about a kilobyte."""
MAX_PARTS = 1_000_000
"""Attributes, events, links and nested values of a body: decoded, each takes about 200 bytes."""
MAX_ELEMENTS = 2_000_000
"""Values of a JSON body, in every field: parsed, each takes about 100 bytes."""
WHOLE_BYTES = 2**20
"""A scope up to this size is one piece. Parsed, a message of two bytes takes up to 160: 86 MB."""
MAX_COLUMNS = 200_000
"""Names of attributes, counted once for all spans of a scope that have the same ones: each takes ten microseconds."""
MAX_CONTROLS = 8_000_000
"""Control characters: as JSON each takes six bytes."""
PIECE_BYTES = 2**18
"""Larger scopes are cut into pieces of this size, since the body itself takes memory."""
_CONTROLS = bytes(range(32))
_SHORT_BYTES = 2 * MAX_CONTROLS
_UNCOUNTED_JSON_BYTES = 2 * WHOLE_BYTES
"""A JSON value takes three bytes at least: in so short a body all values take at most 70 MB."""
_SKIPPED_PARTS = 2
"""A field that is looked at by itself takes a microsecond."""
_WITH_LENGTH = 2
"""The wire type of texts, bytes and messages."""
_MAX_DEPTH = 100
"""As in protobuf's own parser."""

Layout: TypeAlias = "Mapping[int, Layout]"
"""The fields of a message that hold messages."""


@dataclass(slots=True)
class Meter:
    """Counts what a body holds; raises TooLarge above a limit."""

    rows: int = 0
    parts: int = 0
    columns: int = 0

    def add_rows(self, count: int) -> None:
        """Count spans, log records or metrics, or their resources and scopes."""
        self.rows += count
        if self.rows > MAX_ROWS:
            raise _too_many(MAX_ROWS, "spans, log records or metrics")

    def add_parts(self, count: int) -> None:
        """Count attributes, events, links or nested values."""
        self.parts += count
        if self.parts > MAX_PARTS:
            raise _too_many(MAX_PARTS, "attributes, events, links and nested values")

    def add_columns(self, count: int) -> None:
        """Count the names of the attributes of spans that have the same ones."""
        self.columns += count
        if self.columns > MAX_COLUMNS:
            raise _too_many(MAX_COLUMNS, "different names of attributes")


def check_json(body: bytes) -> None:
    """Raise TooLarge for a JSON body that may hold more than `MAX_ELEMENTS` values; those signs in texts count too."""
    if len(body) > _UNCOUNTED_JSON_BYTES:
        _check_bytes(body, b"{[,", MAX_ELEMENTS, "of {, [ and comma")


def check_controls(body: bytes) -> None:
    """Raise TooLarge for a body whose texts would be many times as long as JSON."""
    if len(body) > _SHORT_BYTES:
        _check_bytes(body, _CONTROLS, MAX_CONTROLS, "control characters")


def _check_bytes(body: bytes, counted: bytes, limit: int, name: str) -> None:
    count = 0
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        count += len(piece) - len(piece.translate(None, counted))
        if count > limit:
            raise _too_many(limit, name)


def _too_many(limit: int, name: str) -> TooLarge:
    return TooLarge(f"the body holds more than {limit} {name}; send smaller batches")


@dataclass(frozen=True, slots=True)
class Fields:
    """The length-delimited fields of a protobuf body, found on the bytes; raises ProtobufError and TooLarge."""

    body: bytes
    meter: Meter

    def by_number(self, start: int, end: int) -> dict[int, list[tuple[int, int]]]:
        """Return where the contents of a message's fields begin and end. Each field counts as a row."""
        found: dict[int, list[tuple[int, int]]] = {}
        while start < end:
            number, content, start = self._next(start, end)
            self.meter.add_rows(1)
            found.setdefault(number, []).append((content, start))
        return found

    def merged(self, contents: list[tuple[int, int]], layout: Layout) -> bytes:
        """Return a message that occurs once; if it is given twice, both are merged, as protobuf does."""
        for start, end in contents:
            self._check(start, end, layout)
        return b"".join([self.body[start:end] for start, end in contents])

    def pieces(self, start: int, end: int, rows: int, layout: Layout) -> Iterator[bytes]:
        """Yield a message in pieces: each is a message of the same type. A field that is not in the layout is left out.

        The caller counts the rows of each piece, which are in the field of that number.
        """
        if end - start <= WHOLE_BYTES:
            yield self.body[start:end]
            return
        while start < end:
            stop = self._run(start, min(end, start + PIECE_BYTES), rows << 3 | 2)
            if stop > start:
                yield self.body[start:stop]
            else:
                number, content, stop = self._next(start, end)
                self.meter.add_parts(_SKIPPED_PARTS)
                if number in layout:
                    self._check(content, stop, layout[number])
                    yield self.body[start:stop]
            start = stop

    def _run(self, start: int, end: int, tag: int) -> int:
        """Return the end of the messages with a usual tag and length: a loop without calls for most spans."""
        body = self.body
        while start + 3 <= end and body[start] == tag:
            size, stop = body[start + 1], start + 2
            if size >= 0x80:
                if body[stop] >= 0x80:
                    break
                size, stop = size & 0x7F | body[stop] << 7, stop + 1
            if stop + size > end:
                break
            start = stop + size
        return start

    def _check(self, start: int, end: int, layout: Layout) -> None:
        """Count everything in a message that is larger than a piece."""
        if end - start > PIECE_BYTES:
            self._count(start, end, layout, 0)

    def _count(self, start: int, end: int, layout: Layout, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ProtobufError("nested too deep")
        while start < end:
            number, content, start = self._next(start, end)
            self.meter.add_parts(_SKIPPED_PARTS)
            if number in layout:
                self._count(content, start, layout[number], depth + 1)

    def _next(self, start: int, end: int) -> tuple[int, int, int]:
        """Return the next field's number and where its content begins and ends; the number is 0 without a length."""
        tag, start = self._varint(start, end)
        if tag < 8:
            raise ProtobufError("a field with the number 0")
        if tag & 7 != _WITH_LENGTH:
            return 0, start, self._end_of(tag & 7, start, end)
        size, start = self._varint(start, end)
        if size > end - start:
            raise _truncated()
        return tag >> 3, start, start + size

    def _end_of(self, kind: int, start: int, end: int) -> int:
        """Return the end of a number, or of a group with all fields in it."""
        groups = 0
        while True:
            match kind:
                case 0:
                    start = self._varint(start, end)[1]
                case 1 | 5:
                    start += 8 if kind == 1 else 4
                case 2:
                    size, start = self._varint(start, end)
                    start += size
                case 3 | 4:
                    groups += 1 if kind == 3 else -1
                case _:
                    raise ProtobufError(f"wire type {kind}")
            if start > end or groups < 0:
                raise _truncated()
            if not groups:
                return start
            self.meter.add_parts(_SKIPPED_PARTS)
            tag, start = self._varint(start, end)
            kind = tag & 7

    def _varint(self, start: int, end: int) -> tuple[int, int]:
        number = shift = 0
        while start < end and shift < 70:
            byte = self.body[start]
            number, start, shift = number | (byte & 0x7F) << shift, start + 1, shift + 7
            if byte < 0x80:
                return number, start
        raise _truncated()


def _truncated() -> ProtobufError:
    return ProtobufError("truncated")
