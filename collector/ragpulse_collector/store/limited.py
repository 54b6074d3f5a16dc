"""A store whose reads run under the limits of users' SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ragpulse_collector.store.user_sql import Question

if TYPE_CHECKING:
    from ragpulse_collector.records import RawBody, Receipt
    from ragpulse_collector.store.protocol import Parameters, Rows, Store, Transaction

T = TypeVar("T")
_TIMEOUT_S = 30.0


class Limited:
    """Reads in the reader process, for queries that hold a user's `where`; everything else is the store's own."""

    def __init__(self, store: Store, ask: Callable[[Question], Rows]) -> None:
        self._store, self._ask = store, ask

    def read(self, sql: str, parameters: Parameters = (), *, timeout_s: float | None = None) -> Rows:
        """Answer a query of the collector's; raises Refused, TimeoutError or Busy."""
        limit = _TIMEOUT_S if timeout_s is None else min(timeout_s, _TIMEOUT_S)
        return self._ask(Question(sql=sql, parameters=parameters, timeout_s=limit, ours=True))

    def limited(self) -> Store:
        """Return itself."""
        return self

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Queue a body."""
        return self._store.submit(body)

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Queue a unit of work for the writer."""
        return self._store.write(work)

    def run_user_sql(
        self, sql: str, parameters: Sequence[Any] = (), *, timeout_s: float = 30.0, max_rows: int = 100_000
    ) -> Rows:
        """Answer one SELECT that a user wrote."""
        return self._store.run_user_sql(sql, parameters, timeout_s=timeout_s, max_rows=max_rows)

    def used_bytes(self) -> int:
        """Return the bytes that hold data."""
        return self._store.used_bytes()

    def problem(self) -> str | None:
        """Return why the store takes nothing more, or None."""
        return self._store.problem()

    def check_files(self) -> None:
        """Check that data files can be written; raises StoreError."""
        self._store.check_files()

    def close(self) -> None:
        """Close the store."""
        self._store.close()
