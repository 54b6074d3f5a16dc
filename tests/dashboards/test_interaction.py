"""Pages in use: charts, drawer, evidence, keyboard, labels, rules, live tail."""

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from waiting import eventually

from .conftest import Browser, Visit, serve
from .fake_api import FakeApi
from .fake_day import hexid

FOCUSED = """(() => {
  const one = document.activeElement;
  const box = one.getBoundingClientRect();
  const text = (one.innerText || one.getAttribute("aria-label") || one.title || one.name || "").trim();
  return { text, visible: box.width > 0 && box.height > 0 };
})()"""
TRACE = f"/traces/{FakeApi().rows[2]['trace_id']}"


@pytest.fixture
def api() -> FakeApi:
    """Made-up data whose `calls` a test reads."""
    return FakeApi()


@pytest.fixture
def base(api: FakeApi) -> Iterator[str]:
    """Pages over `api`."""
    with serve(api) as url:
        yield url


def query_of(visit: Visit) -> dict[str, list[str]]:
    """The query of where the browser is now."""
    return parse_qs(urlsplit(visit.page.url).query)


def drag(visit: Visit, chart: str) -> None:
    """Mark a stretch of a chart with the mouse."""
    box = visit.box(f"#chart-{chart} .u-over")
    visit.page.mouse.move(box["x"] + 60, box["y"] + 50)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + 200, box["y"] + 50, steps=4)
    visit.page.mouse.up()


def follow(visit: Visit, chart: str, text: str) -> dict[str, list[str]]:
    """Follow what is offered beside the marked stretch; returns the query of the page it leads to."""
    with visit.page.expect_navigation():
        visit.page.locator(f"#chart-{chart} .brush").get_by_text(text).click()
    return query_of(visit)


def test_a_marked_stretch_zooms_every_chart_and_a_double_click_returns(browser: Browser, site: str) -> None:
    """A drag offers to zoom: the range in the URL remembers where it came from, and a double click goes back."""

    def steps(visit: Visit) -> None:
        visit.open("/?from=-7d")
        drag(visit, "latency")
        assert visit.page.locator(".brush:visible").count() == 1  # charts are synchronised; the others offer nothing
        zoomed = follow(visit, "latency", "Zoom")
        assert zoomed["back"] == ["-7d"]
        assert zoomed["from"][0] < zoomed["to"][0]
        with visit.page.expect_navigation():
            visit.page.locator("#chart-latency .u-over").dblclick()
        assert query_of(visit) == {"from": ["-7d"]}

    browser.visit(site, steps)


@pytest.mark.parametrize(
    ("chart", "metric"),
    [
        ("lead", "quality:groundedness"),
        ("latency", "latency_p95"),
        ("cost", "cost_usd"),
        ("tokens", "input_tokens"),
        ("error-rate", "error_rate"),
        ("requests", "latency_p95"),
    ],
)
def test_a_marked_stretch_of_any_chart_is_explained(browser: Browser, site: str, chart: str, metric: str) -> None:
    """Scores, latency, cost, tokens, errors and traffic: a drag and Why? keep metric, range and filters."""

    def steps(visit: Visit) -> None:
        visit.open("/?from=-24h&model=gpt-5-mini")
        visit.page.locator(f"#chart-{chart} .u-over").wait_for(state="attached")
        drag(visit, chart)
        found = follow(visit, chart, "Why?")
        assert urlsplit(visit.page.url).path == "/explain"
        assert (found["metric"], found["from"], found["model"]) == ([metric], ["-24h"], ["gpt-5-mini"])
        assert found["sel_from"] < found["sel_to"]
        assert ("sel_lo" in found) == (chart == "requests")  # of a count: what differs among all of the stretch

    browser.visit(site, steps)


