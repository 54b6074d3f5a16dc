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

_LAZY: Final = {"Api": "site", "routes": "mount", "standalone": "mount"}
"""Names whose modules load templates: a collector without pages does not import them."""


def __getattr__(name: str) -> Any:
    """Import a lazy name on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
