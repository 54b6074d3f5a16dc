"""Pages without a browser: what a person without JavaScript, or a test, can read."""

import re
import tomllib
from html import unescape
from urllib.parse import unquote

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_dashboards import CONTENT_SECURITY_POLICY, routes

from .fake_api import FakeApi


def client(api: FakeApi | None = None) -> TestClient:
    """The pages in process over made-up data."""
    return TestClient(
        Starlette(routes=routes(api or FakeApi())), base_url="http://127.0.0.1:4318", follow_redirects=False
    )


def text_of(html: str) -> str:
    """What is left of a page without its tags, white space folded."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_overview_reads_without_scripts() -> None:
    """Estimate, interval, n and verdict of each evaluator are text in the page."""
    text = text_of(client().get("/").text)
    assert "groundedness 0.861 0.842–0.879" in text
    assert "1,204" in text
    assert "worse was 0.903" in text
    assert "groundedness as a table" in text


def test_figures_of_the_overview_lead_to_the_rows_behind_them() -> None:
    """What a good answer costs leads to the answers that pass, each count of an evaluator's coverage to its answers."""
    html = unescape(client().get("/?model=gpt-5-mini").text)
    assert re.search(r'href="/traces\?model=gpt-5-mini&failing=false">\$', html)
    skipped = "/traces?model=gpt-5-mini&evaluator=groundedness&outcome=skipped"
    assert f'href="{skipped}"' in html
    assert html.count('href="/traces?model=gpt-5-mini&evaluator=groundedness&outcome=scored"') == 2
    assert "skipped · groundedness" in text_of(client().get(skipped).text)


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


def test_health_says_how_long_evaluations_wait() -> None:
    """The age of the oldest is beside how many are due; with nothing due there is none."""
    assert "Pending 4 Oldest pending 7 s Done" in text_of(client().get("/health").text)
    assert "Oldest pending – Done" in text_of(client(FakeApi(empty=True)).get("/health").text)


def test_a_table_twin_comes_when_it_is_opened() -> None:
    """The newest rows with interval, n and what was not scored; the rest is one link away, under the same range."""
    html = unescape(client().get("/").text)
    (link,) = re.findall(r'data-later="(/figures/rows[^"]+quality%3Acitation_check[^"]*)"', html)
    rows = client().get(link, headers={"hx-request-type": "partial"}).text
    assert rows.count("<tr>") == 25
    assert "Not scored" in rows
    assert "/figures?from=-24h&metric=quality%3Acitation_check" in unescape(rows)


def test_an_empty_store_shows_the_lines_to_paste() -> None:
    """With nothing stored the overview is the snippet with this collector's own address."""
    text = text_of(client(FakeApi(empty=True)).get("/").text)
    assert 'endpoint="http://127.0.0.1:4318"' in text
    assert "waiting for the first span" in text


def test_waiting_reloads_when_a_span_arrives() -> None:
    """The polled fragment asks for a reload only once something is stored."""
    assert "HX-Refresh" not in client(FakeApi(empty=True)).get("/waiting").headers
    assert client().get("/waiting").headers["HX-Refresh"] == "true"


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
        assert api.calls[-1][1]["from"] == start


def test_quality_can_be_corrected_by_labels() -> None:
    """The switch is in the URL and every link; each chart says how many labels moved it."""
    html = client().get("/?corrected=true").text
    assert text_of(html).count("corrected by 104 labels") == 4
    assert "/?from=-7d&amp;corrected=true" in html


def test_a_rule_is_saved_paused_and_deleted() -> None:
    """Forms become the rule operations; a rule of the file answers with where to change it."""
    api = FakeApi()
    form = {"name": "mine", "evaluators": "refusal", "rate": "0.2", "where": "error", "stratum_where_0": "error"}
    assert client(api).post("/rules", data={**form, "stratum_rate_0": "1"}).status_code == 303
    strata = [{"where": "error", "rate": 1.0}]
    rule = {"name": "mine", "evaluators": ["refusal"], "rate": 0.2, "where": "error", "strata": strata}
    assert api.calls[-1] == ("POST rules", rule)
    assert client(api).post("/rules/judged/pause", data={"x": ""}).status_code == 303
    assert (api.calls[-1][0], api.calls[-1][1]["rate"]) == ("PUT rules/judged", 0.0)
    assert '"/evaluators" data-go="e" aria-current="page"' in client(api).get("/rules/judged/edit").text
    response = client(api).post("/rules/nightly/delete", data={"x": ""})
    assert (response.status_code, "change it there" in response.text) == (409, True)


