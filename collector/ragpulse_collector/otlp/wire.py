"""OTLP spans and log records as plain Python: what both encodings parse to.

Ids are lower-case hex text and instants Unix nanoseconds. Attribute values are str, bool, int, float, None, bytes,
list and dict, as sent; only long numeric vectors are replaced by their length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

MAX_DEPTH = 64
"""Structured values nested deeper than this refuse the request: protobuf itself allows about 50 levels."""
VECTOR_LENGTH = 64
"""A list of at least this many numbers is an embedding: only its length is kept."""

Attributes = dict[str, Any]


@dataclass(slots=True)
class Origin:
    """Where spans come from: one resource and one instrumentation scope, shared by all their spans."""

    resource: Attributes
    scope_name: str = ""
    scope_version: str = ""


@dataclass(slots=True)
class WireEvent:
    """A span event."""

    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True)
class WireLink:
    """A link of a span to another; ids are what the sender gave."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(slots=True)
class WireSpan:
    """A span as it came over the wire; `end_ns` is 0 where the sender gave none."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int
    status_code: int
    status_message: str
    trace_state: str
    attributes: Attributes
    dropped_attributes: int
    origin: Origin
    events: list[WireEvent] = field(default_factory=list)
    links: list[WireLink] = field(default_factory=list)


@dataclass(slots=True)
class WireBlock:
    """Spans of one origin and status whose attributes have the same names in the same order, by column.

    None of them has events, links, a trace state or dropped attributes. Ids are as on the wire, parents empty for none.
    """

    origin: Origin
    status_code: int
    positions: Sequence[int]
    """Where in the body each span stood."""
    trace_ids: Sequence[bytes]
    span_ids: Sequence[bytes]
    parent_span_ids: Sequence[bytes]
    names: Sequence[str]
    start_ns: Sequence[int]
    end_ns: Sequence[int]
    attributes: Mapping[str, Sequence[Any]]
    """Name → a value of each span."""

    def __len__(self) -> int:
        return len(self.span_ids)

    def spans(self) -> Iterator[WireSpan]:
        """Yield the spans one by one."""
        names = tuple(self.attributes)
        columns = self.attributes.values()
        rows = map(dict, map(zip, repeat(names), zip(*columns, strict=True))) if names else ({} for _ in self.span_ids)
        for trace_id, span_id, parent, name, start, end, attributes in zip(
            self.trace_ids, self.span_ids, self.parent_span_ids, self.names, self.start_ns, self.end_ns,
            rows, strict=True,
        ):  # fmt: skip
            yield WireSpan(
                trace_id.hex(), span_id.hex(), parent.hex() or None, name, start, end, self.status_code, "", "",
                attributes, 0, self.origin,
            )  # fmt: skip


@dataclass(slots=True)
class WireLog:
    """A log record; ids are empty text where the record belongs to no span."""

    trace_id: str
    span_id: str
    time_ns: int
    event_name: str
    body: Any
    attributes: Attributes
    origin: Origin


class Vector(dict[str, Any]):
    """What stands for a numeric vector that was left out; its own class, so that no sender's value can pass for it."""

    def __init__(self, length: int) -> None:
        super().__init__({"$dropped": "vector", "length": length})
