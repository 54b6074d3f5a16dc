"""Which tokens senders state under which names, and what they mean.

A name is understood by its words, as in the SDK (`ragpulse._reading.figures`): that of an attribute below one of
`PREFIXES`, or of a member of an object with usage (`usage_rules`). What the counts mean is the one rule that judges
share (`ragpulse_evaluators.usage`): canonical input includes cached tokens, canonical output includes reasoning.
`FIELDS` are read by rules like all others, and enter the price only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

from ragpulse._reading.figures import figures_in, meaning
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.rules import FieldRule, Kinds, Read, SpanView, of_column
from ragpulse_collector.conventions.values import count, dumped, of_kinds, parsed, positive, text
from ragpulse_evaluators.judges.protocol import count_tokens
from ragpulse_evaluators.usage import counted

FIELDS = ("total_tokens", "apart_tokens", "audio_tokens", "tool_tokens")
"""Fields of rules that are no columns: the stated total; whether cached tokens are counted apart by the sender's
definition; audio and tool-use tokens, which have prices of their own."""
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
_UNPRICED = ("audio_tokens", "tool_tokens")


_FIGURES = {
    "input_tokens": (names.INPUT_TOKENS,),
    "output_tokens": (names.OUTPUT_TOKENS,),
    "cached_tokens": (names.CACHE_READ_TOKENS,),
    "cache_write_tokens": (names.CACHE_WRITE_TOKENS,),
    "cache_write_1h_tokens": (names.CACHE_WRITE_1H_TOKENS,),
    "reasoning_tokens": (names.REASONING_TOKENS,),
    "total_tokens": (names.TOTAL_TOKENS,),
    "audio_tokens": (names.AUDIO_INPUT_TOKENS, names.AUDIO_OUTPUT_TOKENS),
    "tool_tokens": (names.TOOL_TOKENS,),
}
"""Field → its figures."""
_COLUMNS = {figure: field for field, figures in _FIGURES.items() for figure in figures}
PREFIXES: dict[str, Read] = {
    "gen_ai.usage.": count,
    "llm.usage.": count,
    "llm.token_count.": count,
    "ai.usage.": of_kinds(("llm",), count),  # a wrapper repeats the sums of the calls below it
}
"""What names of counts begin with → their reader."""
_TIERS = (".service_tier", ".serviceTier")
_TIER = re.compile(r'"service_?[tT]ier": ?"([a-z_]{1,32})"')
_ANTHROPICS = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
_TOTALS = frozenset({"total", "total_tokens", "prompt_tokens"})
_LONGEST_NAME = 128
_LONGEST_TEXT = 65_536


def named_rules(name: str) -> Iterator[FieldRule]:
    """Yield what the name of an attribute alone says about its value: a count of tokens, a service tier."""
    if name.endswith(_TIERS):
        yield FieldRule("service_tier", name, text)
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix) and len(name) <= _LONGEST_NAME), None)
    if prefix is None:
        return
    figure, part_of = meaning(name.removeprefix(prefix))
    if figure is not None:
        column = _COLUMNS[figure]
        yield FieldRule(column, name, positive if column in _UNPRICED else PREFIXES[prefix])
    if part_of is not None or name.lower().endswith("details"):
        rules = usage_rules(name, lambda _, span: figures_below(span.attributes, prefix))
        yield from (rule for rule in rules if part_of is None or rule.field == _COLUMNS[part_of])


Stated = Callable[[Any, SpanView], Mapping[str, Any]]
"""Finds counts by figure in a value."""


def usage_rules(attribute: str, stated: Stated | None = None, *, name: str = "") -> tuple[FieldRule, ...]:
    """Return the rules for an attribute whose value is an object with usage, or has one under a name."""
    find: Stated = stated or (lambda value, _: _figures(value, name))
    return tuple(FieldRule(column, attribute, _reader(column, find)) for column in _FIGURES)


def figures_below(attributes: Mapping[str, Any], *prefixes: str) -> Mapping[str, Any]:
    """Return the figures in all attributes below some prefixes; details may be JSON."""
    return figures_in({
        name.removeprefix(prefix): parsed(value, otherwise=value)
        for prefix in prefixes for name, value in attributes.items() if name.startswith(prefix)
    })  # fmt: skip


def tier_in(value: Any, span: SpanView) -> str | None:
    """Return the service tier of a call from the JSON of its request or its reply; an attribute of its own wins."""
    if span.kind != "llm" or (type(value) is str and value[:1] != "{"):
        return None
    match = _TIER.search(value if type(value) is str else dumped(value) or "")
    if match is None or any(name.endswith(_TIERS) for name in span.attributes):
        return None
    return match[1]


@of_column(tier_in)
def _tiers(column: Sequence[Any], _: Kinds) -> Sequence[Any] | None:
    is_absent = set(map(type, column)) == {str} and not any("ervice" in value for value in column)
    return [None] * len(column) if is_absent else None


def _reader(column: str, stated: Stated) -> Read:
    def read_figure(value: Any, span: SpanView) -> int | None:
        found = stated(value, span)
        counts = [number for figure in _FIGURES[column] if (number := count(found.get(figure), span)) is not None]
        return (sum(counts) or None if column in _UNPRICED else counts[0]) if counts else None

    return read_figure


def _figures(value: Any, name: str) -> Mapping[str, Any]:
    if type(value) is str:
        return _figures_of_text(value, name) if len(value) <= _LONGEST_TEXT else _figures(parsed(value), name)
    content = value.get(name) if name and isinstance(value, dict) else value
    return figures_in(content) if isinstance(content, dict) else {}


@lru_cache(maxsize=64)
def _figures_of_text(text: str, name: str) -> Mapping[str, Any]:
    """Return the figures in JSON, for which each column of a span asks."""
    return _figures(parsed(text), name)


def is_apart(value: Any, _: SpanView) -> bool | None:
    """Whether cached tokens are counted apart, as in Anthropic's own usage: it has no total, and no other names."""
    content = parsed(value)
    keys = content.keys() if isinstance(content, dict) else set[str]()
    return True if keys & _ANTHROPICS and not keys & _TOTALS else None


