"""What changed: level shifts of stored series are found, named, ranked; noise and what nobody would act on are not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units, open_store, trace_id, uniform

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.store.embedded import EmbeddedStore

TOTAL = 480


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def now() -> datetime:
    """Eight hours after noon."""
    return T0 + timedelta(hours=8)


def found(store: EmbeddedStore, **params: Any) -> list[dict[str, Any]]:
    """The changes of eight hours in which a request came each minute."""
    return list(ask(store, "overview", {"from": "-8h", "width": 32, **params}, clock=now)["changes"])


def fill(store: EmbeddedStore, *, before: float, passing: float, slow: float, failing: float, dear: float) -> None:
    """One request a minute; the figures are those after half of the time, when prompt v2 began."""
    units = Units(store)
    for number in range(TOTAL):
        late = number >= TOTAL // 2
        score = float(uniform(number, "score") < (passing if late else before))
        facts = {
            "latency_ms": (500 + 1000 * uniform(number, "latency")) * (slow if late else 1.0),
            "error": uniform(number, "error") < (failing if late else 0.02),
            "cost_usd": (0.001 + 0.001 * uniform(number, "cost")) * (dear if late else 1.0),
            "prompt_name": "qa",
            "prompt_version": "v2" if late else "v1",
        }
        units.scored(number, "judge", score, at=T0 + timedelta(minutes=number), facts=facts)
    units.save()


def test_a_few_expensive_requests_are_no_change(store: EmbeddedStore) -> None:
    """Twelve of the second half cost a hundred times the others: the mean rises, what an answer costs did not."""
    units = Units(store)
    for number in range(TOTAL):
        dear = number >= TOTAL // 2 and number % 20 == 0
        cost = (0.001 + 0.001 * uniform(number, "cost")) * (100.0 if dear else 1.0)
        units.scored(number, "judge", 1.0, at=T0 + timedelta(minutes=number), facts={"cost_usd": cost})
    units.save()
    answer = ask(store, "overview", {"from": "-8h", "width": 32}, clock=now)
    assert answer["changes"] == []


def test_the_fact_of_latency_is_that_of_the_range(store: EmbeddedStore) -> None:
    """p95 over all requests, as cost and errors are; not that of the last bucket."""
    units = Units(store)
    for number in range(100):
        units.scored(number, "judge", 1.0, at=T0 + timedelta(minutes=number), facts={"latency_ms": float(100 - number)})
    units.save()
    assert ask(store, "overview", {"from": "-8h"}, clock=now)["latency_p95"] == pytest.approx(95.05)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({}, []),
        ({"passing": 0.6}, [("quality:judge", True)]),
        ({"before": 0.6}, [("quality:judge", False)]),
        ({"slow": 2.0}, [("latency_p95", True)]),
        ({"slow": 1.03}, []),
        ({"failing": 0.3}, [("error_rate", True)]),
        ({"dear": 3.0, "passing": 0.7}, [("cost_usd", True), ("quality:judge", True)]),
    ],
)
def test_level_shifts_are_found_and_ranked(
    store: EmbeddedStore, after: dict[str, float], expected: list[tuple[str, bool]]
) -> None:
    """The surest first, each with its two levels, the minute at which the prompt began, and its name."""
    fill(store, **{"before": 0.9, "passing": 0.9, "slow": 1.0, "failing": 0.02, "dear": 1.0, **after})
    told = found(store)
    assert [(one["metric"], one["worse"]) for one in told] == expected
    for one in told:
        assert (one["cause"], one["t"]) == ("prompt qa v2", (T0 + timedelta(minutes=TOTAL // 2)).isoformat() + "Z")
        assert one["before"]["n"] + one["after"]["n"] >= TOTAL // 2
        assert one["sureness"] > 3.0


def test_a_user_who_tries_again_is_no_rise_of_the_error_rate(store: EmbeddedStore) -> None:
    """Half of the last half hour's requests fail, all of one user; of as many users it is a change."""
    for user, expected in (("stuck", []), (None, ["error_rate"])):
        units = Units(store)
        for number in range(TOTAL):
            bad = number >= TOTAL - 30 and number % 2 == 0
            units.unit(number, at=T0 + timedelta(minutes=number), error=bad, service=str(user),
                       user_id=user if bad else None)  # fmt: skip
        units.save()
        assert [one["metric"] for one in found(store, service=str(user))] == expected


def test_a_user_with_bad_answers_is_no_drop_of_quality(store: EmbeddedStore) -> None:
    """Half of the last hours' answers are bad, all of one user; of as many users it is a change."""
    for user, expected in (("stuck", []), (None, ["quality:judge"])):
        units = Units(store)
        for number in range(TOTAL):
            bad = number >= TOTAL - 120 and number % 2 == 0
            facts = {"service": str(user), "user_id": user if bad else f"u{number}"}
            units.scored(number, "judge", float(not bad), at=T0 + timedelta(minutes=number), facts=facts)
        units.save()
        assert [one["metric"] for one in found(store, service=str(user))] == expected


