"""The list of traces as HTML and as a file."""

import csv
import io
import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import unquote

import pytest

from .fake_api import FakeApi
from .reading import client, text_of


@pytest.mark.parametrize(
    ("search", "marked"),
    [
        ("NEEDLE", ["needle", "needle", "Needle"]),
        ('"needle in it"', ["needle in it"]),
        ("needle <b>", ["needle", "&lt;b&gt;", "needle", "Needle"]),
        ("(needle", ["(needle"]),
        ("user-0", ["user-0"]),
    ],
)
def test_a_search_shows_what_it_found(search: str, marked: list[str]) -> None:
    """However far behind the beginning of the question or the answer the words are, or in which id."""

    class Found(FakeApi):
        def get_traces(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return super().get_traces({name: value for name, value in params.items() if name != "q"})

    api = Found()
    texts = {"query": "word " * 60 + "needle in it <b>(needle", "response": "more " * 400 + "Needle."}
    api.rows = [api.rows[0] | texts]
    html = client(api).get("/traces", params={"q": search}).text
    assert re.findall(r"<mark>(.*?)</mark>", html) == marked


def test_an_empty_range_offers_the_next_that_is_not() -> None:
    """With the number of traces in it, under the same filters."""
    api = FakeApi()
    api.rows = api.rows[20:]
    html = unescape(client(api).get("/traces?from=-1h&model=gpt-5-mini").text)
    assert re.search(r'in this range: <a href="/traces\?model=gpt-5-mini&from=-7d">30 in 7 days</a>', html)
    assert "in this range" not in text_of(client(FakeApi(empty=True)).get("/traces?from=-1h").text)


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
    api.rows[2050]["scores"] = {"seldom": {**api.rows[0]["scores"]["groundedness"], "normalized": 0.5}}
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


def test_a_trace_id_in_the_search_opens_the_trace() -> None:
    """However old it is; any other text is looked for in the list."""
    api = FakeApi()
    trace_id = api.rows[3]["trace_id"]
    assert client(api).get(f"/traces?q={trace_id.upper()}+").headers["location"] == f"/traces/{trace_id}"
    assert client(api).get("/traces?q=backups").status_code == 200


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


def test_what_narrows_a_list_is_said_where_nothing_is_left() -> None:
    """An evaluator in the URL of the list is a filter that can be removed; with nothing to label another is chosen."""
    html = client().get("/traces?evaluator=groundedness&sort=worst").text
    assert re.search(r'evaluator</span> groundedness <a href="/traces\?sort=worst"', html)
    assert "Your verdict on" in text_of(client(FakeApi(empty=True)).get("/label").text)


def test_labels_and_metadata_of_the_range_are_groups() -> None:
    """The menu of groups loads them when it is opened; a form keeps the one that it was opened with."""

    class Labelled(FakeApi):
        def get_traces(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_traces(params)
            some = [{"value": "a", "n": 1}]
            return answer | {"facets": {"model": some, "label.my judge": some, "metadata.label": some, "label.no": []}}

    pages = client(Labelled())
    assert "/facets?from=-7d&for=/&groups=1" in unescape(unquote(pages.get("/?from=-7d").text))
    html = unescape(unquote(pages.get("/facets?for=/&groups=1&from=-7d").text))
    assert re.findall(r'href="/\?from=-7d&group_by=([^"]+)"', html) == ["label:my+judge", "metadata.label"]
    form = pages.get("/compare?a=prompt:v6&b=prompt:v7&by=label:my+judge").text
    assert '<option value="label:my judge" selected>label my judge</option>' in form