def settle_usage(values: dict[str, list[Any]], kinds: Sequence[str | None], size: int) -> list[int]:
    """Correct input and output tokens, and add why a row can have no cost; returns the rows that were estimated."""
    nothing: list[Any] = [None] * size
    totals, aparts, *unpriced = (values.pop(name, nothing) for name in FIELDS)
    if values.keys().isdisjoint(_COUNTS[:2]):
        return []
    inputs, outputs, *buckets = (values.get(name) or list(nothing) for name in _COUNTS)
    problems = list(nothing)
    stated = list(zip(inputs, outputs, *buckets, totals, aparts, strict=True))
    for row in compress(range(size), map(any, zip(*buckets, totals, strict=True))):  # most rows state neither
        if inputs[row] is not None or outputs[row] is not None:
            inputs[row], outputs[row], problems[row] = counted(*stated[row])
    for name, tokens in zip(("audio", "tool-use"), unpriced, strict=True):
        for row in compress(range(size), tokens):
            problems[row] = f"{tokens[row]} {name} tokens have no price of their own"
    values |= {"input_tokens": inputs, "output_tokens": outputs}
    if any(problems):
        values["usage_problem"] = problems
    rows = [
        row
        for row in (row for row, kind in enumerate(kinds) if kind == "llm")
        if not ((inputs[row] and outputs[row]) or problems[row] or inputs[row] is outputs[row] is None)
    ]
    return list(_estimated(rows, values))


def _estimated(rows: Sequence[int], values: dict[str, list[Any]]) -> Iterator[int]:
    """Estimate the tokens of a text that a model call leaves out beside others that it states; yields its row."""
    responses = values.get("response", ())
    queries = values.get("query") or [None] * len(responses)
    for row in rows if responses else ():
        if responses[row]:
            for column, texts in (("input_tokens", queries), ("output_tokens", responses)):
                if not values[column][row]:
                    values[column][row] = count_tokens(texts[row]) if texts[row] else None
            yield row
