"""What a call cost, settled when its span arrives: the provider's own figure, else a dated price table, else unknown.

The table (genai-prices) is imported with the first call to be priced: 5 MB that an idle collector does without, and
0.05 s (0.3 s where Python may not keep bytecode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import starmap
from typing import Any, Protocol

from ragpulse_collector.records import SpanBlock, SpanRecord

_CALLS = frozenset({"llm", "embedding", "reranker"})
_PER_MILLION = 1e-6
_SETTLED = ("cost_usd", "cost_source", "cost_unknown_reason")
_TOKENS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens")
_PRICED_BY = (*_TOKENS, "kind", "model", "provider", "cost_usd", "cost_source", "mapped_from")
"""What a price may depend on."""


class PriceOverride(Protocol):
    """A model's price from the settings, USD per million tokens."""

    @property
    def input(self) -> float: ...  # noqa: D102
    @property
    def output(self) -> float: ...  # noqa: D102
    @property
    def cached_input(self) -> float | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per million tokens, and where the figures are from."""

    input: float
    output: float
    cached: float
    cache_write: float
    source: str
    up_to: float = float("inf")
    """Above this many input tokens other rates hold (tiers); the table is asked call by call then."""

    def dollars(self, whole: int, output: int | None, cached: int | None, cache_write: int | None) -> float:
        """Return what a call costs; the stated input includes what came from the cache."""
        read = min(cached or 0, whole)  # some clients state more cached than input
        write = min(cache_write or 0, whole - read)
        fresh = whole - read - write
        dollars = fresh * self.input + read * self.cached + write * self.cache_write + (output or 0) * self.output
        return dollars * _PER_MILLION


class Prices:
    """Call it with a span: it fills cost_usd and cost_source, or says in cost_unknown_reason why not."""

    def __init__(self, overrides: Mapping[str, PriceOverride] | None = None) -> None:
        self._overrides = dict(overrides or {})
        self._rates = lru_cache(maxsize=1024)(self._find)

    def __call__(self, span: SpanRecord) -> None:
        """Settle the cost of one span; spans that are no model calls and state no tokens are left alone.

        A library's 0 for used tokens is "not known": OpenLIT and LiteLLM say 0 where they have no price. Under
        OpenInference's name, ours too, it is what the application said.
        """
        doubted = False
        if span.cost_usd is not None:
            used = (span.input_tokens or 0) + (span.output_tokens or 0) > 0
            doubted = span.cost_usd == 0 and used and '"llm.cost.' not in span.mapped_from
            if not doubted:
                span.cost_source = span.cost_source or "provider"
                return
        span.cost_usd = span.cost_source = None
        has_usage = span.input_tokens is not None or span.output_tokens is not None
        if not has_usage and span.kind not in _CALLS:
            return
        span.cost_unknown_reason = _missing(span)
        if span.cost_unknown_reason is None:
            self._price(span)
        if doubted and span.cost_unknown_reason is not None:
            span.cost_unknown_reason += "; the client's own figure of 0 is not believed beside used tokens"

    def block(self, block: SpanBlock) -> None:
        """Settle the costs of a block's spans: at once where only numbers of tokens differ."""
        said = {name: block.columns[name] for name in _PRICED_BY if name in block.columns}
        same = {name: block.same(name) for name in (*_PRICED_BY, *_SETTLED) if name not in said}
        calls = zip(*said.values(), strict=True) if said else iter([()])
        spans = (SpanRecord.made_of(same | dict(zip(said, call, strict=True))) for call in calls)
        first = next(spans)
        rates = self._shared_rates(first, said)
        self(first)
        settled = {name: [getattr(first, name)] for name in _SETTLED}
        if rates is not None:
            tokens = zip(*(block.values(name) for name in _TOKENS), strict=True)
            settled["cost_usd"] = list(starmap(rates.dollars, tokens))
        else:
            for span in spans:
                self(span)
                for name in _SETTLED:
                    settled[name].append(getattr(span, name))
        _settle(block, settled)

    def _shared_rates(self, first: SpanRecord, said: Mapping[str, Sequence[Any]]) -> Rates | None:
        """Return the rates by which all calls of a block are priced, None where each is to be looked at."""
        if first.cost_usd is not None or _missing(first) or not said.keys() <= frozenset(_TOKENS):
            return None
        rates = self._rates(first.model or "", first.provider)
        plain = rates is not None and not any(None in counts for counts in said.values())
        most = max(said.get("input_tokens", (first.input_tokens or 0,)))
        return rates if rates is not None and plain and most <= rates.up_to else None

    def _price(self, span: SpanRecord) -> None:
        rates = self._rates(span.model or "", span.provider)
        if rates is None:
            span.cost_unknown_reason = f"no price for {span.model}"
            return
        whole, output = span.input_tokens or 0, span.output_tokens or 0
        if whole > rates.up_to:
            span.cost_usd = _tiered(span, whole, output)
        else:
            span.cost_usd = rates.dollars(whole, output, span.cached_tokens, span.cache_write_tokens)
        span.cost_source = rates.source

    def _find(self, model: str, provider: str | None) -> Rates | None:
        override = self._overrides.get(model) or self._overrides.get(f"{provider}/{model}")
        if override is not None:
            cached = override.input if override.cached_input is None else override.cached_input
            return Rates(
                input=override.input, output=override.output, cached=cached, cache_write=override.input,
                source="settings",
            )  # fmt: skip
        return _from_table(model, provider)


def _settle(block: SpanBlock, settled: Mapping[str, list[Any]]) -> None:
    for name, values in settled.items():
        if values.count(values[0]) == len(values):
            block.columns.pop(name, None)
            block.shared[name] = values[0]
        else:
            block.columns[name] = values


def _missing(span: SpanRecord) -> str | None:
    if not span.model:
        return "no model name"
    if span.input_tokens is None:
        return "no input tokens"
    if span.output_tokens is None and span.kind == "llm":
        return "no output tokens"
    return None


def _from_table(model: str, provider: str | None) -> Rates | None:
    price = _model_price(model, provider)
    if price is None:
        return None
    tiers = [price.input_mtok, price.output_mtok, price.cache_read_mtok, price.cache_write_mtok]
    starts = [tier.start for value in tiers if hasattr(value, "tiers") for tier in value.tiers]
    whole, output, read, write = (_base(value) for value in tiers)
    if whole is None:
        return None
    return Rates(
        input=whole,
        output=output or 0.0,
        cached=whole if read is None else read,
        cache_write=whole if write is None else write,
        source=f"genai-prices {version('genai-prices')}",
        up_to=min(starts, default=float("inf")),
    )


def _base(value: Any) -> float | None:
    base = getattr(value, "base", value)
    return None if base is None else float(base)


def _model_price(model: str, provider: str | None) -> Any:
    """The table's entry; a provider the table does not know (a proxy's name) is no reason to give up."""
    from genai_prices import Usage, calc_price

    for known in dict.fromkeys((provider, None)):
        try:
            return calc_price(Usage(input_tokens=1), model_ref=model, provider_id=known).model_price
        except LookupError:
            continue
    return None


def _tiered(span: SpanRecord, whole: int, output: int) -> float | None:
    from genai_prices import Usage, calc_price

    usage = Usage(input_tokens=whole, output_tokens=output, cache_read_tokens=min(span.cached_tokens or 0, whole))
    for known in dict.fromkeys((span.provider, None)):
        try:
            return float(calc_price(usage, model_ref=span.model or "", provider_id=known).total_price)
        except LookupError:
            continue
    return None