@pytest.mark.parametrize("rate", ["", "many", "1.5", "-1", "nan"])
def test_a_rate_that_is_none_is_refused_in_words(rate: str) -> None:
    """Nothing is saved, and the page says what a rate is."""
    api = FakeApi()
    response = client(api).post("/rules", data={"name": "mine", "evaluators": "refusal", "rate": rate})
    assert response.status_code == 400
    assert "from 0 to 1" in response.text
    assert api.calls == []


def test_a_started_replay_is_looked_at() -> None:
    """Starting leads to the run's own page; its numbers reach the API as numbers."""
    api = FakeApi()
    form = {"evaluators": "faithfulness", "since": "7d", "limit": "100", "max_usd": "2", "where": ""}
    response = client(api).post("/replays", data=form)
    assert response.headers["location"].startswith("/replays/")
    assert api.calls[-1][1] == {"evaluators": ["faithfulness"], "since": "7d", "limit": 100, "max_usd": 2.0}
    run = response.headers["location"].rpartition("/")[2]
    assert f"/compare?b=run%3A{run}" in client(api).get(response.headers["location"]).text
    form = client(api).get(f"/compare?b=run:{run}").text
    assert f'value="run:{run}"' in form
    assert '<option value="faithfulness@' in form


def test_a_bad_range_says_what_to_do() -> None:
    """A refusal of the API is a page with its words and a way on, not a stack trace."""
    response = client().get("/?from=yesterday")
    assert response.status_code == 400
    assert "neither a time nor like -24h" in text_of(response.text)
    assert "Clear the filters" in text_of(response.text)


def test_trace_list_pages_and_keeps_filters() -> None:
    """The next page carries the cursor and the filters."""
    html = client().get("/traces?sort=slow&from=-30d").text
    (link,) = re.findall(r'rel="next" href="([^"]+)"', html)
    assert unescape(link) == "/traces?from=-30d&sort=slow&cursor=50"
    second = client().get(unescape(link)).text
    assert second.count("data-row>") == 10
    assert 'href="/traces?from=-30d&amp;sort=slow">First page' in second


def test_csv_cells_are_no_formulas() -> None:
    """Text that a spreadsheet would run is quoted."""
    api = FakeApi()
    api.rows[0]["query"] = "=HYPERLINK(1)"
    assert "'=HYPERLINK(1)" in client(api).get("/traces.csv").text


def test_a_trace_shows_question_contexts_answer_and_verdicts() -> None:
    """Everything about one answer is on its page, the unsupported sentence by name."""
    api = FakeApi()
    page = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    assert 'href="/traces?session_id=session-' in page
    assert 'href="/traces?user_id=user-' in page
    text = text_of(page)
    for words in (
        "How long are backups kept?",
        "operations/backups.md",
        "2 of 3 sentences supported",
        "faithfulness",
        "chosen with probability 0.05",
        "Is every statement of the answer supported",
    ):
        assert words in text


def test_a_span_is_shown_with_its_attributes() -> None:
    """The fragment behind a waterfall row lists the attributes verbatim."""
    api = FakeApi()
    row = api.rows[0]
    span = api.get_traces_one(row["trace_id"], {})["spans"][4]["span_id"]
    text = text_of(client(api).get(f"/traces/{row['trace_id']}/spans/{span}").text)
    assert "gen_ai.request.model" in text


@pytest.mark.parametrize("path", ["/traces/xyz", "/traces/" + "0" * 32, "/traces/..%2f..%2fetc"])
def test_unknown_traces_are_not_found(path: str) -> None:
    """A wrong id is a 404 page in words."""
    response = client().get(path)
    assert response.status_code == 404


def test_labels_are_sent_and_lead_back() -> None:
    """A verdict by form reaches the API as a label and returns to the trace."""
    api = FakeApi()
    trace_id = api.rows[0]["trace_id"]
    response = client(api).post(
        f"/traces/{trace_id}/label", data={"verdict": "bad", "evaluator": "groundedness", "comment": "no"}
    )
    assert response.status_code == 303
    assert api.calls[-1] == (
        "POST labels",
        {"trace_id": trace_id, "evaluator": "groundedness", "passing": False, "score": 0.0, "comment": "no"},
    )


def test_every_page_carries_the_policy_and_no_inline_code() -> None:
    """The policy forbids inline code, and the pages have none to forbid."""
    response = client().get("/")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert not re.search(r"\sstyle=|<style|\son\w+=|<script(?![^>]*\ssrc=)", response.text)


