"""The cost of a call, computed when its span arrives: the provider's figure, else a dated table's, else unknown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ragpulse_collector.records import MODEL_KINDS, SpanBatch
from ragpulse_collector.settings import Price, TierPrice
from ragpulse_collector.store.protocol import StoreError


class _File(BaseModel):
    fetched_at: datetime
    source: str
    providers: list[dict[str, Any]]


class PriceTable:
    """Prices by model. An existing file at `path` replaces the installed table; raises StoreError if it is no table."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path if path is not None and path.is_file() else None
        if self._path is not None:
            self._file = _price_file(self._path)
            self._snapshot = _snapshot(self._file.providers, self._path)

    @cached_property
    def name(self) -> str:
        """The table with its version, or with the day it was fetched."""
        if self._path is not None:
            return f"genai-prices {self._file.fetched_at.date().isoformat()}"
        return f"genai-prices {version('genai-prices')}"

    def about(self) -> dict[str, str | None]:
        """Return the table's name, when it was installed or fetched, and from where."""
        if self._path is not None:
            day = self._file.fetched_at.date().isoformat()
            return {"table": self.name, "installed": None, "updated": day, "source": self._file.source}
        package = distribution("genai-prices")
        data = Path(str(package.locate_file("genai_prices/data.py")))
        installed = datetime.fromtimestamp(data.stat().st_mtime, UTC).date().isoformat() if data.exists() else None
        return {"table": self.name, "installed": installed, "updated": None, "source": None}

    @property
    def _data(self) -> Any:
        from genai_prices.data_snapshot import get_snapshot

        return get_snapshot() if self._path is None else self._snapshot

    def calculate(self, model: str, provider: str | None, tier: str, **usage: int) -> Calculation | None:
        """Return the library's price calculation, None for unknown models.

        A seller in the table that the call states, as its provider or in the model's name, is asked alone. For another
        name (a proxy's) the model decides, and the note says whose price it is.
        """
        from genai_prices import Usage
        from genai_prices.data_snapshot import find_provider_by_id

        table = self._data
        prefix, _, rest = model.partition(":")
        if rest and _PREFIX.fullmatch(prefix) and find_provider_by_id(table.providers, prefix):
            model = f"{prefix}/{rest}"
        stated = [name for name in (provider, *model.split("/")[:-1]) if name]
        sellers = [found.id for name in stated if (found := find_provider_by_id(table.providers, name))]
        router = _ROUTER if _ROUTER in sellers else None
        only = next((seller for seller in sellers if seller not in _PASS_ON), None)
        names = [(router, name) for _, name in _spellings(model, router)] if router else []
        is_usual = tier in _USUAL_TIERS
        context = None if is_usual else {"processing": tier, "service_tier": tier}
        for seller, name in (*names, *_spellings(model, only or provider), *_only_price(table, model)):
            try:
                price = table.calc(Usage(**usage), name, seller, None, None, context)
            except LookupError:
                continue
            sold_by = price.provider.id
            if only not in (None, sold_by) and sold_by != router:
                continue
            is_other = stated and sold_by not in ([router] if router else sellers)
            notes = [f"{sold_by}{OF_ANOTHER}"] if is_other else []
            if not is_usual:
                is_known = price.model_price != price.model.get_prices(datetime.now(UTC))
                notes.append(f"{tier} tier" if is_known else f"no price of the {tier} tier")
            return Calculation(price, ", ".join(notes))
        return None

    def seller(self, address: str) -> str | None:
        """Return who is asked at an address, None where the table does not know it."""
        try:
            seller: str = self._data.find_provider(None, None, address).id
        except LookupError:
            return None
        return seller


class Calculation(NamedTuple):
    """The library's calculation of a price, and what is not plain about it."""

    price: Any
    note: str


OF_ANOTHER = "'s price"
"""Follows the seller in a note, where the call states another name."""
_ROUTER = "openrouter"
"""Sells what others make: at its own price where the table lists one, else theirs, marked."""
_PASS_ON = ("openai", "anthropic", _ROUTER)
"""These do not say who sells: clients of a wire format are pointed at others."""
_USUAL_TIERS = ("", "auto", "default", "standard", "standard_only", "on_demand")
_PREFIX = re.compile(r"[a-z_-]+")

_VARIANT = re.compile(r":(?:nitro|floor|online|exacto|extended|beta|thinking)$|\[1m\]$|.*:foundation-model/")
"""Parts of a name that do not change the price per token: how OpenRouter routes, the ARN of Bedrock."""
_BEDROCK = re.compile(r"(?:[a-z-]+\.)?[a-z0-9]+\.[a-z]")


def _spellings(model: str, provider: str | None) -> Iterator[tuple[str | None, str]]:
    """Yield provider and model as they may be meant, the most literal first.

    Proxies and clouds have names of their own for a model: `openai/gpt-5-mini:nitro`, `models/gemini-2.5-flash`,
    `us.anthropic.claude-...-v1:0`.
    """
    name = _VARIANT.sub("", model)
    parts = name.split("/")
    yield from ((provider, name), (None, name))
    if name.endswith(":free"):
        yield "openrouter", name
    yield from ((parts[i - 1], "/".join(parts[i:])) for i in range(1, len(parts)))
    yield provider, parts[-1]
    if _BEDROCK.match(parts[-1]):
        yield "aws", parts[-1]
    yield None, parts[-1]


