"""What judges cost: the price table the traffic is priced with, and nothing for a judge on this computer."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from ragpulse_collector.settings import Settings, is_loopback
from ragpulse_collector.store import Prices
from ragpulse_collector.store.prices import Call

JudgePrice = Callable[[str, int, int], float | None]


def judge_is_local(settings: Settings) -> bool:
    """Return whether the configured judge runs on this computer (a loopback address): no key, no budget."""
    return is_loopback(urlsplit(judge_address(settings) or "").hostname or "")


def judge_address(settings: Settings) -> str | None:
    """Return where the configured judge is asked: `api_base`, or the model's own `http://host:port/v1#model`."""
    judge = settings.judge
    written = judge.model if judge.model and judge.model.startswith(("http://", "https://")) else None
    return written.partition("#")[0] if written else judge.api_base


def judge_price(settings: Settings, prices: Prices) -> JudgePrice:
    """Return the function that prices a judge call: (model, input tokens, output tokens) to USD, None if unknown."""
    configured = settings.judge.model or ""
    free = {configured, f"openai/{configured}", configured.rpartition("#")[2]} if judge_is_local(settings) else set()

    def price(model: str, input_tokens: int, output_tokens: int) -> float | None:
        if model in free:
            return 0.0
        provider, _, name = model.rpartition("/")
        call = Call(model=name, provider=provider or None, input_tokens=input_tokens, output_tokens=output_tokens)
        return prices.cost(call).cost_usd

    return price
