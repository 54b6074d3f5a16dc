"""Asynchronous work behind plain functions: judging judges is done at a prompt more often than in a service."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

__all__ = ("finished",)

Found = TypeVar("Found")


def finished(work: Coroutine[Any, Any, Found]) -> Found:
    """The result of `work`. Inside a running event loop (a notebook) it is handed back unstarted, to be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return cast(Found, work)
