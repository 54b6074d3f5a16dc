"""OTLP spans and log records as plain Python, the result of parsing either encoding.

Instants are Unix nanoseconds. Attribute values are str, bool, int, float, None, bytes, list and dict, as sent; only
long numeric vectors are replaced by their length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 64
"""A request with values nested deeper than this is refused; protobuf itself allows about 50 levels."""
VECTOR_LENGTH = 64
"""A list of at least this many numbers is an embedding: only its length is stored."""

MAX_NAME = 200
"""Longer names of services are cut where only their number is kept."""

Attributes = dict[str, Any]


@dataclass(slots=True)
class WireScope:
    """A resource and an instrumentation scope, shared by all their spans."""

    resource: Attributes
    name: str = ""
    version: str = ""


@dataclass(slots=True)
class WireEvent:
    """A span event."""

    name: str
    time_ns: int
    attributes: Attributes


@dataclass(slots=True)
class WireLink:
    """A link of a span to another; ids are as sent."""

    trace_id: str
    span_id: str
    attributes: Attributes


@dataclass(slots=True)
class Shape:
    """Spans of a batch whose attributes have the same names in the same order, by column."""

    rows: Sequence[int]
    attributes: Mapping[str, Sequence[Any]]
    """Name → a value of each of these rows."""


@dataclass(slots=True, kw_only=True)
class WireBatch:
    """The spans of one scope of a body, by column; fields that few spans have are mappings by row.

    Ids are valid: 16 and 8 bytes, not all zero; an invalid parent is None. `end_ns` is 0 without an end.
    """

    scope: WireScope
    trace_ids: list[bytes] = field(default_factory=list)
    span_ids: list[bytes] = field(default_factory=list)
    parent_span_ids: list[bytes | None] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    shapes: Sequence[Shape] = ()
    """Each row is in exactly one of them."""
    status_codes: dict[int, int] = field(default_factory=dict)
    status_messages: dict[int, str] = field(default_factory=dict)
    trace_states: dict[int, str] = field(default_factory=dict)
    dropped_attributes: dict[int, int] = field(default_factory=dict)
    events: dict[int, list[WireEvent]] = field(default_factory=dict)
    links: dict[int, list[WireLink]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.span_ids)


class WireRows:
    """Builds a batch of single spans."""

    def __init__(self, scope: WireScope) -> None:
        self._batch = WireBatch(scope=scope)
        self._attributes: list[Attributes] = []

    def add(
        self,
        trace_id: bytes,
        span_id: bytes,
        parent_span_id: bytes | None,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: Attributes,
        **sparse: Any,
    ) -> None:
        """Add a span; `sparse` are fields that few spans have, and empty ones are left out."""
        batch, row = self._batch, len(self._attributes)
        batch.trace_ids.append(trace_id)
        batch.span_ids.append(span_id)
        batch.parent_span_ids.append(parent_span_id)
        batch.names.append(name)
        batch.start_ns.append(start_ns)
        batch.end_ns.append(end_ns)
        self._attributes.append(attributes)
        for field_, value in sparse.items():
            if value:
                getattr(batch, field_)[row] = value

    def batch(self) -> WireBatch:
        """Return the spans by column."""
        rows_of: dict[tuple[str, ...], list[int]] = {}
        for row, attributes in enumerate(self._attributes):
            rows_of.setdefault(tuple(attributes), []).append(row)
        self._batch.shapes = [
            Shape(rows, {name: [self._attributes[row][name] for row in rows] for name in names})
            for names, rows in rows_of.items()
        ]
        return self._batch


@dataclass(slots=True)
class WireLog:
    """A log record; ids are as sent, empty where the record belongs to no span."""

    trace_id: bytes
    span_id: bytes
    time_ns: int
    event_name: str
    body: Any
    attributes: Attributes
    scope: WireScope


def service_name(resource: Mapping[str, Any]) -> str:
    """Return the service name of a resource."""
    return str(resource.get("service.name") or "unknown_service")[:MAX_NAME]


class Vector(dict[str, Any]):
    """Replaces a numeric vector that is not stored; a class of its own, so that no sender's value can imitate it."""

    def __init__(self, length: int) -> None:
        super().__init__({"$dropped": "vector", "length": length})


_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)


def is_trace_id(trace_id: bytes) -> bool:
    """Return whether this is a trace id: 16 bytes, not all zero."""
    return len(trace_id) == 16 and trace_id != _NO_TRACE


def is_span_id(span_id: bytes) -> bool:
    """Return whether this is a span id: 8 bytes, not all zero."""
    return len(span_id) == 8 and span_id != _NO_SPAN
