"""The rates proposed for a rule with strata: what they predict, what stands in their way, whether it comes true."""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stored_units import Units, open_store, uniform

from ragpulse_collector.cli import run
from ragpulse_collector.client import connect
from ragpulse_collector.sampling import Rule
from ragpulse_collector.sampling.proposal import RateClass, allocation, half_width, proposal_of, propose
from ragpulse_collector.settings import Stratum
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.protocol import utc_now
from ragpulse_evaluators.statistics import hajek

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


def plain(
    rate: float, units: float, mean: float, *, where: str | None = None, price: float | None = 0.01, scores: int = 400
) -> RateClass:
    """A class of answers that pass or not."""
    return RateClass(where=where, rate=rate, units=units, scores=scores, mean=mean, square=mean, price=price)


def cost(classes: list[RateClass], rates: list[float]) -> float:
    """What the rates cost a day."""
    return sum(rate * each.units * (each.price or 0.0) for each, rate in zip(classes, rates, strict=True))


PLANTED = {
    "doubtful answers fail more": [plain(0.1, 9000, 0.995), plain(0.1, 1000, 0.5, where="d")],
    "oversampled too much": [plain(0.01, 9000, 0.8), plain(1.0, 1000, 0.8, where="d")],
    "dear doubtful answers": [plain(0.1, 9000, 0.9), plain(0.5, 1000, 0.6, where="d", price=0.2)],
    "three classes": [plain(0.05, 8000, 0.99), plain(0.3, 1500, 0.7, where="d"), plain(1.0, 500, 0.2, where="e")],
    "rates below the floor": [plain(0.004, 90_000, 0.9), plain(0.5, 1000, 0.9, where="d")],
    "free judge": [plain(0.1, 9000, 0.99, price=0.0), plain(0.1, 1000, 0.5, where="d", price=0.0)],
    "a failing minority, watched": [plain(0.02, 9900, 0.9), plain(0.5, 100, 0.05, where="d")],
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_proposal_is_narrower_at_the_same_cost(name: str) -> None:
    """Within 0.01 and 1, and in the order of today's rates."""
    classes = PLANTED[name]
    found = propose("strict", classes)
    rates = [each.rate for each in found.rates]
    assert found.half_width is not None
    assert found.half_width < 0.95 * (found.half_width_now or 0.0)
    now = cost(classes, [each.rate for each in classes])
    assert 0.98 * now <= cost(classes, rates) <= now * (1.0 + 1e-6)
    assert rates == sorted(rates)
    assert all(min(0.01, classes[0].rate) <= rate <= 1.0 for rate in rates)
    assert f"±{found.half_width:.3f}" in found.words


@pytest.mark.parametrize("seed", range(20))
def test_no_other_rates_at_the_cost_are_better(seed: int) -> None:
    """Against rates at random, scaled to the same cost, in the order that conditions allow."""
    draw = random.Random(seed)
    classes = [
        plain(draw.uniform(0.02, 0.5), draw.uniform(100, 9000), draw.uniform(0.1, 0.999), where=str(number) or None)
        for number in range(3)
    ]
    best = [
        RateClass(where=one.where, rate=rate, units=one.units, scores=400, mean=one.mean, square=one.square, price=0.01)
        for one, rate in zip(classes, allocation(classes), strict=True)
    ]
    budget = cost(classes, [each.rate for each in classes])
    order = sorted(range(3), key=lambda number: classes[number].rate)
    for _ in range(300):
        raw = sorted(draw.uniform(0.01, 1.0) for _ in range(3))
        rates = [raw[order.index(number)] for number in range(3)]
        scaled = [rate * budget / cost(classes, rates) for rate in rates]
        if not all(0.01 <= rate <= 1.0 for rate in scaled):
            continue
        other = [plain(rate, one.units, one.mean, where=one.where) for one, rate in zip(classes, scaled, strict=True)]
        assert half_width(best) < half_width(other) * 1.02  # rates are rounded down to a thousandth


@pytest.mark.parametrize(
    ("classes", "why"),
    [
        ([plain(0.1, 900, 0.9), plain(0.5, 100, 0.5, where="error", scores=9)], "9 scores of error, at least 10"),
        ([plain(0.1, 900, 0.9), plain(0.5, 0, 0.5, where="error")], "one rate"),
        ([plain(0.1, 900, 0.9), plain(0.5, 100, 0.5, where="error", price=None)], "cost of a verdict"),
        ([plain(0.0, 900, 0.9), plain(0.5, 100, 0.5, where="error")], "a rate is 0"),
        ([plain(0.1, 900, 0.5), plain(0.1, 100, 0.5, where="error")], "near the best"),
        # the watched answers vary less: one condition cannot have a rate below the rule's
        ([plain(0.1, 900, 0.5), plain(0.1, 100, 0.99, where="error")], "near the best"),
    ],
)
def test_what_stands_in_the_way_is_said(classes: list[RateClass], why: str) -> None:
    """No rates, and the reason."""
    found = propose("strict", classes)
    assert not found.rates
    assert why in found.words


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


RULE = Rule(name="r", evaluators=("strict",), rate=0.2, strata=(Stratum(where="model = 'doubtful'", rate=0.2),))


def traffic(
    store: EmbeddedStore, rates: tuple[float, float], first: int, count: int = 6000
) -> list[tuple[float, float]]:
    """Store a day of answers, one in five doubtful: these pass half the time, the others nearly always."""
    units, found, at = Units(store), list[tuple[float, float]](), utc_now()
    for number in range(first, first + count):
        doubtful = uniform(number, "kind") < 0.2
        pi = rates[doubtful]
        units.unit(number, at=at, model="doubtful" if doubtful else "sure")
        if uniform(number, "u") < pi:
            value = float(uniform(number, "score") < (0.5 if doubtful else 0.995))
            units.decision(number, "strict", pi=pi, at=at)
            units.score(number, "strict", value, cost_usd=0.01, at=at)
            found.append((value, pi))
    units.save()
    return found


def test_the_proposal_comes_true(store: EmbeddedStore) -> None:
    """From the store: the interval at the proposed rates is as narrow as predicted."""
    before = traffic(store, (0.2, 0.2), 0)
    proposal = proposal_of(store, RULE, 1, "")
    assert proposal is not None
    assert [each.now for each in proposal.rates] == [0.2, 0.2]
    assert proposal.half_width is not None
    rates = proposal.rates[0].rate, proposal.rates[1].rate
    after = traffic(store, rates, 10_000)
    widths = []
    for scored in (before, after):
        estimate = hajek(*map(list, zip(*scored, strict=True)), bounds=(0.0, 1.0))
        assert estimate is not None
        assert estimate.hi is not None
        widths.append((estimate.hi - (estimate.lo or 0.0)) / 2.0)
    assert widths == pytest.approx([proposal.half_width_now, proposal.half_width], rel=0.15)
    assert sum(0.01 for _ in after) == pytest.approx(sum(0.01 for _ in before), rel=0.1)


def test_plan_prints_the_proposal(collector: Callable[..., Collector], capsys: pytest.CaptureFixture[str]) -> None:
    """Through the collector: the preview and the command say the same, with keys that the file takes."""
    running = collector(settings={"evaluator": [{"name": "strict", "use": "refusal"}]})
    traffic(running.store, (0.2, 0.2), 0, 1500)
    client = connect(running.url)
    client.call("POST rules", json.loads(RULE.text))
    assert run(["plan", "-e", "strict", "--half-width", "0.02", "--url", running.url]) == 0
    out = capsys.readouterr().out
    assert "rule r: 0.2 -> " in out
    keys = tomllib.loads(out[out.index("rate = ") :])
    strata = json.dumps(json.loads(RULE.text)["strata"])
    preview = client.call("GET rules/preview", {**json.loads(RULE.text), "strata": strata})["proposal"]
    assert [keys["rate"], keys["strata"][0]["rate"]] == [each["rate"] for each in preview["rates"]]
    assert keys["strata"][0]["where"] == "model = 'doubtful'"


def test_a_rule_without_strata_has_one_rate(store: EmbeddedStore) -> None:
    """There is nothing to propose."""
    assert proposal_of(store, Rule(name="r", evaluators=("strict",), rate=0.1), 7, "") is None
