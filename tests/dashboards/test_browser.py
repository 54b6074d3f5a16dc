"""Pages in a real browser: accessible, within their window, and deaf to hostile content."""

import pytest

from .conftest import Browser, Visit
from .fake_api import FakeApi
from .fake_day import HOSTILE, hexid

TRACE = f"/traces/{FakeApi().rows[2]['trace_id']}"
ERROR = f"/traces/{FakeApi().rows[5]['trace_id']}"
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
    "/compare?a=prompt:v6&b=prompt:v7&by=variant",
    "/compare?a=variant:a&b=variant:b",
    "/evaluators",
    "/rules/new",
    "/replays",
    "/replays?from=-24h&model=gpt-5-mini",
    f"/replays/{hexid('run0', 16)}",
    "/traces?live=true",
    "/traces?columns=time&columns=user&columns=session&columns=version&sort=oldest",
    ERROR,
    "/sessions",
    "/sessions/session-3",
    "/users/user-2",
    "/datasets",
    "/datasets/bad%20ones",
    "/documents",
    "/topics",
    "/topics/gaps",
    "/label",
    "/alerts",
    "/alerts/new?preset=quality",
    "/health",
    "/settings",
    "/login?failed=1&lacks=admin",
    "/exemplars?metric=quality:groundedness&t=2026-11-21T04:00:00Z&step=900",
    "/figures?metric=latency_p50&metric=latency_p95",
    "/figures/rows?metric=quality:groundedness&title=groundedness",
    "/facets?for=/explain&metric=latency_p95",
    "/traces/unknown",
)
SPILLING = (
    "[...document.querySelectorAll('.card')].filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.id)"
)
"""Cards whose content is wider than they are."""
FIXED = [path for path in PAGES if path.count("/") == 1 and "?" not in path]


def check(visit: Visit, path: str) -> None:
    """What every page satisfies, whatever is stored."""
    visit.open(path)
    if path == "/traces/unknown":
        visit.problems.clear()  # the browser itself reports the 404
    assert visit.page.evaluate("window.__pwned") is None, path
    assert visit.overflow() <= 0, path
    assert visit.page.evaluate(SPILLING) == [], path


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_accessible_and_fit(browser: Browser, site: str, path: str) -> None:
    """Each page is clean for axe-core and fits its window: wide and light, then narrow and dark."""

    def steps(visit: Visit) -> None:
        check(visit, path)
        assert visit.axe() == []
        visit.page.set_viewport_size({"width": 390, "height": 844})
        visit.page.emulate_media(color_scheme="dark")
        assert visit.overflow() <= 0
        assert visit.axe("color-contrast", "target-size", "scrollable-region-focusable") == []

    browser.visit(site, steps)


def test_the_width_of_a_window_is_used(browser: Browser, site: str) -> None:
    """A question has room beside its scores on a small laptop, and a wide screen is not empty at its side."""

    def width(visit: Visit, selector: str) -> float:
        return float(visit.page.locator(selector).first.bounding_box()["width"])

    def small(visit: Visit) -> None:
        visit.open("/traces")
        assert width(visit, ".list tbody .question") >= 300
        visit.open("/")
        visit.page.locator(".worst .offending").first.wait_for()
        card = visit.page.locator(".lead .chart").bounding_box()
        foot = visit.page.locator(".lead .chart .legend").bounding_box()
        assert card["y"] + card["height"] - foot["y"] - foot["height"] < 60, "a hole below the chart"

    def wide(visit: Visit) -> None:
        for path in ("/", "/traces"):
            visit.open(path)
            assert width(visit, ".lead" if path == "/" else "main .scroll") >= (0.85 if path == "/" else 0.75) * 2560
        visit.open("/sessions/session-3")
        asked, answered, known = (
            visit.page.locator(f".turn {part}").first.bounding_box() for part in (".asked", ".answered", ".turn-line")
        )
        assert asked["x"] + asked["width"] < answered["x"] < answered["x"] + answered["width"] < known["x"]
        assert (answered["width"] < 1000, known["x"] + known["width"] > 0.9 * 2560) == (True, True)
        visit.open("/label")
        assert width(visit, ".label-answer") < 1200, "an answer has the width of a page that is read"
        visit.open("/alerts/new?preset=quality")
        assert width(visit, "[name=name]") < 1000

    browser.visit(site, small, width=1024)
    browser.visit(site, wide, width=2560)


