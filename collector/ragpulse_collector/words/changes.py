"""Sentences about changes: what moved, since when, and against what."""

from __future__ import annotations

from typing import Literal


def usual_words(kind: Literal["weeks", "days", "range"], windows: int) -> str:
    """What a window is compared with: `the same hours of 7 days before`."""
    return "the range before" if kind == "range" else f"the same hours of {windows} {kind} before"
