"""Promises of the drift of questions: how often it is told where nothing changed, and found where something did.

    python benchmarks/question_drift.py

The services of one store are independent replications: 36 days of questions of users who keep to a few topics and ask
several times a visit, on weekends about other topics. Each of the last seven days is looked at once, a changed one
alone. Exit 1 if a drift is told on more than 3 % of the unchanged days (1 % is promised; 140 looks tell no less), or
found for fewer than 80 % of the services.
"""

from __future__ import annotations

import random
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from ragpulse_collector.analysis.query import Query, having, window_between
from ragpulse_collector.analysis.topics.drift import question_drift
from ragpulse_collector.store import EmbeddedStore, Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from stored_units import Units, open_store

END = datetime(2026, 11, 20)
DAYS, VISITS, MOST_ASKED, USERS, TOPICS, SERVICES = 36, 150, 3, 250, 12, 20
WORLDS = ((0.03, "nothing changed: 3 % other, today as well"), (0.11, "11 % other today, usually 3 %"))


def fill(store: EmbeddedStore, today: float, seed: int) -> None:
    """Store the questions of all services; `today` is the share of visits about no known topic on the last day."""
    rng, units, number = random.Random(seed), Units(store), seed * 10_000_000
    for service in range(SERVICES):
        habits = [rng.sample(range(TOPICS), 3) for _ in range(USERS)]
        for visit in range(DAYS * VISITS):
            day, user = visit // VISITS, rng.randrange(USERS)
            at = END - timedelta(days=DAYS - day) + timedelta(minutes=rng.randrange(1440))
            other = rng.random() < (today if day == DAYS - 1 else 0.03)
            shift = 5 if at.isoweekday() > 5 else 0
            topic = "other" if other else f"topic {(rng.choice(habits[user]) + shift) % TOPICS}"
            for _ in range(rng.randint(1, MOST_ASKED)):
                number += 1
                units.unit(number, at=at, service=f"{seed}-{service}", user_id=f"user-{user}", topic=topic)
        units.save()


def told(store: Store, seed: int, days: int, topic: str | None = None) -> float:
    """The share of the looks at the last days of all services at which a topic is told; None: any."""
    looks = []
    for number, day in ((number, day) for number in range(SERVICES) for day in range(days)):
        end = END - timedelta(days=day)
        window = window_between(end - timedelta(days=1), end, now=end)
        drifts = question_drift(store, Query(window=window, filters=having({"service": [f"{seed}-{number}"]}), now=end))
        looks.append(any(topic in (None, one.topic) for one in drifts))
    return sum(looks) / len(looks)


def main() -> int:
    """Print both rates; 1 if one is off."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        for seed, (today, _) in enumerate(WORLDS):
            fill(store, today, seed)
        false, found = told(store, 0, 7), told(store, 1, 1, "other")
        store.close()
    print(f"{WORLDS[0][1]}: told at {100 * false:.1f} % of {7 * SERVICES} looks")
    print(f"{WORLDS[1][1]}: found for {100 * found:.0f} % of {SERVICES} services with {VISITS} visits a day")
    return int(false > 0.03 or found < 0.8)


if __name__ == "__main__":
    sys.exit(main())
