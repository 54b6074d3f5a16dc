"""Promises of the drift of questions: how often it is told where nothing changed, and found where something did.

    python benchmarks/question_drift.py

The services of one store are independent replications: 36 days of questions of users who keep to a few topics and ask
several times a visit, on weekends about other topics. Each of the last seven days is looked at once, a changed one
alone. Exit 1 if a drift is told on more than 3 % of the unchanged days (1 % is promised; 140 looks tell no less), or
found for fewer than 80 % of the large services.
"""

from __future__ import annotations

import random
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from ragpulse_collector.analysis.query import Query, having, window_between
from ragpulse_collector.analysis.topics.drift import topics_moved
from ragpulse_collector.store import EmbeddedStore, Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from stored_units import Units, open_store

END = datetime(2026, 11, 20)
DAYS, MOST_ASKED, TOPICS, VISITS_OF_A_USER = 36, 3, 12, 0.6
SMALL, LARGE = (20, 150), (6, 600)
"""Services, and their visits a day: two questions each."""


def fill(store: EmbeddedStore, today: float, seed: int, services: int, visits: int) -> None:
    """Store the questions of all services; `today` is the share of visits about no known topic on the last day."""
    rng, units, number = random.Random(seed), Units(store), seed * 10_000_000
    for service in range(services):
        habits = [rng.sample(range(TOPICS), 3) for _ in range(int(visits / VISITS_OF_A_USER))]
        for visit in range(DAYS * visits):
            day, user = visit // visits, rng.randrange(len(habits))
            at = END - timedelta(days=DAYS - day) + timedelta(minutes=rng.randrange(1440))
            other = rng.random() < (today if day == DAYS - 1 else 0.03)
            shift = 5 if at.isoweekday() > 5 else 0
            topic = "other" if other else f"topic {(rng.choice(habits[user]) + shift) % TOPICS}"
            for _ in range(rng.randint(1, MOST_ASKED)):
                number += 1
                units.unit(number, at=at, service=f"{seed}-{service}", user_id=f"user-{user}", topic=topic)
        units.save()


def told(store: Store, seed: int, services: int, days: int, topic: str | None = None) -> float:
    """The share of the looks at the last days of all services at which a topic is told; None: any."""
    looks = []
    for number, day in ((number, day) for number in range(services) for day in range(days)):
        end = END - timedelta(days=day)
        window = window_between(end - timedelta(days=1), end, now=end)
        drifts = topics_moved(store, Query(window=window, filters=having({"service": [f"{seed}-{number}"]}), now=end))
        looks.append(any(topic in (None, one.topic) for one in drifts))
    return sum(looks) / len(looks)


def main() -> int:
    """Print both rates; 1 if one is off."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        fill(store, 0.03, 0, *SMALL)
        fill(store, 0.11, 1, *SMALL)
        fill(store, 0.11, 2, *LARGE)
        false = told(store, 0, SMALL[0], 7)
        found = [told(store, seed, services, 1, "other") for seed, (services, _) in enumerate((SMALL, LARGE), 1)]
        store.close()
    print(f"3 % of the questions are other, today as well: told at {100 * false:.1f} % of {7 * SMALL[0]} looks")
    for (services, visits), share in zip((SMALL, LARGE), found, strict=True):
        print(
            f"11 % today, usually 3 %, {2 * visits} questions a day: found for {100 * share:.0f} % of"
            f" {services} services"
        )
    return int(false > 0.03 or found[1] < 0.8)


if __name__ == "__main__":
    sys.exit(main())
