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


def test_the_table_knows_service_tiers(kit: Any) -> None:
    """A batch of OpenAI's costs half; a tier that the table does not know is priced as usual."""
    call: dict[str, Any] = {"model": "gpt-5-mini", "provider": "openai", "input_tokens": 1_000, "output_tokens": 100}
    usual, other, batch = (priced(kit, **call, service_tier=tier).cost_usd for tier in (None, "standard", "batch"))
    assert (other, batch) == (pytest.approx(usual), pytest.approx(usual / 2))


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
    "anthropic/claude-sonnet-4.5:floor": (None, "claude-sonnet-4-5", "anthropic"),
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


def test_a_free_variant_is_free(kit: Any) -> None:
    """Where the table lists it as such."""
    span = priced(kit, model="meta-llama/llama-3.3-70b-instruct:free", input_tokens=9, output_tokens=9)
    assert (span.cost_usd, span.cost_unknown_reason) == (0.0, None)
