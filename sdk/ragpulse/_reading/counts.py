"""What an object with usage states, whoever makes it: tokens, service tier and the provider's own price.

Canonical counts follow OpenTelemetry: input includes cached tokens, output includes reasoning tokens. Providers that
count them apart (Anthropic, Bedrock; Google and xAI for reasoning) are added up here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ragpulse import _names as names

from .figures import Meaning, figures_in, meaning
from .values import fields_of

Facts = dict[str, Any]
"""Span attributes, as they are read from a result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of one model call. `input_tokens` includes cached ones, `output_tokens` includes reasoning ones."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    """True when the counts are not the provider's own; they are marked so on the span."""


_THOUGHTS = frozenset({"thoughts_token_count", "thoughtsTokenCount"})
"""Google's names for reasoning that the output does not include."""
_APART = frozenset(
    {"cache_read_input_tokens", "cacheReadInputTokens", "cache_creation_input_tokens", "cacheWriteInputTokens"}
)
"""Counts that the provider does not include in the input, unless it has another name for the input."""
_INCLUSIVE = frozenset({"prompt_tokens", "input_token_details"})
_UNPRICED = (names.AUDIO_INPUT_TOKENS, names.AUDIO_OUTPUT_TOKENS, names.TOOL_TOKENS)
_PLAIN = frozenset({names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.TOTAL_TOKENS})
_MORE = frozenset({*_APART, *_THOUGHTS, "tokens", "cost", "estimated"})
_SUMMED = frozenset(
    (
        names.INPUT_TOKENS, names.OUTPUT_TOKENS, names.CACHE_READ_TOKENS, names.CACHE_WRITE_TOKENS,
        names.CACHE_WRITE_1H_TOKENS, names.REASONING_TOKENS, names.TOTAL_TOKENS, names.COST_TOTAL, *_UNPRICED,
    )
)  # fmt: skip
_LAST = (names.RESPONSE_MODEL, names.SERVICE_TIER, names.USAGE_ESTIMATED)
"""Of several calls that of the last counts."""
USAGE_NAMES = {
    "input_tokens": names.INPUT_TOKENS,
    "output_tokens": names.OUTPUT_TOKENS,
    "cached_tokens": names.CACHE_READ_TOKENS,
    "cache_write_tokens": names.CACHE_WRITE_TOKENS,
    "reasoning_tokens": names.REASONING_TOKENS,
}
"""The fields of `Usage` → attributes."""
TIER_KEYS = ("service_tier", "serviceTier", "traffic_type", "trafficType")
_TIERS = frozenset(TIER_KEYS)
_MAX_NAMES = 50
Fields = Mapping[str, Any]


def sum_of(calls: Sequence[Facts]) -> Facts:
    """The figures of several model calls as one: counts are added; the cost is known where all are."""
    summed: Facts = {}
    for facts in calls:
        for figure in _SUMMED & facts.keys():
            summed[figure] = summed.get(figure, 0) + facts[figure]
        summed |= {figure: facts[figure] for figure in _LAST if figure in facts}
    if any([names.COST_TOTAL not in facts for facts in calls]):
        summed.pop(names.COST_TOTAL, None)
    return summed


def put_tier(facts: Facts, tier: Any) -> None:
    """The service tier, which Bedrock has in a mapping and Google as `ON_DEMAND_FLEX`."""
    tier = fields_of(tier).get("type", getattr(tier, "value", tier))
    if isinstance(tier, str) and tier:
        facts[names.SERVICE_TIER] = tier.lower().removeprefix("on_demand_")


def usage_facts(usage: Any) -> Facts:
    """A provider's usage figures under any of their names, or a `Usage`; empty when there are none."""
    if isinstance(usage, Usage):
        facts = {key: count for name, key in USAGE_NAMES.items() if (count := getattr(usage, name)) is not None}
        return {**facts, names.USAGE_ESTIMATED: True} if usage.estimated else facts
    fields = fields_of(usage)
    if "tokens" in fields:  # Cohere
        fields = fields_of(fields["tokens"]) or fields
    facts = _plain_facts(fields) or _all_facts(fields)
    if not _TIERS.isdisjoint(fields):  # Anthropic, Google
        put_tier(facts, next(fields[key] for key in TIER_KEYS if key in fields))
    return facts


def _plain_facts(fields: Fields) -> Facts:
    """The counts of input and output where there is nothing else, and the total is their sum; empty otherwise."""
    facts: Facts = {}
    for name, figure in _plain_counts(tuple(fields)) if len(fields) < _MAX_NAMES else ():
        count = fields[name]
        if count is None:
            continue
        if figure is None or type(count) is not int or count < 0:
            return {}
        facts[figure] = count
    total = facts.pop(names.TOTAL_TOKENS, 0)
    if total and total != facts.get(names.INPUT_TOKENS, 0) + facts.get(names.OUTPUT_TOKENS, 0):
        return {}
    return facts


@lru_cache(maxsize=1024)
def _plain_counts(fields: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """The names of plain counts among these, and of details (None); none where there may be more to read."""
    counts = [(name, None if "etail" in str(name) else meaning(str(name))) for name in fields]
    figures = [what.figure for _, what in counts if what not in (None, Meaning())]
    is_plain = _PLAIN.issuperset(figures) and len({*figures}) == len(figures) and _MORE.isdisjoint(fields)
    return tuple([(name, what and what.figure) for name, what in counts if what != Meaning()] if is_plain else ())


def _all_facts(fields: Fields) -> Facts:
    facts: Facts = figures_in(fields)
    _settle(fields, facts)
    if "cost" in fields:
        put_number(facts, names.COST_TOTAL, fields["cost"])
    if fields.get("estimated") is True:
        facts[names.USAGE_ESTIMATED] = True
    return facts


def _settle(fields: Fields, facts: Facts) -> None:
    """Adds the buckets that were counted apart to input and output; the rule is that of `ragpulse_evaluators.usage`.

    A total that contradicts them stays on the span, so that no cost is computed.
    """
    for name in _UNPRICED:
        if not facts.get(name, 1):
            del facts[name]
    total = facts.pop(names.TOTAL_TOKENS, 0)
    input, output = facts.get(names.INPUT_TOKENS), facts.get(names.OUTPUT_TOKENS)
    cached = facts.get(names.CACHE_READ_TOKENS, 0) + facts.get(names.CACHE_WRITE_TOKENS, 0)
    thought, stated = facts.get(names.REASONING_TOKENS, 0), (input or 0) + (output or 0)
    if not _THOUGHTS.isdisjoint(fields) or (output is not None and thought > output):
        facts[names.OUTPUT_TOKENS] = output = (output or 0) + thought
    if input is None:
        return
    apart = not _APART.isdisjoint(fields) and _INCLUSIVE.isdisjoint(fields)
    if apart:
        input += cached
    more = total - facts.get(names.TOOL_TOKENS, 0) - input - (output or 0) if total else 0
    if not apart and cached and more in (cached, cached + thought):
        input, more = input + cached, more - cached
    if more > 0:
        facts[names.OUTPUT_TOKENS] = (output or 0) + more
    facts[names.INPUT_TOKENS] = input
    if 0 < total < stated:
        facts[names.TOTAL_TOKENS] = total


def put_number(facts: Facts, key: str, value: Any) -> None:
    """Adds a price."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        facts[key] = float(value)
