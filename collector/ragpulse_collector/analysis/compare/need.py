"""How many more answers, or users, would decide a comparison; what the sequential tests are tuned for."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["ALPHA", "TAU", "more_needed", "needed"]

TAU = 0.1
"""The size of difference the sequential test is tuned for: of normalized scores, or as a share of the larger mean."""
ALPHA = 0.05


def needed(call: str, short: int, more: int | None) -> dict[str, Any]:
    """How many more decide it, and of what: an arm with too few users has no verdict, however many answers it has."""
    if call != "not enough data":
        return {"need_more": None, "need_more_of": "answers"}
    return (
        {"need_more": short, "need_more_of": "users"} if short else {"need_more": more or 1, "need_more_of": "answers"}
    )


def more_needed(mean: float, half: float, n: int) -> int | None:
    """About how many more would decide it, if the difference is what it looks like (at least 0.01)."""
    return max(1, math.ceil(n * (half / max(abs(mean), 0.01)) ** 2) - n) if half else None
