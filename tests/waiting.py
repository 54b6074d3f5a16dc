"""Waiting for what happens in the background: looked at until it is as wanted; in vain, what was seen is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from ragpulse_collector.client import Client

T = TypeVar("T")
WITHIN_S = 90.0
"""Far more than a busy machine needs, and less than a test may take."""


def eventually(look: Callable[[], T], wanted: Callable[[T], object] = bool, *, within_s: float = WITHIN_S) -> T:
    """Look until what is seen is wanted, and return it; raises AssertionError with what was seen last."""
    deadline = time.monotonic() + within_s
    while not wanted(seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {within_s:g} s still: {str(seen)[:2000]}")
        time.sleep(0.02)
    return seen


def until(client: Client, query: str, count: int = 1) -> list[dict[str, Any]]:
    """Ask until a query has `count` rows or more; raises AssertionError with its rows, failures and the status."""
    try:
        return eventually(lambda: client.sql(query).rows(), lambda rows: len(rows) >= count)
    except AssertionError as error:
        failed = client.sql("select evaluator, explanation from scores where status = 'error' limit 3").rows()
        told = f"failed evaluations: {failed}; status: {client.call('GET status')}"
        raise AssertionError(f"not {count} rows of {query!r}: {error}; {told}") from None
