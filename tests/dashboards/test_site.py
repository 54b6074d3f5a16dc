"""How a request becomes a page."""

from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from ragpulse_collector.refusals import NotFound, Refusal
from ragpulse_dashboards.mount import environment, load_assets
from ragpulse_dashboards.site import Site

ERROR = {"error": NotFound("Nothing of <this> name.")}


@pytest.fixture(scope="module")
def site() -> Site:
    """Pages that ask nobody."""

    async def api(operation: str, params: Mapping[str, Any]) -> Any:
        raise AssertionError(operation, params)

    return Site(api=api, templates=environment(load_assets()))


def asked(**headers: str) -> Request:
    """A request for a page."""
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/traces/x", "query_string": b"", "headers": raw})


async def pieces(site: Site, context: Any, **headers: str) -> list[bytes]:
    """A page begun early, as it is sent."""
    response = await site.begin(asked(**headers), "error.html", context)
    if isinstance(response, StreamingResponse):
        return [bytes(piece) async for piece in response.body_iterator]  # type: ignore[arg-type]
    return [bytes(response.body)]


async def test_the_head_goes_out_before_the_content_is_read(site: Site) -> None:
    """Styles and scripts are named in the first piece; together the pieces are the page that `render` makes."""
    read = []

    async def context() -> Mapping[str, Any]:
        read.append("content")
        return ERROR

    response = await site.begin(asked(), "error.html", context)
    assert isinstance(response, StreamingResponse)
    sent = aiter(response.body_iterator)
    head = bytes(await anext(sent))  # type: ignore[arg-type]
    assert (b"style.css" in head, b"app.js" in head, read) == (True, True, [])
    rest = b"".join([bytes(piece) async for piece in sent])  # type: ignore[arg-type]
    assert (head + rest).split() == bytes(site.render(asked(), "error.html", ERROR).body).split()


@pytest.mark.parametrize(
    ("error", "told"),
    [(Refusal("Busy for a moment.", status=503), b"Busy for a moment."), (KeyError("t"), b"its log has the reason.")],
)
async def test_a_failure_after_the_head_is_told_on_the_page(site: Site, error: Exception, told: bytes) -> None:
    """What goes wrong while the content is read takes the content's place, also what nobody foresaw."""

    async def context() -> Mapping[str, Any]:
        raise error

    page = b"".join(await pieces(site, context))
    assert told in page
    assert (page.count(b"<title>"), page.count(b"</html>")) == (1, 1)


async def test_a_fragment_has_no_head(site: Site) -> None:
    """For htmx the content comes in one piece."""

    async def context() -> Mapping[str, Any]:
        return ERROR

    sent = await pieces(site, context, hx_request_type="partial")
    assert len(sent) == 1
    assert b"&lt;this&gt;" in sent[0]
    assert b"<head>" not in sent[0]