def test_a_stretch_is_marked_and_explained_with_the_keyboard(browser: Browser, site: str) -> None:
    """Shift with an arrow key marks, Escape takes it back, w explains, also one point; without scripts a link does."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        plot = "#chart-quality-refusal [data-plot]"
        visit.page.locator(f"{plot} .u-over").wait_for(state="attached")
        visit.page.locator(plot).focus()
        for key in ("Home", "Shift+ArrowRight", "Shift+ArrowRight"):
            visit.page.keyboard.press(key)
        assert "3 points marked" in visit.page.inner_text("#announce")
        visit.page.keyboard.press("Escape")
        assert not visit.page.locator(".brush:visible").count()
        visit.page.keyboard.press("Shift+ArrowRight")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("w")
        found = query_of(visit)
        long = [datetime.fromisoformat(found[edge][0]) for edge in ("sel_from", "sel_to")]
        assert found["metric"] == ["quality:refusal"]
        assert long[1] - long[0] == timedelta(minutes=30)
        visit.open("/")
        assert visit.page.locator("#chart-quality-refusal [data-why]").get_attribute("href").startswith("/explain?")

    browser.visit(site, steps)


class Unfinished(FakeApi):
    """A range that ends five minutes before the last bucket does."""

    def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the collector does: the bucket begins as usual."""
        answer = super().get_metrics(params)
        return answer if "metrics" in answer else {**answer, "to": "2026-11-21T11:55:00Z"}


def test_a_bucket_that_is_not_complete_says_so(browser: Browser) -> None:
    """The last bucket of a range that ends within it is read out as a part, a whole one is not; so is a table's row."""

    def steps(visit: Visit) -> None:
        visit.open("/figures?metric=requests")
        plot = visit.page.locator("[data-plot]")
        plot.locator(".u-over").wait_for(state="attached")
        plot.focus()
        for key, partly in (("End", True), ("ArrowLeft", False)):
            visit.page.keyboard.press(key)
            assert (", in part;" in visit.page.inner_text("#announce")) == partly
        assert visit.page.locator("tbody tr", has_text="in part").count() == 1

    with serve(Unfinished()) as base:
        browser.visit(base, steps)


def test_figures_shown_again_are_replaced_by_new_ones(browser: Browser, base: str, api: FakeApi) -> None:
    """A page of figures read a while ago says so, and takes the new reading when it is there, charts and all."""

    def steps(visit: Visit) -> None:
        api.as_of = datetime.now(UTC) - timedelta(seconds=80)
        assert "reload</a>" in visit.page.request.get(f"{base}/?from=-24h").text()
        visit.page.on("requestfinished", lambda request: setattr(api, "as_of", None))
        visit.open("/?from=-24h")
        visit.page.locator("main:not(:has([data-renew])) #chart-latency canvas").wait_for()
        assert "newest span 2\xa0s ago" in visit.page.inner_text(".pulse")
        assert [bool(params.get("max_age")) for operation, params in api.calls if operation == "GET overview"][
            -1
        ] is False

    browser.visit(base, steps)


FAST = "const real = setTimeout; window.setTimeout = (act, ms) => real(act, ms / 40);"
"""An open page reads again after 50 to 125 ms."""


def test_an_open_page_is_of_one_reading(browser: Browser, base: str, api: FakeApi) -> None:
    """Sentences, charts, facts, clock and the navigation's alerts change together, every five seconds."""

    def steps(visit: Visit) -> None:
        visit.page.add_init_script(FAST)
        visit.open("/?from=-24h")
        visit.page.locator("main:not(:has([data-renew])) #chart-lead canvas").wait_for()
        chart = visit.page.locator("#chart-latency canvas").element_handle()
        assert visit.page.locator(".badge").is_visible()
        api.young = True
        visit.page.get_by_text("Groundedness: no change above 0.04 against the range before.").wait_for()
        assert visit.page.locator(".badge").count() == 0, "it is of the reading before"
        assert visit.page.locator("#worst").inner_text() == "Worst answers: groundedness"
        assert not chart.evaluate("one => one.isConnected")
        visit.page.locator("#chart-latency canvas").wait_for()

    browser.visit(base, steps)


def test_the_live_list_counts_what_it_shows(browser: Browser, base: str, api: FakeApi) -> None:
    """Scores and latency of a row come later; a selected row stays where it is, beside an offer of what is new."""
    late = api.rows.pop(0) | {"query": None, "response": None}
    later = [{**late, "trace_id": hexid(f"new{number}", 32)} for number in range(34)]
    late |= {"scores": {}, "latency_ms": None, "cost_unknown_reason": "not decided yet"}

    def count(visit: Visit) -> tuple[str, int]:
        return visit.page.inner_text("h1 .count"), visit.page.locator("[data-row]").count()

    def steps(visit: Visit) -> None:
        visit.page.add_init_script(FAST)
        visit.open("/traces?live=true&from=-24h&columns=scores&columns=latency")
        before, rows = count(visit)
        assert before == str(len(api.rows))
        api.rows.insert(0, late)
        first = visit.page.locator("[data-row]").first
        first.get_by_text("arriving").wait_for()
        assert count(visit) == (str(len(api.rows)), min(rows + 1, 50))
        late.update(later[0], trace_id=late["trace_id"])
        first.locator(".score").first.wait_for()
        first.locator("input").check()
        kept = count(visit)
        api.rows[:0] = later
        visit.page.get_by_role("button", name="34 new, show").wait_for()
        assert count(visit) == kept
        visit.page.get_by_role("button", name="34 new, show").click()
        assert count(visit) == (str(len(api.rows)), 50)
        assert not visit.page.locator("[data-offer]").is_visible()

    browser.visit(base, steps)


