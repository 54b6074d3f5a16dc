"""What the tokens of spans mean, by the one rule that judges share (`ragpulse_evaluators.usage`).

Canonical input includes cached tokens, canonical output includes reasoning. The fields of this module are read by rules
like all others, and enter the price only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any

from ragpulse_evaluators.judges.protocol import count_tokens
from ragpulse_evaluators.usage import counted

FIELDS = ("total_tokens", "apart_tokens", "audio_tokens", "tool_tokens")
"""Fields of rules that are no columns: the stated total; whether cached tokens are counted apart by the sender's
definition; audio and tool-use tokens, which have prices of their own."""
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")


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
