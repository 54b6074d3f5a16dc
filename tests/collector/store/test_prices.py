"""Costs: settled once at ingest, the provider's figure first, unknown with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from genai_prices import Usage, calc_price
from spans import span_batch, spans_of

from ragpulse_collector.settings import Price
from ragpulse_collector.store import Prices


def priced(kit: Any, prices: Prices | None = None, kind: Any = "llm", **fields: Any) -> Any:
    """A call after pricing."""
    batch = span_batch([kit.span(1, kind=kind, **fields)])
    (prices or Prices()).settle(batch)
    (span,) = spans_of(batch)
    return span


def test_the_providers_own_figure_wins(kit: Any) -> None:
    """What the client sent is never recomputed."""
    span = priced(kit, model="gpt-5-mini", input_tokens=10, output_tokens=10, cost_usd=7.0)
    assert (span.cost_usd, span.cost_source, span.cost_unknown_reason) == (7.0, "provider", None)


@pytest.mark.parametrize(
    ("model", "whole", "output", "cached", "written"),
    [
        ("gpt-5-mini", 1_000, 100, 0, 0),
        ("gpt-5-mini", 1_000, 100, 400, 0),
        ("claude-sonnet-4-5", 1_000, 100, 400, 100),
        ("gemini-2.5-pro", 199_000, 50, 0, 0),
        ("gemini-2.5-pro", 300_000, 50, 0, 0),
        ("claude-sonnet-4-5", 250_000, 100, 50_000, 100_000),
    ],
)
def test_the_table_is_followed(kit: Any, model: str, whole: int, output: int, cached: int, written: int) -> None:
    """Cached tokens are part of the input and priced as such; tiers above their threshold too."""
    span = priced(
        kit, model=model, input_tokens=whole, output_tokens=output, cached_tokens=cached, cache_write_tokens=written
    )
    usage = Usage(input_tokens=whole, output_tokens=output, cache_read_tokens=cached, cache_write_tokens=written)
    assert span.cost_usd == pytest.approx(float(calc_price(usage, model_ref=model).total_price), rel=1e-9)
    assert span.cost_source.startswith("genai-prices ")


def test_settings_override_the_table(kit: Any) -> None:
    """A price of one's own names itself as the source; reads from the cache may have a price of their own."""
    prices = Prices({"gpt-5-mini": Price(input=10, output=100, cached_input=1)})
    span = priced(kit, prices, model="gpt-5-mini", input_tokens=1_000, output_tokens=10, cached_tokens=500)
    assert (span.cost_usd, span.cost_source) == (pytest.approx(0.0065), "settings")


def test_settings_price_writes_to_the_cache_and_service_tiers(kit: Any) -> None:
    """Without a figure for the stated tier the model's own counts."""
    batch = Price(input=5, output=50, cache_write=6)
    prices = Prices({"m": Price(input=10, output=100, cache_write=12.5, tiers={"batch": batch})})
    call: dict[str, Any] = {"model": "m", "input_tokens": 1_000, "output_tokens": 10, "cache_write_tokens": 400}
    found = [priced(kit, prices, **call, service_tier=tier).cost_usd for tier in (None, "flex", "batch")]
    assert found == pytest.approx([0.012, 0.012, 0.0059])


TABLE = Prices().table.name
TIERS: list[tuple[str, str | None, str | None, float, str]] = [
    ("gpt-5-mini", "openai", None, 0.001275, ""),
    ("gpt-5-mini", "openai", "default", 0.001275, ""),
    ("gpt-5-mini", "openai", "auto", 0.001275, ""),
    ("gpt-5-mini", None, "flex", 0.0006375, ", flex tier"),
    ("openai/gpt-5-mini", "litellm", "FLEX", 0.0006375, ", flex tier"),
    ("gpt-5-mini", "openai", "batch", 0.0006375, ", batch tier"),
    ("gpt-5-mini", "openai", "priority", 0.002295, ", priority tier"),
    ("gpt-4.1", "openai", "flex", 0.0065, ", no price of the flex tier"),
    ("claude-sonnet-4-5", "anthropic", "standard", 0.0108, ""),
    ("claude-sonnet-4-5", "anthropic", "batch", 0.0054, ", batch tier"),
    ("claude-sonnet-4-5", "anthropic", "priority", 0.0108, ", no price of the priority tier"),
]
"""Model, provider, tier → the cost of 2,000 tokens in, 1,000 of them cached, and 500 out; the note in its source."""


