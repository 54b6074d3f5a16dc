"""The overview as HTML."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest

from .fake_api import FakeApi
from .reading import client, text_of


def test_overview_reads_without_scripts() -> None:
    """Estimate, interval, n and verdict of each evaluator are text in the page."""
    text = text_of(client().get("/").text)
    assert "groundedness 0.86 ± 0.02 · 1,204 of 1,290 answers" in text
    assert "answered 68 % ± 2 % · 1,201 of 1,290 answers" in text
    assert "worse was 0.903" in text
    assert "Groundedness as a table" in text


def test_the_first_screen_says_what_changed() -> None:
    """A firing alert comes first, then the missed target, then each change with its levels, its time and its cause.

    Words that only a statistician reads stand in tooltips.
    """
    html = unescape(client().get("/").text)
    text = text_of(html)
    assert (
        "An alert is firing: quality. Groundedness 0.742, change. Alerts Groundedness misses its target: 0.861" in text
    )
    assert "Groundedness fell 0.93 → 0.71 at Nov 21 04:00 UTC, when prompt qa v7 began." in text
    over = text_of(client().get("/?from=2026-11-20T12:00:00Z&to=2026-11-21T12:00:00Z").text)
    assert "Groundedness misses its target: 0.861, at least 0.900. Why? Worst answers Groundedness fell" in over
    quiet = FakeApi()
    quiet.young = True
    calm = text_of(client(quiet).get("/").text)
    assert "Groundedness: no change above 0.04 against the range before. Cost" in calm
    assert text.index("Groundedness fell") < text.index("Cost $4.28") < text.index("Quality") < text.index("Efficiency")
    for private in ("n eff.", "Waiting, dropped", "Never selectable"):
        assert private not in text


@pytest.mark.parametrize(
    ("metric", "words", "query"),
    [
        ("cost_usd", "Most expensive", "sort=expensive"),
        ("latency_p95", "Slowest answers", "sort=slow"),
        ("error_rate", "Failed requests", "error=true"),
    ],
)
def test_a_change_of_traffic_leads_to_its_own_list(metric: str, words: str, query: str) -> None:
    """A risen cost leads to the expensive requests, not to the slow ones or to an evaluator's."""

    class Only(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            change = {**answer["changes"][0], "metric": metric, "unit": "usd", "worse": True}
            return answer | {"changes": [change], "quality": []}

        def get_monitors(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return {"monitors": [], "destinations": [], "expected": ""}

        def get_targets(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return {"targets": []}

    html = unescape(client(Only()).get("/").text)
    assert re.search(rf'<a class="button" href="/traces\?from=[^"]*&{query}">{words}</a>', html)


def test_a_change_is_explained_from_its_second_on() -> None:
    """A prompt that began within a second leaves no fraction in the field of the form."""

    class Within(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            for one in answer["changes"]:
                one["t"] = f"{one['t'][:19]}.683022Z"
            return answer

    (link, *_) = re.findall(r"&amp;at=2[^\"]*", client(Within()).get("/").text)
    assert link.endswith("%3A00Z")


def test_a_grouped_overview_has_one_row_a_group() -> None:
    """Every metric of a group beside the others', over the whole range."""
    html = client().get("/?group_by=prompt_version").text
    (table,) = re.findall(r'aria-label="One row a group">(.*?)</table>', html, re.DOTALL)
    assert [text_of(row) for row in re.findall(r'<th scope="row">(.*?)</th>', table)] == ["v6", "v7", "none"]
    assert "Answered" in text_of(table)


def test_without_scripts_every_chart_is_a_table() -> None:
    """A browser without JavaScript is sent to the page on which the drawings' tables stand open."""
    assert '<noscript><meta http-equiv="refresh" content="0; url=/?whole=true">' in client().get("/").text
    html = client().get("/?whole=true").text
    assert html.count('as a table"') == html.count("<figure")


def test_figures_of_the_overview_lead_to_the_rows_behind_them() -> None:
    """What a good answer costs leads to the answers that pass, each count of an evaluator's coverage to its answers."""
    html = unescape(client().get("/?model=gpt-5-mini").text)
    assert re.search(r'href="/traces\?model=gpt-5-mini&failing=false&evaluator=groundedness">\$', html)
    skipped = "/traces?model=gpt-5-mini&evaluator=groundedness&outcome=skipped"
    assert f'href="{skipped}"' in html
    assert html.count('href="/traces?model=gpt-5-mini&evaluator=groundedness&outcome=scored"') == 2
    assert "skipped · groundedness" in text_of(client().get(skipped).text)


def test_an_empty_store_shows_the_lines_to_paste() -> None:
    """With nothing stored the overview is the snippet with this collector's own address."""
    text = text_of(client(FakeApi(empty=True)).get("/").text)
    assert 'endpoint="http://127.0.0.1:4318"' in text
    assert "waiting for the first span" in text


def test_the_first_answers_are_not_missed_for_an_older_reading() -> None:
    """A reading of minutes ago without any answer is not shown: the first may have come since."""

    class Begun(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            now = super().get_overview(params)
            return now | {"n_traces": 0} if params.get("max_age") else now

    assert "No answer in this range" not in text_of(client(Begun()).get("/").text)


def test_the_range_and_filters_reach_the_api_and_every_link() -> None:
    """What the URL says is what is asked, and the next page keeps it."""
    api = FakeApi()
    html = client(api).get("/?from=-7d&model=gpt-5-mini&group_by=prompt_version").text
    asked = [params for operation, params in api.calls if operation == "GET metrics"]
    assert all(params["from"] == "-7d" and params["model"] == "gpt-5-mini" for params in asked)
    assert all(params["group_by"] == ["prompt_version"] for params in asked if params["name"] != ["requests"])
    assert "/traces?from=-7d&amp;model=gpt-5-mini" in html


def test_a_young_store_is_shown_by_the_hour() -> None:
    """Without a range in the URL, data of the last few minutes fills the charts; an asked range is kept."""
    api = FakeApi()
    api.young = True
    for path, start in (("/", "-1h"), ("/?from=-24h", "-24h")):
        api.calls.clear()
        client(api).get(path)
        assert [params["from"] for operation, params in api.calls if operation == "GET overview"][-1] == start


def test_quality_can_be_corrected_by_labels() -> None:
    """The switch is in the URL and every link; each chart says how many labels moved it."""
    html = client().get("/?corrected=true").text
    assert text_of(html).count("corrected by 104 labels") == 4
    assert "/?from=-7d&amp;corrected=true" in html


def test_a_corrected_card_says_what_the_line_does() -> None:
    """The whole range corrected at once, in the card and in the sentence about its change."""

    class Labelled(FakeApi):
        def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_metrics(params)
            if params.get("step") == "all" and "series" in answer:
                row = next(row for row in self.get_overview({})["quality"] if answer["name"].endswith(row["evaluator"]))
                line = answer["series"][0]
                line["points"] = [line["points"][0] | {"value": 0.512, "lo": 0.482, "hi": 0.542}]
                answer["series"] = [line | {"version": row["version"], "judge": row["judge"]}]
            return answer

    html = text_of(client(Labelled()).get("/?corrected=true").text)
    assert "0.51 ± 0.03" in html.replace("\N{NO-BREAK SPACE}", " ")
    assert "0.94 → 0.73" not in html


def test_a_bad_range_says_what_to_do() -> None:
    """A refusal of the API is a page with its words and a way on, not a stack trace."""
    response = client().get("/?from=tomorrow")
    assert response.status_code == 400
    assert "neither a time nor like -24h" in text_of(response.text)
    assert "Clear the filters" in text_of(response.text)


def test_targets_say_met_missed_or_undecided() -> None:
    """Each target stands below the headline with its bound, its estimate and its interval."""
    text = text_of(client().get("/").text)
    assert "missed groundedness at least 0.900: 0.861 0.842–0.879 1,204 answers" in text
    assert "met latency p95 at most 2.00 s: 1.45 s" in text
    assert "undecided answered" in text


def test_demo_data_is_loaded_named_and_removed() -> None:
    """The empty page offers it, a page that shows it says so, and one button removes it."""
    api = FakeApi()
    assert "Load demo data" in client(FakeApi(empty=True)).get("/").text
    assert "Remove it" not in client(api).get("/").text
    api.young = True
    assert "Remove it" in client(api).get("/").text
    assert client(api).post("/demo", data={"x": ""}).headers["location"] == "/"
    assert client(api).post("/demo/remove", data={"x": ""}).headers["location"] == "/"
    assert [operation for operation, _ in api.calls[-2:]] == ["POST demo", "DELETE demo"]


def test_names_of_evaluators_are_the_same_in_every_chart() -> None:
    """The yes of `refusal` is "answered", also in the legend of the coverage, and titles begin with a capital."""
    html = client().get("/").text
    legend = html.partition('id="chart-coverage"')[2].partition('class="legend"')[2].partition("</ul>")[0]
    assert "answered" in text_of(legend)
    assert "refusal" not in text_of(legend)
    titles = [text_of(title) for title in re.findall(r"<h3>(.*?)</h3>", html)]
    assert titles
    assert [title for title in titles if not title[0].isupper()] == []


def test_sums_are_drawn_as_rates() -> None:
    """Requests per minute and cost per hour read the same in every range; shares and bounds have their units."""
    text = text_of(client().get("/").text)
    assert "Requests per minute 9.0 " in text
    assert "Cost per answer $0.000" in text, "its change is one of an answer"
    assert "Cost per hour last bucket $0.0" in text_of(
        client().get("/figures?metric=cost_usd&title=Cost&step=900").text
    )
    assert "Errors 1.3 % 1.1 %–1.5 %" in text
    rows = text_of(client().get("/figures/rows?metric=cost_usd&title=Cost+per+hour").text)
    assert "Cost per hour per hour" not in rows


def test_the_evaluator_that_leads_is_first_everywhere() -> None:
    """The panel of worst answers, the first chart, the preset of alerts, the form of labels, the metric of Explain."""
    api = FakeApi()
    assert "Worst answers now: groundedness" in text_of(client(api).get("/").text)
    api.lead = "citation_check"
    html = client(api).get("/").text
    assert "Worst answers now" not in html  # another number fell
    assert html.index('id="chart-quality-citation_check"') < html.index('id="chart-quality-refusal"')
    assert 'value="quality:citation_check"' in client(api).get("/alerts/new?preset=quality").text
    form = client(api).get("/label").text
    assert "<option selected>citation_check" in form
    client(api).get("/explain")
    explained = [params["metric"] for operation, params in api.calls if operation == "GET explain"]
    assert explained == ["quality:citation_check"]


def test_a_quality_card_says_what_is_unclear() -> None:
    """With the list of these answers; an evaluator that decides everything says nothing."""

    class Unclear(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            answer["quality"][0]["clear_share"] = 0.88
            return answer

    html = unescape(client(Unclear()).get("/").text)
    assert re.findall(r'href="/traces[^"]*evaluator=groundedness&label=unclear">12\s% unclear', html)
    assert html.count("% unclear") == 1
    assert "% unclear" not in client().get("/").text


def test_scores_that_arrive_change_no_step_of_the_open_page() -> None:
    """The number of points follows the number of scores once; the page's own readings keep it for every chart."""

    class Growing(FakeApi):
        n = 100

        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            return answer | {"quality": [row | {"n": self.n} for row in answer["quality"]]}

    def points(width: str) -> set[tuple[str, int]]:
        api.calls.clear()
        client(api).get("/", params={"width": width} if width else {})
        calls = [params for operation, params in api.calls if operation == "GET metrics"]
        names = ("latency_p95", "quality:groundedness")
        return {(name, params["width"]) for params in calls for name in names if name in params["name"]}

    api = Growing()
    (kept,) = re.findall(r'data-url="/\?width=(48%2Cgroundedness%3A12%2C.*?)&', client(api).get("/").text)
    first = points("")
    assert first == {("latency_p95", 48), ("quality:groundedness", 12)}
    api.n = 9000
    assert points(unquote(kept)) == first
    assert points("24,groundedness:120") == {("latency_p95", 24), ("quality:groundedness", 120)}
    for wrong in ("", "7,groundedness:x,,:", "48,other:12"):
        assert points(wrong) == {("latency_p95", 48), ("quality:groundedness", 48)}


@pytest.mark.parametrize(
    ("empty", "refused", "words"),
    [
        (0, 1, "Of 12,904 answers, 1 declined to answer ."),
        (1, 0, "Of 12,904 answers, 1 is empty ."),
        (2, 3, "Of 12,904 answers, 2 are empty and 3 declined to answer ."),
    ],
)
def test_only_answers_that_there_are_are_counted(empty: int, refused: int, words: str) -> None:
    """No "0 are empty"."""

    class Some(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return super().get_overview(params) | {"n_empty": empty, "n_refused": refused}

    assert words in text_of(client(Some()).get("/").text)