def _only_price(table: Any, model: str) -> list[tuple[str, str]]:
    """Return the provider whose id of a model this is; none where providers ask different prices."""
    name = model.rpartition("/")[2].casefold()
    sold = [(provider.id, one) for provider in table.providers for one in provider.models
            if one.id.casefold() in (name, model.casefold())]  # fmt: skip
    return [(sold[0][0], sold[0][1].id)] if len({str(one.prices) for _, one in sold}) == 1 else []


def replace_table(path: Path, source: str, body: bytes, fetched_at: datetime) -> tuple[int, int]:
    """Check a fetched table and replace the file; returns the numbers of providers and models."""
    try:
        file = _File(fetched_at=fetched_at, source=source, providers=json.loads(body))
    except ValueError as error:
        raise StoreError(f"{source} sent no price table: {str(error).splitlines()[0]}") from error
    snapshot = _snapshot(file.providers, source)
    models = sum(len(provider.models) for provider in snapshot.providers)
    if not models:
        raise StoreError(f"{source} sent a price table without models")
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(file.model_dump_json(), encoding="utf-8")
    partial.replace(path)
    return len(file.providers), models


def _price_file(path: Path) -> _File:
    try:
        return _File.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(_unusable(path, error)) from error


def _unusable(path: Path | str, error: Exception) -> str:
    reason = str(error).splitlines()[0]
    return f"{path} is no price table ({reason}): write it again with `ragpulse prices update`, or delete it"


