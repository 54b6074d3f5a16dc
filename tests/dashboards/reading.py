"""Pages without a browser: what a person without JavaScript, or a test, can read."""

import re
from html import unescape

from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_dashboards import routes

from .fake_api import FakeApi


def client(api: FakeApi | None = None) -> TestClient:
    """The pages in process over made-up data."""
    return TestClient(
        Starlette(routes=routes(api or FakeApi())), base_url="http://127.0.0.1:4318", follow_redirects=False
    )


def text_of(html: str) -> str:
    """What is left of a page without its tags, white space folded."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())
