"""What judges cost: the price table the traffic is priced with, and nothing for a judge on this computer."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from ragpulse_collector.records import SpanRecord
from ragpulse_collector.settings import Settings, is_loopback

JudgePrice = Callable[[str, int, int], float | None]


def judge_is_local(settings: Settings) -> bool:
    """Return whether the configured judge runs on this computer (a loopback `api_base`): no key, no budget."""
    base = settings.judge.api_base
    return base is not None and is_loopback(urlsplit(base).hostname or "")


def judge_price(settings: Settings, prices: Callable[[SpanRecord], None]) -> JudgePrice:
    """Return the function that prices a judge call: (model, input tokens, output tokens) to USD, None if unknown."""
    local = judge_is_local(settings)

    def price(model: str, input_tokens: int, output_tokens: int) -> float | None:
        if local and model == settings.judge.model:
            return 0.0
        provider, _, name = model.rpartition("/")
        call = SpanRecord(
            trace_id="", span_id="", parent_span_id=None, start_ns=0, end_ns=0, name="judge", kind="llm",
            model=name, provider=provider or None, input_tokens=input_tokens, output_tokens=output_tokens,
        )  # fmt: skip
        prices(call)
        return call.cost_usd

    return price
