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
    kinds = kinds or nothing
    totals, aparts, audio, tools = (values.pop(name, nothing) for name in FIELDS)
    inputs, outputs, cached, written, reasoning = (values.get(name, nothing) for name in _COUNTS)
    if inputs is nothing and outputs is nothing:
        return []
    from ragpulse_evaluators.judges.protocol import count_tokens  # at the first usage: the port opens before
    from ragpulse_evaluators.usage import counted

    inputs, outputs = list(inputs), list(outputs)
    queries, responses = values.get("query", nothing), values.get("response", nothing)
    problems, estimated = list[str | None](nothing), list[int]()
    for row in range(size):
        if inputs[row] is None and outputs[row] is None:
            continue
        buckets = {"cached": cached[row], "written": written[row], "reasoning": reasoning[row]}
        counts = counted(inputs[row], outputs[row], total=totals[row], apart=bool(aparts[row]), **buckets)
        inputs[row], outputs[row], problems[row] = counts
        for name, bucket in (("audio", audio), ("tool-use", tools)):
            if bucket[row]:
                problems[row] = f"{bucket[row]} {name} tokens have no price of their own"
        if kinds[row] == "llm" and responses[row] and problems[row] is None and not (inputs[row] and outputs[row]):
            estimated.append(row)
            inputs[row] = inputs[row] or (count_tokens(queries[row]) if queries[row] else None)
            outputs[row] = outputs[row] or count_tokens(responses[row])
    values |= {"input_tokens": inputs, "output_tokens": outputs}
    if any(problems):
        values["usage_problem"] = problems
    return estimated
