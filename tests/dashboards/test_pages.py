"""Pages without a browser: what a person without JavaScript, or a test, can read."""

import csv
import io
import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_collector.analysis.traffic import check_metric
from ragpulse_dashboards import CONTENT_SECURITY_POLICY, ApiError, routes
from ragpulse_dashboards.formats import by_unit, estimate, interval

from .fake_api import FakeApi
from .fake_day import EVALUATORS, hexid
from .test_browser import PAGES


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
    assert "groundedness 0.86 ± 0.02 · 1,204 of 1,290 answers" in text
    assert "answered 68 % ± 1.9 % · 1,201 of 1,290 answers" in text
    assert "worse was 0.903" in text
    assert "Groundedness as a table" in text


def test_the_first_screen_says_what_changed() -> None:
    """The surest change is a sentence with its levels, its time and what began then; the worst are a click away.

    Words that only a statistician reads stand in tooltips.
    """
    html = unescape(client().get("/").text)
    text = text_of(html)
    assert "Groundedness fell 0.93 → 0.71 at Nov 21 04:00 UTC, when prompt qa v7 began. Why? Worst answers" in text
    assert "Cost per answer rose $0.0096 → $0.012" in text
    assert "/traces?from=2026-11-21T04%3A00%3A00Z&evaluator=groundedness&sort=worst" in html
    assert text.index("Groundedness fell") < text.index("Cost $4.28") < text.index("Quality") < text.index("Efficiency")
    for private in ("n eff.", "Waiting, dropped", "Never selectable"):
        assert private not in text
    quiet = FakeApi()
    quiet.young = True
    assert "Nothing changed in this range." in text_of(client(quiet).get("/").text)


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
            return answer | {"changes": [{**answer["changes"][0], "metric": metric, "unit": "usd", "worse": True}]}

    html = unescape(client(Only()).get("/").text)
    assert re.search(rf'<a class="button" href="/traces\?from=[^"]*&{query}">{words}</a>', html)


def test_expensive_requests_are_listed_by_cost() -> None:
    """The list behind a cause of cost is not in the order of latency."""
    html = unescape(client().get("/explain?metric=cost_usd").text)
    assert "&sort=expensive" in html
    assert "sort=slow" not in html