def test_an_evaluators_new_version_is_no_change(store: EmbeddedStore) -> None:
    """Only the version in force is compared with itself; before it there is nothing."""
    units = Units(store)
    for number in range(TOTAL):
        late = number >= TOTAL // 2
        units.scored(number, "judge", 0.4 if late else 0.9, at=T0 + timedelta(minutes=number),
                     version="two" if late else "one")  # fmt: skip
    units.save()
    assert found(store) == []


def test_levels_without_spread_differ_for_sure(store: EmbeddedStore) -> None:
    """From always right to always wrong is the largest change there is, although no bucket varies."""
    units = Units(store)
    for number in range(TOTAL):
        units.scored(number, "judge", float(number < TOTAL // 2), at=T0 + timedelta(minutes=number))
    units.save()
    assert [(one["before"]["value"], one["after"]["value"]) for one in found(store)] == [(1.0, 0.0)]


def test_only_what_an_evaluator_fails_is_failing(store: EmbeddedStore) -> None:
    """A low score of an evaluator that calls nothing passing fails no check, and hides no good answer."""
    units = Units(store)
    for number, passing in enumerate((True, False, None)):
        units.unit(number)
        units.score(number, "groundedness", 0.4, passing=passing)
        units.score(number, "context_utilization", 0.1, passing=None)
    units.save()

    def listed(**asked: str) -> list[str]:
        return [row.trace_id for row in trace_list(store, str, TraceList.parse(asked)).traces]

    assert listed(failing="true") == [trace_id(1)]
    assert listed(failing="false") == [trace_id(0)]


def test_a_level_that_only_seems_to_change_again_is_one(store: EmbeddedStore) -> None:
    """A step that is not sure does not part what came after the change, and takes nothing from its sureness."""
    units = Units(store)
    for number in range(TOTAL):
        passing = 0.96 if number < 240 else 0.62 if number < 300 else 0.78
        score = float(uniform(number, "score") < passing)
        units.scored(number, "judge", score, at=T0 + timedelta(minutes=number))
    units.save()
    (one,) = found(store)
    assert (one["before"]["n"], one["after"]["n"]) == (240, 240)


MOVES: list[tuple[str, str, list[str], list[str], str | None]] = [
    ("its own service fell", "a/qa", ["a/qa"], ["a/qa", "b/qa", "c/qa"], "prompt qa v2"),
    ("two other services fell", "a/qa", ["b/qa", "c/qa"], ["a/qa", "b/qa", "c/qa"], None),
    ("all fell", "a/qa", ["a/qa", "b/qa", "c/qa"], ["a/qa", "b/qa", "c/qa"], None),
    ("the only service", "a/qa", ["a/qa"], ["a/qa"], "prompt qa v2"),
    ("another prompt of the service fell", "a/summary", ["a/qa"], ["a/qa", "a/summary"], None),
    ("one prompt of two", "a/qa", ["a/qa"], ["a/qa", "a/summary"], "prompt qa v2"),
    ("a prompt without service", "/qa", ["/qa"], ["/qa", "b/qa"], "prompt qa v2"),
]
"""What happened, the prompt that began, the traffic that changed, all traffic, the cause."""


@pytest.mark.parametrize(
    ("metric", "move"),
    [
        *(("quality:judge", move) for move in MOVES),
        *((metric, move) for metric in ("error_rate", "cost_usd", "latency_p95") for move in MOVES[:2]),
    ],
)
def test_a_prompt_explains_only_the_change_of_what_it_serves(
    store: EmbeddedStore, metric: str, move: tuple[str, str, list[str], list[str], str | None]
) -> None:
    """A prompt of one service began when two others fell: it is not named."""
    kind, new, moved, traffic, cause = move
    units = Units(store)
    for number in range(2 * TOTAL):
        place, late = traffic[number % len(traffic)], number >= TOTAL
        service, prompt = place.split("/")
        bad = uniform(number, "bad") < (0.8 if late and place in moved else 0.05)
        facts = {
            "service": service or None, "prompt_name": prompt, "prompt_version": f"v{1 + (late and place == new)}",
            "error": bad and metric == "error_rate", "cost_usd": 0.01 if bad and metric == "cost_usd" else 0.001,
            "latency_ms": (900.0 + uniform(number)) * (9.0 if bad and metric == "latency_p95" else 1.0),
        }  # fmt: skip
        score = float(not bad or metric != "quality:judge")
        units.scored(number, "judge", score, at=T0 + timedelta(seconds=30 * number), facts=facts)
    units.save()
    assert [(one["metric"], one["cause"]) for one in found(store)] == [(metric, cause)], kind
    elsewhere = ask(store, "metrics", {"name": "error_rate", "from": "-8h", "service": "b"}, clock=now)["markers"]
    assert [one["text"] for one in elsewhere] == (["prompt qa v2"] if new.startswith("b") else [])
