"""The pages, which stand above the collector: it finds them by the entry point `ragpulse.pages`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

from starlette.routing import BaseRoute


class Pages(Protocol):
    """What the collector calls of the pages."""

    def routes(
        self, api: Callable[[str, Mapping[str, Any]], Awaitable[Any]], *, root: str, needs_key: bool, tz: str | None
    ) -> list[BaseRoute]:
        """Return every page over the operations."""
        ...

    def standalone(self, parts: Any) -> str:
        """Return the answer of `GET traces/{id}` as a page without scripts."""
        ...


@cache
def pages() -> Pages:
    """Return the installed pages; their templates load with the first call."""
    (found,) = entry_points(group="ragpulse.pages")
    return cast("Pages", found.load())
