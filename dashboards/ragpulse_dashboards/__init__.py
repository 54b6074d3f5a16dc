"""The pages: what a person sees of the collector, rendered on the server over one JSON function.

    collector ── api("GET traces", params) ──▶ pages ──▶ templates ──▶ HTML (+ htmx, uPlot, own ES modules)

The collector mounts `routes(api)` and nothing here imports it: the seam is the JSON of `/api/v1`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.security import CONTENT_SECURITY_POLICY, SecurityHeaders

if TYPE_CHECKING:
    from ragpulse_dashboards.mount import routes, standalone
    from ragpulse_dashboards.site import Api

__all__ = ["CONTENT_SECURITY_POLICY", "Api", "ApiError", "SecurityHeaders", "routes", "standalone"]

_WITH_TEMPLATES: Final = {"Api": "site", "routes": "mount", "standalone": "mount"}


def __getattr__(name: str) -> Any:
    """Import pages and templates when they are asked for: a collector that nobody looks at does without."""
    if name not in _WITH_TEMPLATES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_WITH_TEMPLATES[name]}"), name)
    globals()[name] = found  # where the module has the name of its function, importing it has just put it there
    return found
