"""The configured judge: what a call costs, and the record of its replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ragpulse_collector.evaluation.batcher import Batcher, committed
from ragpulse_collector.evaluation.budget import Price
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, Store
from ragpulse_collector.store.prices import Call
from ragpulse_collector.store.queries.judge_calls import add_calls, replies
from ragpulse_evaluators import JudgeCall

__all__ = ["RecordedCalls"]


def judge_price(settings: Settings, prices: Prices) -> Price:
    """Return the function that prices a judge call: (model, input tokens, output tokens) to USD, None if unknown."""
    configured = settings.judge.model or ""
    free = {configured, f"openai/{configured}", configured.rpartition("#")[2]} if settings.judge.is_local else set()

    def price(model: str, input_tokens: int, output_tokens: int) -> float | None:
        if model in free:
            return 0.0
        provider, _, name = model.rpartition("/")
        call = Call(model=name, provider=provider or None, input_tokens=input_tokens, output_tokens=output_tokens)
        return prices.cost(call).cost_usd

    return price


class RecordedCalls:
    """A `JudgeCache` over the calls in the store; wrap a judge with `CachedJudge(judge, RecordedCalls(store))`.

    A reply is on disk before it is used: a process killed between the call and its score asks nothing twice.
    """

    def __init__(self, store: Store) -> None:
        # No bound methods: a cycle would keep a closed store's file open until the next collection.
        self._find = Batcher(partial(_found, store), every_s=0.005)
        self._keep = Batcher(partial(_kept, store), every_s=0.02)

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""
        reply = await self._find(key)
        return None if reply is None else JudgeCall.model_validate_json(reply)

    async def put(self, key: str, call: JudgeCall) -> None:
        """Record a call; the first under a key is the one that is found."""
        await self._keep((key, call.model, call.model_dump_json()))


async def _found(store: Store, keys: list[str]) -> Sequence[str | None]:
    recorded = await asyncio.to_thread(replies, store.read, keys)
    return [recorded.get(key) for key in keys]


async def _kept(store: Store, calls: list[tuple[str, str, str]]) -> Sequence[None]:
    await committed(store, lambda tx: add_calls(tx, calls))
    return [None] * len(calls)