@pytest.mark.parametrize(("model", "provider", "tier", "usd", "note"), TIERS)
def test_the_table_knows_service_tiers(
    kit: Any, model: str, provider: str | None, tier: str | None, usd: float, note: str
) -> None:
    """The source names the tier, also where the table has no price of it and the usual one was taken."""
    call = {"input_tokens": 2_000, "cached_tokens": 1_000, "output_tokens": 500}
    span = priced(kit, model=model, provider=provider, service_tier=tier, **call)
    assert (span.cost_usd, span.cost_source) == (pytest.approx(usd), f"{TABLE}{note}")


@pytest.mark.parametrize(
    ("whole", "read", "written", "hour", "usd"),
    [
        (2_000, 0, 1_000, None, 3 + 3.75),
        (2_000, 0, 1_000, 0, 3 + 3.75),
        (2_000, 0, 1_000, 1_000, 3 + 6),
        (2_000, 0, None, 1_000, 3 + 6),
        (3_000, 1_000, 1_000, 400, 3 + 0.3 + 0.6 * 3.75 + 0.4 * 6),
        (1_000, 0, 1_000, 9_999, 6),
        (300_000, 0, 100_000, 100_000, 200 * 6 + 100 * 12),
    ],
)
def test_writes_to_the_cache_for_an_hour_have_their_own_price(
    kit: Any, whole: int, read: int, written: int | None, hour: int | None, usd: float
) -> None:
    """They are part of what is written, and of the input; USD are those of a thousand times as much."""
    call = {"input_tokens": whole, "output_tokens": 0, "cached_tokens": read, "cache_write_tokens": written}
    span = priced(kit, model="claude-sonnet-4-5", cache_write_1h_tokens=hour, **call)
    assert span.cost_usd == pytest.approx(usd / 1_000)


def test_an_hour_in_the_cache_without_a_price_is_unknown(kit: Any) -> None:
    """Unless the settings price the model: there a write costs what it costs for any time, or what they say."""
    call: dict[str, Any] = {"input_tokens": 1_000, "output_tokens": 0, "cache_write_1h_tokens": 1_000}
    unknown = priced(kit, model="gpt-5-mini", **call)
    assert (unknown.cost_usd, unknown.cost_unknown_reason) == (None, "no price for what gpt-5-mini caches for an hour")
    for price, usd in ((Price(input=1, output=1, cache_write=2), 2), (Price(input=1, output=1, cache_write_1h=3), 3)):
        assert priced(kit, Prices({"m": price}), model="m", **call).cost_usd == pytest.approx(usd / 1_000)


def test_more_cached_than_input_is_clamped(kit: Any) -> None:
    """The cost is never negative and never more than the stated input."""
    prices = Prices({"m": Price(input=10, output=0, cached_input=1)})
    span = priced(kit, prices, model="m", input_tokens=100, output_tokens=0, cached_tokens=400)
    assert span.cost_usd == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"input_tokens": 1, "output_tokens": 1}, "no model name"),
        ({"model": "gpt-5-mini"}, "no input tokens"),
        ({"model": "gpt-5-mini", "input_tokens": 1}, "no output tokens"),
        ({"model": "of my own", "input_tokens": 1, "output_tokens": 1}, "no price for of my own"),
    ],
)
def test_unknown_is_none_with_a_reason(kit: Any, fields: dict[str, Any], reason: str) -> None:
    """Never zero."""
    span = priced(kit, **fields)
    assert (span.cost_usd, span.cost_source, span.cost_unknown_reason) == (None, None, reason)


