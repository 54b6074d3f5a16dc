"""The page of one chart, and the tables behind charts, as HTML."""

import re
from html import unescape

from .fake_api import FakeApi
from .reading import client, text_of


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


def test_a_target_stands_in_its_charts_legend_and_table() -> None:
    """The bound is named below the drawing, and each bucket of the table is met, missed or undecided."""
    html = client().get("/").text
    assert "target latency p95 at most 2.00 s" in text_of(html)
    rows = text_of(client().get("/figures/rows?metric=quality:groundedness").text)
    assert "Target at least 0.900" in rows
    assert "missed" in rows
