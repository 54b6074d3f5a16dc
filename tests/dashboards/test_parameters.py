"""The parameters of pages: one that a page does not know is named, and none that a link of ours carries."""

import re
from html import unescape

import pytest

from ragpulse_dashboards.site import SHARED

from .reading import client, text_of
from .test_browser import PAGES

LINE = "Ignored, because this page has no such parameter"
FRAGMENTS = ("/facets",)
"""They carry the parameters of the page that shows them."""
OTHERS = ("/api/", "/static/", "/metrics", "/live", "/traces.csv", "/facets")


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith(FRAGMENTS)])
def test_a_page_names_what_it_ignores(path: str) -> None:
    """A misspelt or removed parameter and a group that is none; the page is shown all the same."""
    pages = client()
    plain, asked = (pages.get(f"{path}{'&' if '?' in path else '?'}{more}") for more in (
        "metadata.team=a", "servce=<b>&metadata.team=a&group_by=colour&assisted=true"
    ))  # fmt: skip
    assert LINE not in text_of(plain.text)
    assert asked.status_code == plain.status_code
    assert f"{LINE}: servce , assisted , group_by=colour ." in text_of(asked.text)


def test_many_of_them_are_counted() -> None:
    """A line stays a line."""
    names = "&".join(f"p{number}=" for number in range(20))
    assert "p7 and 12 more." in text_of(client().get(f"/health?{names}").text)


def links_of(html: str) -> list[str]:
    """Where links, forms and fragments lead."""
    found = re.findall(r'(?:href|data-later|data-url)="(/[^"#]*)', html)
    for to, form in re.findall(r'<form method="get" action="([^"]+)"(.*?)</form>', html, re.DOTALL):
        found.append(f"{to}?" + "&".join(f"{name}=" for name in re.findall(r'name="([^"]+)"', form)))
    return [unescape(link) for link in found if not link.startswith(OTHERS)]


def shape_of(link: str) -> tuple[str, ...]:
    """A link without ids, values, and what all pages share."""
    path, _, query = re.sub(r"[0-9a-f]{16,}", "id", link).partition("?")
    return (path, *sorted({name.partition("=")[0] for name in query.split("&")} - SHARED))


def test_no_link_of_a_page_leads_to_one_that_ignores_a_part_of_it() -> None:
    """Links, forms and fragments of every page, one of each kind."""
    pages = client()
    links = {shape_of(link): link for path in PAGES for link in links_of(pages.get(path).text)}
    assert len(links) > 80
    for link in links.values():
        assert LINE not in text_of(pages.get(link).text), link
