"""What stores and their users share: errors, rows, and the names of their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ragpulse_collector.refusals import Refusal

if TYPE_CHECKING:
    from ragpulse_collector.store.ingest.transaction import WriterTransaction
    from ragpulse_collector.store.reading import Reading

T = TypeVar("T")
Parameters = Sequence[Any] | Mapping[str, Any]


class StoreError(Refusal):
    """The store cannot do what it was called for; the message is one line with the fix."""


class CannotWrite(StoreError):
    """A copy cannot be written: the disk is full, or refuses."""

    status = 507


class Refused(StoreError):
    """The user's SQL is not one read-only SELECT, or exceeds the limits."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The complete result of a query."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    truncated: bool = False
    """True where a row or size limit cut the answer."""
    types: tuple[str, ...] = ()
    """The SQL type of each column; only of users' queries."""

    @property
    def value(self) -> Any:
        """The first value of the first row."""
        return self.rows[0][0]

    @property
    def values(self) -> list[Any]:
        """The first value of each row."""
        return [row[0] for row in self.rows]

    def tuples(self, kind: Callable[..., T]) -> list[T]:
        """Return a named tuple for each row, of its values in order."""
        return [kind(*row) for row in self.rows]

    def dicts(self) -> list[dict[str, Any]]:
        """Return one mapping per row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def first(self, most: int) -> Rows:
        """Return the first rows."""
        return replace(self, rows=self.rows[:most])

    def of(self, kind: type[T], **read: Callable[[Any], Any]) -> list[T]:
        """Return a dataclass for each row; fields that are not keyword-only are columns, which `read` may convert."""
        if not self.rows:
            return []
        values = dict(zip(self.columns, zip(*self.rows, strict=True), strict=True))
        names = [field.name for field in fields(kind) if not field.kw_only]  # type: ignore[arg-type]
        columns = (map(read[name], values[name]) if name in read else values[name] for name in names)
        return [kind(*row) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Backlog:
    """Bodies that were accepted and are not on disk: bytes, number, and the age of the oldest."""

    bytes: int = 0
    bodies: int = 0
    oldest_s: float = 0.0
    refused: str | None = None
    """Why the last group was not written; None if it was."""


Read = Callable[..., Rows]
"""`Store.read` or `Transaction.execute`."""


Clock = Callable[[], datetime]
"""Returns the present as stored in the tables."""
Within = Mapping[str, datetime | None]
"""The ends of a range of time, by the names that queries have for them (`first`, `last`); None where it is open."""


def utc_now() -> datetime:
    """Return the present as stored in the tables: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


Store: TypeAlias = "Reading"
"""The file and the lake, to which one writer writes, or a closed file, which refuses each write."""
Transaction: TypeAlias = "WriterTransaction"
"""What a unit of work may do; it runs on the writer thread, inside the transaction of its group."""
