"""Two versions that got another mix of requests: the whole has a verdict only with its groups, if these are named."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, uniform

from ragpulse_collector.store.embedded import EmbeddedStore

Rate = Callable[[bool, bool], float]
SEE = "undecided, see by group"


def compared(
    store: EmbeddedStore,
    rate: Rate,
    *,
    hard: tuple[float, float] = (0.2, 0.8),
    key: str = "tenant",
    pi: float = 1.0,
    by: bool = True,
    values: tuple[str, str] = ("shop", "legal"),
) -> dict[str, Any]:
    """4,000 requests of two prompts: the shares of the hard ones of each, and how often each kind passes."""
    units = Units(store)
    for number in range(4000):
        later = bool(number % 2)
        is_hard = uniform(number, "hard") < hard[later]
        passes = uniform(number, "passes") < rate(is_hard, later)
        facts = {"user_id": f"u{number // 2}", "variant": values[is_hard], "prompt_version": "v2" if later else "v1"}
        at = T0 + timedelta(seconds=number)
        units.scored(number, "judge", float(passes), at=at, facts=facts, pi=pi, u=uniform(number, "u"))
    units.save()
    given = "topic = variant" if key == "topic" else f"metadata = MAP {{'{key}': variant}}"
    store.write(lambda tx: tx.execute(f"UPDATE raw.trace_facts SET {given}")).result()
    column = key if key == "topic" else f"metadata.{key}"
    params = {"a": "prompt:v1", "b": "prompt:v2", "evaluator": "judge", "from": T0}
    answer: dict[str, Any] = ask(
        store, "compare", params | ({"by": column} if by else {}), clock=lambda: T0 + timedelta(days=1)
    )
    return answer


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
    ("planted", "verdict"),
    [
        ({"rate": same}, SEE),
        ({"rate": same, "key": "language"}, SEE),
        ({"rate": same, "key": "segment", "pi": 0.5}, SEE),
        ({"rate": same, "key": "topic"}, SEE),
        ({"rate": same, "hard": (0.8, 0.2)}, SEE),
        ({"rate": rose}, SEE),
        ({"rate": fell}, "worse"),
        ({"rate": fell, "hard": (0.5, 0.5)}, "worse"),
        ({"rate": same, "hard": (0.5, 0.5)}, "not enough data"),
        ({"rate": same, "hard": (0.0, 1.0)}, "worse"),
    ],
)
def test_the_whole_moves_with_its_groups(store: EmbeddedStore, planted: dict[str, Any], verdict: str) -> None:
    """A whole that moves without, or against, all its groups has no verdict; every group is shown."""
    answer = compared(store, **planted)
    assert answer["verdict"] == verdict
    assert {stratum["value"] for stratum in answer["strata"]} == {"shop", "legal"}
    if verdict == SEE:
        more = "legal" if answer["difference"]["value"] < 0.0 else "shop"
        assert answer["mix"].startswith(f"B got more {more} (")


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("before", [0.0, 0.01])
def test_a_route_that_the_change_takes_hides_no_fall(store: EmbeddedStore, before: float, *, by: bool) -> None:
    """v2 falls back in two of five requests: its main route is a little better, and the version is worse."""

    def rate(is_fallback: bool, later: bool) -> float:
        return 0.4 if is_fallback else 0.9 + 0.03 * later

    answer = compared(store, rate, hard=(before, 0.4), key="route", by=by, values=("main", "fallback"))
    assert answer["difference"]["value"] < -0.15
    assert (answer["verdict"], answer["mix"]) == ("worse", None)


def test_a_key_that_nobody_named_replaces_no_verdict(store: EmbeddedStore) -> None:
    """The whole is worse, and the answer names the key to look by."""
    answer = compared(store, rose, by=False)
    assert (answer["verdict"], answer["mix"]) == ("worse", "B got more legal (metadata.tenant)")
