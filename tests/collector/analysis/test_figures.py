"""`figures`: planted services, one row each, and what their figures must say of the truth."""

from __future__ import annotations

import contextlib
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import NormalDist

import pytest
from asking import ask
from stored_units import T0, Units

from ragpulse_collector.analysis.figures import Condition, Read, readings, readings_by_bucket
from ragpulse_collector.analysis.plan import plan
from ragpulse_collector.analysis.query import Query, having
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.why.cost import cost_change
from ragpulse_collector.analysis.why.means import is_sure
from ragpulse_collector.analysis.why.parts import BeforeAfter
from ragpulse_collector.monitoring.measure import decide
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.store.embedded import EmbeddedStore

SERVICES = 40
"""Copies of a planted service, told apart by their variant."""
DAY = Window(T0, T0 + timedelta(days=1), 0)


def read(store: EmbeddedStore, metric: str) -> list[Read]:
    """The metric of each service over the day."""
    query = Query(window=DAY, groups=("variant",), now=DAY.last)
    return list(readings(store, metric, query, Condition("change")).values())


@dataclass(frozen=True)
class Latencies:
    """Log-normal latencies of a service: requests, how many a user asks, how alike these are, and what is kept."""

    requests: int = 300
    each: int = 1
    alike: float = 0.0
    kept: Callable[[float], float] = lambda _: 1.0

    def plant(self, store: EmbeddedStore) -> None:
        units, rng, number = Units(store), random.Random(7), 0
        for service in range(SERVICES):
            for request in range(self.requests):
                if request % self.each == 0:
                    own = rng.gauss(0.0, 1.0)
                z = math.sqrt(self.alike) * own + math.sqrt(1.0 - self.alike) * rng.gauss(0.0, 1.0)
                latency = 1000.0 * math.exp(0.5 * z)
                if rng.random() >= (chance := self.kept(latency)):
                    continue
                number += 1
                facts = {"user_id": f"u{service}-{request // self.each}", "variant": f"s{service}"}
                at = T0 + timedelta(seconds=request)
                units.unit(number, at=at, latency_ms=latency, upstream_pi=chance, **facts)
        units.save()

    @staticmethod
    def truth(share: float) -> float:
        """The percentile of the service."""
        return 1000.0 * math.exp(0.5 * NormalDist().inv_cdf(share))


SLOW_KEPT = Latencies(requests=2000, kept=lambda latency: 1.0 if latency > 1800.0 else 1 / 8)
PLANTED = {
    "independent": Latencies(),
    "few": Latencies(requests=90),
    "users": Latencies(requests=600, each=10, alike=0.4),
    "upstream": SLOW_KEPT,
}


@pytest.mark.parametrize("name", PLANTED)
def test_percentiles_cover_the_truth(store: EmbeddedStore, name: str) -> None:
    """A limit at the truth is met, or missed, in few services: the interval decides, not the point."""
    planted = PLANTED[name]
    planted.plant(store)
    for metric, share in (("latency_p50", 0.5), ("latency_p95", 0.95)):
        found, truth = [one(0.95) for one in read(store, metric)], planted.truth(share)
        assert len(found) == SERVICES
        held = [(one.lo or 0.0) <= truth <= (one.hi or math.inf) for one in found]
        assert sum(held) >= 0.87 * SERVICES
        known = [one for one in found if one.lo is not None and one.hi is not None]
        assert all(one.lo < one.value < one.hi for one in known)  # type: ignore[operator]
        states = [decide(Condition(">", truth), one, one, "undecided") for one in found]
        assert states.count("ok") <= 0.1 * SERVICES
        assert states.count("firing") <= 0.1 * SERVICES
        beyond = [decide(Condition(">", 0.5 * truth), one, one, "undecided") for one in found]
        assert beyond.count("firing") >= 0.9 * SERVICES


def test_a_percentile_of_too_few_has_no_upper_end(store: EmbeddedStore) -> None:
    """All of seventy answers may lie below the percentile; one far above the limit is seen all the same."""
    Latencies(requests=70).plant(store)
    found = [one(0.95) for one in read(store, "latency_p95")]
    assert all(one.hi is None and one.lo is not None for one in found)
    assert {decide(Condition(">", 900.0), one, one, "undecided") for one in found} == {"firing"}
    assert {decide(Condition(">", 1e9), one, one, "undecided") for one in found} == {"undecided"}