@pytest.mark.parametrize("path", ["/", "/traces?live=true", "/health", "/alerts"])
def test_a_page_is_not_read_before_the_last_answer(browser: Browser, path: str) -> None:
    """However slow the collector is; when it is gone the page says that it is not current."""
    now = most = asked = 0

    class Slow(FakeApi):
        async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
            nonlocal now, most, asked
            if operation == "GET monitors" and params.get("only") == "firing":  # once for each page
                now, asked = now + 1, asked + 1
                most = max(most, now)
                await asyncio.sleep(0.2)
                now -= 1
            return await super().__call__(operation, params)

    def steps(visit: Visit) -> None:
        nonlocal most
        visit.page.add_init_script(FAST)
        visit.open(path)
        visit.until("document.querySelector('main:not(:has([data-renew]))')")
        most = 0
        read = asked
        eventually(lambda: asked > read + 2)
        assert most == 1
        visit.page.route("**/*", lambda route: route.abort())
        visit.page.get_by_text("Not current: the collector does not answer").wait_for()
        visit.problems.clear()  # the browser itself reports that

    with serve(Slow()) as base:
        browser.visit(base, steps)


def test_pages_that_wait_need_no_reload(
    browser: Browser, base: str, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished replay shows its result, Health and Alerts what is true now, an empty page the first span."""
    run = next(run["run_id"] for run in api.get_replays({})["replays"] if run["status"] == "running")

    def steps(visit: Visit) -> None:
        visit.page.add_init_script(FAST)
        visit.open(f"/replays/{run}")
        assert not visit.page.get_by_text("Largest disagreements").count()
        api.runs = {"status": "done"}
        visit.page.get_by_text("Largest disagreements").wait_for()
        assert visit.page.get_by_role("button", name="Delete").is_visible()
        visit.open("/alerts")
        assert visit.page.locator(".monitor .state").first.inner_text() == "firing"
        api.young = True
        visit.page.locator(".monitor:first-of-type .state", has_text="ok").wait_for()
        assert not visit.page.locator(".badge").count()
        visit.open("/health")
        of = FakeApi.get_status
        monkeypatch.setattr(FakeApi, "get_status", lambda self, params: of(self, params) | {"version": "9.9.9"})
        visit.page.get_by_text("ragpulse 9.9.9").wait_for()
        api.young = False

    browser.visit(base, steps)
    bare = FakeApi(empty=True)

    def first(visit: Visit) -> None:
        visit.page.add_init_script(FAST)
        visit.open("/")
        visit.page.get_by_text("waiting for the first span").wait_for()
        bare.empty = False
        visit.page.locator("#chart-latency canvas").wait_for()

    with serve(bare) as empty:
        browser.visit(empty, first)


def test_a_click_on_a_point_opens_examples(browser: Browser, base: str, api: FakeApi) -> None:
    """The drawer shows worst, median and best traces of that bucket and metric; Escape closes it."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        visit.page.locator("#chart-lead .u-over").click(position={"x": 300, "y": 40})
        visit.page.locator("#drawer .example").first.wait_for()
        assert "Worst" in visit.page.inner_text("#drawer")
        assert "All traces of it" in visit.page.inner_text("#drawer")
        visit.page.keyboard.press("Escape")
        assert not visit.page.locator("#drawer").is_visible()

    browser.visit(base, steps)
    asked = next(params for operation, params in api.calls if operation == "GET exemplars")
    assert asked["name"] == "quality:groundedness"
    assert asked["step"] == "900"


def test_a_table_and_the_filter_values_come_on_opening(browser: Browser, site: str) -> None:
    """Opening a chart's table or the filter menu fetches what is in it, once."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        visit.page.locator("#chart-quality-refusal summary").click()
        visit.page.locator("#chart-quality-refusal td").first.wait_for()
        visit.page.keyboard.press("f")
        visit.page.keyboard.press("Escape")
        assert visit.page.evaluate("document.activeElement.matches('[data-filter-menu]:not([open]) > summary')")
        visit.page.keyboard.press("f")
        visit.page.locator("[data-filter-menu] a", has_text="gpt-5-mini").click()
        visit.page.wait_for_url("**/?model=gpt-5-mini")

    browser.visit(site, steps)


def test_a_chart_is_read_with_the_keyboard(browser: Browser, site: str) -> None:
    """Arrow keys speak value, interval and n into the live region; Enter opens the examples."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        visit.page.locator("#chart-quality-refusal .u-over").wait_for(state="attached")
        visit.page.locator("#chart-quality-refusal [data-plot]").focus()
        visit.page.keyboard.press("ArrowRight")
        first = visit.page.inner_text("#announce")
        visit.page.keyboard.press("ArrowRight")
        assert first.startswith("Nov 2")
        assert " to " in first
        assert "n " in first
        assert visit.page.inner_text("#announce") != first
        visit.page.keyboard.press("Enter")
        visit.page.locator("#drawer .example").first.wait_for()

    browser.visit(site, steps)


def test_the_range_is_chosen_and_zoomed_with_the_keyboard(browser: Browser, site: str) -> None:
    """t goes to the ranges; on a chart z zooms to around the point, 0 returns to the range before."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        visit.page.keyboard.press("t")
        visit.page.keyboard.press("Tab")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("Enter")
        assert query_of(visit) == {"from": ["-6h"]}
        visit.ready()
        visit.page.locator("#chart-quality-refusal .u-over").wait_for(state="attached")
        visit.page.locator("#chart-quality-refusal [data-plot]").focus()
        visit.page.keyboard.press("End")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("z")
        assert query_of(visit)["back"] == ["-6h"]
        visit.page.locator("#chart-quality-refusal .u-over").wait_for(state="attached")
        visit.page.locator("#chart-quality-refusal [data-plot]").focus()
        with visit.page.expect_navigation():
            visit.page.keyboard.press("0")
        assert query_of(visit) == {"from": ["-6h"]}

    browser.visit(site, steps)


def test_a_sentence_lights_its_evidence(browser: Browser, site: str) -> None:
    """Focus on a supported sentence lights the passage it rests on, and only that one."""

    def steps(visit: Visit) -> None:
        visit.open(TRACE)
        visit.page.locator("[data-sentence='1']").focus()
        assert visit.page.locator("mark.lit").all_inner_texts() == ["Older backups are moved to cold storage."]
        visit.page.locator("[data-sentence='2']").focus()
        assert visit.page.locator("mark.lit").count() == 0

    browser.visit(site, steps)


def test_the_parts_of_a_trace_are_tabs(browser: Browser, site: str) -> None:
    """One part shows at a time; evidence, verdicts and the address lead to theirs; the session comes by itself."""

    def steps(visit: Visit) -> None:
        visit.open(TRACE)
        shown = "[...document.querySelectorAll('[data-tab]')].filter(one => !one.hidden).map(one => one.id)"
        assert visit.page.evaluate(shown) == ["contexts"]
        visit.page.locator(".chip", has_text="faithfulness").click()
        visit.until(f"{shown}.join() === 'verdicts'")
        visit.page.locator("[data-sentence='0']").click()
        visit.until(f"{shown}.join() === 'contexts'")
        visit.page.locator("[data-tabs] a", has_text="Session").click()
        visit.page.locator("#session .turn[aria-current]").wait_for()
        visit.page.reload()
        visit.until(f"{shown}.join() === 'session'")

    browser.visit(site, steps)


def test_a_copy_says_that_it_was_one(browser: Browser, site: str) -> None:
    """The link of a trace and its test go to the clipboard, and the button says so."""

    def steps(visit: Visit) -> None:
        visit.open(TRACE)
        visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.page.locator(".menu", has_text="Share").locator("summary").click()
        for name, expected in (("Copy the link", f"{site}{TRACE}?at="), ("Copy as pytest case", "def test_trace")):
            link = visit.page.get_by_role("link", name=name)
            link.click()
            visit.page.get_by_role("link", name="Copied").wait_for()
            assert visit.page.evaluate("navigator.clipboard.readText()").startswith(expected)
            link.wait_for()

    browser.visit(site, steps)


def test_one_zone_is_chosen_and_remembered(browser: Browser, site: str) -> None:
    """Lists, charts and the form of a range show it, and the pages after; the browser's own is offered."""

    def steps(visit: Visit) -> None:
        session = visit.page.context.new_cdp_session(visit.page)
        session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
        visit.open("/traces")
        assert visit.page.locator("td time").first.inner_text() == "Nov 21 11:56"
        visit.page.get_by_text("Times: UTC").click()
        offered = visit.page.locator("#zones option").evaluate_all("all => all.map((one) => one.value)")
        assert offered == ["UTC", "Asia/Tokyo"]
        visit.page.get_by_label("Time zone of all times and days").fill("Asia/Tokyo")
        with visit.page.expect_navigation():
            visit.page.locator("[data-zone] button").click()
        visit.open("/traces")
        assert visit.page.locator("td time").first.inner_text() == "Nov 21 20:56"
        visit.page.get_by_text("Custom").click()
        visit.page.locator("[data-pick=from]").fill("2026-11-21T17:00")
        with visit.page.expect_navigation():
            visit.page.get_by_role("button", name="Show", exact=True).first.click()
        assert query_of(visit)["from"] == ["2026-11-21 17:00"]
        assert "Nov 21 17:00 – now" in visit.page.inner_text(".rangebar")
        visit.open("/figures?metric=requests")
        visit.page.locator("[data-plot] .u-over").wait_for(state="attached")
        visit.page.locator("[data-plot]").focus()
        visit.page.keyboard.press("Home")
        assert visit.page.inner_text("#announce").startswith("Nov 20, 21:00; ")

    browser.visit(site, steps, fresh=True)


def test_a_long_waterfall_costs_what_is_seen_of_it(browser: Browser) -> None:
    """Rows below the window are not laid out; looking for one finds it, and it is a row of a table like the others."""
    api = FakeApi(n_spans=190)

    def steps(visit: Visit) -> None:
        visit.open(f"/traces/{api.rows[2]['trace_id']}#spans")
        last = visit.page.locator(".waterfall tr").last
        seen = "row => row.checkVisibility({ contentVisibilityAuto: true })"
        assert not last.evaluate(seen)
        name = last.locator("th").text_content()
        assert visit.page.evaluate("name => window.find(name)", name)
        visit.until(seen, last.element_handle())
        session = visit.page.context.new_cdp_session(visit.page)
        tree = session.send("Accessibility.getFullAXTree")["nodes"]
        assert ("rowheader", name) in [
            (one.get("role", {}).get("value"), one.get("name", {}).get("value")) for one in tree
        ]

    with serve(api) as base:
        browser.visit(base, steps)


def test_traces_are_walked_by_keyboard_alone(browser: Browser, site: str) -> None:
    """g t goes to the list, j and Enter open a row, ] and [ go to its neighbours, ? shows the map."""

    def steps(visit: Visit) -> None:
        visit.open("/")
        for keys, path in (("g t", "/traces"), ("j j Enter", "/traces/"), ("[", "/traces/"), ("g o", "/")):
            before = visit.page.url
            for key in keys.split():
                visit.page.keyboard.press(key)
            visit.page.wait_for_url(lambda url, before=before: url != before)
            visit.ready()
            assert urlsplit(visit.page.url).path.startswith(path)
        visit.page.keyboard.press("?")
        shown = visit.page.inner_text("#help")
        assert "next, previous row" in shown
        names = visit.page.locator("[data-go]").evaluate_all("links => links.map(link => link.firstChild.textContent)")
        assert all(name.strip().lower() in shown for name in names), "a badge beside a name is none of it"

    browser.visit(site, steps)


def test_slash_searches(browser: Browser, site: str) -> None:
    """/ puts the cursor into the search field; the search is in the URL and in the list."""

    def steps(visit: Visit) -> None:
        visit.open("/traces")
        visit.page.keyboard.press("/")
        with visit.page.expect_navigation():
            visit.page.keyboard.type("parquet\n")
        assert query_of(visit)["q"] == ["parquet"]
        assert set(visit.page.locator("[data-row-link]").all_inner_texts()) == {"Can I export my data as Parquet?"}

    browser.visit(site, steps)


def test_selected_rows_become_a_dataset(browser: Browser, base: str, api: FakeApi) -> None:
    """Two rows, a name, Enter; from a trace the same is in the menu Share."""

    def steps(visit: Visit) -> None:
        visit.open("/traces")
        visit.page.get_by_text("Keep as dataset").click()
        assert not visit.page.get_by_text("Keep the selected traces").is_visible()
        visit.page.get_by_text("Keep as dataset").click()
        for number in (0, 2):
            visit.page.get_by_role("checkbox", name="Select: ").nth(number).check()
        visit.page.get_by_text("Keep as dataset").click()
        visit.page.get_by_label("Name of a new or an existing dataset").fill("bad ones")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("Enter")
        visit.open(TRACE)
        visit.page.get_by_text("Share").click()
        visit.page.get_by_label("Add to a dataset").fill("bad ones")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("Enter")

    browser.visit(base, steps)
    newest = sorted(api.rows, key=lambda row: row["start_time"], reverse=True)
    asked = [params for operation, params in api.calls if operation.startswith("POST datasets/")]
    assert asked == [
        {"trace_ids": [newest[0]["trace_id"], newest[2]["trace_id"]]},
        {"trace_ids": [TRACE.rpartition("/")[2]]},
    ]


def test_labels_are_given_by_keyboard(browser: Browser, base: str, api: FakeApi) -> None:
    """On the label queue `n` saves "bad" with the stored probability and goes on."""

    def steps(visit: Visit) -> None:
        visit.open("/label")
        with visit.page.expect_navigation():
            visit.page.keyboard.press("n")
        assert urlsplit(visit.page.url).path == "/label"

    browser.visit(base, steps)
    label = next(params for operation, params in api.calls if operation == "POST labels")
    assert (label["passing"], label["label_pi"]) == (False, "0.21")


def test_a_rule_shows_its_cost_while_it_is_edited(browser: Browser, site: str) -> None:
    """Changing the rate changes the predicted cost; a bad condition is named, not hidden."""

    def steps(visit: Visit) -> None:
        visit.open("/rules/judged/edit")
        visit.page.fill("input[name=rate]", "1")
        visit.page.locator("#preview", has_text="$0.27").wait_for()
        visit.page.fill("input[name=where]", "drop table")
        visit.page.locator("#preview", has_text="unexpected 'drop'").wait_for()

    browser.visit(site, steps)


def test_a_bill_comes_before_a_replay(browser: Browser, base: str, api: FakeApi) -> None:
    """The bill is a dry run; only Start starts."""

    def steps(visit: Visit) -> None:
        visit.open("/replays")
        visit.page.get_by_text("Show the bill").click()
        visit.page.locator("#bill", has_text="about $0.19, at least $0.11, at most $1.20").wait_for()

    browser.visit(base, steps)
    assert [params["dry_run"] for operation, params in api.calls if operation == "POST replays"] == [True]


def test_a_running_replay_is_cancelled(browser: Browser, base: str, api: FakeApi) -> None:
    """Cancel stops the run, shows it as cancelled, and offers to resume it instead."""
    run = hexid("run0", 16)

    def steps(visit: Visit) -> None:
        visit.open(f"/replays/{run}")
        with visit.page.expect_navigation():
            visit.page.get_by_role("button", name="Cancel").click()
        assert "cancelled" in visit.page.inner_text("h1")
        assert visit.page.get_by_role("button").filter(has_text="Cancel").count() == 0
        assert visit.page.get_by_role("button", name="Resume").is_visible()

    browser.visit(base, steps)
    assert [operation for operation, _ in api.calls if operation.startswith("POST")] == [f"POST replays/{run}/cancel"]


def test_an_alert_is_tested(browser: Browser, base: str, api: FakeApi) -> None:
    """The button of one monitor sends its test, and only its; the page says that it was one."""

    def steps(visit: Visit) -> None:
        visit.open("/alerts")
        with visit.page.expect_navigation():
            visit.page.locator(".monitor", has_text="latency p95").get_by_role("button", name="Send a test").click()
        assert "A test message for latency was sent" in visit.page.inner_text("[role=status].flash")

    browser.visit(base, steps)
    assert [operation for operation, _ in api.calls if operation.startswith("POST")] == ["POST monitors/latency/test"]


def test_the_overview_paints_before_the_scores_are_read(
    browser: Browser, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range that takes long comes with its traffic drawn and says that it reads the rest, which then comes itself."""
    monkeypatch.setattr("ragpulse_dashboards.pages.overview.SLOW_S", 0.0)

    def steps(visit: Visit) -> None:
        with visit.page.expect_response(lambda response: response.url == f"{base}/") as first:
            visit.open("/")
        assert "Reading the scores of 12.9k traces" in first.value.text()
        assert "chart-latency" in first.value.text()
        visit.page.locator("#chart-lead canvas").wait_for()
        visit.page.locator("#chart-latency canvas").wait_for()
        assert "reading" not in visit.page.inner_text("main").lower()
        visit.page.locator("#chart-latency summary").click()
        visit.page.locator("#chart-latency td").first.wait_for()

    browser.visit(base, steps)


def test_the_overview_is_whole_without_scripts(browser: Browser, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser without JavaScript is sent on to the page that waits for everything."""
    monkeypatch.setattr("ragpulse_dashboards.pages.overview.SLOW_S", 0.0)

    def steps(visit: Visit) -> None:
        visit.page.goto(f"{base}/?from=-7d")
        visit.page.wait_for_url("**/?from=-7d&whole=true")
        assert "groundedness 0.86 ± 0.02" in " ".join(visit.page.text_content("main").split())

    browser.visit(base, steps, js=False)


def test_a_box_on_the_heatmap_is_explained(browser: Browser, site: str) -> None:
    """Dragging a box puts its edges into the URL and ranks the attributes."""

    def steps(visit: Visit) -> None:
        visit.open("/explain?metric=latency_p95")
        box = visit.box("[data-heatmap] svg")
        visit.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 150, steps=3)
        with visit.page.expect_navigation():
            visit.page.mouse.up()
        found = query_of(visit)
        assert found["sel_from"] < found["sel_to"]
        assert float(found["sel_lo"][0]) < float(found["sel_hi"][0])
        assert "prompt version" in visit.page.inner_text("main")
        marked = visit.page.locator("[data-marked]")
        assert [marked.get_attribute(edge) for edge in ("x", "width")] == ["36", "8"]
        box = visit.box("[data-heatmap] svg")
        visit.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 2)
        visit.page.mouse.down()
        visit.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 60, steps=3)
        with visit.page.expect_navigation():
            visit.page.mouse.up()
        assert set(query_of(visit)) & {"sel_lo", "sel_hi"} == {"sel_lo"}  # the top row also holds what is beyond it
        visit.open("/explain?metric=latency_p95&sel_from=2026-11-21T11:30:00Z")
        assert [marked.get_attribute(edge) for edge in ("x", "width", "height")] == ["47", "1", "16"]

    browser.visit(site, steps)


