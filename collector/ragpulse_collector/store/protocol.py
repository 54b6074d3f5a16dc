"""The interface of a store; the embedded DuckDB file and the lake both pass one contract suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ragpulse_collector.refusals import Refusal

if TYPE_CHECKING:
    from ragpulse_collector.records import RawBody, Receipt, Values

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

    @property
    def value(self) -> Any:
        """The first value of the first row."""
        return self.rows[0][0]

    @property
    def values(self) -> list[Any]:
        """The first value of each row."""
        return [row[0] for row in self.rows]

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


Read = Callable[..., Rows]
"""`Store.read` or `Transaction.execute`."""


def utc_now() -> datetime:
    """Return the present as stored in the tables: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Transaction(Protocol):
    """What a unit of work may do; it runs on the writer thread, inside the transaction of its group."""

    at: datetime
    """The time of this transaction (UTC, naive): later than that of every transaction before it."""

    def execute(self, sql: str, parameters: Parameters = ()) -> Rows:
        """Run one statement; reads see everything written before in the same transaction."""
        ...

    def append(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Append rows to `raw.<table>` (the fast path); ids as hex text, instants as datetime (UTC, naive)."""
        ...

    def append_columns(self, table: str, columns: Mapping[str, Sequence[Values]]) -> None:
        """Append rows. Each column comes in chunks of the same lengths; ids may be bytes, instants microseconds."""
        ...


class Store(Protocol):
    """One writer, many readers."""

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Queue a body; the future resolves after COMMIT, or raises DecodeError. Raises Busy when the queue is full."""
        ...

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a unit of work for the writer; the future resolves after COMMIT. Failing work fails alone.

        Work shares its transaction with others and may run a second time when one of them fails, so it must change
        nothing outside the transaction.
        """
        ...

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query from a fresh cursor (any thread); raises TooSlow, Busy where memory is short."""
        ...

    def run_user_sql(
        self, sql: str, parameters: Sequence[Any] = (), *, timeout_s: float = 30.0, max_rows: int = 100_000
    ) -> Rows:
        """Answer one read-only SELECT that a user wrote; raises Refused with the reason, TooSlow, Busy."""
        ...

    def check_files(self) -> None:
        """Check that data files can be written, where a transaction alone does not show it; raises StoreError."""
        ...

    def limited(self) -> Store:
        """Return this store with reads under the limits of users' SQL: for queries that hold a user's `where`."""
        ...

    def used_bytes(self) -> int:
        """Return the bytes that hold data; deleted rows do not count."""
        ...

    def problem(self) -> str | None:
        """Return why the store accepts no more writes although its disk works, or None."""
        ...

    def close(self) -> None:
        """Refuse new work, drain the queue, close the file."""
        ...
