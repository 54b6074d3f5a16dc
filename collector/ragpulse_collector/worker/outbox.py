"""Writes verdicts in groups: whatever gathered during one commit is the next commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_collector.budget import Ledger
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.worker.together import Together, committed
from ragpulse_collector.worker.verdict import Verdict

__all__ = ["Outbox", "append_verdicts"]


class Outbox:
    """Hands verdicts to the store; `put` returns when they are on disk."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store, self._ledger = store, ledger
        self.put: Together[Verdict, None] = Together(self._write, every_s=0.02)

    async def _write(self, verdicts: list[Verdict]) -> Sequence[None]:
        await committed(self._store, lambda tx: append_verdicts(tx, self._ledger, verdicts))
        return [None] * len(verdicts)


def append_verdicts(tx: Transaction, ledger: Ledger, verdicts: Sequence[Verdict]) -> None:
    """Append verdicts to `raw.scores` and `raw.run_items`, and settle what was set aside for them."""
    scored = [(verdict, verdict.result) for verdict in verdicts if verdict.result is not None]
    joined = [v for v in verdicts if (v.final or v.dead) and (v.job.run_id is not None or v.result is None)]
    _append(tx, "scores", [verdict.score_row(result) for verdict, result in scored])
    _append(tx, "run_items", [verdict.item_row() for verdict in joined])
    ledger.settle(tx, [(v.reservation, v.spent_usd) for v in verdicts if v.reservation is not None])


def _append(tx: Transaction, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        tx.append(table, list(rows[0]), [list(row.values()) for row in rows])
