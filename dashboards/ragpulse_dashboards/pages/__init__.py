"""One module a page; each has `routes(site)` and nothing a sibling needs."""

from ragpulse_dashboards.pages import (
    alerts,
    compare,
    demo,
    documents,
    evaluators,
    exemplars,
    explain,
    health,
    label,
    live,
    login,
    overview,
    replays,
    trace,
    traces,
)

__all__ = ["PAGES"]

PAGES = (
    overview.routes,
    demo.routes,
    exemplars.routes,
    traces.routes,
    trace.routes,
    live.routes,
    explain.routes,
    evaluators.routes,
    compare.routes,
    replays.routes,
    documents.routes,
    label.routes,
    alerts.routes,
    health.routes,
    login.routes,
)
