"""Changes: seen against the same hours of earlier days, with few false alarms, from a new group's first answers."""

from __future__ import annotations

from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from stored_units import T0, Units, uniform

from ragpulse_collector.analysis.changes.lines import check_change
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.listing import MonitorEvent
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store.embedded import EmbeddedStore

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def states(store: EmbeddedStore, **monitor: Any) -> dict[str, MonitorEvent]:
    """The latest state of each group of a monitor that is looked at once, at T0."""
    settings = MonitorSettings.model_validate({"name": "m", "condition": "change"} | monitor)
    monitors = Monitors(store, Settings.model_validate({"monitor": [settings]}), clock=lambda: T0)
    monitors.check(T0)
    return {str(one.group): one for one in monitors.list().monitors[0].history}


def requests(
    store: EmbeddedStore, days: int, per_hour: Any, *, error: Any = lambda number: False, topic: str = "other"
) -> None:
    """So many requests in each hour of the last days, spread evenly; a failed one is refused, and of this topic."""
    units, number = Units(store), 0
    for hour in range(-24 * days, 0):
        at = T0 + hour * HOUR
        for place in range(count := per_hour(at, -hour)):
            number += 1
            failed = error(number)
            units.unit(
                number, at=at + HOUR * place / count, error=failed, answer="refused" if failed else "answered",
                topic=topic if failed else "known", question_distance=0.9 if failed else 0.1,
            )  # fmt: skip
    units.save()


def daily(at: Any, back: int) -> int:
    """Twenty requests an hour by day, two by night, a little more every other day."""
    return (20 if 8 <= at.hour < 20 else 2) + at.day % 2


@pytest.mark.parametrize("name", ["quiet", "topics", "headline"])
def test_promises_of_alerts_are_kept(alerts: ModuleType, name: str) -> None:
    """`benchmarks/alerts.py --only NAME` in its short form: false alarms as stated."""
    simulate, short, _ = alerts.SIMULATIONS[name]
    broken = [str(promise) for promise in simulate(*short) if not promise.holds]
    assert not broken, "\n".join(broken)


def test_a_night_is_no_change_of_requests_and_silence_by_day_is(store: EmbeddedStore) -> None:
    """The last hours are compared with the same hours of earlier days."""
    requests(store, 14, lambda at, back: 0 if back <= 2 else daily(at, back))
    told = states(store, metric="requests", window="1h", baseline="7d")["{}"]
    assert told.state == "firing"
    assert told.text.startswith("requests fell 2")
    night = MonitorSettings(name="n", metric="requests", condition="change", window="1h", baseline="7d")
    monitors = Monitors(store, Settings.model_validate({"monitor": [night]}))
    looked = [monitors._findings(night, T0 - hour * HOUR, {})["{}"].state for hour in range(3, 27)]
    assert set(looked) == {"ok"}


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("errors", "errors rose"), ("error_rate", "error_rate rose"), ("refused_rate", "refused_rate rose"),
        ("unanswered_rate", "unanswered_rate rose"), ("other_share", "other_share rose"),
        ("question_drift", "question_drift rose"), ("topic_share:new", "topic_share:new rose"),
        ("empty_rate", None), ("topic_share:never asked", None),
    ],
)  # fmt: skip
def test_a_changed_share_is_seen_and_a_quiet_one_is_ok(store: EmbeddedStore, metric: str, text: str | None) -> None:
    """One request in twenty-five fails; in the last four hours every other one."""
    last = sum(daily(T0 - hour * HOUR, hour) for hour in range(1, 241))
    late = last - sum(daily(T0 - hour * HOUR, hour) for hour in range(1, 5))
    requests(store, 10, daily, error=lambda number: number % (2 if number > late else 25) == 0,
             topic="new" if metric.startswith("topic_share") else "other")  # fmt: skip
    told = states(store, metric=metric, baseline="6d")["{}"]
    assert told.state == ("firing" if text else "ok")
    assert told.text.startswith(text or "")
    assert "since Fri 20 Nov 08:00 UTC" in told.text or not text
    monitor = MonitorSettings(name="n", metric=metric, condition="change", baseline="6d")
    before = Monitors(store, Settings.model_validate({"monitor": [monitor]}))._findings(monitor, T0 - 4 * HOUR, {})
    assert before["{}"].state == "ok"


