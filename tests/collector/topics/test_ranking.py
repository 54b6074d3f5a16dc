"""Ranking of topics: shrinkage, and tests over all topics together."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from asking import query_of
from stored_units import T0, Units, open_store

from ragpulse_collector.analysis.topics import topic_report
from ragpulse_collector.analysis.topics.ranking import Rate, adjusted, p_worse, shrunk

SHRUNK: dict[str, tuple[list[Rate | None], list[float | None]]] = {
    "nothing": ([], []),
    "nothing known": ([None, None], [None, None]),
    "one topic": ([Rate(0.4, 10)], [0.4]),
    "chance alone: all have the same rate": ([Rate(0.2, 10), Rate(0.1, 10), Rate(0.15, 100)], [0.15, 0.15, 0.15]),
    "all or nothing": ([Rate(1.0, 200), Rate(0.0, 200)], [0.9951, 0.0049]),
    "never fails": ([Rate(0.0, 50), Rate(0.0, 5)], [0.0, 0.0]),
    "one without a rate": ([Rate(0.1, 100), None, Rate(0.1, 50)], [0.1, None, 0.1]),
}


@pytest.mark.parametrize("case", SHRUNK)
def test_rates_are_drawn_to_that_of_all(case: str) -> None:
    """As far as chance explains the difference."""
    rates, expected = SHRUNK[case]
    assert shrunk(rates) == [one if one is None else pytest.approx(one, abs=5e-3) for one in expected]


def test_a_small_topic_does_not_lead_by_chance() -> None:
    """Three of four failures are less certain than 60 of 100; a large difference of a large topic stays."""
    small, large, *others = shrunk([Rate(0.75, 4), Rate(0.6, 100), *[Rate(0.1, 200)] * 8])
    assert small is not None
    assert large is not None
    assert small < large
    assert large > 0.55
    assert all(one == pytest.approx(0.1, abs=0.02) for one in others)


def test_few_users_prove_nothing_and_better_is_not_worse() -> None:
    """Only a rate above that of the others has a small p-value."""
    worse, few, better = p_worse([Rate(0.6, 100), Rate(0.9, 10, proves=False), Rate(0.01, 100)])
    assert worse < 0.01
    assert (few, better) == (1.0, 1.0)
    assert p_worse([Rate(0.5, 100)]) == [1.0]
    assert p_worse([None, None]) == [1.0, 1.0]


def test_false_discoveries_are_bounded_over_all_topics() -> None:
    """Of 300 times 30 topics with the same rate at most 5 % of the times have a mark."""
    rng, marked = random.Random(3), 0
    for _ in range(300):
        sizes = [rng.choice((10, 40, 200)) for _ in range(30)]
        rates: list[Rate | None] = [Rate(sum(rng.random() < 0.2 for _ in range(size)) / size, size) for size in sizes]
        marked += min(adjusted(p_worse(rates), [1.0] * 30)) <= 0.05
    assert marked / 300 <= 0.05


def test_the_worst_answers_have_a_question_each(tmp_path: Path) -> None:
    """However often it was asked and spelled: the lowest scores first, then the latest that were not answered."""
    store = open_store(tmp_path)
    units = Units(store)
    asked = [("How long?", 0.1, "answered"), ("how  long", 0.0, "answered"), ("Why?", 0.3, "answered"),
             ("Why?", None, "refused"), ("Who?", None, "empty"), ("When?", None, "refused")]  # fmt: skip
    for number in range(60):
        query, score, answer = asked[number % 6]
        at = T0 - timedelta(minutes=60 - number)
        units.unit(number, at=at, query=query, answer=answer, topic="time", user_id=f"u{number}")
        units.decision(number, "judge", at=at)
        if score is not None:
            units.score(number, "judge", score, at=at)
    units.save()
    (topic,) = topic_report(store, query_of({"from": "-1d"}, T0), "judge", limit=5).topics
    assert [row.query for row in topic.worst] == ["how  long", "Why?", "When?"]
    assert [row.scores["judge"].normalized for row in topic.worst[:2]] == [0.0, 0.3]
    store.close()
