"""What the tokens of spans mean, by the one rule that judges share (`ragpulse_evaluators.usage`).

Canonical input includes cached tokens, canonical output includes reasoning. The fields of this module are read by rules
like all others, and enter the price only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FIELDS = ("total_tokens", "apart_tokens", "audio_tokens", "tool_tokens")
"""Fields of rules that are no columns: the stated total; whether cached tokens are counted apart by the sender's
definition; audio and tool-use tokens, which have prices of their own."""
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")


def settle_usage(values: dict[str, list[Any]], kinds: Sequence[str | None], size: int) -> list[int]:
    """Correct input and output tokens, and add why a row can have no cost; returns the rows that were estimated."""
    nothing = [None] * size
    totals, aparts, audio, tools = (values.pop(name, nothing) for name in FIELDS)
    if values.keys().isdisjoint(_COUNTS[:2]):
        return []
    stated = zip(*(values.get(name, nothing) for name in _COUNTS), totals, aparts, strict=True)
    inputs, outputs, problems = map(list, zip(*map(_counts, stated), strict=True))
    for name, tokens in (("audio", audio), ("tool-use", tools)):
        if tokens is not nothing:
            text = f"%d {name} tokens have no price of their own"
            problems = [text % count if count else problem for count, problem in zip(tokens, problems, strict=True)]
    values |= {"input_tokens": inputs, "output_tokens": outputs}
    if any(problems):
        values["usage_problem"] = problems
    texts = zip(kinds or nothing, values.get("response", nothing), problems, inputs, outputs, strict=True)
    rows = [row for row, columns in enumerate(texts) if _is_incomplete(*columns)]
    _estimate(rows, values)
    return rows


def _counts(stated: tuple[Any, ...]) -> tuple[int | None, int | None, str | None]:
    """Return the counts of a row; most state no bucket and no total."""
    input, output, *others, _ = stated
    if not any(others) or (input is None and output is None):
        return input, output, None
    from ragpulse_evaluators.usage import counted  # at the first such usage: the port opens before

    return counted(*stated)


def _is_incomplete(kind: Any, response: Any, problem: Any, input: int | None, output: int | None) -> bool:
    """Whether a model call states no tokens for a text that is there, beside others that it states."""
    if (input and output) or kind != "llm" or problem or not response:
        return False
    return input is not None or output is not None


def _estimate(rows: Sequence[int], values: dict[str, list[Any]]) -> None:
    if not rows:
        return
    from ragpulse_evaluators.judges.protocol import count_tokens

    for column, source in (("input_tokens", "query"), ("output_tokens", "response")):
        texts = values.get(source)
        for row in rows:
            if not values[column][row]:
                text = texts[row] if texts else None
                values[column][row] = count_tokens(text) if text else None
