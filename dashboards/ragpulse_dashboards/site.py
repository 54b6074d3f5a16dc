"""What every page is handed: the JSON function, the templates, and the way a request becomes a page."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jinja2.sandbox import ImmutableSandboxedEnvironment
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ragpulse_dashboards.assets import Assets
from ragpulse_dashboards.errors import ApiError
from ragpulse_dashboards.kept import Kept
from ragpulse_dashboards.security import SECURITY_HEADERS, require_same_origin
from ragpulse_dashboards.view import read_view

__all__ = ["Api", "Handler", "Site", "read_form", "see_other", "segment"]

Api = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""`await api("GET traces", params)`: the operations and shapes of `/api/v1`."""
Handler = Callable[["Site", Request], Awaitable[Response]]

MAX_FORM_BYTES: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Site:
    """What every page is handed."""

    api: Api
    templates: ImmutableSandboxedEnvironment
    assets: Assets
    kept: Kept[Any] = field(default_factory=Kept)
    """What was read lately for pages that take long; every form empties it."""

    def page(self, path: str, handler: Handler, *, post: bool = False) -> Route:
        """A route whose API failures become a page that says what to do."""

        async def endpoint(request: Request) -> Response:
            try:
                if post:
                    require_same_origin(request)
                    self.kept.forget()
                return await handler(self, request)
            except ApiError as error:
                answer = self.render(request, "error.html", {"error": error}, status=error.status)
                answer.headers.update(error.headers)
                return answer

        return Route(path, endpoint, methods=["POST"] if post else ["GET"])

    def render(self, request: Request, template: str, context: Mapping[str, Any], *, status: int = 200) -> Response:
        """One template as a response: a whole page, or only its content when htmx asks for a fragment."""
        partial = request.headers.get("hx-request-type") == "partial"
        view = context.get("view") or read_view(request)
        base = {
            "layout": "partial.html" if partial else "base.html",
            "view": view,
            "path": request.url.path,
            "posted": request.method == "POST",
            "theme": request.cookies.get("theme", ""),
        }
        body = self.templates.get_template(template).render({**base, **context})
        headers = {**SECURITY_HEADERS, "Cache-Control": "no-store", "Vary": "HX-Request-Type, Cookie"}
        encoded = body.encode("utf-8", "replace")  # a lone surrogate in a stored text must not cost the page
        return HTMLResponse(encoded, status_code=status, headers=headers)


def see_other(url: str) -> Response:
    """After a form: go and look at the result."""
    return RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})


async def read_form(request: Request) -> QueryParams:
    """A url-encoded form, read like a query string; raises ApiError 413 and 415."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise ApiError(415, "Send the form as application/x-www-form-urlencoded.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise ApiError(413, f"The form is larger than {MAX_FORM_BYTES // 1024} kB.")
    return QueryParams(body.decode("utf-8", "replace"))


def segment(name: str) -> str:
    """A name as one part of an operation's path; raises ApiError 404 for what cannot be one."""
    if not name or "/" in name:
        raise ApiError(404, "There is nothing of this name.")
    return name
