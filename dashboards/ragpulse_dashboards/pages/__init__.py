"""One module a page, or a page and one beside it; each has `routes(site)` and nothing a sibling needs."""

from ragpulse_dashboards.pages import (
    alerts,
    datasets,
    evaluators,
    explain,
    figures,
    overview,
    replays,
    trace,
    traces,
)

__all__ = ["PAGES"]

PAGES = (
    overview.routes,
    figures.routes,
    traces.routes,
    trace.routes,
    explain.routes,
    evaluators.routes,
    datasets.routes,
    replays.routes,
    alerts.routes,
)
