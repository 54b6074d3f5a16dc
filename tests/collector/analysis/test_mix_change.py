"""A change that another mix of requests explains: the headline, the list of changes, and the sentence of the page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, uniform

from ragpulse_collector.store.embedded import EmbeddedStore

NOW = T0 + timedelta(hours=24)
RANGE = {"from": "-24h", "step": "1h"}


def plant(
    store: EmbeddedStore,
    rate: Callable[[bool, bool], float],
    *,
    hard: tuple[float, float] = (0.2, 0.8),
    key: str = "tenant",
    judged: bool = True,
    pi: float = 1.0,
    since: datetime = T0,
) -> None:
    """Two days of 2,000 requests: shares of hard ones before and after `since`, and how often each kind passes."""
    units = Units(store)
    for number in range(4000):
        at = T0 + timedelta(hours=48 * number / 4000 - 24)
        later = at >= since
        is_hard = uniform(number, "hard") < hard[later]
        passes = uniform(number, "passes") < rate(is_hard, later)
        facts: dict[str, Any] = {"user_id": f"u{number // 2}", "variant": "legal" if is_hard else "shop"}
        facts |= {} if judged else {"error": not passes}
        units.scored(number, "judge", float(passes), at=at, facts=facts, pi=pi, u=uniform(number, "u"))
    units.save()
    store.write(lambda tx: tx.execute(f"UPDATE raw.trace_facts SET metadata = MAP {{'{key}': variant}}")).result()


def same(is_hard: bool, _: bool) -> float:
    """Nothing changed for anybody."""
    return 0.6 if is_hard else 0.95


def fell(is_hard: bool, later: bool) -> float:
    """Every tenant is worse off."""
    return same(is_hard, later) - 0.15 * later


def rose(is_hard: bool, later: bool) -> float:
    """Every tenant is better off, and the whole is worse."""
    return same(is_hard, later) + 0.05 * later


@pytest.mark.parametrize(
    ("planted", "verdict", "equal"),
    [
        ({"rate": same}, "worse", 0.0),
        ({"rate": same, "key": "language"}, "worse", 0.0),
        ({"rate": same, "key": "segment", "pi": 0.5}, "worse", 0.0),
        ({"rate": same, "hard": (0.8, 0.2)}, "better", 0.0),
        ({"rate": rose}, "worse", 0.05),
        ({"rate": fell}, "worse", None),
        ({"rate": fell, "hard": (0.5, 0.5)}, "worse", None),
        ({"rate": same, "hard": (0.5, 0.5)}, "undecided", None),
        ({"rate": same, "hard": (0.0, 1.0)}, "worse", None),
    ],
)
def test_quality_at_an_equal_mix(
    store: EmbeddedStore, planted: dict[str, Any], verdict: str, equal: float | None
) -> None:
    """Only a change that is not there at an equal mix, or turns round, is said to be one of the mix."""
    plant(store, **planted)
    (row,) = ask(store, "overview", RANGE, clock=lambda: NOW)["quality"]
    assert row["verdict"] == verdict
    assert (row["mix"] is None) is (equal is None)
    if equal is not None:
        mix, key = row["mix"], planted.get("key", "tenant")
        assert mix["lo"] < equal < mix["hi"]
        assert (mix["by"], mix["grown"]) == (f"metadata.{key}", "legal" if verdict == "worse" else "shop")
        assert mix["words"].startswith(f"the mix changed ({key}: more {mix['grown']}); at equal questions ")


@pytest.mark.parametrize(("rate", "explained"), [(same, True), (fell, False)])
def test_errors_at_an_equal_mix(store: EmbeddedStore, rate: Callable[[bool, bool], float], explained: bool) -> None:
    """The rate of errors rises with the share of the tenant whose requests fail."""
    plant(store, rate, judged=False)
    answer = ask(store, "overview", RANGE, clock=lambda: NOW)
    assert answer["error_change"]["lo"] > 0.0
    assert (answer["error_mix"] is not None) is explained


@pytest.mark.parametrize(("rate", "explained"), [(same, True), (fell, False)])
def test_a_step_within_the_range(store: EmbeddedStore, rate: Callable[[bool, bool], float], explained: bool) -> None:
    """The shift that the list of changes shows is asked the same question, before and after its own time."""
    plant(store, rate, since=T0 + timedelta(hours=12))
    (shift,) = ask(store, "overview", RANGE, clock=lambda: NOW)["changes"]
    assert shift["worse"]
    assert (shift["mix"] is not None) is explained


@pytest.mark.parametrize(("planted", "equal"), [({"rate": same}, 0.0), ({"rate": rose}, 0.05), ({"rate": fell}, None)])
def test_why_says_the_mix_first(store: EmbeddedStore, planted: dict[str, Any], equal: float | None) -> None:
    """`GET explain` at the moment of the change; what fell at equal questions has no mix to blame."""
    plant(store, **planted)
    change = ask(store, "explain", {**RANGE, "metric": "quality:judge", "at": T0}, clock=lambda: NOW)["change"]
    assert change["after"] < change["before"]
    assert (change["mix"] is None) is (equal is None)
    if equal is not None:
        assert change["mix"]["value"] == pytest.approx(equal, abs=0.03)
        assert change["mix"]["words"].startswith("the mix changed (tenant: more legal); at equal questions")