def test_targets_say_met_missed_or_undecided() -> None:
    """Each target stands below the headline with its bound, its estimate and its interval."""
    text = text_of(client().get("/").text)
    assert "missed groundedness at least 0.900: 0.861 0.842–0.879 n 1,204" in text
    assert "met latency p95 at most 2.00 s: 1.45 s" in text
    assert "undecided refusal" in text


def test_a_target_stands_in_its_charts_legend_and_table() -> None:
    """The bound is named below the drawing, and each bucket of the table is met, missed or undecided."""
    html = client().get("/").text
    assert "target latency p95 at most 2.00 s" in text_of(html)
    rows = text_of(client().get("/figures/rows?metric=quality:groundedness").text)
    assert "Target at least 0.900" in rows
    assert "missed" in rows


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


def test_values_to_filter_by_keep_what_the_page_shows() -> None:
    """The filter menu's links lead back to its page with range and figure; a page it does not know is the list."""
    html = unescape(client().get("/facets?for=/explain&from=-7d&metric=latency_ms").text)
    assert 'href="/explain?from=-7d&metric=latency_ms&model=gpt-5-mini"' in html
    assert 'href="/traces?model=gpt-5-mini"' in unescape(client().get("/facets?for=//evil.example").text)


def test_an_evaluator_runs_on_the_selected_traces() -> None:
    """From the list its range and filters go into the form, and with the form to the replay."""
    api = FakeApi()
    html = unescape(client(api).get("/traces?model=gpt-5-mini").text)
    assert "/replays?model=gpt-5-mini&from=-24h" in html
    form = unescape(client(api).get("/replays?model=gpt-5-mini&from=-24h").text)
    assert '<input type="hidden" name="model" value="gpt-5-mini">' in form
    assert 'name="since"' not in form
    client(api).post("/replays", data={"evaluators": "faithfulness", "from": "-24h", "model": "gpt-5-mini"})
    assert api.calls[-1][1] == {"evaluators": ["faithfulness"], "from": "-24h", "model": "gpt-5-mini"}


def test_a_comparison_is_split_by_a_dimension() -> None:
    """Each value has its own difference and verdict; an undecided one says how many more."""
    text = text_of(client().get("/compare?a=prompt:v6&b=prompt:v7&by=variant").text)
    assert "-0.170 -0.210 to -0.130" in text.replace("−", "-")
    assert "not enough data about 210 more" in text


def test_a_comparison_that_cannot_be_made_keeps_its_form() -> None:
    """The refusal stands below what was chosen; without a choice the page offers what the range holds."""
    response = client().get("/compare?a=prompt:v6&b=prompt:none")
    assert response.status_code == 404
    assert 'value="prompt:none"' in response.text
    assert "no scores" in text_of(response.text)
    assert "/compare?a=prompt%3Av6&amp;b=prompt%3Av7" in client().get("/compare").text


def test_evaluators_in_use_stand_apart() -> None:
    """Those that a rule names show what they did; the others only what they need."""
    used, others = client().get("/evaluators").text.split("Also here")
    assert "1,204" in used
    assert "exact_match" not in used.split("In use")[1]
    assert "exact_match" in others
    assert "1,204" not in others


def test_a_judge_that_moved_is_told_from_an_application_that_did() -> None:
    """Frozen answers show both moves; they are judged again, and others frozen, by a form."""
    api = FakeApi()
    text = text_of(client(api).get("/evaluators").text)
    assert "firing judge moved" in text
    assert client(api).post("/drift/run", data={"evaluator": "faithfulness"}).status_code == 303
    assert api.calls[-1] == ("POST drift/run", {"evaluator": "faithfulness"})
    assert client(api).post("/drift/forget", data={"evaluator": "faithfulness"}).status_code == 404


def test_blame_is_drawn_over_time() -> None:
    """One stacked column a bucket, each a link to the traces of that bucket."""
    html = unescape(client().get("/documents").text)
    columns = re.findall(r'<a href="/traces\?from=([^&]+)&to=([^"]+)"', html)
    assert len(columns) == 24
    assert columns[0] == ("2026-11-20T12%3A00%3A00Z", "2026-11-20T13%3A00%3A00Z")


def test_the_monitor_to_paste_is_one_the_settings_take() -> None:
    """With nothing watched the page shows lines for ragpulse.toml, as the collector reads them."""
    html = client(FakeApi(empty=True)).get("/alerts").text
    (lines,) = re.findall(r"(\[\[monitor\]\].*?)</pre>", html, re.DOTALL)
    (monitor,) = tomllib.loads(unescape(lines))["monitor"]
    assert monitor["condition"] == "change"