@pytest.mark.parametrize(("each", "silent"), [(1, 0.05), (10, 0.05)])
def test_a_silent_window_is_a_zero_of_as_many_users(store: EmbeddedStore, each: int, silent: float) -> None:
    """Half a user an hour, of ten requests: a window without any is common, and below no limit surely."""
    units, rng, number = Units(store), random.Random(3), 0
    for user in range(60):
        at = T0 + timedelta(hours=24 * 4 * rng.random())
        for _ in range(each):
            number += 1
            units.unit(number, at=at, user_id=f"u{user}")
    units.save()
    hour = Window(T0, T0 + timedelta(days=4), 3600)
    condition = Condition("<", 2.0)
    found = readings_by_bucket(store, "requests", Query(window=hour, now=hour.last), condition)
    empty = [one["{}"](1.0 - silent) for one in found.values() if one["{}"](0.95).value == 0.0]
    assert len(empty) > 20
    for one in empty:
        assert one.lo == 0.0
        assert one.hi == pytest.approx(each * -math.log(silent / 2), rel=0.01)
    last = Query(window=Window(hour.last, hour.last + timedelta(hours=1), 0), now=hour.last)
    latest = store.read("SELECT max(start_time) FROM traces").value
    silence = (last.window.last - latest) / timedelta(hours=1)
    (quiet,) = readings(store, "requests", last, condition).values()
    assert quiet(0.95).hi == pytest.approx(each * 3.689 / silence, rel=0.05)
    assert silence < 4.0
    assert each == 1 or decide(condition, quiet(0.95), quiet(0.8), "ok") != "firing"
    later = replace(last, window=Window(hour.last + timedelta(hours=99), hour.last + timedelta(hours=100), 0))
    (dead,) = readings(store, "requests", later, condition).values()
    assert decide(condition, dead(0.95), dead(0.8), "ok") == "firing"


def good_cost(store: EmbeddedStore, **params: str) -> dict[str, float]:
    """What a good answer costs, as the overview says."""
    asked = {"from": T0, "to": T0 + timedelta(days=1), **params}
    found: dict[str, float] = ask(store, "overview", asked, clock=lambda: T0 + timedelta(days=1))[
        "cost_per_good_answer"
    ]
    return found


@pytest.mark.parametrize("lost", ["unclear", "error", "capped"])
@pytest.mark.parametrize("relevant", [False, True])
def test_unknown_answers_may_be_bad(store: EmbeddedStore, lost: str, *, relevant: bool) -> None:
    """Of 400 answers at one cent each 120 are good, and 240 unknown: between 1.1 and 3.3 cents, with the interval."""
    units = Units(store)
    for number in range(400):
        kind = ("good", "good", "good", "bad", *["unknown"] * 6)[number % 10]
        units.unit(number, cost_usd=0.01)
        if relevant:
            units.decision(number, "refusal")
            units.score(number, "refusal", 1.0)
        units.decision(number, "groundedness", capped=lost == "capped" and kind == "unknown", reason="budget")
        if kind != "unknown":
            units.score(number, "groundedness", float(kind == "good"))
        elif lost == "unclear":
            units.score(number, "groundedness", 0.9, passing=None, label="unclear")
        elif lost == "error":
            units.score(number, "groundedness", None, status="error")
    units.save()
    cost = good_cost(store)
    assert cost["lo"] < 0.01 * 400 / 360
    assert cost["hi"] > 0.01 * 400 / 120
    assert cost["hi"] < 0.06


def test_a_good_answer_behind_an_upstream_sampler(store: EmbeddedStore) -> None:
    """Errors and expensive requests are all kept, others one in sixteen: the interval holds the truth."""
    units, rng, number = Units(store), random.Random(11), 0
    for service in range(16):
        for request in range(2400):
            fails, passes = rng.random() < 0.03, rng.random() < 0.8
            cost = 0.01 * math.exp(rng.gauss(0.0, 1.0))
            kept = 1.0 if fails or cost > 0.04 else 1 / 16
            if rng.random() >= kept:
                continue
            number += 1
            facts = {"variant": f"s{service}", "upstream_pi": kept, "error": fails, "cost_usd": cost}
            at = T0 + timedelta(seconds=request)
            if fails:
                units.unit(number, at=at, user_id=f"u{number}", **facts)
            else:
                facts["user_id"] = f"u{number}"
                units.scored(number, "groundedness", float(passes), at=at, facts=facts, pi=kept, u=0.0)
    units.save()
    truth = 0.01 * math.exp(0.5) / (0.97 * 0.8)
    found = [good_cost(store, variant=f"s{service}") for service in range(16)]
    held = [one["lo"] <= truth <= one["hi"] for one in found]
    assert sum(held) >= 14
    assert all(one["hi"] / one["lo"] < 3.0 for one in found)


