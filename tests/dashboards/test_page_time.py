"""Times and ranges on pages: one zone, named days, buckets of local days, the value of a card."""

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ragpulse_collector.analysis.series import Line, MetricSeries, TrafficPoint
from ragpulse_collector.zones import SHOWN, find, utc
from ragpulse_dashboards import routes
from ragpulse_dashboards.charts import Chart, InRange

from .fake_api import FakeApi
from .reading import client, text_of

TOKYO = "Asia/Tokyo"


def _without_choices(html: str) -> str:
    """The text of a page without the zones to choose from."""
    return text_of(re.sub(r"<datalist.*?</datalist>", "", html, flags=re.DOTALL))


@pytest.mark.parametrize(
    ("url", "cookie", "setting", "zone"),
    [
        ("/traces", "", None, "UTC"),
        ("/traces", "", TOKYO, TOKYO),
        ("/traces", TOKYO, None, TOKYO),
        ("/traces", TOKYO, "Europe/Berlin", TOKYO),
        (f"/traces?tz={TOKYO}", "Europe/Berlin", "America/New_York", TOKYO),
        ("/traces", "No/Where", TOKYO, TOKYO),
    ],
)
def test_the_zone_is_that_of_the_address_the_person_or_the_collector(
    url: str, cookie: str, setting: str | None, zone: str
) -> None:
    """All times of the page are in it, it is named once, and links keep it only where the address names it."""
    api = FakeApi()
    pages = TestClient(Starlette(routes=routes(api, tz=setting)), base_url="http://127.0.0.1:4318")
    html = unescape(pages.get(url, headers={"cookie": f"tz={cookie}"} if cookie else {}).text)
    text = _without_choices(html)
    assert text.count(f"Times: {zone}") == 1
    assert ("Nov 21 20:56:00" if zone == TOKYO else "Nov 21 11:56:00") in html
    assert "UTC" not in text.replace("Times: UTC", "")
    own = f"?tz={TOKYO.replace('/', '%2F')}" if "tz=" in url else ""
    assert f'href="/sessions{own}"' in html
    asked = next(params for operation, params in api.calls if operation == "GET traces")
    assert asked.get("tz") == (None if zone == "UTC" else zone)


@pytest.mark.parametrize("path", ["/", "/traces", "/sessions", "/alerts", "/health", "/evaluators", "/documents"])
def test_each_page_names_the_zone_once(path: str) -> None:
    """And nothing else on it says UTC."""
    text = _without_choices(client().get(f"{path}?tz={TOKYO}").text)
    assert text.count("Times: ") == 1
    assert "UTC" not in text


def test_addresses_have_the_offset_of_the_zone() -> None:
    """So that they show the same moment to everybody."""
    html = unescape(client().get(f"/?from=2026-11-20T12:00:00Z&to=2026-11-21T12:00:00Z&tz={TOKYO}").text)
    assert "from=2026-11-20T21%3A00%3A00%2B09%3A00" in unescape(html)
    assert "Nov 20 21:00 – Nov 21 21:00" in text_of(html)
    typed = unescape(client().get(f"/?from=2026-11-20+21:00&tz={TOKYO}").text)
    assert "Nov 20 21:00 – now" in text_of(typed)


@pytest.mark.parametrize(
    ("name", "start", "end", "before"),
    [
        ("Today", "today", "", "yesterday up to this time"),
        ("Yesterday", "yesterday", "today", "the day before"),
        ("This week", "this-week", "", "last week up to this time"),
        ("Last week", "last-week", "this-week", "the week before"),
        ("24 h", "-24h", "", "the range before"),
    ],
)
def test_days_and_weeks_are_in_the_picker(name: str, start: str, end: str, before: str) -> None:
    """The choice is marked, says what it is compared with, and reaches the API by its name."""
    api = FakeApi()
    api.young = True
    query = f"from={start}" + (f"&to={end}" if end else "")
    assert f'href="/?{query}"' in unescape(client(api).get("/").text)
    html = unescape(client(api).get(f"/?{query}").text)
    (current,) = re.findall(r'<a href="[^"]*" aria-current="true" title="([^"]*)">([^<]*)</a>', html)
    assert current == (f"compared with {before}", name)
    assert f"against {before}." in text_of(html)
    asked = [params for operation, params in api.calls if operation == "GET overview"][-1]
    assert (asked["from"], asked.get("to", "")) == (start, end)


def _chart(name: str, zone: str, days: list[str], until: str, values: list[float], **more: Any) -> Chart:
    """A chart of whole local days."""
    edges = [utc(datetime.fromisoformat(day), find(zone) or UTC) for day in (*days, until)]
    points = [TrafficPoint(t=start, value=value, n=1) for start, value in zip(edges, values, strict=False)]
    answer = MetricSeries(
        name=name, unit="requests", step=86400, from_=edges[0], to=edges[-1], until=edges[-1],
        series=[Line(group={}, points=points)], markers=[], other_groups=0, left_out=None,
    )  # fmt: skip
    return Chart(key="k", name=name, answers=[("", answer)], metric=name, **more)


@pytest.mark.parametrize(
    ("zone", "days", "until", "hours"),
    [
        ("Europe/Berlin", ["2026-03-28", "2026-03-29"], "2026-03-30", [24, 23]),
        ("Europe/Berlin", ["2026-10-25", "2026-10-26"], "2026-10-27", [25, 24]),
        ("Australia/Adelaide", ["2026-10-03", "2026-10-04"], "2026-10-05", [24, 23]),
        ("UTC", ["2026-03-28", "2026-03-29"], "2026-03-30", [24, 24]),
    ],
)
def test_a_day_of_a_chart_is_as_long_as_it_is(zone: str, days: list[str], until: str, hours: list[int]) -> None:
    """Rates, links to examples and marked stretches use its length; no whole day is drawn as a part."""
    chart = _chart("requests", zone, days, until, [60.0 * long for long in hours])
    token = SHOWN.set(find(zone) or UTC)
    data = json.loads(chart.data)
    SHOWN.reset(token)
    assert [(end - start) / 3600 for start, end in zip(data["t"], data["ends"], strict=True)] == hours
    assert data["lines"][0]["v"] == [1.0, 1.0]  # a minute
    assert data["part"] == ["", ""]
    assert [chart.long(row.epoch) / 3600 for row in chart.rows] == hours[::-1]
    first = datetime.fromtimestamp(data["t"][0], UTC) + timedelta(seconds=data["ahead"][0][1])
    assert f"{first:%H:%M}" == "00:00"


def test_a_card_shows_the_range_and_its_tooltip_the_last_bucket() -> None:
    """Of a rate the mean over the range; a chart of groups has the last bucket alone, and says so."""
    chart = _chart("requests", "UTC", ["2026-03-28"], "2026-03-29", [1440.0], in_range=InRange(2880.0))
    assert chart.whole == InRange(2.0)
    html = client().get("/?from=2026-11-20T12:00:00Z&to=2026-11-21T12:00:00Z").text
    error_rate = html.partition('id="chart-error-rate"')[2].partition("</figure>")[0]
    assert 'title="last bucket ' in error_rate
    assert "last bucket" not in text_of(error_rate)
    groups = text_of(client().get("/?group_by=prompt_version").text)
    assert "last bucket" in groups
