"""Alerts as HTML and their forms."""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest

from ragpulse_collector.refusals import TooSlow

from .fake_api import FakeApi
from .reading import client, text_of


def test_an_alert_is_made_in_the_page() -> None:
    """A preset's limit is a tenth below the level before a fall; the preview counts firings before anything is kept."""
    api = FakeApi()
    slow = client(api).get("/alerts/new?preset=latency").text
    assert "quality-2" not in slow
    assert '<option value="1h" selected>' in slow
    assert re.search(r'name="limit" value="\d+"', slow)  # a condition has no exponent
    form = unescape(client(api).get("/alerts/new?preset=quality").text)
    assert 'name="name" value="quality-2"' in form  # the name is taken
    assert '<option value="quality:groundedness" data-sign="<" selected>' in form
    (limit,) = re.findall(r'name="limit" value="(0\.\d+)"', form)
    assert limit == "0.84"
    assert '<option value="1d" selected>' in form  # an hour has too few answers
    draft = {"name": "mine", "metric": "quality:groundedness", "sign": "<", "limit": limit, "window": "1h"}
    seen = text_of(client(api).get("/alerts/preview", params={**draft, "where": "error"}).text)
    assert "It would have fired 1 time in the last 7 days" in seen
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


def test_a_watched_metric_is_told_with_its_unit_and_leads_to_its_chart() -> None:
    """A bound is in seconds, not in bare milliseconds; the link is the chart of what is watched, of whatever kind."""
    html = client().get("/alerts").text
    text = text_of(html)
    assert "Watches latency p95 Fires when above 3.00 s" in text
    assert "Last 1 h 0.742 0.716–0.767 False alarms at most 4 a year" in text
    assert "groundedness fell from its level of 0.865" in text
    assert 'href="/figures?metric=latency_p95"' in html


def test_a_firing_card_shows_the_metric_and_leads_on() -> None:
    """A line with the window that fired, Why? at its start, and its worst traces; a card that is fine has none."""
    api = FakeApi()
    html = unescape(client(api).get("/alerts").text)
    firing, fine = html.partition(">quality</h2>")[2].partition("</article>")[0], html.partition(">latency</h2>")[2]
    assert firing.count('<figure class="spark">') == 1
    assert 'class="window"' in firing
    asked = next(params for operation, params in api.calls if operation == "GET metrics")
    assert (asked["name"], asked["prompt_version"], asked["step"]) == ("quality:groundedness", "v7", 3600.0)
    (why,) = re.findall(r'href="(/explain[^"]*)">Why\?', firing)
    assert "metric=quality%3Agroundedness" in why
    assert "prompt_version=v7&at=2026-11-21T07%3A00%3A00Z" in why
    assert re.search(r'href="/exemplars[^"]*" data-drawer>Worst', firing)
    assert "spark" not in fine.partition("</article>")[0]


def test_a_chart_that_cannot_be_read_hides_no_alert() -> None:
    """The card stays without it, with its buttons, and the others stay."""

    class Slow(FakeApi):
        def get_metrics(self, params: Mapping[str, Any]) -> dict[str, Any]:
            raise TooSlow("the query took longer than 30 s")

    html = unescape(client(Slow()).get("/alerts").text)
    firing = html.partition(">quality</h2>")[2].partition("</article>")[0]
    assert "spark" not in firing
    assert "Why?" in firing
    assert ">latency</h2>" in html


def test_every_page_counts_the_firing_alerts() -> None:
    """In the navigation, asked without corrections; none is no badge, and a fragment has none."""
    api = FakeApi()
    for path in ("/", "/traces", "/health"):
        assert "Alerts 1 firing" in text_of(client(api).get(path).text)
    assert ("GET monitors", {"only": "firing"}) in api.calls
    api.young = True
    assert "$9.00 of $9.00 this month" in text_of(client(api).get("/health").text)
    assert "firing" not in text_of(client(api).get("/health").text)
    assert "badge" not in client().get("/facets", headers={"HX-Request-Type": "partial"}).text


def test_the_form_shows_the_last_week_with_the_limit() -> None:
    """Drawn again while it is typed."""
    pages = client()
    draft = {"name": "mine", "metric": "quality:groundedness", "sign": "<", "limit": "0.84", "window": "1h"}
    html = unescape(pages.get("/alerts/preview", params=draft).text)
    assert html.count("<polyline") == 3  # two versions of the evaluator, and a gap at night
    assert 'class="limit"' in html
    assert "<polyline" not in pages.get("/alerts/preview", params=draft | {"metric": "latency_p95", "limit": ""}).text


def test_the_false_alarms_of_all_monitors_are_said_together() -> None:
    """In one line; without monitors there is none."""
    line = "2 monitors: about 0.67 false alarms a month expected together"
    assert text_of(client().get("/alerts").text).count(line) == 1
    assert "expected together" not in client(FakeApi(empty=True)).get("/alerts").text


def test_the_form_offers_the_metrics_of_topics() -> None:
    """Beside those of the traffic; that of one topic comes by a link."""
    form = unescape(client().get("/alerts/new").text)
    for metric in ("other_share", "question_drift", "unanswered_rate"):
        assert f'<option value="{metric}"' in form
    assert (
        '<option value="topic_share:refund" data-sign="&gt;" selected>'
        in client().get("/alerts/new?metric=topic_share:refund").text
    )


@pytest.mark.parametrize(
    ("metric", "condition"),
    [("quality:groundedness", "< 0.8"), ("fail_rate:groundedness", "> 0.2"), ("unclear_rate:refusal", "> 0.2")],
)
def test_the_form_offers_rates_on_the_side_where_they_are_worse(metric: str, condition: str) -> None:
    """Each metric of an evaluator in use has its side, which the condition takes until another is chosen."""
    html = unescape(client().get(f"/alerts/new?metric={metric}").text)
    side, _, limit = condition.partition(" ")
    assert f'value="{metric}" data-sign="{side}" selected' in html
    assert re.search(rf'<option value="{side}" selected', html)
    assert f'name="limit" value="{limit}"' in html
