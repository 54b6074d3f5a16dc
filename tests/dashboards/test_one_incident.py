"""Forty looks at one planted incident: headline, facts, charts, cards, list and alerts of each moment agree.

Two calm hours; then three of ten requests fail and answers are worse, for an hour and a half; then it is over. Requests
arrive between the looks, as in a collector that runs; the clock is planted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import datetime, timedelta, tzinfo
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from stored_units import Units, open_store, uniform

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.api.params import Caller
from ragpulse_collector.app.wiring import Components
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices
from ragpulse_collector.store.protocol import utc_now
from ragpulse_dashboards import routes

from .test_numbers import Tree, card, cell, fact, number_in, words

START = datetime(2025, 3, 10, 8)
BEGAN, OVER = START + timedelta(hours=2), START + timedelta(hours=3, minutes=30)
EVERY = timedelta(seconds=30)
LOOKS = [START + timedelta(minutes=105, seconds=10) + timedelta(minutes=7) * number for number in range(40)]
SETTINGS: dict[str, Any] = {
    "rule": [{"name": "live", "evaluators": ["groundedness"], "rate": 1.0}],
    "monitor": [{"name": "errors", "metric": "error_rate", "condition": "> 0.1", "window": "30m"}],
}
Ask = Callable[[str, dict[str, Any]], Any]
GOING = {"fell": "worse", "rose": "better"}


class Planted(datetime):
    """A datetime whose present is the time of the look."""

    present = START

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return cls.present.replace(tzinfo=tz)


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Iterator[tuple[TestClient, Ask]]]:
    """The pages of a collector at each look, whose monitors are checked then."""
    for module in (
        "ragpulse_collector.store.protocol", "ragpulse_dashboards.charts", "ragpulse_dashboards.pages.overview",
    ):  # fmt: skip
        monkeypatch.setattr(f"{module}.datetime", Planted)
    monkeypatch.setattr(
        Snapshots.__init__, "__kwdefaults__", {"timer": lambda: Planted.present.timestamp(), "max_age_s": 1.0}
    )
    settings = Settings.model_validate(SETTINGS)
    with closing(open_store(tmp_path)) as store:
        prices = Prices(settings.prices, settings.collector.price_table)
        components = Components(store, settings, prices=prices, counters=Counters())
        api = partial(components.operations.call, caller=Caller())
        pages = TestClient(Starlette(routes=routes(api)), base_url="http://127.0.0.1:4318")

        def each() -> Iterator[tuple[TestClient, Ask]]:
            units, number = Units(store), 0
            for look in LOOKS:
                while (at := START + EVERY * number) <= look:
                    _request(units, number, at)
                    number += 1
                units.save()
                Planted.present = look
                components.monitors.check(look)
                yield pages, partial(anyio.run, api)

        yield each()


def _request(units: Units, number: int, at: datetime) -> None:
    bad = BEGAN <= at < OVER
    failed = uniform(number, "e") < (0.3 if bad else 0.01)
    facts = {"error": failed, "user_id": f"u{number % 60}", "cost_usd": 0.001, "latency_ms": 800.0}
    score = min(1.0, (0.55 if bad else 0.85) + 0.3 * (uniform(number, "q") - 0.5))
    units.scored(number, "groundedness", None if failed else score, at=at, status="skipped" if failed else "ok",
                 facts=facts)  # fmt: skip


def page_of(client: TestClient, path: str) -> ET.Element:
    """A page as elements."""
    response = client.get(path)
    assert response.status_code == 200, response.text[-2000:]
    return Tree(response.text.replace("\N{NO-BREAK SPACE}", " ")).root


def marked(page: ET.Element, css: str) -> list[ET.Element]:
    """The elements of a class."""
    return [one for one in page.iter() if css in one.get("class", "").split()]


def test_forty_moments_of_an_incident_have_no_contradiction(looks: Iterator[tuple[TestClient, Ask]]) -> None:
    """At each look every number and every word that is there twice is the same, and what is urgent is red."""
    told: list[str] = []
    for client, api in looks:
        when = f"{Planted.present:%H:%M}"
        page, alerts = page_of(client, "/?from=-6h"), page_of(client, "/alerts?from=-6h")
        sentences = " ".join(words(one) for css in ("happened", "also") for one in marked(page, css))
        told.append(f"{when} {sentences}")
        assert_counts_agree(api, page)
        assert_sentences_fit_the_cards(page, sentences)
        # Alerts: the headline, the navigation of both pages and the cards.
        heads = [one for one in alerts.iter("header") if one.find("h2") is not None]
        firing = [words(one[0]) for one in heads if "firing" in [words(state) for state in marked(one, "state")]]
        fires = re.findall(r"An alert is firing: (\w+)\. Error rate ([\d.]+ %), limit > 10 %\.", sentences)
        assert [name for name, _ in fires] == firing, when
        assert all(value in words(alerts) for _, value in fires), when
        badges = [words(one) for each in (page, alerts) for one in marked(each, "badge")]
        assert badges == ["1 firing"] * 2 * len(firing), when
        # The level of errors.
        few = re.match(r"(\d+) errors? in (\d+)", fact("Errors")(page))
        share = int(few[1]) / int(few[2]) if few else number_in(fact("Errors")(page))[0]
        (errors,) = [one for one in marked(page, "steady")[0].iter("div") if words(one).startswith("Errors")]
        assert ("requests fail" in sentences) == (share > 0.05), when
        assert errors.get("class") == "bad" or "fail" not in sentences, when
        assert "bad" in marked(page, "happened")[0].get("class", "").split() or not firing, when
    for part in ("An alert is firing: errors. ", "requests fail.", "Groundedness fell", "is 0.8"):
        assert any(part in line for line in told), (part, told)


def test_requests_that_arrive_while_a_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One comes before each operation that the page calls: facts and charts are of the same reading all the same."""
    monkeypatch.setattr(Snapshots.__init__, "__kwdefaults__", {"timer": float, "max_age_s": 1.0})
    settings = Settings.model_validate(SETTINGS)
    with closing(open_store(tmp_path)) as store:
        prices = Prices(settings.prices, settings.collector.price_table)
        components, units, numbers = (
            Components(store, settings, prices=prices, counters=Counters()),
            Units(store),
            count(),
        )

        async def call(operation: str, params: Mapping[str, Any]) -> Any:
            _request(units, number := next(numbers), utc_now() - timedelta(minutes=number))
            units.save()
            return await components.operations.call(operation, params, caller=Caller())

        client = TestClient(Starlette(routes=routes(call)), base_url="http://127.0.0.1:4318")
        for _ in range(3):
            client.get("/")
        page = page_of(client, "/?from=-12h")
        assert drawn_requests(page) == number_in(fact("Traffic")(page))[0]


