"""The configured judge: what a call costs, and the record of its replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from ragpulse_collector.evaluation.batcher import Batcher, commit
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices, Store
from ragpulse_collector.store.ingest.prices import OF_ANOTHER, PricedCall
from ragpulse_collector.store.queries.jobs import add_calls, replies
from ragpulse_evaluators import JudgeCall
from ragpulse_evaluators.errors import JudgeError
from ragpulse_evaluators.judges.protocol import (
    Judge,
    JudgeQuestion,
    JudgeWrapper,
    count_tokens,
    max_tokens_of,
    model_of,
    transcript,
)


class JudgePrices:
    """(model, input tokens, output tokens) to USD, None where the price is unknown: `[prices]` first, then the table.

    The table's price is that of who is asked at the judge's address, never another seller's. A judge on loopback that
    `[prices]` does not name is free.
    """

    def __init__(self, settings: Settings, prices: Prices) -> None:
        self._prices = prices
        judges = settings.judges
        local, remote = (
            frozenset[str]().union(*(judge.names for judge in judges if judge.is_local == is_local))
            for is_local in (True, False)
        )
        self._free = local - remote  # a model that is asked at both places has a price to be named
        self._judges = {name: judge for judge in judges for name in judge.names}
        self._all_local = bool(judges) and all(judge.is_local for judge in judges)

    def __call__(self, model: str, input_tokens: int, output_tokens: int) -> float | None:
        """Return what a call of these lengths costs."""
        return self._usd(model, PricedCall(input_tokens=input_tokens, output_tokens=output_tokens))

    def _usd(self, model: str, call: PricedCall) -> float | None:
        name, judge = self.configured_name(model), self._judges.get(model)
        if model in self._free and not name:
            return 0.0
        seller = self._prices.table.seller(judge.address) if judge and judge.address else None
        tier = call.service_tier or (judge.service_tier if judge else None)
        cost = self._prices.cost(call._replace(model=name or model, provider=seller, service_tier=tier))
        return None if OF_ANOTHER in (cost.cost_source or "") else cost.cost_usd

    def rates(self, model: str) -> tuple[float, float] | None:
        """Return USD per input and per output token; None where the price is unknown."""
        costs = self(model, 10**6, 0), self(model, 0, 10**6)
        return None if None in costs else ((costs[0] or 0.0) / 1e6, (costs[1] or 0.0) / 1e6)

    def configured_name(self, model: str) -> str | None:
        """Return the name in `[prices]` that means this model: its own, or its last parts after the provider."""
        parts = model.split("/")
        return next((name for i in range(len(parts)) if (name := "/".join(parts[i:])) in self._prices.configured), None)

    @property
    def limited(self) -> bool:
        """Whether the day's budget applies: not where every configured judge is free."""
        return not self._all_local or any(map(self.configured_name, self._free))

    def cost_of_call(self, call: JudgeCall, model: str) -> float | None:
        """Return what a call cost: its tokens at the user's price, else what was reported, else at the table's price.

        A reply without usage has the reported cost, or none.
        """
        reported = call.cost_usd
        if reported is not None and not self.configured_name(model):
            return reported
        if call.input_tokens is None or call.output_tokens is None:
            return 0.0 if self(model, 0, 0) == self(model, 10**6, 10**6) == 0.0 else reported
        counts = call.model_dump(include={*PricedCall._fields} - {"model", "cost_usd"})
        return self._usd(model, PricedCall(**counts))

    def priced(self, judge: Judge) -> Judge:
        """Return the judge with the cost of each call written into it."""
        return PricedJudge(judge, self)


class PricedJudge(JudgeWrapper):
    """Writes what each call cost into it; a request that may be billed without a reply costs the most it can."""

    def __init__(self, judge: Judge, prices: JudgePrices) -> None:
        super().__init__(judge)
        self._prices = prices

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Ask, and price the calls."""
        model = model_of(self._inner)
        try:
            calls = await question.put_to(self._inner)
        except JudgeError as failed:
            lost = (self._lost(question, model),) if failed.maybe_billed else ()
            failed.calls = (*(self._priced(call, model) for call in failed.calls), *lost)
            raise
        return [self._priced(call, model) for call in calls]

    def _priced(self, call: JudgeCall, model: str) -> JudgeCall:
        return call.model_copy(update={"cost_usd": self._prices.cost_of_call(call, model)})

    def _lost(self, question: JudgeQuestion, model: str) -> JudgeCall:
        prompt = transcript(question.messages)
        tokens = question.n * count_tokens(prompt), question.n * max_tokens_of(self._inner)
        figures: dict[str, Any] = {"input_tokens": tokens[0], "output_tokens": tokens[1], "finish_reason": "lost"}
        return JudgeCall(prompt=prompt, model=model, cost_usd=self._prices(model, *tokens), **figures)


class RecordedCalls:
    """A `JudgeCache` over the calls in the store; wrap a judge with `CachedJudge(judge, RecordedCalls(store))`.

    A reply is on disk before it is used: a process killed between the call and its score asks nothing twice.
    """

    def __init__(self, store: Store) -> None:
        # No bound methods: a cycle would keep a closed store's file open until the next collection.
        self._find = Batcher(partial(_find_calls, store), every_s=0.005)
        self._keep = Batcher(partial(_store_calls, store), every_s=0.02)

    async def get(self, key: str) -> JudgeCall | None:
        """The recorded call, or None."""
        reply = await self._find(key)
        return None if reply is None else JudgeCall.model_validate_json(reply)

    async def put(self, key: str, call: JudgeCall) -> None:
        """Record a call; the last under a key is the one that is found."""
        await self._keep((key, call.model, call.model_dump_json()))


async def _find_calls(store: Store, keys: list[str]) -> Sequence[str | None]:
    recorded = await asyncio.to_thread(replies, store.read, keys)
    return [recorded.get(key) for key in keys]


async def _store_calls(store: Store, calls: list[tuple[str, str, str]]) -> Sequence[None]:
    await commit(store, lambda tx: add_calls(tx, calls))
    return [None] * len(calls)
