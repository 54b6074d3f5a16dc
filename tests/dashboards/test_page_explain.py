"""What explains a change, as HTML."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any
from urllib.parse import parse_qs

from ragpulse_collector.analysis.traffic import check_metric

from .fake_api import FakeApi
from .fake_day import EVALUATORS
from .reading import client, text_of


def test_expensive_requests_are_listed_by_cost() -> None:
    """The list behind a cause of cost is not in the order of latency."""
    html = unescape(client().get("/explain?metric=cost_usd").text)
    assert "&sort=expensive" in html
    assert "sort=slow" not in html


def test_a_cause_found_only_among_the_bad_is_said_in_words() -> None:
    """Not `elsewhere 0 %: only here`."""

    class OnlyHere(FakeApi):
        def get_explain(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_explain(params)
            baseline = {"n": 0, "share": 0.0}
            return answer | {"attributes": [one | {"lift": None, "baseline": baseline} for one in answer["attributes"]]}

    assert "elsewhere none." in text_of(client(OnlyHere()).get("/explain").text)


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


AT = "at=2026-11-21T04%3A00%3A00Z"


def since(metric: str, **more: Any) -> str:
    """The card about a moment, as text with plain spaces."""
    api = FakeApi()
    api.since = more
    html = client(api).get(f"/explain?metric={metric}&{AT}").text
    assert api.calls[-1][1]["at"] == "2026-11-21T04:00:00Z"
    assert "bad" not in api.calls[-1][1]
    return text_of(html.partition("card causes since")[2].partition("</section>")[0]).replace("\xa0", " ")


def test_why_compares_before_with_after() -> None:
    """Each sentence names the change that it explains, and how much of it; the metric is in the title."""
    cost = since("cost_usd")
    assert "Since Nov 21 04:00 UTC: cost The cost was $4.00 → $10.00 in the 8 h after" in cost
    assert "Requests ×1 +$0.10 Tokens per answer ×2.6 +$5.00 Price per token ×1.2 +$1.30" in cost
    assert "Tokens per answer ×2.6 : 1,000 → 2,600; explains +$5.00 of +$6.00." in cost
    assert "Other models : claude-sonnet-5 15 % → 35 % of the tokens" in cost
    assert "The cost is unknown for 0 % of the requests before and 10.0 % after; they are in no figure here." in cost
    assert "explains +$0.10" not in cost  # less than a tenth
    latency = since("latency_p95")
    assert "The slowest tenth took, on average, 900 ms → 1.90 s" in latency
    assert "search (retriever) itself took 100 ms → 1.00 s; explains +900 ms of +1.00 s." in latency
    quality = since("quality:groundedness")
    assert "Prompt version v7 : 0 % → 30 % of the answers; explains −0.060 of −0.080." in quality
    assert "The same requests have model claude-haiku-5: nothing tells them apart." in quality
    assert "The rest, −0.010, is in no version" in quality


def test_a_document_that_vanished_may_explain_a_fall() -> None:
    """Without an interval the time alone speaks for it."""
    lost = {"attribute": "document", "value": "guide.md", "before": 0.25, "after": 0.0, "amount": -0.08, "also": []}
    may = since("quality:groundedness", parts=[lost | {"lo": None, "hi": None}])
    assert "Document guide.md : 25 % → 0 % of the answers; may explain −0.080 of −0.080." in may
    sure = since("quality:groundedness", parts=[lost | {"lo": -0.1, "hi": -0.06}])
    assert "of the answers; explains −0.080 of −0.080." in sure


def test_why_says_no_cause_of_what_is_not_sure() -> None:
    """Chance may explain the difference."""
    unsure = since("quality:groundedness", change={"value": -0.01, "lo": -0.03, "hi": 0.01}, parts=[])
    assert "Chance may explain the difference." in unsure
    assert "explains" not in unsure
    assert "The rest" not in unsure
    cost = since("cost_usd", change={"value": 0.2, "lo": -0.3, "hi": 0.7})
    assert "explains" not in cost
    empty = client(FakeApi(empty=True)).get(f"/explain?metric=cost_usd&{AT}")
    assert "Nothing is known before or after" in text_of(empty.text)


def test_unclear_and_declined_answers_stand_apart() -> None:
    """They are in lines of their own, with their lists; the title of the causes names the metric."""
    html = unescape(client().get("/explain?metric=quality:groundedness").text)
    text = text_of(html)
    assert "What bad answers share: groundedness" in text
    assert "Apart from these: 12 unclear answers ." in text
    assert "Apart from these: 1 declined answer ." in text
    assert re.search(r'href="/traces\?[^"]*label=unclear', html)


def test_the_table_of_yes_and_no_counts_the_bad() -> None:
    """A value of 0 or 1 has no bins."""
    html = client().get("/explain?metric=error_rate").text
    table = text_of(html.partition("The heatmap as a table")[2].partition("</table>")[0])
    assert "Time Traces Bad Mark" in table
    assert "At least, 0 or 1" in text_of(html)


def test_sentences_about_what_there_is_not() -> None:
    """All are bad; nothing is known before a moment of the recent past; all values are equal."""

    class Alike(FakeApi):
        def get_explain(self, params: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().get_explain(params)
            one = {**answer["heatmap"], "y": [0.002], "cells": [[5] for _ in answer["heatmap"]["x"]]}
            return answer | {"n_baseline": 0, "attributes": [], "change": None, "heatmap": one}

    text = text_of(client(Alike()).get("/explain?metric=cost_usd").text)
    assert "expensive requests, and no others to compare them with." in text
    assert "$0.0020 $0.0020 explain" in text.replace("\xa0", " ")
    assert "over $" not in text
    past = text_of(client(Alike()).get("/explain?metric=cost_usd&at=-3h").text).replace("\xa0", " ")
    assert "Nothing is known before or after 3 h ago to compare with." in past