def drawn_requests(page: ET.Element) -> float:
    """The requests of all points of their chart."""
    (drawn,) = [
        json.loads(one.get("data-chart", "")) for one in page.iter("figure") if one.get("id") == "chart-requests"
    ]
    return float(sum(filter(None, drawn["lines"][0]["n"])))


def assert_counts_agree(api: Ask, page: ET.Element) -> None:
    """Traffic, errors and quality stand in the facts, on a chart, in a table and over a list."""
    n, _ = number_in(fact("Traffic")(page))
    assert api("GET traces", {"from": "-6h", "limit": 1, "total": True}).total == n
    assert drawn_requests(page) == n
    assert fact("Errors")(page).startswith(card("Error rate")(page).split(" ")[0])
    table, chart = cell("Quality in this range", "groundedness", "Score"), card("Groundedness")
    (in_table, half), (on_card, quarter) = number_in(table(page)), number_in(chart(page))
    assert abs(in_table - on_card) <= half + quarter + 1e-9, (table(page), chart(page))


def assert_sentences_fit_the_cards(page: ET.Element, sentences: str) -> None:
    """A sentence about the whole range has the table's direction; nothing is calm beside what is not."""
    verdict = cell("Quality in this range", "groundedness", "Change")(page)
    against = re.findall(r"Groundedness (fell|rose) [^.]*\.\d+ → [^.]*\.\d+ against", sentences)
    assert all(GOING[word] in verdict for word in against), (verdict, sentences)
    assert not ("no change" in sentences and ("worse" in verdict or "better" in verdict)), (verdict, sentences)
    calm = "no change" in sentences or "Nothing to compare" in sentences
    assert not (calm and re.search(r"fell|rose|fail|firing", sentences)), sentences
