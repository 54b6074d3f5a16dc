"""Names as people read them, for pages, terminals and alerts; it needs no library."""

from __future__ import annotations

SHARES = {"refusal": "answered"}
"""Evaluators that answer yes or no: their mean is a share, named by what a yes means.

Files, API and SQL keep the name.
"""


def called(name: object) -> str:
    """The name that a person reads: `refusal` and `quality:refusal` → answered; other names as they are."""
    evaluator, at, version = str(name).removeprefix("quality:").partition("@")
    return f"{SHARES[evaluator]}{at}{version}" if evaluator in SHARES else str(name)
