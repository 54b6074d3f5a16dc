"""Teams of a few users: an outage fires whatever names the requests have, and no list or figure fails."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import pytest
from asking import ask, query_of
from stored_units import T0, Units

from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.targets import Targets
from ragpulse_collector.refusals import TooSlow
from ragpulse_collector.settings import Settings, TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore

METRICS = {
    "error_rate": "> 0.2", "errors": "> 5", "refused_rate": "> 0.2", "unanswered_rate": "> 0.2", "acceptance": "< 0.8",
    "latency_p95": "> 3000", "quality:judge": "< 0.8", "fail_rate:judge": "> 0.2", "pass_rate:judge": "< 0.8",
    "feedback:stars": "< 0.8",
}  # fmt: skip
TEAMS = [*product((0, 1, 4, 6), ("none", "one", "few", "each"))]
"""The users of a service (with 0 nobody names one), and the sessions that are named."""
FAILS = {"all": lambda number: True, "half": lambda number: number % 2 == 0, "nothing": lambda number: False}


def fill(store: EmbeddedStore, fails: str, teams: list[tuple[int, str]]) -> None:
    """A hundred requests of each team in an hour; what fails is slow, declined, disliked and wrong as well."""
    units = Units(store)
    for number in range(100 * len(teams)):
        users, sessions = teams[number // 100]
        failed, at = FAILS[fails](number), T0 - timedelta(minutes=59 - number % 50)
        session = {"none": None, "one": "s", "few": f"s{number % 3}", "each": f"s{number}"}[sessions]
        units.unit(number, at=at, service=f"{users} {sessions}", user_id=f"u{number % users}" if users else None,
                   session_id=session, error=failed, latency_ms=9000.0 if failed else 100.0, query=f"q{number}",
                   answer="refused" if failed else "answered", feedback=1.0 - failed)  # fmt: skip
        units.decision(number, "judge", at=at)
        units.score(number, "judge", 1.0 - failed, at=at)
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.trace_facts SET feedbacks = MAP {'stars': feedback}")).result()


def monitors_of(store: EmbeddedStore, *monitors: dict[str, Any], now: datetime = T0) -> Monitors:
    """Those of a file, after a look."""
    settings = Settings.model_validate({"monitor": [{"name": one["metric"], **one} for one in monitors]})
    made = Monitors(store, settings, evaluators=lambda: ["judge"], clock=lambda: now)
    made.check(now)
    return made


def firing(monitors: Monitors) -> dict[str, set[str]]:
    """The services for which each monitor fires."""
    return {
        one.name: {str(event.group["service"]) for event in one.history if event.state == "firing"}
        for one in monitors.list().monitors
    }


@pytest.mark.parametrize("fails", FAILS)
def test_an_outage_reaches_a_small_team(store: EmbeddedStore, fails: str) -> None:
    """Whoever names which id. Half is more than a fifth where too few clusters are known to count by these."""
    fill(store, fails, TEAMS)
    watch = [{"metric": name, "condition": limit, "group_by": ["service"]} for name, limit in METRICS.items()]
    few = {f"{users} {sessions}" for users, sessions in TEAMS if users < 5}
    expected = {"all": {f"{users} {sessions}" for users, sessions in TEAMS}, "half": few, "nothing": set()}[fails]
    found = firing(monitors_of(store, *watch))
    assert {name: services & few if fails == "half" else services for name, services in found.items()} == dict.fromkeys(
        METRICS, expected
    )


@pytest.mark.parametrize(("users", "sessions"), [(1, "one"), (4, "none")])
def test_every_answer_about_a_small_team(store: EmbeddedStore, users: int, sessions: str) -> None:
    """Mixed outcomes of one cluster show no likeness: nothing divides by none."""
    fill(store, "half", [(users, sessions)])
    asked = {
        "overview": {}, "metrics": {"name": ["error_rate", "quality:judge", "latency_p95"], "step": "1h"},
        "plan": {"evaluator": "judge", "half_width": 0.05}, "check": {"evaluator": "judge", "min": 0.5},
        "compare": {"a": "judge@v1", "b": "judge@v1"}, "explain": {"metric": "quality:judge", "bad": True},
        "calibration": {"evaluator": "judge"}, "documents": {"evaluator": "judge"}, "blame": {}, "coverage": {},
    }  # fmt: skip
    told = {name: ask(store, name, {"from": "-1d", **own}, clock=lambda: T0) for name, own in asked.items()}
    assert told["overview"]["error_rate"] == 0.5
    later = T0 + timedelta(hours=2)
    draft = {"name": "m", "metric": "error_rate", "condition": "> 0.2"}
    (monitor,) = monitors_of(store, draft, now=later).definitions
    assert monitors_of(store, now=later).preview(monitor.settings).would_have_fired == 1
    limits = [{"metric": "error_rate", "max": 0.2}, {"metric": "quality:judge", "min": 0.8}]
    targets = Targets(store, [TargetSettings.model_validate(limit) for limit in limits])
    assert [one.state for one in targets(query_of({"from": "-1d"}, T0)).targets] == ["missed", "missed"]


@pytest.mark.parametrize("error", [TooSlow("the query took longer than 30 s"), ZeroDivisionError("division by zero")])
def test_one_monitor_never_hides_the_others(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One whose figure cannot be read is listed with its state and the reason; so is a target that takes too long."""

    def limited() -> EmbeddedStore:
        raise error

    fill(store, "all", [(4, "none")])
    monkeypatch.setattr(store, "limited", limited)
    where = {"metric": "quality:judge", "where": "service = 'a'"}
    errors = {"metric": "error_rate", "condition": "> 0.2"}
    bad, good = monitors_of(store, {"condition": "< 0.8", **where}, errors).list().monitors
    assert (good.name, good.state) == ("error_rate", "firing")
    assert (bad.state, str(error) in str(bad.correction)) == ("undecided", True)
    if isinstance(error, TooSlow):
        limits = [{"min": 0.8, **where}, {"metric": "error_rate", "max": 0.2}]
        targets = Targets(store, [TargetSettings.model_validate(limit) for limit in limits])
        unread, read = targets(query_of({"from": "-1d"}, T0)).targets
        assert (unread.state, unread.refused, read.state) == ("undecided", str(error), "missed")
