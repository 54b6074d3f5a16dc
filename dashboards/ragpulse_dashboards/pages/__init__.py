"""One module for a page or two; each has `routes(site)` and nothing a sibling needs."""

from ragpulse_dashboards.pages import (
    alerts,
    datasets,
    documents,
    evaluators,
    explain,
    figures,
    health,
    overview,
    replays,
    sessions,
    topics,
    trace,
    traces,
)

__all__ = ["PAGES"]

PAGES = (
    overview.routes,
    figures.routes,
    traces.routes,
    trace.routes,
    sessions.routes,
    explain.routes,
    topics.routes,
    evaluators.routes,
    datasets.routes,
    replays.routes,
    documents.routes,
    alerts.routes,
    health.routes,
)