def test_the_theme_is_kept_for_the_next_page(browser: Browser, site: str) -> None:
    """The toggle overrides the system, and the server renders the next page in it; paper stays light."""

    def steps(visit: Visit) -> None:
        visit.open("/health")
        visit.page.locator("[data-theme-toggle]").click()
        visit.open("/alerts")
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 31, 35)"
        assert not visit.page.locator(".side").is_visible()
        visit.page.emulate_media(media="screen")

    browser.visit(site, steps)


def test_tab_reaches_everything_in_order(browser: Browser, site: str) -> None:
    """From the skip link on, every stop of the Tab key is visible and named."""

    def steps(visit: Visit) -> None:
        visit.open(TRACE)
        seen = []
        for _ in range(40):
            visit.page.keyboard.press("Tab")
            seen.append(visit.page.evaluate(FOCUSED))
        assert seen[0]["text"] == "Skip to content"
        assert all(one["visible"] and one["text"] for one in seen)
        assert any("Backups are kept" in one["text"] for one in seen)

    browser.visit(site, steps)


def test_without_scripts_nothing_is_lost_but_the_drawing(browser: Browser, site: str) -> None:
    """With JavaScript off every chart leads to its table, every row on to its traces."""

    def steps(visit: Visit) -> None:
        visit.page.goto(f"{site}/")
        visit.page.wait_for_url("**/?whole=true")
        assert "p95" in visit.page.inner_text("#chart-latency table")
        visit.page.locator("table a").first.click()
        assert "Worst" in visit.page.inner_text("main")

    browser.visit(site, steps, js=False)


