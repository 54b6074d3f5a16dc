"""The pages: what a person sees of the collector, rendered on the server over its operations.

    collector ── api("GET traces", params) ──▶ pages ──▶ templates ──▶ HTML (+ htmx, uPlot, own ES modules)

The pages import the collector's answers; the collector finds the pages by the entry point `ragpulse.pages`.
"""

from ragpulse_dashboards.mount import routes, standalone
from ragpulse_dashboards.site import Api

__all__ = ["Api", "routes", "standalone"]