def test_the_heatmap_has_a_table_that_marks_without_a_mouse() -> None:
    """Each time says how many traces it has and where most lie; its link explains just that time."""
    html = unescape(client().get("/explain").text)
    table = html.partition("The heatmap as a table")[2]
    assert table.count('<th scope="row"') == 48
    assert re.search(r"Nov 21 11:30</th><td class=\"num\">\d+</td><td class=\"num\">1\.\d+\ss–1\.\d+\ss</td>", table)
    link = re.findall(r'href="(/explain[^"]+)"', table)[-1]
    assert "sel_from=2026-11-20T12%3A00%3A00Z&sel_to=2026-11-20T12%3A30%3A00Z" in link
    assert "83 marked against" in text_of(client().get(link).text)


def test_a_watched_metric_is_told_with_its_unit_and_leads_to_its_chart() -> None:
    """A bound is in seconds, not in bare milliseconds; the link is the chart of what is watched, of whatever kind."""
    html = client().get("/alerts").text
    text = text_of(html)
    assert "Watches latency p95 Fires when above 3.00 s" in text
    assert "Last 1 h 0.742 0.716–0.767 False alarms at most 4 a year" in text
    assert "groundedness fell from its level of 0.865" in text
    assert 'href="/figures?metric=latency_p95"' in html


def test_a_missing_page_has_words_for_people_only() -> None:
    """An address that is none of ours leads a person on; a program gets its line."""
    page = client().get("/nothing/here", headers={"accept": "text/html"})
    assert (page.status_code, "Overview" in page.text) == (404, True)
    assert client().get("/nothing/here", headers={"accept": "application/json"}).text == "Not Found"


def test_sums_are_drawn_as_rates() -> None:
    """Requests per minute and cost per hour read the same in every range; shares and bounds have their units."""
    text = text_of(client().get("/").text)
    assert "Requests per minute 1." in text
    assert "Cost per hour $0.0" in text
    assert "Error rate 1.3 % 1.1 %–1.5 %" in text
    rows = text_of(client().get("/figures/rows?metric=cost_usd&title=Cost+per+hour").text)
    assert "Cost per hour per hour" not in rows


def test_a_comparison_says_what_is_missing_and_how_large_the_difference_is() -> None:
    """Too few users are not too few answers; the evaluator and the effect size are named."""
    text = text_of(client().get("/compare?a=variant:a&b=variant:b").text)
    assert "needs about 27 more users or sessions by groundedness" in text
    assert "effect size −0.1" in text
    html = client().get("/compare?a=prompt:v6&b=run:abc").text
    assert 'href="/traces?prompt_version=v6"' in html
    assert 'href="/replays/abc"' in html


def test_examples_lead_to_every_trace_of_their_bucket() -> None:
    """Below the worst, median and best there is the list they were taken from, in the order that matters."""
    html = unescape(client().get("/exemplars?metric=quality:groundedness&t=2026-11-21T04:00:00Z&step=900").text)
    bucket = "from=2026-11-21T04%3A00%3A00Z&to=2026-11-21T04%3A15%3A00Z"
    assert f'href="/traces?{bucket}&evaluator=groundedness&sort=worst"' in html
    assert "All traces" not in client().get("/exemplars?metric=requests&t=never&step=x").text


def test_the_queue_says_what_was_saved() -> None:
    """After a verdict the next answer comes, with a link back to the one just labelled."""
    api = FakeApi()
    trace_id = api.rows[0]["trace_id"]
    form = {"verdict": "bad", "evaluator": "groundedness", "return_to": "label"}
    following = client(api).post(f"/traces/{trace_id}/label", data=form).headers["location"]
    html = client(api).get(following).text
    assert "Saved as bad: that answer" in text_of(html)
    assert f'href="/traces/{trace_id}"' in html
    assert "Saved" not in text_of(client(api).get("/label?saved=<b>&of=x").text)


def test_skipping_the_last_suggestion_begins_again() -> None:
    """Six are suggested: the seventh is the first."""
    assert "6 of 6 suggested" in text_of(client().get("/label?skip=5").text)
    assert "1 of 6 suggested" in text_of(client().get("/label?skip=6").text)


def test_what_narrows_a_list_is_said_where_nothing_is_left() -> None:
    """An evaluator in the URL of the list is a filter that can be removed; with nothing to label another is chosen."""
    html = client().get("/traces?evaluator=groundedness&sort=worst").text
    assert re.search(r'evaluator</span> groundedness <a href="/traces\?sort=worst"', html)
    assert "Your verdict on" in text_of(client(FakeApi(empty=True)).get("/label").text)