WIDTHS = (400, 1024, 1041, 1200, 1280, 1366, 1437, 1440)
OUTSIDE = """async () => {
  const outside = [];
  for (const link of document.querySelectorAll(".segmented a")) {
    const { left, right } = link.getBoundingClientRect(), bar = link.parentElement.getBoundingClientRect();
    if (left < 0 || right > Math.min(bar.right + 1, document.documentElement.clientWidth)) outside.push(link.innerText);
  }
  for (const menu of document.querySelectorAll("main details.menu")) {
    menu.open = true;
    await new Promise((done) => setTimeout(done, 20));
    const panel = menu.querySelector(".panel");
    for (const part of [panel, ...panel.querySelectorAll("button, input, a")]) {
      part.scrollIntoView({ block: "nearest" });
      const box = part.getBoundingClientRect();
      if (box.left < 0 || box.right > document.documentElement.clientWidth || box.bottom > innerHeight + 1) {
        outside.push(`${menu.innerText.slice(0, 12)}: ${part.outerHTML.slice(0, 60)}`);
      }
    }
    menu.open = false;
  }
  return outside;
}"""


def test_menus_stay_in_the_window(browser: Browser, site: str) -> None:
    """Every button of a menu is reached, wherever the menu stands at that width; also without scripts."""

    def steps(visit: Visit) -> None:
        for path in ("/", "/traces", "/alerts", TRACE):
            visit.open(path)
            for width in WIDTHS:
                visit.page.set_viewport_size({"width": width, "height": 700})
                assert visit.page.evaluate(OUTSIDE) == [], (path, width)

    def plain(visit: Visit) -> None:
        visit.page.goto(f"{site}/traces")
        visit.page.locator("[data-filter-menu] summary").click()
        apply = visit.page.get_by_role("button", name="Apply").bounding_box()
        assert apply["x"] + apply["width"] <= 1280

    browser.visit(site, steps)
    browser.visit(site, plain, width=1280, js=False)


@pytest.mark.parametrize("width", [1024, 1280, 1366, 1440, 1800])
def test_the_list_fits_its_window(browser: Browser, site: str, width: int) -> None:
    """A question has 320 pixels; latency and cost are whole; the facets fold away where they would take the room."""

    def steps(visit: Visit) -> None:
        visit.open("/traces")
        row = visit.page.locator("tr[data-row]").nth(1)
        assert row.locator(".question").bounding_box()["width"] >= 320
        assert visit.page.locator("thead .clip-head:visible").count() == 1, "the score that leads"
        table = visit.page.locator("main .scroll").bounding_box()
        for name in ("Latency", "Cost"):
            head = visit.page.locator("thead th", has_text=name).bounding_box()
            assert head["x"] + head["width"] <= table["x"] + table["width"] + 1, name
        assert visit.page.locator(".facets > .facets").is_visible() == (width >= 1440)
        visit.open(f"{TRACE}#spans")
        assert visit.page.locator(".waterfall").bounding_box()["width"] > 0.85 * (width - 260)

    browser.visit(site, steps, width=width)


def test_a_printed_page_is_whole(browser: Browser, site: str) -> None:
    """Charts fit the paper and cover nothing, a trace has all its parts, controls are left out."""
    paper = 718

    def steps(visit: Visit) -> None:
        visit.open("/")
        visit.page.locator("#chart-lead canvas").wait_for()
        visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        visit.page.emulate_media(media="print")
        visit.page.set_viewport_size({"width": paper, "height": 1000})
        for chart in visit.page.locator(".chart:has(canvas)").all():
            card, drawn = chart.bounding_box(), chart.locator(".uplot").bounding_box()
            assert drawn["x"] + drawn["width"] <= min(paper, card["x"] + card["width"])
            assert drawn["y"] + drawn["height"] <= card["y"] + card["height"]
        visit.open(TRACE)
        for part in ("contexts", "spans", "verdicts"):
            assert visit.page.locator(f"#{part}").is_visible(), part
        for control in (".menu", ".tabs", ".label-card", ".side"):
            assert not visit.page.locator(f"{control}:visible").count(), control

    browser.visit(site, steps)


def test_what_explains_is_seen_on_a_phone(browser: Browser, site: str, hostile_site: str) -> None:
    """The lift, by which the rows are ordered, stands in the window; so do both buttons of a label, side by side.

    A long name of an attribute wraps.
    """

    def lift_in_sight(visit: Visit) -> None:
        visit.open("/explain")
        lift = visit.page.locator("td.figure", has_text="×").first.bounding_box()
        assert lift["x"] + lift["width"] <= 390

    def steps(visit: Visit) -> None:
        lift_in_sight(visit)
        visit.open("/compare?a=prompt:v6&b=prompt:v7")
        table = visit.page.get_by_role("region", name="Other figures")
        assert table.evaluate("box => box.scrollWidth <= box.clientWidth"), "difference and verdict in the window"
        visit.open(TRACE)
        good, bad = (visit.page.locator(f"[name=verdict][value={one}]").bounding_box() for one in ("good", "bad"))
        assert good["y"] == bad["y"]

    browser.visit(site, steps, width=390)
    browser.visit(hostile_site, lift_in_sight, width=390)