def test_a_new_version_is_compared_with_its_predecessor_from_its_first_answers(store: EmbeddedStore) -> None:
    """v2 began an hour ago and is worse; v1 holds; another service's v1 is nobody's predecessor."""
    units = Units(store)
    for number in range(2400):
        at = T0 - 36 * HOUR + number * 36 * HOUR / 2400
        new = at >= T0 - HOUR
        facts = {"service": "a", "prompt_version": "v2" if new else "v1"}
        units.scored(number, "judge", float(uniform(number, "y") < (0.4 if new else 0.95)), at=at, facts=facts)
    for number in range(3000, 3400):
        at = T0 - 36 * HOUR + (number - 3000) * 36 * HOUR / 400
        units.scored(number, "judge", float(number % 3 == 0), at=at, facts={"service": "b", "prompt_version": "v1"})
    units.save()
    found = states(store, metric="quality:judge", baseline="24h", group_by=["service", "prompt_version"])
    new = found["{'prompt_version': 'v2', 'service': 'a'}"]
    assert new.state == "firing"
    assert "against prompt_version v1, service a" in new.text
    assert found["{'prompt_version': 'v1', 'service': 'b'}"].state == "ok"


def test_a_new_user_has_no_predecessor(store: EmbeddedStore) -> None:
    """Nobody takes the place of a user: such a group is undecided until it has a level of its own."""
    units = Units(store)
    for number in range(600):
        at, late = T0 - 36 * HOUR + number * 36 * HOUR / 600, number >= 580
        units.scored(number, "judge", float(not late), at=at, facts={"user_id": "new" if late else "old"})
    units.save()
    found = states(store, metric="quality:judge", baseline="24h", group_by=["user_id"])
    assert found["{'user_id': 'new'}"].state == "undecided"
    assert found["{'user_id': 'new'}"].text == "no earlier level to compare with"


@pytest.mark.parametrize(
    ("metric", "baseline_s", "mistake"),
    [
        ("latency_p95", 7 * 86_400, "'change' is not offered for latency_p95: its spread depends on the day's rhythm.*"
                                    " other_share, question_drift, .* topic_share:NAME or a quality metric$"),
        ("acceptance", 7 * 86_400, "'change' is not offered for acceptance"),
        ("cost_usd", 7 * 86_400, "'change' is not offered for cost_usd"),
        ("requests", 86_400, "'change' of requests compares days: write a baseline of 4d or more"),
        ("question_drift", 86_400, "'change' of question_drift compares days: write a baseline of 4d or more"),
        ("topic_share:a", 86_400, "'change' of topic_share:a compares days: write a baseline of 4d or more"),
        ("quality:judge", 3600, "at least two windows"),
    ],
)  # fmt: skip
def test_what_has_no_promise_is_refused(metric: str, baseline_s: float, mistake: str) -> None:
    """With the reason, and what to write instead."""
    with pytest.raises(ValueError, match=mistake):
        check_change(metric, baseline_s, 3600)


def test_false_alarms_are_the_monitors_over_all_groups(store: EmbeddedStore) -> None:
    """At the first look, too: with a hundred groups each one is judged a hundred times as strictly."""
    units = Units(store)
    for number in range(1900):
        facts = {"model": f"m{number % 100}"}
        units.scored(number, "judge", float(number % 100 > 0), at=T0 - HOUR / 2, facts=facts)
    units.save()
    alone = states(store, metric="quality:judge", condition="< 0.5", where="model = 'm0'", name="alone")
    among = states(store, metric="quality:judge", condition="< 0.5", group_by=["model"], name="among")
    assert alone["{}"].state == "firing"
    assert among["{'model': 'm0'}"].state == "undecided"
