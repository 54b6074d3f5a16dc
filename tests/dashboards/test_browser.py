"""Pages in a real browser: accessible, within their window, and deaf to hostile content."""

from typing import Any

import pytest

from .conftest import Browser, Visit
from .fake_api import FakeApi, hexid

TRACE = f"/traces/{FakeApi().rows[2]['trace_id']}"
SPAN = f"{TRACE}/spans/{hexid(FakeApi().rows[2]['trace_id'] + '4', 16)}"
PAGES = (
    "/",
    "/?group_by=prompt_version&model=gpt-5-mini&from=-7d",
    "/traces",
    TRACE,
    SPAN,
    "/explain",
    "/explain?sel_from=2026-11-21T04:00:00Z&sel_to=2026-11-21T08:00:00Z&sel_lo=900&sel_hi=1800",
    "/compare",
    "/compare?a=prompt:v6&b=prompt:v7",
    "/compare?a=variant:a&b=variant:b",
    "/evaluators",
    "/rules/new",
    "/replays",
    f"/replays/{hexid('run0', 16)}",
    "/live",
    "/documents",
    "/label",
    "/alerts",
    "/health",
    "/login",
    "/exemplars?metric=quality:groundedness&t=2026-11-21T04:00:00Z&step=900",
    "/figures?metric=latency_p50&metric=latency_p95",
    "/traces/unknown",
)
FIXED = [path for path in PAGES if path.count("/") == 1 and "?" not in path and path != "/login"]


def opens(path: str, *, axe: bool = True) -> Any:
    """Steps that open a page and check what every page must satisfy."""

    def steps(visit: Visit) -> None:
        visit.open(path)
        if path == "/traces/unknown":
            visit.problems.clear()  # the browser itself reports the 404
        assert visit.overflow() <= 0
        assert visit.page.evaluate("window.__pwned") is None
        if axe:
            assert visit.axe() == []

    return steps


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "theme"), [(1440, "light"), (390, "dark")])
def test_pages_are_accessible_and_fit(browser: Browser, site: str, path: str, width: int, theme: str) -> None:
    """Each page is clean for axe-core, fits its window, and logs no error, violation or foreign request."""
    browser.visit(site, opens(path), width=width, theme=theme)


@pytest.mark.parametrize("path", FIXED)
def test_empty_pages_say_what_to_do(browser: Browser, empty_site: str, path: str) -> None:
    """With nothing stored every page still opens, fits a phone and is accessible."""
    browser.visit(empty_site, opens(path), width=390)


@pytest.mark.parametrize("path", PAGES)
def test_hostile_content_stays_text(browser: Browser, hostile_site: str, path: str) -> None:
    """An attack in every text field: nothing runs, nothing is fetched from elsewhere, no policy violation."""
    browser.visit(hostile_site, opens(path, axe=False), theme="dark")
