"""Every route of a collector, from its routers, so that tests include new routes."""

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
    """Every (method, path) of the routers, with placeholders filled."""
    app = web(
        collector.store,
        collector.settings,
        operations=collector.components.operations,
        keys=Keys(collector.settings.collector),
        flight=Flight(),
        counters=Counters(),
    )
    yield "GET", "/healthz"
    (mount,) = [route for route in app.routes if isinstance(route, Mount)]
    own = [route for route in app.routes if route is not mount]
    for route in (*own, *cast(Pages, mount.app).router.routes):
        assert isinstance(route, Route), route
        path = re.sub(r"\{[^}]+\}", "0" * 32, route.path)
        for method in sorted((route.methods or {"GET", "POST"}) - {"HEAD"}):
            yield method, path