def _snapshot(providers: list[dict[str, Any]], source: Path | str) -> Any:
    """Convert published data to the library's table, without its rules for reading usage from responses."""
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelPrice, Provider, TieredPrices

    prices = TypeAdapter(dict[str, Decimal | TieredPrices | None])
    listed = TypeAdapter(list[Provider], config=ConfigDict(arbitrary_types_allowed=True))

    def table(value: Any) -> Any:
        if isinstance(value, list):
            return [table(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: ModelPrice(**prices.validate_python(item))
            if key == "prices" and isinstance(item, dict)
            else table(item)
            for key, item in value.items()
            if key != "extractors"
        }

    try:
        return DataSnapshot(listed.validate_python(table(providers)), from_auto_update=False)
    except (ValidationError, TypeError, ValueError) as error:
        raise StoreError(_unusable(source, error)) from error


_PER_MILLION = 1e-6
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per million tokens, and their source."""

    input: float
    output: float
    cached: float
    cache_write: float
    cache_write_1h: float | None
    """Written for an hour; None where it is not known."""
    source: str
    up_to: float = float("inf")
    """Other rates apply above this many input tokens (tiers); then the table calculates each call."""

    def dollars(self, tokens: Tokens) -> float:
        """Return the cost of a call."""
        input, output, read, write, hour = tokens
        dollars = (input - read - write) * self.input + read * self.cached + (write - hour) * self.cache_write
        return (dollars + hour * (self.cache_write_1h or 0.0) + output * self.output) * _PER_MILLION


class Tokens(NamedTuple):
    """The tokens of a call, named as the library names them: the input has those read, the written ones those of 1h."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cache_write_1h_tokens: int

    @classmethod
    def of(cls, call: PricedCall) -> Self:
        """Return those of a call; some clients state more cached tokens than input."""
        input, hour = call.input_tokens or 0, call.cache_write_1h_tokens or 0
        read = min(call.cached_tokens or 0, input)
        write = min(max(call.cache_write_tokens or 0, hour), input - read)
        return cls(input, call.output_tokens or 0, read, write, min(hour, write))


class PricedCall(NamedTuple):
    """The columns of a span that its price may depend on."""

    kind: str = "llm"
    model: str | None = None
    provider: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    service_tier: str | None = None
    cost_usd: float | None = None
    cost_source: str | None = None
    mapped_from: str = "{}"
    usage_problem: str | None = None
    """Why no cost can be computed from the tokens."""


class CallCost(NamedTuple):
    """The cost of a call and its source, or why it is unknown; all None for a span that is no call."""

    cost_usd: float | None = None
    cost_source: str | None = None
    cost_unknown_reason: str | None = None


class Prices:
    """Prices calls: by the provider's figure, else by the settings, else by the table."""

    def __init__(self, overrides: Mapping[str, Price] | None = None, table: str | None = None) -> None:
        self._rates = lru_cache(maxsize=1024)(self._find)
        self.replace(overrides or {}, table)

    def replace(self, overrides: Mapping[str, Price], table: str | None = None) -> None:
        """Price calls from now on by these settings and the table in this file; raises StoreError."""
        self.table, self.configured = PriceTable(None if table is None else Path(table)), dict(overrides)
        self._rates.cache_clear()

    def settle(self, batch: SpanBatch) -> None:
        """Fill a batch's columns of cost."""
        calls = zip(*(batch.values(name) for name in PricedCall._fields), strict=True)
        figures_of_calls = zip(*(batch.values(name) for name in _FIGURES), strict=True)
        kinds = batch.values("kind")
        costs = [
            self.cost(PricedCall._make(call)) if kind in MODEL_KINDS or figures != _NO_FIGURES else _NONE
            for kind, figures, call in zip(kinds, figures_of_calls, calls, strict=True)
        ]
        for name, column in zip(CallCost._fields, zip(*costs, strict=True), strict=True):
            batch.columns[name] = column

    def cost(self, call: PricedCall) -> CallCost:
        """Return the cost of one call; a span that is no model call and states no tokens has none.

        A cost of 0 beside used tokens means "unknown": OpenLIT and LiteLLM write 0 where they have no price. Under
        OpenInference's name, which is ours too, the figure is the application's own and counts.
        """
        is_doubtful = False
        if call.cost_usd is not None:
            used = (call.input_tokens or 0) + (call.output_tokens or 0) > 0
            is_doubtful = call.cost_usd == 0 and used and '"llm.cost.' not in call.mapped_from
            if not is_doubtful:
                return CallCost(call.cost_usd, call.cost_source or "provider")
        if call.kind not in MODEL_KINDS and call.input_tokens is None and call.output_tokens is None:
            return _NONE
        reason = _missing(call)
        cost = self._price(call) if reason is None else CallCost(cost_unknown_reason=reason)
        if cost.cost_source is not None and _ESTIMATED in call.mapped_from:
            cost = cost._replace(cost_source=f"{cost.cost_source}, tokens estimated")
        if is_doubtful and cost.cost_unknown_reason is not None:
            reason = f"{cost.cost_unknown_reason}; the client's own figure of 0 is not believed beside used tokens"
            return CallCost(cost_unknown_reason=reason)
        return cost

    def _price(self, call: PricedCall) -> CallCost:
        model, provider, tier = call.model or "", call.provider, (call.service_tier or "").lower()
        is_plausible = max(map(len, (model, provider or "", tier))) <= _MAX_NAME  # no long texts in the cache of rates
        rates = self._rates(model, provider, tier) if is_plausible else None
        if rates is None:
            return CallCost(cost_unknown_reason=f"no price for {model[:_MAX_NAME]}")
        tokens = Tokens.of(call)
        if tokens.cache_write_1h_tokens and rates.cache_write_1h is None:
            return CallCost(cost_unknown_reason=f"no price for what {model} caches for an hour")
        if tokens.input_tokens <= rates.up_to:
            return CallCost(rates.dollars(tokens), rates.source)
        above = self.table.calculate(model, provider, tier, **tokens._asdict())
        return CallCost(None if above is None else float(above.price.total_price), rates.source)

    def _find(self, model: str, provider: str | None, tier: str) -> Rates | None:
        override = self.configured.get(model) or self.configured.get(f"{provider}/{model}")
        if override is None:
            return _rates(self.table, model, provider, tier)
        price: TierPrice = override.tiers.get(tier, override)
        written = price.input if price.cache_write is None else price.cache_write
        return Rates(
            input=price.input,
            output=price.output,
            cached=price.input if price.cached_input is None else price.cached_input,
            cache_write=written,
            cache_write_1h=written if price.cache_write_1h is None else price.cache_write_1h,
            source="settings",
        )


_NONE = CallCost()
_FIGURES = ("input_tokens", "output_tokens", "cost_usd")
_NO_FIGURES = (None, None, None)
"""Most spans: no model call, no figures, and so no cost."""


_ESTIMATED = '"usage_estimated"'
"""The flag of tokens that were estimated from the texts."""


def _missing(call: PricedCall) -> str | None:
    if call.usage_problem:
        return call.usage_problem
    if not call.model:
        return "no model name"
    if call.input_tokens is None:
        return "no input tokens"
    if call.output_tokens is None and call.kind == "llm":
        return "no output tokens"
    return None


def _rates(table: PriceTable, model: str, provider: str | None, tier: str) -> Rates | None:
    calculation = table.calculate(model, provider, tier, input_tokens=1)
    if calculation is None:
        return None
    price = calculation.price.model_price
    tiers = [
        price.input_mtok,
        price.output_mtok,
        price.cache_read_mtok,
        price.cache_write_mtok,
        price.cache_write_1h_mtok,
    ]
    starts = [tier.start for value in tiers if hasattr(value, "tiers") for tier in value.tiers]
    input, output, read, write, hour = (_base(value) for value in tiers)
    if input is None and model.endswith(":free"):
        input = 0.0
    if input is None:
        return None
    return Rates(
        input=input,
        output=output or 0.0,
        cached=input if read is None else read,
        cache_write=input if write is None else write,
        cache_write_1h=hour,
        source=", ".join(filter(None, (table.name, calculation.note))),
        up_to=min(starts, default=float("inf")),
    )


def _base(value: Any) -> float | None:
    base = getattr(value, "base", value)
    return None if base is None else float(base)
