"""One span of a batch as readers see it: its attributes, kind and start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragpulse_collector.otlp.wire import Shape, WireBatch


class _RowAttributes(Mapping[str, Any]):
    """The attributes of one span of a batch: readers ask for one or two of them."""

    __slots__ = ("_columns", "_index")

    def __init__(self, columns: Mapping[str, Sequence[Any]], index: int) -> None:
        self._columns, self._index = columns, index

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value, or the default for an attribute that the span does not have."""
        column = self._columns.get(name)
        return default if column is None else column[self._index]


class RowView:
    """One span of a batch for readers; `row` is set before each value.

    It has no reference to the mapping, which refers to it: the cycle would hold every body in memory until the garbage
    collection.
    """

    def __init__(self, wire: WireBatch, values: Mapping[str, Sequence[Any]]) -> None:
        self._wire, self._values = wire, values
        self._positions: dict[int, tuple[Shape, int]] = {}
        self.row = 0

    @property
    def attributes(self) -> Mapping[str, Any]:
        """All attributes of the span."""
        if not self._positions:
            self._positions = {
                row: (shape, index) for shape in self._wire.shapes for index, row in enumerate(shape.rows)
            }
        shape, index = self._positions[self.row]
        return _RowAttributes(shape.attributes, index)

    @property
    def start_ns(self) -> int:
        """When it began."""
        return self._wire.start_ns[self.row]

    @property
    def dropped_attributes(self) -> int:
        """How many attributes the sender dropped."""
        return self._wire.dropped_attributes.get(self.row, 0)

    @property
    def kind(self) -> str | None:
        """Its kind."""
        kinds = self._values.get("kind")
        return None if kinds is None else kinds[self.row]
