"""What every store promises; the embedded DuckDB file and the lake both pass one contract suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ragpulse_collector.records import RawBody, Receipt

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class Busy(Exception):
    """The queue is full or the disk refuses: the sender should come again in `retry_after_s` seconds."""

    def __init__(self, reason: str, retry_after_s: int = 1) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Rows:
    """The whole answer of a read."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """Return one mapping per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Transaction(Protocol):
    """What a unit of work may do; it runs on the writer thread inside the group's transaction."""

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement; reads see everything written before in the same transaction."""
        ...

    def append(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to `raw.<table>` (the fast path); ids as hex text, instants as datetime (UTC, naive)."""
        ...


class Store(Protocol):
    """One writer, many readers."""

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Queue a body; the future resolves after COMMIT, or raises DecodeError. Raises Busy when the queue is full."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a unit of work for the writer; the future resolves after COMMIT. Failing work fails alone."""
        ...

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query from a fresh cursor (any thread); raises TimeoutError."""
        ...

    def close(self) -> None:
        """Refuse new work, drain the queue, close the file."""
        ...
