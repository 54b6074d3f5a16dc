"""Documents and blame as HTML."""

import re
from html import unescape
from urllib.parse import unquote

from .fake_api import FakeApi
from .reading import client, text_of


def test_a_document_leads_to_the_traces_that_found_it() -> None:
    """With the filters that hold; the list says so beside its range and takes it back in one click."""
    api = FakeApi()
    html = unescape(client(api).get("/documents?model=gpt-5-mini").text)
    link = re.findall(r'href="(/traces\?model=gpt-5-mini&document=[^"]+)"', html)[0]
    listed = client(api).get(link).text
    asked = next(params for operation, params in api.calls if operation == "GET traces")
    assert f"document={asked['document']}" in unquote(link)
    assert f"document {asked['document']} " in text_of(listed)
    assert "Remove the filter document" in listed


def test_the_titles_name_what_bad_means() -> None:
    """The evaluator that leads, or the one that was asked for."""
    text = text_of(client().get("/documents").text)
    assert "Documents by groundedness" in text
    assert "Where answers fail: groundedness" in text


def test_blame_is_drawn_over_time() -> None:
    """One stacked column a bucket, each a link to the traces of that bucket."""
    html = unescape(client().get("/documents").text)
    columns = re.findall(r'<a href="/traces\?from=([^&]+)&to=([^"]+)"', html)
    assert len(columns) == 24
    assert columns[0] == ("2026-11-20T12%3A00%3A00Z", "2026-11-20T13%3A00%3A00Z")
