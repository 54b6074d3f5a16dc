"""Writes verdicts in groups: whatever gathered during one commit is the next commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_collector.budget import Ledger
from ragpulse_collector.store import Busy, Store, Transaction
from ragpulse_collector.worker.verdict import Verdict, cost_of

__all__ = ["Outbox", "append_verdicts"]


class Outbox:
    """Hands verdicts to the store; `put` returns when they are on disk."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self._waiting: list[tuple[Verdict, asyncio.Future[None]]] = []
        self._some = asyncio.Event()

    async def put(self, verdict: Verdict) -> None:
        """Queue one verdict and wait for its commit."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((verdict, committed))
        self._some.set()
        await committed

    async def run(self) -> None:
        """Write for ever; cancel to stop once nothing waits."""
        while True:
            await self._some.wait()
            self._some.clear()
            group, self._waiting = self._waiting, []
            await self._write([verdict for verdict, _ in group])
            for _, committed in group:
                if not committed.done():
                    committed.set_result(None)

    async def _write(self, verdicts: Sequence[Verdict]) -> None:
        while True:
            try:
                await asyncio.wrap_future(self._store.write(lambda tx: append_verdicts(tx, self._ledger, verdicts)))
            except Busy as busy:
                await asyncio.sleep(busy.retry_after_s)
            else:
                return


def append_verdicts(tx: Transaction, ledger: Ledger, verdicts: Sequence[Verdict]) -> None:
    """Append verdicts to `raw.scores` and `raw.run_items`, and settle what was set aside for them."""
    scored = [(verdict, verdict.result) for verdict in verdicts if verdict.result is not None]
    joined = [v for v in verdicts if (v.final or v.dead) and (v.job.run_id is not None or v.result is None)]
    _append(tx, "scores", [verdict.score_row(result) for verdict, result in scored])
    _append(tx, "run_items", [verdict.item_row() for verdict in joined])
    for verdict, result in scored:
        if verdict.reservation is not None:
            # A failure without an answered call costs nothing; an answer of unknown price keeps its reservation.
            failed = result.status == "error" and not result.calls
            ledger.settle(tx, verdict.reservation, 0.0 if failed else cost_of(result))


def _append(tx: Transaction, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        tx.append(table, list(rows[0]), [list(row.values()) for row in rows])
