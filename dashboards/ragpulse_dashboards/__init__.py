"""The pages: what a person sees of the collector, rendered on the server over one JSON function.

    collector ── api("GET traces", params) ──▶ pages ──▶ templates ──▶ HTML (+ htmx, uPlot, own ES modules)

The collector mounts `routes(api)` and nothing here imports it: the seam is the JSON of `/api/v1`.
"""

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.mount import routes
from ragpulse_dashboards.security import CONTENT_SECURITY_POLICY, SecurityHeaders
from ragpulse_dashboards.site import Api
from ragpulse_dashboards.standalone import standalone

__all__ = ["CONTENT_SECURITY_POLICY", "Api", "ApiError", "SecurityHeaders", "routes", "standalone"]