def test_in_a_narrow_window_the_row_of_pages_shows_where_one_is(browser: Browser, site: str) -> None:
    """The last page's name is in sight, and Tab begins at the skip link nevertheless."""

    def steps(visit: Visit) -> None:
        visit.open("/health")
        box = visit.page.locator("nav [aria-current]").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= 390 - box["width"]
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate(FOCUSED)["text"] == "Skip to content"

    browser.visit(site, steps, width=390)


MODULE = "import(document.querySelector('script[src*=\"js/charts.js\"]').src.replace('charts.js', 'plot.js'))"


@pytest.mark.parametrize(
    ("unit", "ticks", "step", "labels"),
    [
        ("usd", [0, 0.025, 0.05], 0.025, ["$0.000", "$0.025", "$0.050"]),
        ("usd", [0, 0.5, 1], 0.5, ["$0.0", "$0.5", "$1.0"]),
        ("ratio", [0.85, 0.875, 0.9], 0.025, ["0.850", "0.875", "0.900"]),
        ("ratio", [0.98, 1.0, 1.02], 0.02, ["0.98", "1.00", ""]),
        ("share", [0, 0.0125, 0.025], 0.0125, ["0.00 %", "1.25 %", "2.50 %"]),
        ("ms", [1000, 1250, 1500], 250, ["1.00 s", "1.25 s", "1.50 s"]),
        ("ms", [10000, 10025], 25, ["10.000 s", "10.025 s"]),
        ("count", [1000, 1025, 1050], 25, ["1000", "1025", "1050"]),
        ("tokens", [10000, 12500], 2500, ["10.0k", "12.5k"]),
    ],
)
def test_labels_of_an_axis_are_exact(
    browser: Browser, site: str, unit: str, ticks: list[float], step: float, labels: list[str]
) -> None:
    """A label has as many digits as the step of the axis."""

    def steps(visit: Visit) -> None:
        visit.open("/figures?metric=requests")
        call = f"async ([unit, ticks, step]) => (await {MODULE}).tickLabels(unit, ticks, step)"
        assert visit.page.evaluate(call, [unit, ticks, step]) == labels

    browser.visit(site, steps)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ([100, 200], [("v1", 104), ("v2", 204)]),
        ([100, 110], [("v1 +1", 104)]),
        ([100, 110, 200], [("v1 +1", 104), ("v3", 204)]),
        ([380], [("v1", 356)]),
        ([350, 380], [("v1 +1", 296)]),
        ([0, 5, 10, 15], [("v1 +3", 4)]),
        ([399, 399, 399], [("v1 +2", 345)]),
    ],
)
def test_flags_neither_overlap_nor_leave_the_chart(
    browser: Browser, site: str, at: list[int], expected: list[tuple[str, int]]
) -> None:
    """A letter is ten pixels wide here, and the chart reaches from 0 to 400."""

    def steps(visit: Visit) -> None:
        visit.open("/figures?metric=requests")
        markers = [{"x": x, "label": f"v{number}"} for number, x in enumerate(at, 1)]
        call = f"async (markers) => (await {MODULE}).flagsOf(markers, (text) => 10 * text.length, 0, 400, 1)"
        flags = visit.page.evaluate(call, markers)
        assert [(flag["text"], flag["left"]) for flag in flags] == expected
        assert all(flag["left"] >= 0 and flag["left"] + flag["width"] <= 400 for flag in flags)

    browser.visit(site, steps)


