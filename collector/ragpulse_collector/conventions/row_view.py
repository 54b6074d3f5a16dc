"""One span of a batch as readers see it: its attributes, kind and start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_collector.otlp.wire import Shape, WireBatch

FAILED = 2
"""OpenTelemetry's status code of an error."""


class RowView:
    """One span of a batch for readers; `row` is set before each value.

    It has no reference to the mapping, which refers to it: the cycle would hold every body in memory until the garbage
    collection.
    """

    def __init__(self, wire: WireBatch, values: Mapping[str, Sequence[Any]]) -> None:
        self._wire, self._values = wire, values
        self._positions: dict[int, tuple[Shape, int]] = {}
        self._last: tuple[int, Mapping[str, Any]] = -1, {}
        """The row whose attributes were asked for last: a reader asks for several, and a span may have thousands."""
        self.row = 0

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All attributes of the span."""
        if not self._positions:
            self._positions = {
                row: (shape, index) for shape in self._wire.shapes for index, row in enumerate(shape.rows)
            }
        if self._last[0] != self.row:
            shape, index = self._positions[self.row]
            self._last = self.row, {name: column[index] for name, column in shape.attributes.items()}
        return self._last[1]

    @property
    def start_ns(self) -> int:
        """When it began."""
        return self._wire.start_ns[self.row]

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender dropped."""
        return self._wire.dropped_attributes.get(self.row, 0)

    @property
    def is_root(self) -> bool:
        """Whether it has no parent."""
        return self._wire.parent_span_ids[self.row] is None

    @property
    def failed(self) -> bool:
        """Whether its status is an error."""
        return self._wire.status_codes.get(self.row) == FAILED

    @property
    def kind(self) -> str | None:
        """Its kind."""
        kinds = self._values.get("kind")
        return None if kinds is None else kinds[self.row]