def test_a_change_is_explained_from_its_second_on() -> None:
    """A prompt that began within a second leaves no fraction in the field of the form."""

    class Within(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            for one in answer["changes"]:
                one["t"] = f"{one['t'][:19]}.683022Z"
            return answer

    (link, *_) = re.findall(r"sel_from=[^\"]*", client(Within()).get("/").text)
    assert link.endswith("%3A00Z")


class Broken(FakeApi):
    """A collector that fails in a way nobody foresaw."""

    async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
        raise RuntimeError(f"{operation} of /secret/file.duckdb")


@pytest.mark.parametrize("path", ["/", "/sessions", "/alerts"])
def test_a_failure_that_nobody_foresaw_is_a_page(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reason is in the log, not on the page."""
    answer = client(Broken()).get(path)
    assert answer.status_code == 500
    assert "That did not work The collector failed to answer; its log has the reason." in text_of(answer.text)
    assert answer.text.rstrip().endswith("</html>")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_the_address_of_a_form_is_no_blank_page() -> None:
    """For a person; a program is answered by the application."""
    answer = client().get("/demo/remove", headers={"accept": "text/html,*/*"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert "A form is sent to this address; there is no page to look at." in text_of(answer.text)
    assert "<html" not in client().get("/demo/remove").text


@pytest.mark.parametrize(
    ("path", "lists"), [("/users/nobody-", "sessions"), ("/datasets/none-", "datasets"), ("/traces/zz", "traces")]
)
def test_what_is_not_there_leads_to_the_list(path: str, lists: str) -> None:
    """A page that does not exist says so in a sentence, with a way on."""
    answer = client(FakeApi(empty=True)).get(path)
    assert answer.status_code == 404
    assert f'href="/{lists}">{lists.capitalize()}</a>' in answer.text
    (said,) = re.findall(r"<h1>Not found</h1>\s*<p>(.*?)</p>", answer.text, re.DOTALL)
    assert (said[0], said[-1]) == (said[0].upper(), ".")


def test_what_failed_comes_first_on_a_trace() -> None:
    """In the header and among the verdicts: failed, then passed, then without a bound; by name; skipped ones last.

    A thumb down is a failure, an earlier verdict of the same evaluator is not in the header.
    """

    class Judged(FakeApi):
        def get_traces_one(self, name: str, params: Mapping[str, Any], *rest: str) -> dict[str, Any]:
            answer = super().get_traces_one(name, params, *rest)
            if "scores" in answer:
                base = {**answer["scores"][0], "parts": None, "normalized": 0.0}
                found = [
                    ("bleu", "ok", None),
                    ("citations", "skipped", None),
                    ("words", "ok", True),
                    ("zeal", "ok", False),
                    ("thumbs", "ok", None),
                    ("tone", "ok", False),
                ]
                answer["scores"] = [
                    {**base, "evaluator": one, "status": status, "passing": passing} for one, status, passing in found
                ]
                older = {**base, "evaluator": "tone", "passing": True, "created_at": "2026-11-20T00:00:00Z"}
                answer["scores"].append(older)
            return answer

    api = Judged()
    html = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    chips = re.findall(r'<a class="chip[^"]*" href="#verdict-(\w+)"', html)
    verdicts = re.findall(r'verdict-card".*?<h3[^>]*>(\w+)</h3>', html, re.DOTALL)
    assert chips == ["thumbs", "tone", "zeal", "words", "bleu"]
    assert all(f'id="verdict-{name}"' in html for name in chips)
    assert verdicts == ["thumbs", "tone", "zeal", "tone", "words", "bleu", "citations"]


def test_no_text_is_turned_round() -> None:
    """What forces a direction is shown as a sign, in contexts, answers and JSON as in titles."""
    pages = client(FakeApi(hostile=True))
    for path in PAGES:
        html = pages.get(path).text
        assert not {"\u202d", "\u202e"} & set(html), path


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(0.4, 0.5, "0.45 ± 0.05"), (0.494, 0.502, "0.498 ± 0.004"), (0.5, 0.5, "0.50 ± 0.00")],
)
def test_a_narrow_interval_is_not_shown_as_none(low: float, high: float, shown: str) -> None:
    """A third digit where two would say that nothing is uncertain."""
    told = estimate({"value": (low + high) / 2, "lo": low, "hi": high})
    assert told.replace("\u00a0", " ") == shown


def test_an_interval_below_the_smallest_share_is_said_once() -> None:
    """Not `0 %–< 0.1 %`."""
    assert interval(0, 0.0004, "share").replace("\u00a0", " ") == "< 0.1 %"


def test_the_worst_answers_name_the_sentence_and_the_document() -> None:
    """Each with what is not supported and what is closest to it; above them what the bad ones share."""
    text = text_of(client().get("/worst?evaluator=groundedness&since=2026-11-21T04:00:00Z").text)
    assert "80 of 83 bad answers (50 %) retrieved operations/backups.md ; of the others 5.0 %" in text
    assert "✕ " in text
    assert text.count("groundedness 0.") >= 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0096, "$0.0096"), (0.01, "$0.010"), (0.4567, "$0.46"), (1.234, "$1.23"), (4.2e-7, "$0.00000042")],
)
def test_money_keeps_two_digits_below_a_dollar(value: float, shown: str) -> None:
    """An interval's ends and its middle are told apart."""
    assert by_unit(value, "USD") == shown


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
    assert "Pending 4 Oldest pending 7 s Results a second 2.5 Backlog done in about 2 s Done" in text_of(
        client().get("/health").text
    )
    assert "9 calls have no price: add it to [prices]." in text_of(client().get("/health").text)
    assert "Oldest pending – Results a second 0 Backlog done in about – Done" in text_of(
        client(FakeApi(empty=True)).get("/health").text
    )


@pytest.mark.parametrize(
    ("evaluations", "words"),
    [
        ({"done_per_s": 90.0, "clears_in_s": 4081.4}, "90 a second are done: done in about 1 h 8 min."),
        (
            {"done_per_s": 9.0, "new_per_s": 12.0, "clears_in_s": None},
            "12 a second are new, so the backlog does not shrink",
        ),
    ],
)
def test_health_is_not_green_with_a_backlog(evaluations: dict[str, object], words: str) -> None:
    """Backlog, rate and when it ends."""

    class Behind(FakeApi):
        def get_status(self, params: Mapping[str, Any]) -> dict[str, Any]:
            status = super().get_status(params)
            behind = {"pending": 367_328, "oldest_s": 9000.0, **evaluations}
            return {**status, "evaluations": {**status["evaluations"], "dropped": {}, **behind}}

    text = text_of(client(Behind()).get("/health").text).replace("\xa0", " ")
    assert "367,328 evaluations pending, the oldest for 2 h 30 min" in text
    assert words in text
    assert "no evaluation is late" not in text


def test_a_table_twin_comes_when_it_is_opened() -> None:
    """The newest rows with interval, n and what was not scored; the rest is one link away, under the same range."""
    api = FakeApi()
    html = unescape(client(api).get("/").text)
    (link,) = re.findall(r'data-later="(/figures/rows[^"]+quality%3Acitation_check[^"]*)"', html)
    (drawn,) = re.findall(r"step=(\d+)", link)
    rows = client(api).get(link, headers={"hx-request-type": "partial"}).text
    assert [params["step"] for name, params in api.calls if name == "GET metrics"][-1] == drawn  # as the chart has it
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
    form = {"evaluators": "faithfulness", "since": "7d", "limit": "100", "max_usd": "2", "where": "", "judge": "gpt-6"}
    assert all(f'name="{name}"' in client(api).get("/replays").text for name in form)
    response = client(api).post("/replays", data=form)
    assert response.headers["location"].startswith("/replays/")
    numbers = {"limit": 100, "max_usd": 2.0}
    assert api.calls[-1][1] == {"evaluators": ["faithfulness"], "since": "7d", "judge": "gpt-6", **numbers}
    run = response.headers["location"].rpartition("/")[2]
    assert f"/compare?b=run%3A{run}" in unescape(client(api).get(response.headers["location"]).text)
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
    assert "Traces 60" in text_of(html)
    second = client().get(unescape(link)).text
    assert second.count("data-row>") == 10
    assert 'href="/traces?from=-30d&amp;sort=slow">First page' in second


def test_csv_has_all_rows_and_scores_and_no_formulas() -> None:
    """Every page of the list, users, sessions, a column for each evaluator; a spreadsheet runs nothing."""
    api = FakeApi(n_traces=2100)
    api.rows[0]["query"] = "=HYPERLINK(1)"
    api.rows[2050]["scores"] = {"seldom": {"normalized": 0.5}}
    rows = list(csv.DictReader(io.StringIO(client(api).get("/traces.csv?from=-3650d").text)))
    assert len(rows) == 2100
    assert (rows[0]["query"], rows[0]["user_id"], rows[0]["session_id"]) == ("'=HYPERLINK(1)", "user-0", "session-0")
    assert float(rows[0]["groundedness"]) == api.rows[0]["scores"]["groundedness"]["normalized"]
    assert rows[2050]["other_scores"] == "seldom=0.5"


def test_headers_sort_and_columns_are_chosen() -> None:
    """A header leads to its order and back, and says which holds; chosen columns stay in every link."""
    page = unescape(client().get("/traces?sort=slow&columns=latency&columns=user").text)
    assert 'aria-sort="descending"><a href="/traces?sort=fast&columns=latency&columns=user">Latency' in page
    assert 'href="/users/user-0"' in page
    assert "Tokens</a></th>" not in page
    assert "sort=worst" in unescape(client().get("/traces").text)


@pytest.mark.parametrize("path", ["/traces", "/", "/explain"])
def test_a_bad_condition_keeps_its_text(path: str) -> None:
    """Each page says what is wrong beside the field that still holds what was typed."""

    class Refusing(FakeApi):
        async def __call__(self, operation: str, params: Mapping[str, Any]) -> Any:
            if params.get("where"):
                raise ApiError(400, "where: unexpected 'and'")
            return await super().__call__(operation, params)

    response = client(Refusing()).get(f"{path}?where=latency_ms+>+and&model=gpt-5-mini")
    assert response.status_code == 400
    assert 'name="where" value="latency_ms &gt; and"' in response.text
    assert "unexpected 'and'" in text_of(response.text)
    assert 'name="model" value="gpt-5-mini"' in response.text


def test_a_trace_id_in_the_search_opens_the_trace() -> None:
    """However old it is; any other text is looked for in the list."""
    api = FakeApi()
    trace_id = api.rows[3]["trace_id"]
    assert client(api).get(f"/traces?q={trace_id.upper()}+").headers["location"] == f"/traces/{trace_id}"
    assert client(api).get("/traces?q=backups").status_code == 200


def test_a_thumb_of_a_person_is_marked_as_a_check_is() -> None:
    """Down is red, in the conversation and on the trace; it is not told twice. Examples name scores as pages do."""

    class Disliked(FakeApi):
        def get_sessions_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_sessions_one(name, params)
            thumb = {"thumbs": {"normalized": 0.0, "status": "ok", "passing": None, "label": None}}
            turns = [{**one, "feedback": -1.0, "scores": one["scores"] | thumb} for one in answer["turns"]]
            return answer | {"turns": turns}

    html = client(Disliked()).get("/sessions/session-3").text
    assert html.count("✕</span> thumbs down") == html.count('class="turn failing"') > 0
    assert "feedback" not in text_of(html)

    class Liked(FakeApi):
        def get_exemplars(self, params: Mapping[str, Any]) -> dict[str, Any]:
            thumb = {"thumbs": {"normalized": 1.0, "status": "ok", "passing": None, "label": None}}
            found = super().get_exemplars(params)
            return {part: [{**one, "scores": one["scores"] | thumb} for one in rows] for part, rows in found.items()}

    examples = text_of(client(Liked()).get("/exemplars?metric=latency_p95&t=2026-11-21T04:00:00Z&step=900").text)
    assert "thumbs up" in examples
    assert "thumbs down" not in examples
    assert "groundedness 0." in examples
    assert "context_utilization" not in examples


def test_a_session_is_a_conversation() -> None:
    """The first turn first, with answers, scores and cost; from a trace one click, as a user's over all sessions."""
    api = FakeApi()
    turns = [row for row in api.rows if row["session_id"] == "session-3"][::-1]
    page = client(api).get("/sessions/session-3").text
    assert re.findall(r'href="/traces/([0-9a-f]{32})', page) == [row["trace_id"] for row in turns]
    text = text_of(page)
    assert turns[1]["response"].split(". ")[0] in text
    assert "groundedness" in text
    assert "$" in text
    listed = client(api).get("/sessions").text
    assert 'href="/sessions/session-3"' in listed
    assert "✕ 0.31 failing" in text_of(listed)
    assert 'href="/sessions/session-3"' in client(api).get(f"/traces/{turns[0]['trace_id']}").text
    asked = re.findall(r'<p class="asked"[^>]*><a href="/traces/([0-9a-f]{32})', client(api).get("/users/user-2").text)
    assert asked == [row["trace_id"] for row in api.rows if row["user_id"] == "user-2"][::-1]
    assert client(api).get("/users/nobody").status_code == 404


def test_an_error_is_named_with_its_span() -> None:
    """Exception, message, stack trace and the failing span stand on top of the trace."""
    api = FakeApi()
    row = next(row for row in api.rows if row["error"])
    page = client(api).get(f"/traces/{row['trace_id']}").text
    assert "openai.RateLimitError in generate : too many requests: try again in 20 s" in text_of(page)
    assert "Traceback (most recent call last):\n" in page


@pytest.mark.parametrize(("asked", "told"), [("groundedness", "Nothing to do"), ("refusal,groundedness", "Queued")])
def test_evaluating_again_says_whether_anything_is_queued(asked: str, told: str) -> None:
    """What has a score keeps it: the page must not promise another one."""
    api = FakeApi()
    path = f"/traces/{api.rows[0]['trace_id']}"
    answer = client(api).post(f"{path}/evaluate", data={"evaluators": asked})
    page = text_of(client(api).get(answer.headers["location"]).text)
    assert told in page


def test_contexts_before_the_reranker_stand_apart() -> None:
    """Three were answered from, six were found; the trace is linked as a file that needs no collector."""
    api = FakeApi()
    path = f"/traces/{api.rows[2]['trace_id']}"
    page = client(api).get(path).text
    assert "before rerank (6)" in page
    assert "Contexts 3 " in text_of(page)
    assert f'href="{path}/html" download' in page
    answer = client(api).get(f"{path}/html")
    assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''trace-")


def test_labels_are_suggested_until_none_is_left() -> None:
    """When the first suggestions all have labels, the page asks for more before it says that there are none."""

    class Labelled(FakeApi):
        def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            return super().get_labels_one(name, params) if params.get("limit") == 200 else {"traces": []}

    assert "1 of " in text_of(client(Labelled()).get("/label").text)


def test_the_pages_agree_how_many_labels_are_needed() -> None:
    """The queue with nothing left, and the form below a trace."""

    class Labelled(FakeApi):
        def get_labels_one(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
            return {"traces": []}

    api = Labelled()
    for path in ("/label", f"/traces/{api.rows[2]['trace_id']}"):
        assert "rom 30 labels on, an evaluator's estimate is corrected" in text_of(client(api).get(path).text)


@pytest.mark.parametrize(("needs_key", "words"), [(True, "asks for a key"), (False, "listens only on this computer")])
def test_the_login_knows_whether_a_key_is_needed(needs_key: bool, words: str) -> None:
    """On loopback nobody is sent for a key that is not asked for."""
    pages = TestClient(Starlette(routes=routes(FakeApi(), needs_key=needs_key)))
    assert words in text_of(pages.get("/login").text)


def test_a_trace_shows_question_contexts_answer_and_verdicts() -> None:
    """Everything about one answer is on its page, the unsupported sentence by name."""
    api = FakeApi()
    page = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    assert 'href="/users/user-' in page
    assert f'href="/traces/{api.rows[2]["trace_id"]}/html" download' in page
    text = text_of(page)
    for words in (
        "How long are backups kept?",
        "operations/backups.md",
        "2 of 3 sentences supported",
        "faithfulness",
        "sampled at 5.0\xa0%".replace("\xa0", " "),
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
    assert "missed groundedness at least 0.900: 0.861 0.842–0.879 1,204 answers" in text
    assert "met latency p95 at most 2.00 s: 1.45 s" in text
    assert "undecided answered" in text


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
    html = unescape(client().get("/facets?for=/explain&from=-7d&metric=latency_p95").text)
    assert 'href="/explain?from=-7d&metric=latency_p95&model=gpt-5-mini"' in html
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
    assert "-0.170 0.880 → 0.710 -0.210 to -0.130" in text.replace("−", "-")
    assert "not enough data about 210 more" in text


def test_a_comparison_that_cannot_be_made_keeps_its_form() -> None:
    """The refusal stands below what was chosen; without a choice the page offers what the range holds."""
    response = client().get("/compare?a=prompt:v6&b=prompt:none")
    assert response.status_code == 404
    assert 'value="prompt:none"' in response.text
    assert "no scores" in text_of(response.text)
    assert "/compare?a=prompt%3Av6&amp;b=prompt%3Av7" in client().get("/compare").text


def test_only_what_was_scored_is_suggested_for_a_comparison() -> None:
    """A version without a score in the range makes no pair, and is not offered."""

    class Unscored(FakeApi):
        def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_metrics(params)
            for line in answer["series"][1:] if params.get("step") == "all" else ():
                line["points"] = [{**point, "n": 0} for point in line["points"]]
            return answer

    assert "/compare?a=prompt" in client().get("/compare").text
    assert "/compare?a=prompt" not in client(Unscored()).get("/compare").text


def test_a_new_rule_begins_without_a_warning() -> None:
    """Nothing is predicted, and nothing is wrong, before an evaluator is chosen."""
    new, filled = (client().get(path).text for path in ("/rules/new", "/rules/new?evaluators=groundedness"))
    assert "Choose evaluators to see" in text_of(new)
    assert 'hx-trigger="input' in new
    assert 'hx-trigger="load, input' in filled


def test_names_of_evaluators_are_the_same_in_every_chart() -> None:
    """The yes of `refusal` is "answered", also in the legend of the coverage, and titles begin with a capital."""
    html = client().get("/").text
    legend = html.partition('id="chart-coverage"')[2].partition('class="legend"')[2].partition("</ul>")[0]
    assert "answered" in text_of(legend)
    assert "refusal" not in text_of(legend)
    titles = [text_of(title) for title in re.findall(r"<h3>(.*?)</h3>", html)]
    assert titles
    assert [title for title in titles if not title[0].isupper()] == []


def test_a_cause_found_only_among_the_bad_is_said_in_words() -> None:
    """Not `elsewhere 0 %: only here`."""

    class OnlyHere(FakeApi):
        def get_explain(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_explain(params)
            baseline = {"n": 0, "share": 0.0}
            return answer | {"attributes": [one | {"lift": None, "baseline": baseline} for one in answer["attributes"]]}

    assert "elsewhere none." in text_of(client(OnlyHere()).get("/explain").text)


def test_evaluators_in_use_stand_apart() -> None:
    """Those that a rule names show what they did; the others only what they need."""
    used, others = client().get("/evaluators").text.split("Other evaluators</h2>")
    assert "evaluator=groundedness&amp;outcome=scored&amp;evaluated_from=-24h" in used
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


def test_an_alert_is_made_in_the_page() -> None:
    """A preset's limit is a tenth below the level before a fall; the preview counts firings before anything is kept."""
    api = FakeApi()
    slow = client(api).get("/alerts/new?preset=latency").text
    assert "quality-2" not in slow
    assert '<option value="1h" selected>' in slow
    assert re.search(r'name="limit" value="\d+"', slow)  # a condition has no exponent
    form = unescape(client(api).get("/alerts/new?preset=quality").text)
    assert 'name="name" value="quality-2"' in form  # the name is taken
    assert '<option value="quality:groundedness" selected>' in form
    (limit,) = re.findall(r'name="limit" value="(0\.\d+)"', form)
    assert limit == "0.84"
    assert '<option value="1d" selected>' in form  # an hour has too few answers
    draft = {"name": "mine", "metric": "quality:groundedness", "sign": "<", "limit": limit, "window": "1h"}
    seen = text_of(client(api).get("/alerts/preview", params={**draft, "where": "error"}).text)
    assert "It would have fired 1 time in the last 7 days" in seen
    assert "a drop of 0.10 is seen after about 50 minutes." in seen
    assert client(api).post("/alerts", data={**draft, "notify": ["team"]}).headers["location"].endswith("name=mine")
    operation, kept = api.calls[-1]
    assert operation == "POST monitors"
    assert kept["condition"] == f"< {limit}"
    assert kept["notify"] == ["team"]


def test_an_alert_that_is_refused_comes_back_as_it_was_typed() -> None:
    """With the reason beside it, as a form."""
    page = client().post("/alerts", data={"name": "mine", "metric": "latency_p95", "sign": "<", "where": "model = 'x'"})
    assert page.status_code == 400
    assert "write '< 0.85'" in unescape(page.text)
    assert "model = 'x'" in unescape(page.text)
    assert 'value="mine"' in page.text


def test_an_alert_is_changed_muted_and_deleted() -> None:
    """Those of the file only muted; a firing leads to its range and to its worst traces."""
    api = FakeApi()
    pages = client(api)
    html = unescape(pages.get("/alerts").text)
    assert "/alerts/latency/edit" not in html
    assert 'action="/alerts/latency/unmute"' in html
    window = "prompt_version=v7&t=2026-11-21T07%3A00%3A00Z&step=3600"
    assert f"/exemplars?metric=quality%3Agroundedness&{window}" in html
    assert "/figures?metric=quality%3Agroundedness&prompt_version=v7&from=2026-11-20T20%3A00%3A00Z" in html
    assert 'name="existing" value="quality"' in pages.get("/alerts/quality/edit").text
    assert pages.get("/alerts/latency/edit").status_code == 404
    pages.post("/alerts", data={"existing": "quality", "metric": "error_rate", "sign": "no data"})
    pages.post("/alerts/quality/mute", data={"for": "8h"})
    pages.post("/alerts/quality/delete")
    asked = [(name, params.get("for")) for name, params in api.calls if not name.startswith("GET")]
    assert asked == [
        ("PUT monitors/quality", None),
        ("POST monitors/quality/mute", "8h"),
        ("DELETE monitors/quality", None),
    ]


def test_the_heatmap_has_a_table_that_marks_without_a_mouse() -> None:
    """Each time says how many traces it has and where most lie; its link explains just that time."""
    html = unescape(client().get("/explain?metric=latency_p95").text)
    table = html.partition("The heatmap as a table")[2].partition("</table>")[0]
    assert table.count('<th scope="row"') == 48
    assert re.search(r"Nov 21 11:30</th><td class=\"num\">\d+</td><td class=\"num\">1\.\d+\ss–1\.\d+\ss</td>", table)
    link = re.findall(r'href="(/explain[^"]+)"', table)[-1]
    assert "sel_from=2026-11-20T12%3A00%3A00Z&sel_to=2026-11-20T12%3A30%3A00Z" in link
    assert "83 slow requests against" in text_of(client().get(link).text)


def test_why_begins_with_what_explains_most() -> None:
    """A model of all expensive requests leads, a rare document of greater lift does not; the table goes by lift."""

    class Expensive(FakeApi):
        def get_explain(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return super().get_explain(params) | {
                "attributes": [
                    {"attribute": name, "value": value, "lift": lift, "p_adjusted": 1e-4, "explained_by": None,
                     "selected": {"n": 9, "share": share}, "baseline": {"n": 1, "share": base}}
                    for name, value, lift, share, base in (("document", "rare.md", None, 0.05, 0.0),
                        ("document", "some.md", 12.0, 0.18, 0.015), ("model", "large", 4.7, 1.0, 0.21))
                ]
            }  # fmt: skip

    sentences, _, table = text_of(client(Expensive()).get("/explain?metric=cost_usd").text).partition("What differs")
    places = [part.index(name) for part in (sentences, table) for name in ("large", "some.md", "rare.md")]
    assert places[:3] == sorted(places[:3])
    assert places[3:] == sorted(places[3:], reverse=True)


def test_the_api_knows_every_metric_that_explain_offers() -> None:
    """Those of its menu, and those of the links below the charts: the API refuses a name that is no metric."""
    options = re.findall(r'<option value="([^"]+)"', client().get("/explain").text)
    links = re.findall(r'href="/explain\?([^"]+)" data-why', unescape(client().get("/").text))
    linked = [parse_qs(query)["metric"][0] for query in links]
    assert {"latency_p95", "cost_usd", "error_rate"} <= set(options) & set(linked)
    for metric in (*options, *linked):
        check_metric(metric, EVALUATORS)


def test_explain_without_a_range_shows_the_one_that_holds_the_data() -> None:
    """As the overview does; a range in the address is kept."""
    api = FakeApi()
    api.young = True
    for path, start in (("/explain", "-1h"), ("/explain?from=-7d", "-7d")):
        client(api).get(path)
        assert [params["from"] for operation, params in api.calls if operation == "GET explain"][-1] == start


def test_why_is_said_in_sentences_and_leads_on() -> None:
    """The first causes in words, at most eight rows, the explained folded under their cause; links keep the metric."""
    api = FakeApi()
    html = unescape(client(api).get("/explain?metric=quality:groundedness").text)
    text = text_of(html)
    assert "80 of 83 bad answers (50 %) retrieved operations/backups.md ; elsewhere 5.0 %: 10.0×" in text.replace(
        "\xa0", " "
    )
    assert "explains 1 more contexts retrieved 4" in text
    assert "claude-haiku-5" not in text.partition("What differs")[2]
    assert [params["bad"] for operation, params in api.calls if operation == "GET explain"] == [True]
    failing = "evaluator=groundedness&failing=true&sort=worst"
    assert re.search(rf'href="/traces\?from=2026-11-21T04[^"]+&{failing}&document=operations%2Fbackups.md"', html)
    assert "/compare?b=prompt%3Av7&evaluator=groundedness" in html
    assert "/alerts/new?metric=quality%3Agroundedness&preset=quality&where=prompt_version+%3D+%27v7%27" in html
    assert 'name="sel_from" value="2026-11-21T04' in html  # the stretch that was found is marked


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


@pytest.mark.parametrize(
    "path",
    ["/", "/compare?a=prompt:v6&b=prompt:v7", "/compare?a=judge:old&b=judge:new", "/evaluators", "/alerts", "/label",
     "/figures/rows?metric=quality:groundedness&title=Groundedness", f"/replays/{hexid('run1', 16)}"],
)  # fmt: skip
def test_pages_speak_of_answers_and_users_not_of_statistics(path: str) -> None:
    """The estimator's terms stay in docs/statistics.md; versions of an evaluator are neither better nor worse."""
    text = text_of(client().get(path).text)
    assert not re.search(r"n_eff|effective n|Hajek|mSPRT|CUSUM|assisted_by|\bpi\b", text, re.IGNORECASE)
    if "judge:" in path:
        assert "judge:new is stricter than judge:old by" in re.sub(r"[▲▼] ", "", text)


def test_a_replay_leads_on() -> None:
    """What the run changed against the version in use, its worst traces, and a rule that uses it from now on."""
    api = FakeApi()
    run = next(run for run in api.get_replays({})["replays"] if run["status"] == "done")
    html = unescape(client(api).get(f"/replays/{run['run_id']}").text)
    asked = next(params for operation, params in api.calls if operation == "GET compare")
    assert (asked["a"], asked["b"]) == ("faithfulness@a1b2c3d4e5f6", f"run:{run['run_id']}")
    assert "Stricter than faithfulness@a1b2c3d4e5f6" in text_of(html)
    assert "the last sentence is nowhere in the contexts" in html
    assert "/traces?evaluator=faithfulness&sort=worst&from=-7d" in html
    (rule,) = re.findall(r'href="(/rules/new[^"]+)"', html)
    form = client(api).get(rule).text
    assert re.search(r'value="faithfulness" checked', form)


def test_a_replay_by_another_judge_is_compared_with_the_judge_in_use() -> None:
    """A rule would ask the configured judge, so none is offered; the page says what to change instead."""
    api = FakeApi()
    api.runs = {"version": "a1b2c3d4e5f6", "judge": "openai/gpt-6", "current": False}
    run = next(run for run in api.get_replays({})["replays"] if run["status"] == "capped")
    html = unescape(client(api).get(f"/replays/{run['run_id']}").text)
    asked = next(params for operation, params in api.calls if operation == "GET compare")
    assert (asked["a"], asked["b"]) == ("judge:openai/gpt-5-mini", f"run:{run['run_id']}")
    assert "/rules/new" not in html
    assert "set it in ragpulse.toml" in text_of(html)
    assert "Stopped the cap of the replay is 2 USD, 0.0004 left" in text_of(html)
    client(api).post(f"/replays/{run['run_id']}/resume", data={"max_usd": "4"})
    assert api.calls[-1] == (f"POST replays/{run['run_id']}/resume", {"max_usd": 4.0})


def test_sums_are_drawn_as_rates() -> None:
    """Requests per minute and cost per hour read the same in every range; shares and bounds have their units."""
    text = text_of(client().get("/").text)
    assert "Requests per minute 1." in text
    assert "Cost per hour $0.0" in text
    assert "Errors 1.3 % 1.1 %–1.5 %" in text
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


def test_traces_are_kept_as_a_dataset_and_downloaded() -> None:
    """All that match the filters, or the marked ones; files for a program, a spreadsheet and pytest."""
    api = FakeApi()
    pages = client(api)
    html = unescape(pages.get("/traces?from=-7d&model=gpt-5-mini&failing=true&metadata.tenant=acme").text)
    form = html.partition('id="dataset-form"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))
    response = pages.post("/datasets", data={**fields, "dataset_name": "bad ones"})
    assert response.headers["location"] == "/datasets/bad%20ones"
    assert api.calls[-1] == (
        "POST datasets/bad ones",
        {"from": "-7d", "model": "gpt-5-mini", "failing": "true", "metadata.tenant": "acme"},
    )
    both = {**fields, "dataset_name": "bad ones", "trace_id": ["a", "b"]}
    pages.post("/datasets", data={**both, "all": "true"})
    assert api.calls[-1][1]["failing"] == "true", "all that match, whatever is selected"
    pages.post("/datasets", data={"dataset_name": "bad ones", "trace_id": ["a", "b"], "from": "-7d"})
    assert api.calls[-1] == ("POST datasets/bad ones", {"trace_ids": ["a", "b"]})
    page = unescape(pages.get("/datasets/bad%20ones").text)
    assert "/compare?dataset=bad+ones&from=-30d" in page
    assert "/replays?dataset=bad+ones&from=-30d" in page
    compared = unescape(pages.get("/compare?dataset=bad+ones&from=-30d").text)
    assert "/compare?from=-30d&dataset=bad+ones&a=prompt%3Av6&b=prompt%3Av7" in compared, "two versions, one click on"
    lines = [json.loads(line) for line in pages.get("/datasets/bad%20ones/jsonl").text.splitlines()]
    assert lines[0]["query"] == "=1+1"
    assert "\r\n'=1+1," in pages.get("/datasets/bad%20ones/csv").text
    test = pages.get("/datasets/bad%20ones/py")
    assert 'filename="test_bad_ones.py"' in test.headers["content-disposition"]
    namespace: dict[str, Any] = {"__name__": "test_bad_ones"}
    exec(compile(test.text, "test_bad_ones.py", "exec"), namespace)
    namespace["test_answer"](namespace["CASES"][0])
    assert test.text.count("'query':") == 2  # an answer that failed is nothing to be like
