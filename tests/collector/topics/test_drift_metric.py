"""`question_drift`: the mean distance of questions from the nearest topic, in series, Explain and monitors.

Ten days of questions about six subjects, their topics, and six hours that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from asking import ask
from stored_units import T0, Units, open_store

from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.listing import MonitorEvent
from ragpulse_collector.settings import MonitorSettings, Settings, TopicSettings
from ragpulse_collector.store import topics as stored
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.topics import Topics, assign_all
from ragpulse_collector.topics.child import fitted
from ragpulse_collector.topics.refitting import Refits

pytest.importorskip("wordllama", reason="the extra [topics] is not installed")
pytest.importorskip("sklearn", reason="the extra [topics] is not installed")

VERBS = ("reset", "change", "find", "cancel", "follow", "request")
FRAMES = ("How do I {} my {}?", "I want to {} a {}", "Where can I {} the {} please?", "Help me {} this {} today")
KNOWN = ("password", "parcel", "invoice", "vacation", "refund", "webhook")
UNKNOWN = (
    "Which volcano erupted in Iceland?", "Who painted the ceiling of the chapel?", "Are tigers afraid of elephants?",
    "What spices belong into a curry?", "When did the Roman empire fall?", "Does the moon cause tides?",
)  # fmt: skip
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
A_DAY, LAST = 120, 6 * HOUR


def usual(rng: Random, count: int) -> list[str]:
    """Questions about the known subjects, each as often."""
    return [rng.choice(FRAMES).format(rng.choice(VERBS), KNOWN[number % len(KNOWN)]) for number in range(count)]


def unknown(rng: Random, count: int) -> list[str]:
    """Every second question is about nothing known."""
    return [rng.choice(UNKNOWN) if number % 2 else text for number, text in enumerate(usual(rng, count))]


class Asked:
    """A store with ten days of known questions and their topics."""

    def __init__(self, folder: Path) -> None:
        self.store, self.rng, self._number = open_store(folder), Random(7), 0
        self.add(usual(self.rng, 10 * A_DAY), T0 - 10 * DAY - LAST, 10 * DAY)
        self.refits = Refits(self.store, TopicSettings(), clock=lambda: T0 - LAST, find=fitted)
        self.refits.run(True)

    def add(self, questions: Sequence[str], first: datetime, length: timedelta) -> None:
        """Store questions over a time, of sixty users."""
        units = Units(self.store)
        for number, text in enumerate(questions):
            self._number += 1
            at = first + length * (number / len(questions))
            units.unit(self._number, at=at, query=text, user_id=f"user {self._number % 60}")
        units.save()

    def place(self, questions: Sequence[str]) -> None:
        """Store the questions of the last hours, with their topics and distances by the fit in force."""
        self.add(questions, T0 - LAST, LAST)
        batch = stored.questions_before(self.store.read, T0, T0 - LAST, 1000)
        find = self.refits.assigner()
        assert find is not None
        placed = find([one.question for one in batch])
        assert self.store.write(lambda tx: stored.assign_again(tx, 1, batch, placed)).result()

    def drift(self, first: datetime, last: datetime) -> float:
        """The metric over a range, from its series."""
        params = {"name": "question_drift", "from": f"{first:%FT%TZ}", "to": f"{last:%FT%TZ}", "step": "all"}
        (line,) = ask(self.store, "metrics", params, clock=lambda: T0)["series"]
        (point,) = line["points"]
        assert point["lo"] < point["value"] < point["hi"]
        return float(point["value"])

    def state(self, **monitor: str) -> MonitorEvent:
        """What a monitor of the metric says of the last hours."""
        settings = MonitorSettings.model_validate({"name": "m", "metric": "question_drift", "window": "6h"} | monitor)
        monitors = Monitors(self.store, Settings.model_validate({"monitor": [settings]}), clock=lambda: T0)
        monitors.check(T0)
        (event,) = monitors.list().monitors[0].history
        return event


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """Ten days of known questions."""
    made = Asked(tmp_path)
    yield made
    made.store.close()


def topics_in(store: EmbeddedStore) -> Topics:
    """The topics of the fit in force."""
    fit = stored.last_fit(store.read)
    assert fit is not None
    return Topics(stored.stored_topics(store.read), fit.other, fit.last_id)


def test_unknown_questions_raise_the_drift_surely(asked: Asked) -> None:
    """Against the same hours of earlier days, and beyond a limit; other questions count with their distance."""
    asked.place(unknown(asked.rng, A_DAY))
    before, now = asked.drift(T0 - 10 * DAY - LAST, T0 - LAST), asked.drift(T0 - LAST, T0)
    assert now > before + 0.15
    told = asked.state(condition="change", baseline="8d")
    assert told.state == "firing"
    assert told.text.startswith("question_drift rose")
    assert asked.state(condition=f"> {before + 0.02:.2f}").state == "firing"


def test_the_same_mix_of_the_same_topics_is_no_drift(asked: Asked) -> None:
    """Also while many requests have no distance yet: they do not count."""
    asked.place(usual(asked.rng, A_DAY))
    asked.add(usual(asked.rng, 4 * A_DAY), T0 - LAST, LAST)
    assert asked.drift(T0 - LAST, T0) == pytest.approx(asked.drift(T0 - 10 * DAY, T0 - LAST), abs=0.03)
    assert asked.state(condition="change", baseline="8d").state == "ok"


def test_the_figure_is_the_mean_of_the_distances_of_the_fit(asked: Asked) -> None:
    """Every question of the store, other included, between 0 and 1; a trace without a question is left out."""
    questions = unknown(asked.rng, A_DAY)
    asked.place(questions)
    found = assign_all(topics_in(asked.store), questions)
    assert {one.topic is None for one in found} == {False, True}
    assert all(0 <= one.distance <= 1 for one in found)
    assert max(one.distance for one in found if one.topic) < min(one.distance for one in found if not one.topic)
    asked.store.write(lambda tx: tx.execute("UPDATE raw.trace_facts SET query = NULL, question_distance = NULL"
                                            " WHERE start_time = $first", {"first": T0 - LAST})).result()  # fmt: skip
    assert asked.drift(T0 - LAST, T0) == pytest.approx(fmean(one.distance for one in found[1:]), abs=1e-5)


def test_explain_finds_the_questions_that_are_far(asked: Asked) -> None:
    """The farthest tenth is of no topic."""
    asked.place(unknown(asked.rng, A_DAY))
    params = {"name": "question_drift", "bad": True, "from": "-6h"}
    attributes = ask(asked.store, "explain", params, clock=lambda: T0)["attributes"]
    assert ("topic", "other") in {(one["attribute"], one["value"]) for one in attributes}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("", 1.0, 1.0), ("¤¤¤", 1.0, 1.0), ("How do I reset my password?", 0.0, 0.5), (UNKNOWN[0], 0.5, 1.0)],
)
def test_a_distance_is_between_0_and_1(asked: Asked, text: str, low: float, high: float) -> None:
    """A question without a known word is as far as can be; so is every question where there is no topic."""
    (found,) = assign_all(topics_in(asked.store), [text])
    assert low <= found.distance <= high
    assert assign_all(Topics((), 0, 0), [text])[0] == (None, 1.0)