def test_a_clients_0_for_used_tokens_is_unknown(kit: Any) -> None:
    """Priced where a price is known, else unknown with both reasons; 0 for no tokens, or by our own price, is 0."""
    client: dict[str, Any] = {"cost_usd": 0.0, "cost_source": "provider"}
    unknown = priced(kit, model="of my own", input_tokens=1, output_tokens=1, **client)
    assert (unknown.cost_usd, unknown.cost_source) == (None, None)
    assert unknown.cost_unknown_reason == (
        "no price for of my own; the client's own figure of 0 is not believed beside used tokens"
    )
    assert priced(kit, model="gpt-5-mini", input_tokens=9, output_tokens=9, **client).cost_usd > 0
    for tokens in (0, None):
        free = priced(kit, model="gpt-5-mini", input_tokens=tokens, output_tokens=tokens, **client)
        assert (free.cost_usd, free.cost_source, free.cost_unknown_reason) == (0, "provider", None)
    told = priced(
        kit, model="gpt-5-mini", input_tokens=9, output_tokens=9, mapped_from='{"cost_usd":"llm.cost.total"}', **client
    )
    assert (told.cost_usd, told.cost_source) == (0, "provider")
    local = priced(kit, Prices({"m": Price(input=0, output=0)}), model="m", input_tokens=9, output_tokens=9, **client)
    assert (local.cost_usd, local.cost_source, local.cost_unknown_reason) == (0, "settings", None)


def test_a_proxys_name_as_provider_does_not_hide_the_price(kit: Any) -> None:
    """A provider that the table does not know is left out of the question."""
    assert priced(kit, model="gpt-5-mini", provider="my-proxy", input_tokens=10, output_tokens=1).cost_usd > 0


def test_spans_that_are_no_calls_are_left_alone(kit: Any) -> None:
    """A retriever without tokens has neither a cost nor a reason."""
    assert priced(kit, kind="retriever").cost_unknown_reason is None


MEANT: dict[str, tuple[str | None, str, str]] = {
    "text-embedding-3-small": (None, "text-embedding-3-small", "openai"),
    "text-embedding-3-large": (None, "text-embedding-3-large", "openai"),
    "text-embedding-ada-002": (None, "text-embedding-ada-002", "openai"),
    "openai/text-embedding-3-small": (None, "text-embedding-3-small", "openai"),
    "models/gemini-2.5-flash": (None, "gemini-2.5-flash", "google"),
    "publishers/google/models/gemini-2.5-flash": (None, "gemini-2.5-flash", "google"),
    "projects/p/locations/us/publishers/google/models/gemini-2.5-flash": (None, "gemini-2.5-flash", "google"),
    "openai/gpt-5-mini": (None, "gpt-5-mini", "openai"),
    "openai/gpt-5-mini:nitro": (None, "gpt-5-mini", "openai"),
    "claude-opus-4-5[1m]": (None, "claude-opus-4-5", "anthropic"),
    "anthropic/claude-sonnet-4.5:floor": (None, "claude-sonnet-4-5", "anthropic"),
    "deepseek/deepseek-r1": ("openrouter", "deepseek/deepseek-r1", "openrouter"),
    "deepseek/deepseek-r1:free": ("openrouter", "deepseek/deepseek-r1:free", "openrouter"),
    "openrouter/deepseek/deepseek-r1-0528": (None, "deepseek/deepseek-r1-0528", "openrouter"),
    "openrouter/openai/gpt-5-mini": (None, "openai/gpt-5-mini", "openrouter"),
    "azure/gpt-4o-mini": (None, "gpt-4o-mini", "azure"),
    "azure/eu/gpt-4o-mini": (None, "gpt-4o-mini", "azure"),
    "gpt-4o-mini-2024-07-18": (None, "gpt-4o-mini", "openai"),
    "vertex_ai/claude-sonnet-4-5@20250929": (None, "claude-sonnet-4-5", "google"),
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": (None, "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "aws"),
    "bedrock/anthropic.claude-3-haiku-20240307-v1:0": (None, "anthropic.claude-3-haiku-20240307-v1:0", "aws"),
    "arn:aws:bedrock:us-east-1::foundation-model/amazon.nova-lite-v1:0": (None, "amazon.nova-lite-v1:0", "aws"),
    "eu.amazon.nova-lite-v1:0": (None, "amazon.nova-lite-v1:0", "aws"),
    "meta.llama3-1-70b-instruct-v1:0": ("bedrock", "meta.llama3-1-70b-instruct-v1:0", "aws"),
    "llama-3.3-70b-versatile": (None, "llama-3.3-70b-versatile", "groq"),
    "groq/llama-3.3-70b-versatile": (None, "llama-3.3-70b-versatile", "groq"),
    "openai/gpt-oss-120b": ("groq", "openai/gpt-oss-120b", "groq"),
    "meta-llama/Llama-3.3-70B-Instruct-Turbo": (None, "meta-llama/Llama-3.3-70B-Instruct-Turbo", "together"),
    "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo": (
        None,
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "together",
    ),
    "gemini/gemini-2.5-flash": ("litellm", "gemini-2.5-flash", "google"),
    "openai:gpt-4.1": (None, "gpt-4.1", "openai"),
    "openai:gpt-4.1-mini": ("openai", "gpt-4.1-mini", "openai"),
    "anthropic:claude-sonnet-4-5": (None, "claude-sonnet-4-5", "anthropic"),
    "google-gla:gemini-2.5-flash": (None, "gemini-2.5-flash", "google"),
    "google_genai:gemini-2.5-flash": (None, "gemini-2.5-flash", "google"),
    "azure_openai:gpt-4o-mini": (None, "gpt-4o-mini", "openai"),
    "groq:llama-3.3-70b-versatile": (None, "llama-3.3-70b-versatile", "groq"),
    "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0": (
        None,
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "aws",
    ),
    "together:meta-llama/Llama-3.3-70B-Instruct-Turbo": (
        None,
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "together",
    ),
}
"""Name of a model → the provider that the span states, and model and provider as the table has them."""