@pytest.mark.parametrize("returning", [False, True])
def test_a_quiet_cost_of_users_is_no_change(store: EmbeddedStore, *, returning: bool) -> None:
    """Thirty users ask ten times each, some long questions, some short ones; a doubled price is seen with its part."""
    units, rng, number = Units(store), random.Random(5), 0
    middle = T0 + timedelta(hours=12)
    for service in range(SERVICES):
        for user in range(60 if returning else 30):
            tokens = round(1000 * math.exp(rng.gauss(0.0, 1.0)))
            begins = 24 * rng.random()
            for _ in range(10):
                number += 1
                at = T0 + timedelta(hours=24 * rng.random() if returning else begins)
                for variant, price in (
                    (f"s{service}", 1.0),
                    *((("dear", 1.0 + (at >= middle)),) if not service else ()),
                ):
                    facts = {"variant": variant, "user_id": f"u{user}", "input_tokens": tokens, "model": "m"}
                    units.unit(number + 10**6 * (variant == "dear"), at=at, cost_usd=price * tokens / 1e6, **facts)
    units.save()

    def change(variant: str) -> BeforeAfter:
        filters = having({"variant": [variant]})
        return cost_change(store, Query(window=DAY, filters=filters, now=DAY.last), middle)

    quiet = [change(f"s{service}").change for service in range(SERVICES)]
    assert sum(is_sure(one.lo, one.hi) for one in quiet) <= 0.125 * SERVICES
    parts = {part.attribute: part for part in change("dear").parts}
    assert is_sure(parts["prices"].lo, parts["prices"].hi)
    assert not is_sure(parts["models"].lo, parts["models"].hi)


def test_a_plan_has_a_range(store: EmbeddedStore) -> None:
    """Pilots of 150 answers of 30 users: the range holds the number that the truth needs, in nearly all."""
    units, rng, number = Units(store), random.Random(2), 0
    for service in range(SERVICES):
        for user in range(30):
            rate = rng.betavariate(0.85 * 4, 0.15 * 4)
            for _ in range(5):
                number += 1
                facts = {"variant": f"s{service}", "user_id": f"u{user}"}
                units.scored(number, "judge", float(rng.random() < rate), facts=facts, pi=1.0, u=0.5)
    units.save()
    needed = 0.85 * 0.15 * (1.96 / 0.03) ** 2 * (1.0 + 4 * 0.2)
    held = 0
    for service in range(SERVICES):
        query = Query(window=DAY, filters=having({"variant": [f"s{service}"]}), now=DAY.last)
        found = plan(store, query, "judge", 0.03)
        assert found.n_least is not None
        assert found.n_most is not None
        assert found.n_least <= found.n <= found.n_most
        held += found.n_least <= needed <= found.n_most
    assert held >= 0.85 * SERVICES


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e308])
@pytest.mark.parametrize("name", ["overview", "metrics", "explain", "compare", "check", "plan", "blame", "documents"])
def test_numbers_that_are_none_end_in_no_error(store: EmbeddedStore, name: str, value: float) -> None:
    """An answer without NaN, or a refusal: senders choose costs, scores and feedback."""
    units = Units(store)
    for number in range(40):
        units.unit(number, prompt_version=f"v{number % 2}", user_id=f"u{number}", cost_usd=value, feedback=value)
        units.decision(number, "judge")
        units.score(number, "judge", value if number % 2 else 0.5)
    units.save()
    params = {
        "metrics": {"name": ["cost_usd", "quality:judge", "acceptance"]},
        "explain": {"metric": "cost_usd", "at": T0},
        "compare": {"a": "prompt:v0", "b": "prompt:v1"},
        "check": {"evaluator": "judge", "min": 0.5},
        "plan": {"evaluator": "judge"},
    }.get(name, {})
    asked = {"from": T0 - timedelta(hours=1), "to": T0 + timedelta(hours=1), **params}
    with contextlib.suppress(Refusal):
        answer = ask(store, name, asked, clock=lambda: DAY.last, lead="judge")
        assert not {"NaN", "Infinity"} & set(re.findall(r"NaN|Infinity", json.dumps(answer, default=str)))


def test_coverage_is_a_figure_of_buckets_and_groups(store: EmbeddedStore) -> None:
    """As every other metric: a monitor of coverage watches groups, and its backtest reads the past at once."""
    units = Units(store)
    for number in range(40):
        variant, at = "ab"[number % 2], T0 + timedelta(hours=number // 20)
        if variant == "b" and number >= 20:
            units.unit(number, at=at, variant=variant)
            units.decision(number, "judge", at=at)
        else:
            units.scored(number, "judge", 1.0, at=at, facts={"variant": variant})
    units.save()
    window = Window(T0, T0 + timedelta(hours=2), 3600)
    query = Query(window=window, groups=("variant",), now=window.last)
    by_bucket = readings_by_bucket(store, "coverage:judge", query, Condition("<", 0.5))
    values = {start: {group: read(0.95).value for group, read in found.items()} for start, found in by_bucket.items()}
    a, b = '{"variant": "a"}', '{"variant": "b"}'
    assert values == {T0: {a: 1.0, b: 1.0}, T0 + timedelta(hours=1): {a: 1.0, b: 0.0}}
    whole = readings(store, "coverage:judge", query, Condition("<", 0.5))
    assert {group: (read(0.95).value, read(0.95).n) for group, read in whole.items()} == {a: (1.0, 20), b: (0.5, 20)}
