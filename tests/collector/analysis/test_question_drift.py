"""Drift of questions: against the same weekdays of four weeks, with users as clusters."""

from __future__ import annotations

from datetime import timedelta

import pytest
from stored_units import T0, Units, uniform

from ragpulse_collector.analysis.query import Query, window_between
from ragpulse_collector.analysis.topics.drift import topics_moved
from ragpulse_collector.store.embedded import EmbeddedStore

DAY = timedelta(days=1)
A_DAY = 60


def asked(
    store: EmbeddedStore, *, other: float = 0.03, today: float = 0.03, weekend: float = 0.03, users: int = 50
) -> None:
    """Four weeks and a day of questions: 3 % of them are `other`, on weekends and today another share."""
    units = Units(store)
    for number in range(29 * A_DAY):
        day = number // A_DAY
        at = T0 - 29 * DAY + day * DAY + timedelta(minutes=20 * (number % A_DAY))
        share = today if day == 28 else weekend if at.isoweekday() > 5 else 0.03
        topic = "other" if uniform(number, "drift") < share else ("billing", "print")[number % 2]
        units.unit(number, at=at, query=f"Question {number}?", user_id=f"user-{number % users}", topic=topic)
    units.save()


def found(store: EmbeddedStore, days: int = 1) -> list[tuple[str, bool]]:
    """The topics that drifted in the last days, and whether they are more common than usual."""
    query = Query(window=window_between(T0 - days * DAY, T0, now=T0), now=T0)
    return [(one.topic, one.share > one.usual) for one in topics_moved(store, query)]


def test_questions_of_no_known_topic_are_told(store: EmbeddedStore) -> None:
    """A third of today's, usually 3 %."""
    asked(store, today=0.33)
    assert ("other", True) in found(store)


@pytest.mark.parametrize("users", [50, 3])
def test_usual_questions_are_not(store: EmbeddedStore, users: int) -> None:
    """Also where a few users ask everything."""
    asked(store, users=users)
    assert found(store) == []


def test_few_users_prove_nothing(store: EmbeddedStore) -> None:
    """Three users who ask about other things are no drift of the questions."""
    asked(store, today=0.33, users=3)
    assert found(store) == []


def test_a_day_is_compared_with_the_same_weekdays(store: EmbeddedStore) -> None:
    """T0 is a Friday: the day before it has weekdays alone to compare with; a weekend has weekends."""
    asked(store, weekend=0.4)
    assert found(store) == []
    query = Query(window=window_between(T0 - 6 * DAY, T0 - 4 * DAY, now=T0), now=T0)
    assert [one.topic for one in topics_moved(store, query)] == []


def test_a_store_without_topics_has_no_drift(store: EmbeddedStore) -> None:
    """Nothing to compare."""
    assert found(store) == []


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.21), (0.0, 1.0), (0.39, 0.0), (1.0, 0.0), (0.0, 0.0)])
def test_a_share_of_nothing_is_a_share(store: EmbeddedStore, before: float, after: float) -> None:
    """A topic that nobody asked about before, or does now, is as surely news as another."""
    units = Units(store)
    for number in range(29 * A_DAY):
        at = T0 - 29 * DAY + number // A_DAY * DAY + timedelta(minutes=20 * (number % A_DAY))
        share = after if number // A_DAY == 28 else before
        topic = "import" if uniform(number, "drift") < share else "billing"
        units.unit(number, at=at, query=f"Question {number}?", user_id=f"user-{number % 50}", topic=topic)
    units.save()
    assert (("import", after > before) in found(store)) is (before != after)
