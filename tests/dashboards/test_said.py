"""What a page says about its figures: what they are of, where the rest is, and why something is missing."""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pytest

from .fake_api import FakeApi
from .reading import client, text_of
from .test_browser import PAGES

STATIC = files("ragpulse_dashboards")


def page(path: str, api: FakeApi | None = None) -> str:
    """A page as text, with plain spaces."""
    return text_of(client(api).get(path).text).replace("\xa0", " ")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("not decided yet", "being added up for 98 %: a cost is known once all spans of its answer are in"),
        ("no price for in-house", "unknown for 98 %: no price for in-house"),
        (None, "unknown for 98 % Errors"),
    ],
)
def test_a_cost_that_is_missing_says_why(reason: str | None, words: str) -> None:
    """New answers are told from calls without a price."""

    class Unpriced(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            return {**super().get_overview(params), "cost_unknown_share": 0.98, "cost_unknown_reason": reason}

    assert words in page("/", Unpriced())


@pytest.mark.parametrize("leads", [True, False])
def test_a_change_of_the_cost_of_an_answer_has_a_chart_of_that(leads: bool) -> None:
    """In front or below; without a change the chart is of an hour."""

    class Dearer(FakeApi):
        def get_overview(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_overview(params)
            return {**answer, "changes": answer["changes"][1:] if leads else answer["changes"]}

    html = client(Dearer()).get("/").text
    heads = re.findall(r"<h3>(?:<a [^>]*>)?(Cost per \w+)", html)
    assert heads == ["Cost per answer"] * (2 if leads else 1)
    drawn = re.findall(r'data-chart="([^"]*)"', html)
    (chart,) = [one for one in drawn if "Cost per answer" in one and ("&#34;tall&#34;:true" in one) == leads]
    values = [float(value) for value in re.findall(r"&#34;v&#34;:\[([^\]]*)", chart)[0].split(",") if value != "null"]
    assert 0 < max(values) < 0.1, "a request costs about a cent"
    young = FakeApi()
    young.young = True
    assert re.findall(r"<h3>(?:<a [^>]*>)?(Cost per \w+)", client(young).get("/").text) == ["Cost per hour"]


@pytest.mark.parametrize("name", ["latency", "cost", "groundedness"])
def test_a_score_is_told_from_the_figure_of_its_name(name: str) -> None:
    """Evaluators may be called latency or cost."""

    class Replayed(FakeApi):
        def get_traces(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_traces(params)
            score = next(row["scores"]["groundedness"] for row in answer["traces"] if row["scores"])
            for row in answer["traces"]:
                row["scores"] = {name: {**score, "normalized": None, "score": 1.25}}
            return answer

    heads = [text_of(head) for head in re.findall(r"<th[^>]*>(.*?)</th>", client(Replayed()).get("/traces").text)]
    assert len(set(heads)) == len(heads)
    assert (f"{name} score" in heads) == (name != "groundedness")


@pytest.mark.parametrize(("failing", "unused"), [(True, 59), (False, 60)])
def test_unused_contexts_are_counted_and_the_best_is_shown_where_the_answer_failed(failing: bool, unused: int) -> None:
    """Two sentences that one of 61 contexts supports are not a search that works."""

    class Wide(FakeApi):
        def get_traces_one(self, name: str, params: Mapping[str, Any], *rest: str) -> dict[str, Any]:
            answer = super().get_traces_one(name, params, *rest)
            if "contexts" in answer:
                kept = [row for row in answer["contexts"] if not row["superseded"]][:1]
                answer["contexts"] = kept + [{**kept[0], "rank": rank, "id": f"far-{rank}"} for rank in range(2, 62)]
                part = {"text": "Kept.", "supported": True, "rank": 1}
                base = {**answer["scores"][0], "evaluator": "groundedness", "status": "ok", "normalized": 1.0}
                answer["scores"] = [
                    {**base, "passing": True, "parts": {"sentences": [part, part]}},
                    {**base, "evaluator": "tone", "passing": not failing, "parts": None},
                ]
            return answer

    api = Wide()
    html = client(api).get(f"/traces/{api.rows[2]['trace_id']}").text
    assert "2 of 2 sentences supported by 1 of 61 contexts." in text_of(html)
    shown, _, folded = html.partition(f"{unused} {'more ' if failing else ''}unused</summary>")
    assert (">far-2<" in shown.partition('id="contexts"')[2], ">far-2<" in folded) == (failing, not failing)
    assert ">far-61<" in folded


@pytest.mark.parametrize("path", ["trace", "/label", "/sessions/session-3"])
def test_a_long_answer_scrolls_in_its_place(path: str) -> None:
    """What follows it, such as the form of a verdict, stays near; a short one has no box."""

    class Verbose(FakeApi):
        def __init__(self) -> None:
            super().__init__()
            for row in self.rows:
                row["response"] = (row["response"] or "") + " A long story." * 8000

    pages = [
        client(api).get(f"/traces/{api.rows[2]['trace_id']}" if path == "trace" else path).text
        for api in (Verbose(), FakeApi())
    ]
    assert ["data-long" in html for html in pages] == [True, False]
    assert 'data-long tabindex="0" role="region" aria-label="Answer"' in pages[0]


def test_a_search_for_a_user_or_a_session_offers_it() -> None:
    """With all its answers: the list holds those of its range."""
    api = FakeApi()
    user, session = api.rows[3]["user_id"], api.rows[3]["session_id"]
    n = sum(row["user_id"] == user for row in api.rows)
    html = client(api).get("/traces", params={"q": f' "{user}" ', "from": "-1h"}).text
    assert f'User <a href="/users/{user}">{user}</a>: {n} answers of all time.' in html
    assert f'Session <a href="/sessions/{session}">' in client(api).get("/traces", params={"q": session}).text
    assert "answers of all time" not in page("/traces?q=backups")
    assert "answers of all time" not in page("/traces")


def test_a_dataset_says_what_became_of_the_answers() -> None:
    """Equal questions are one; a link without these figures says nothing."""
    pages = client()
    filled = pages.post("/datasets", data={"dataset_name": "bad ones", "trace_id": ["a", "b"]}).headers["location"]
    said = "5 answers became 3 questions, 3 of them new. A dataset holds each question once, and no answer without one."
    assert said in text_of(pages.get(filled).text)
    assert "became" not in page("/datasets/bad%20ones")


def test_figures_of_evaluators_name_their_time() -> None:
    """They are by the time of the evaluation, other pages by the time of the request."""
    assert "evaluations that ended in the last 24 h, of requests of any time" in page("/evaluators")


@pytest.mark.parametrize("path", PAGES)
def test_a_sentence_has_no_colon_before_its_last_word(path: str) -> None:
    """`had 20 contexts`, not `had this number of contexts: 20`; no page speaks of estimates as of a thing."""
    text = page(path)
    assert not re.search(r"number of \w+( \w+)*:|narrows the interval|\bEstimate\b", text)


def test_the_help_lists_every_page_and_key() -> None:
    """What a script listens to is named, and a page has one key."""
    html = client().get("/").text
    keys = re.findall(r'data-go="(.)"', html)
    assert len(set(keys)) == len(keys)
    listed = "".join(re.findall(r"<kbd>([^<]+)</kbd>", html.partition('id="help"')[2]))
    script = (STATIC / "static" / "js" / "app.js").read_text()
    actions = re.findall(r'^  \["(.)", \(\) =>', script, re.MULTILINE)
    assert len(actions) > 10
    assert set(keys) | set(actions) <= set(listed)
    assert [f"<kbd>g</kbd> <kbd>{key}</kbd>" in html for key in keys] == [True] * len(keys)


def test_colours_have_one_home() -> None:
    """Templates, scripts and the other sheets name colours; the file of a trace takes those of the pages."""
    texts = {path: path.read_text() for folder in ("templates", "templates/parts", "static/css", "static/js")
             for path in (STATIC / folder).iterdir() if path.name.endswith((".html", ".css", ".js"))}  # fmt: skip
    found = {path.name: set(re.findall(r"[:\"' ](#[0-9a-fA-F]{3,8})\b", text)) for path, text in texts.items()}
    assert found.pop("tokens.css")
    assert {name: colours for name, colours in found.items() if colours - {"#000"}} == {}, "#000 is a mask"
