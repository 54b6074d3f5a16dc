"""What a model call's token counts mean, whoever states them; `ragpulse._reading.usage` has the same rule for the SDK.

Input includes cached tokens, output includes reasoning. A sender that counts a bucket apart is known by its total.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Counted(NamedTuple):
    """Tokens of a call as they are priced."""

    input: int | None
    output: int | None
    problem: str | None = None
    """The contradiction in the counts: no cost can be computed from them."""


def whole_number(value: Any) -> int | None:
    """A count of tokens; None for everything else."""
    return value if type(value) is int and value >= 0 else None


def counted(
    input: int | None,
    output: int | None,
    cached: int | None = None,
    written: int | None = None,
    reasoning: int | None = None,
    total: int | None = None,
    apart: bool | None = None,
) -> Counted:
    """Input and output with the buckets that were counted apart from them.

    Cached tokens, read and `written`, are added to the input where they are `apart` or where the total has them, too.
    Reasoning is added to the output where it exceeds it. What else the total has beyond both belongs to the output.
    """
    bucket, thought, stated = (cached or 0) + (written or 0), reasoning or 0, (input or 0) + (output or 0)
    if apart and input is not None:
        input += bucket
    if output is not None and thought > output:
        output += thought
    more = total - (input or 0) - (output or 0) if total and input is not None else 0
    if input is not None and not apart and bucket and more in (bucket, bucket + thought):
        input, more = input + bucket, more - bucket
    if more > 0:
        output = (output or 0) + more
    if input is not None and bucket > input:
        return Counted(input, output, f"{bucket} cached tokens exceed {input} input tokens")
    if total and total < stated:
        return Counted(input, output, f"{total} tokens in total are fewer than the {stated} of input and output")
    return Counted(input, output)