def test_a_tab_stays_where_it_was_pressed(browser: Browser, site: str) -> None:
    """On a phone the waterfall moved above the answer, and the page to its end."""

    def steps(visit: Visit) -> None:
        visit.open(TRACE)
        tab = visit.page.locator("[data-tabs] a[href='#spans']")
        tab.scroll_into_view_if_needed()
        before = tab.bounding_box()
        tab.click()
        assert tab.bounding_box()["y"] == pytest.approx(before["y"], abs=2)

    browser.visit(site, steps, width=390)


def test_both_sides_of_a_disagreement_are_seen(browser: Browser, site: str) -> None:
    """A long reason pushed the second score out of the window."""
    done = next(run["run_id"] for run in FakeApi().get_replays({})["replays"] if run["status"] == "done")

    def steps(visit: Visit) -> None:
        visit.open(f"/replays/{done}")
        region = visit.page.locator(".scroll[aria-label='Largest disagreements']")
        assert region.evaluate("box => box.scrollWidth <= box.clientWidth")

    browser.visit(site, steps, width=1280)


def test_names_wrap_on_a_phone(browser: Browser, site: str, hostile_site: str) -> None:
    """Tables of rules, evaluators, runs and comparisons do not scroll sideways, however long a name is."""

    def wide(visit: Visit, *paths: str) -> list[str]:
        script = """[...document.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth)
            .map(box => box.getAttribute("aria-label"))"""
        found: list[str] = []
        for path in paths:
            visit.open(path)
            found += visit.page.evaluate(script)
        return found

    paths = ("/evaluators", "/replays", "/compare?a=prompt:v6&b=prompt:v7&by=variant", "/sessions", "/traces")
    assert browser.visit(site, lambda visit: wide(visit, *paths), width=390) == []
    hostile = browser.visit(hostile_site, lambda visit: wide(visit, "/evaluators", "/replays", "/traces"), width=390)
    assert set(hostile) <= {"Judge drift table", "Registry table"}, "their states and cost classes are no free text"


def test_columns_stand_below_their_heads(browser: Browser, site: str) -> None:
    """In the waterfall, whatever a row holds; a comparison leaves room for its reasons; buttons stay together."""

    def edges(visit: Visit, selector: str, edge: str) -> set[int]:
        boxes = [one.bounding_box() for one in visit.page.locator(selector).all()]
        return {round(box[edge]) for box in boxes}

    def steps(visit: Visit) -> None:
        visit.open(f"{TRACE}#spans")
        for column in (3, 4, 5):
            assert len(edges(visit, f".waterfall tr > :nth-child({column})", "x")) == 1
        assert visit.page.locator("#waterfall-h").is_hidden(), "the tab is the heading"
        visit.open("/compare?a=prompt:v6&b=prompt:v7")
        assert min(edges(visit, ".flips td.why", "width")) > 200
        visit.open("/replays")
        assert len(edges(visit, ".replay-form .button", "y")) == 1

    browser.visit(site, steps)


def test_empty_pages_are_accessible_and_fit(browser: Browser, empty_site: str) -> None:
    """With nothing stored every page opens, fits a phone and is clean for axe-core."""

    def steps(visit: Visit) -> None:
        for path in FIXED:
            check(visit, path)
            assert visit.axe() == [], path

    browser.visit(empty_site, steps, width=390)


def test_hostile_content_stays_text(browser: Browser, hostile_site: str) -> None:
    """An attack in every text field: nothing runs, nothing is fetched from elsewhere, no policy violation."""

    def steps(visit: Visit) -> None:
        for path in PAGES:
            check(visit, path)
            assert visit.problems == [], path

    browser.visit(hostile_site, steps, theme="dark", width=390)


def test_hostile_content_that_comes_later_stays_text(browser: Browser, hostile_site: str) -> None:
    """Tables, filter values and the drawer are put into the page as the server escaped them: nothing runs there."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        for summary in visit.page.locator("summary").all():
            summary.click()
        visit.page.locator("#chart-latency td").first.wait_for()
        visit.page.locator("[data-later] .facet").first.wait_for(state="attached")
        visit.page.locator("#chart-latency .u-over").click(position={"x": 300, "y": 40})
        visit.page.locator("#drawer .example").first.wait_for()
        assert visit.page.evaluate("window.__pwned") is None

    browser.visit(hostile_site, steps)


def test_hostile_content_is_shown_as_it_is(browser: Browser, hostile_site: str) -> None:
    """The attack is readable: escaped, not removed."""

    def steps(visit: Visit) -> None:
        visit.open("/traces")
        text = visit.page.inner_text("main")
        assert any(attack[:24] in text for attack in HOSTILE)

    browser.visit(hostile_site, steps)
