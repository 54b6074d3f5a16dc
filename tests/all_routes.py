"""Every route of a collector, from its routers, so that a new route cannot be forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from starlette.routing import Mount, Route

from ragpulse_collector.api.guard import Keys
from ragpulse_collector.app.web import Pages, web
from ragpulse_collector.otlp.intake import Counters, Flight

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


def routes_of(collector: Collector) -> Iterator[tuple[str, str]]:
    """Every (method, path) the routers know, placeholders filled."""
    made = web(
        collector.store,
        collector.settings,
        operations=collector.components.operations,
        keys=Keys(collector.settings.collector),
        flight=Flight(),
        counters=Counters(),
    )
    yield "GET", "/healthz"
    (mount,) = [route for route in made.routes if isinstance(route, Mount)]
    own = [route for route in made.routes if route is not mount]
    for route in (*own, *cast(Pages, mount.app).router.routes):
        assert isinstance(route, Route), route
        path = re.sub(r"\{[^}]+\}", "0" * 32, route.path)
        for method in sorted((route.methods or {"GET", "POST"}) - {"HEAD"}):
            yield method, path