def test_a_flag_is_short_and_its_tooltip_has_the_whole_name(browser: Browser, site: str) -> None:
    """The pointer on the flag is enough."""

    def steps(visit: Visit) -> None:
        visit.open("/figures?metric=quality:groundedness&from=-24h")
        over = visit.page.locator("[data-plot] .u-over")
        over.wait_for(state="attached")
        box = visit.box("[data-plot] .u-over")
        visit.page.mouse.move(box["x"] + box["width"] * 2 / 3 + 12, box["y"] + 20)
        assert "prompt qa v7" in visit.page.locator(".tip:visible").inner_text()

    browser.visit(site, steps)


def test_a_reload_keeps_range_and_step(browser: Browser, base: str, api: FakeApi) -> None:
    """What arrived between two readings changes neither."""

    def steps(visit: Visit) -> None:
        api.as_of = datetime.now(UTC) - timedelta(seconds=80)
        visit.page.on("requestfinished", lambda request: setattr(api, "as_of", None))
        visit.open("/")
        visit.page.locator("main:not(:has([data-renew])) #chart-latency canvas").wait_for()

    browser.visit(base, steps)
    widths = [
        params["width"]
        for operation, params in api.calls
        if operation == "GET metrics" and "latency_p95" in params["name"]
    ]
    assert len(widths) >= 2
    assert len(set(widths)) == 1
