"""What a monitor says that it detects, beside what the real monitor needs when that change is planted."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from stored_units import T0, Units, uniform

from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.monitoring.detection import advised_window, detects
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.monitors import State

HOUR = timedelta(hours=1)
SERVICES = 10
ALONE = {"icc": 0.0, "users": 20_000, "each": 1.0001}


def first_fired(store: EmbeddedStore, monitor: MonitorSettings, begin: Any, hours: int) -> list[int]:
    """The hour after `begin` at which each service first fired."""
    monitors = Monitors(store, Settings.model_validate({"monitor": [monitor]}))
    known: dict[str, State] = {}
    first: dict[str, int] = {}
    for hour in range(1, hours + 1):
        for group, finding in monitors._findings(monitor, begin + hour * HOUR, known).items():
            known[group] = finding.state
            if finding.state == "firing":
                first.setdefault(group, hour)
    return list(first.values())


@pytest.mark.parametrize(
    ("monitor", "world", "planted"),
    [
        ({"metric": "quality:judge", "condition": "< 0.89", "window": "6h"}, ALONE, {"quality": -0.1}),
        ({"metric": "quality:judge", "condition": "< 0.89", "window": "16h", "false_alarms_per_year": 400.0},
         {"icc": 0.1}, {"quality": -0.1}),
        ({"metric": "error_rate", "condition": "> 0.06", "window": "6h"}, {"icc": 0.2}, {"errors": 3.5}),
        ({"metric": "quality:judge", "condition": "change", "baseline": "4d"}, {**ALONE, "requests": 40.0, "before": 7},
         {"quality": -0.1}),
    ],
)  # fmt: skip
def test_the_stated_time_is_what_the_monitor_needs(
    alerts: ModuleType, tmp_path: Path, monitor: dict[str, Any], world: dict[str, Any], planted: dict[str, float]
) -> None:
    """Most of ten services have fired by then, few by a third of it."""
    flat = {"wave": 0.0, "rhythm": 0.0, "days": 0.0, "bursts": 0.0, "quality": 0.9, "before": 1, "requests": 120.0}
    hours = 18
    made = alerts._store(tmp_path, [alerts.World(**flat | world)] * SERVICES, hours, alerts.Planted(at=0, **planted))
    settings = MonitorSettings.model_validate({"name": "m", "group_by": ("service",), **monitor})
    begin = alerts.END - hours * HOUR
    said = detects(made, settings, begin) or ""
    stated = re.search(
        r"with your \d+ \w+ per [\w ]+ \(service s\d+\) a (?:drop|rise) .* after about (\d+) hours", said
    )
    assert stated, said
    assert int(stated[1]) <= hours
    fired = first_fired(made, settings, begin, int(stated[1]))
    made.close()
    by_then, early = (sum(hour <= share * int(stated[1]) for hour in fired) for share in (1.0, 1 / 3))
    assert by_then >= 0.7 * SERVICES, (said, sorted(fired))
    assert early <= 0.3 * SERVICES, (said, sorted(fired))


@pytest.mark.parametrize(
    ("condition", "answers", "users", "text"),
    [
        ("< 0.85", 600, 600, r"with your 25 answers per hour a drop from 0\.9\d to 0\.80 is not seen: it takes \d+"
                             r" in one window; widen it to \d+ hours$"),
        ("< 0.89", 15_000, 15_000, r"with your 625 answers per hour a drop from 0\.90"
                                   r" to 0\.80 is seen after about \d+ minutes$"),
        ("< 0.85", 10, 10, r"with your 0\.4 answers per hour a drop from "),
        ("< 0.85", 600, 3, r"with your 25 answers per hour a drop from 0\.9\d to 0\.80 is not seen$"),
        ("< 0.85", 0, 1, "nothing was measured in the last day, so what it can detect is unknown"),
    ],
)  # fmt: skip
def test_it_says_what_is_not_seen(store: EmbeddedStore, condition: str, answers: int, users: int, text: str) -> None:
    """With the window that would do; three users are never enough."""
    units = Units(store)
    for number in range(answers):
        units.scored(number, "judge", float(uniform(number) < 0.9), at=T0 - number * 24 * HOUR / answers - HOUR / 100,
                     facts={"user_id": f"u{number % users}"})  # fmt: skip
    units.save()
    said = detects(store, MonitorSettings(name="m", metric="quality:judge", condition=condition), T0)
    assert re.match(text, said or ""), said


def test_the_advised_window_can_be_taken(store: EmbeddedStore) -> None:
    """The form offers the window that the advice names; with it the change is seen, and the monitor is saved."""
    units = Units(store)
    for number in range(2000):
        units.scored(number, "judge", float(uniform(number) < 0.9), at=T0 - number * 96 * HOUR / 2000 - HOUR / 100)
    units.save()
    monitors = Monitors(store, Settings(), evaluators=lambda: ["judge"], clock=lambda: T0)
    draft = MonitorSettings(name="m", metric="quality:judge", condition="< 0.85")
    wider = monitors.preview(draft).wider
    assert wider
    assert re.fullmatch(r"\d+h", wider)
    taken = draft.model_copy(update={"window": wider})
    found = monitors.preview(taken)
    assert "is seen after" in (found.detects or "")
    assert found.wider is None
    monitors.definitions.save(taken, actor="a", replace=False)
    assert monitors.list().monitors[0].window == wider


@pytest.mark.parametrize(
    ("metric", "condition", "text"),
    [
        ("requests", "change", r"requests are seen to change where they fall to \d+ % or rise to \d+ %"),
        ("errors", "change", r"errors are seen to change where they fall to \d+ % or rise to \d+ %"),
        ("error_rate", "change", r"error_rate is seen to change where it falls to \d+ % or rises to \d+ %"),
        ("other_share", "change", r"other_share is seen to change where it falls to \d+ % or rises to \d+ %"),
        ("topic_share:a", "change", r"topic_share:a is seen to change where it falls to \d+ % or rises to \d+ %"),
        ("question_drift", "change", r"question_drift is seen to change where it falls to \d+ % or rises to \d+ %"),
        ("other_share", "> 0.3", r"with your 50 requests per hour a rise from 0\.20 to 0\.35"),
        ("topic_share:a", "< 0.75", r"with your 50 requests per hour a drop from 0\.80 to 0\.70"),
        ("error_rate", "< 0.05", r"with your 50 requests per hour a drop from 0\.20 to 0\.00"),
        ("requests", "no data", "silence is seen after"),
        ("latency_p95", "> 3000", None),
    ],
)  # fmt: skip
def test_it_speaks_of_each_metric(store: EmbeddedStore, metric: str, condition: str, text: str | None) -> None:
    """Counts are many, a share is one."""
    units = Units(store)
    for number in range(9 * 24 * 50):
        failed = number % 5 == 0
        units.unit(number, at=T0 - (number + 1) * HOUR / 50, error=failed, user_id=f"u{number % 997}",
                   topic="other" if failed else "a", question_distance=0.3)  # fmt: skip
    units.save()
    said = detects(store, MonitorSettings(name="m", metric=metric, condition=condition, baseline="5d"), T0)
    assert re.match(text, said or "") if text else said is None, said


@pytest.mark.parametrize(
    ("text", "window"),
    [("it takes 9 in one window; widen it to 29 hours", "29h"), ("x; widen it to 3 days", "3d"),
     ("x; widen it to 110 minutes", "110m"), ("is seen after about 4 hours", None), (None, None)],
)  # fmt: skip
def test_an_advice_is_a_window_of_the_settings(text: str | None, window: str | None) -> None:
    """In the unit that it names."""
    assert advised_window(text) == window


def test_scores_on_an_open_scale_say_nothing(store: EmbeddedStore) -> None:
    """How far points from 1 to 5 vary after a change is not known."""
    units = Units(store)
    for number in range(50):
        units.scored(number, "judge", float(number % 5 + 1), at=T0 - HOUR / 2)
    units.save()
    assert detects(store, MonitorSettings(name="m", metric="score:judge", condition="< 2.5"), T0) is None


def test_the_list_reads_it_again_after_minutes_and_for_a_changed_monitor(store: EmbeddedStore) -> None:
    """Reading a day of answers for each monitor at every look at the list would be dear."""
    now, monitors = T0, Monitors(store, Settings(), evaluators=lambda: ["judge"], clock=lambda: now)
    draft = MonitorSettings(name="m", metric="quality:judge", condition="< 0.85")
    monitors.definitions.save(draft, actor="a", replace=False)

    def listed() -> str:
        return str(monitors.list().monitors[0].detects)

    assert listed().startswith("nothing was measured")
    units = Units(store)
    for number in range(600):
        units.scored(number, "judge", float(uniform(number) < 0.9), at=T0 - number * 24 * HOUR / 600 - HOUR / 100)
    units.save()
    assert listed().startswith("nothing was measured")
    now += HOUR / 12
    assert "from 0.9" in listed()
    monitors.definitions.save(draft.model_copy(update={"window": "2h"}), actor="a", replace=True)
    assert "per 2 hours" in listed()