@pytest.mark.parametrize("name", MEANT)
def test_a_prefixed_or_hosted_name_has_the_price_of_what_it_names(kit: Any, name: str) -> None:
    """One undecorated embedding made the cost of every first trace unknown."""
    provider, model, seller = MEANT[name]
    span = priced(kit, model=name, provider=provider, input_tokens=1_000, output_tokens=10)
    usage = Usage(input_tokens=1_000, output_tokens=10)
    expected = calc_price(usage, model_ref=model, provider_id=seller).total_price
    assert span.cost_usd == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(
    "model",
    ["of/my/own", "my-gpt-4o-deployment", "ft:gpt-4o-mini-2024-07-18:acme::abc", "meta-llama/llama-3.3-70b-instruct"],
)
def test_a_name_that_means_no_one_price_has_none(kit: Any, model: str) -> None:
    """A fine-tuned model, a deployment, a model that many sell at different prices: never a figure of another one."""
    assert priced(kit, model=model, input_tokens=1, output_tokens=1).cost_unknown_reason == f"no price for {model}"


R1 = "deepseek-ai/DeepSeek-R1-0528"
SELLERS: list[tuple[str | None, str, str | None]] = [
    ("together", R1, None),
    ("together_ai", R1, None),
    ("litellm", f"together_ai/{R1}", None),
    (None, f"together:{R1}", None),
    ("groq", "deepseek-chat", None),
    ("huggingface_nebius", R1, ""),
    ("deepseek", "deepseek-chat", ""),
    (None, "deepseek-chat", ""),
    (None, R1, ", deepseek's price"),
    ("a-proxy", "gpt-5-mini", ", openai's price"),
    ("openai", "deepseek-chat", ", deepseek's price"),
    ("anthropic", "glm-4.6", ", zai's price"),
    ("openrouter", "openai/gpt-4o-mini", ""),
    ("openrouter", "deepseek/deepseek-reasoner", ", deepseek's price"),
    ("openrouter", "deepseek/deepseek-r1", ""),
    ("azure", "gpt-4o-mini", ""),
]
"""Stated provider and model → the note in the source of the cost; None: unknown."""


@pytest.mark.parametrize(("provider", "model", "note"), SELLERS)
def test_a_price_of_another_seller_is_marked_or_unknown(
    kit: Any, provider: str | None, model: str, note: str | None
) -> None:
    """A seller that the table knows has its own price or none; for a name that says little, the source names whose."""
    span = priced(kit, model=model, provider=provider, input_tokens=1_000, output_tokens=10)
    assert span.cost_source == (None if note is None else f"{TABLE}{note}"), span.cost_unknown_reason


def test_a_free_variant_is_free(kit: Any) -> None:
    """Where the table lists it as such."""
    span = priced(kit, model="meta-llama/llama-3.3-70b-instruct:free", input_tokens=9, output_tokens=9)
    assert (span.cost_usd, span.cost_unknown_reason) == (0.0, None)
