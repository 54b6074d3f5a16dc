"""One module a page; each has `routes(site)` and nothing a sibling needs."""

from ragpulse_dashboards.pages import overview, trace, traces

__all__ = ["PAGES"]

PAGES = (overview.routes, traces.routes, trace.routes)
