"""The recorded judge: every reply is kept in the store by what was asked, so that asking again is free."""

from __future__ import annotations

import asyncio

from ragpulse_collector.store import Store, Transaction
from ragpulse_evaluators import JudgeCall

__all__ = ["RecordedCalls"]


class RecordedCalls:
    """A `JudgeCache` over `raw.judge_calls`; wrap a judge with `CachedJudge(judge, RecordedCalls(store))`.

    A reply is on disk before it is used: a process killed between the call and its score asks nothing twice.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""
        sql = "SELECT reply FROM raw.judge_calls WHERE key = ? LIMIT 1"
        rows = (await asyncio.to_thread(self._store.read, sql, [key])).rows
        return JudgeCall.model_validate_json(rows[0][0]) if rows else None

    async def put(self, key: str, call: JudgeCall) -> None:
        """Record a call; the first under a key is the one that is found."""

        def work(tx: Transaction) -> None:
            row = (key, call.model, call.model_dump_json(), tx.at)
            tx.append("judge_calls", ("key", "judge", "reply", "created_at"), [row])

        await asyncio.wrap_future(self._store.write(work))
