"""Waiting for background work: polls until a condition holds, else fails with the last value."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from ragpulse_collector.client import Client

T = TypeVar("T")
WITHIN_S = 300.0
"""Far more than a busy machine needs, and less than a test may take."""


def eventually(look: Callable[[], T], wanted: Callable[[T], object] = bool) -> T:
    """Poll until the value is wanted, and return it; raises AssertionError with the last value.

    It polls rarely after a long wait: to ask a collector fifty times a second takes half of a core.
    """
    begun = time.monotonic()
    while not wanted(value := look()):
        waited = time.monotonic() - begun
        if waited > WITHIN_S:
            raise AssertionError(f"after {WITHIN_S:g} s still: {str(value)[:2000]}")
        time.sleep(max(0.02, waited / 8))
    return value


def until(client: Client, query: str, count: int = 1) -> list[dict[str, Any]]:
    """Poll until a query has `count` rows or more; raises AssertionError with rows, failures and status."""
    try:
        return eventually(lambda: client.sql(query).rows(), lambda rows: len(rows) >= count)
    except AssertionError as error:
        failed = client.sql("select evaluator, explanation from scores where status = 'error' limit 3").rows()
        details = f"failed evaluations: {failed}; status: {client.call('GET status')}"
        raise AssertionError(f"not {count} rows of {query!r}: {error}; {details}") from None
