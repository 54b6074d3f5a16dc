"""Monitors over both shifts of a clock: users live by it, so their day moves against UTC."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from stored_units import Units

from ragpulse_collector.analysis.changes.lines import Clock, Rhythm
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.monitoring import Monitors
from ragpulse_collector.settings import MonitorSettings, Settings, SettingsError
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.zones import local

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BERLIN = zone_of("Europe/Berlin")
FORWARD, BACK = datetime(2026, 4, 1, 7), datetime(2026, 10, 28, 19)
"""Three days after a shift, at the end of the first and of the last busy hour in Berlin."""


def fill(
    store: EmbeddedStore, end: datetime, *, hours: int = 22 * 24, silent: timedelta = timedelta(), night: int = 2
) -> None:
    """Twenty requests an hour from 8 to 20 on a clock in Berlin, `night` bad ones else; none in the last time."""
    units = Units(store)
    for hour in range(-hours, 0):
        at = end + hour * HOUR
        number = 100 * round(at.timestamp() / 3600)
        is_day = 8 <= local(at, BERLIN).hour < 20
        count = 20 if is_day else night
        for place in range(count if at < end - silent else 0):
            number += 1
            units.scored(number, "judge", float(is_day), at=at + HOUR * place / count)
    units.save()


def state(
    store: EmbeddedStore, end: datetime, monitor_tz: str | None, collector_tz: str | None = None, *,
    metric: str = "requests",
) -> str:  # fmt: skip
    """The state of a monitor that is looked at once."""
    name = (monitor_tz or "none").replace("/", "-")
    monitor = MonitorSettings(name=name, metric=metric, condition="change", baseline="14d", tz=monitor_tz)
    settings = Settings.model_validate({"monitor": [monitor], "collector": {"tz": collector_tz}})
    monitors = Monitors(store, settings, clock=lambda: end)
    monitors.check(end)
    return str(monitors.list().monitors[0].state)


@pytest.mark.parametrize(("metric", "night"), [("requests", 2), ("quality:judge", 20)])
@pytest.mark.parametrize("end", [FORWARD, BACK])
def test_a_shift_of_the_clock_is_no_change(store: EmbeddedStore, end: datetime, metric: str, night: int) -> None:
    """The same hours of UTC are another time of the users' day: only a monitor that is told to count in UTC alarms."""
    fill(store, end, night=night)
    assert state(store, end, "UTC", metric=metric) == "firing"
    assert state(store, end, "Europe/Berlin", metric=metric) == "ok"
    assert state(store, end, None, "Europe/Berlin", metric=metric) == "ok"
    assert state(store, end, None, metric=metric) == "ok"


def test_a_rhythm_of_the_day_is_no_change(store: EmbeddedStore) -> None:
    """Also not over several days and a part of one, which hold more of the night, or of the day."""
    for end in (datetime(2026, 8, 11, hour) for hour in range(1, 24, 4)):
        fill(store, end, night=20, hours=22 * 24 if end.hour == 1 else 4)
        assert state(store, end, None, metric="quality:judge") == "ok", end


@pytest.mark.parametrize("end", [FORWARD + 3 * HOUR, BACK - 3 * HOUR])
def test_bad_answers_after_a_shift_are_seen(store: EmbeddedStore, end: datetime) -> None:
    """As an outage is: by day answers are as bad as they ever were at night."""
    fill(store, end, night=20)
    store.write(lambda tx: tx.execute("UPDATE raw.scores SET score = 0, normalized = 0, passing = false"
                                      " WHERE request_time >= $first", {"first": end - HOUR})).result()  # fmt: skip
    assert [state(store, end, tz, metric="quality:judge") for tz in ("Europe/Berlin", None)] == ["firing"] * 2


@pytest.mark.parametrize("end", [FORWARD + 3 * HOUR, BACK - 3 * HOUR])
def test_silence_after_a_shift_is_seen(store: EmbeddedStore, end: datetime) -> None:
    """Neither the zone nor the rule without one hides an outage."""
    fill(store, end, silent=HOUR)
    assert [state(store, end, tz) for tz in ("Europe/Berlin", None)] == ["firing"] * 2


@pytest.mark.parametrize("shift", [datetime(2026, 3, 29, 1), datetime(2026, 10, 25, 1)])
def test_the_hour_of_the_shift_is_no_change(store: EmbeddedStore, shift: datetime) -> None:
    """An hour that the clock shows twice holds twice the requests, one that it skips holds none."""
    for after, hours in ((0, 22 * 24), (1, 1), (2, 1), (24, 22)):
        end = shift + after * HOUR
        fill(store, end, night=20, hours=hours)
        assert state(store, end, "Europe/Berlin") == "ok", end


@pytest.mark.parametrize(
    ("zone", "end", "step_h", "expected"),
    [
        ("Europe/Berlin", "2026-03-29T03:00", 1, [1, 1, 0, 1]),
        ("Europe/Berlin", "2026-10-25T03:00", 1, [1, 2, 1, 1]),
        ("Europe/Berlin", "2026-10-25T03:00", 4, [1.25, 1, 1, 1]),
        ("Australia/Lord_Howe", "2026-04-04T17:30", 1, [1, 1, 1.5, 1]),
        ("Asia/Kolkata", "2026-10-25T03:30", 1, [1, 1, 1, 1]),
    ],
)
def test_windows_last_as_long_as_the_clock_says(zone: str, end: str, step_h: int, expected: list[float]) -> None:
    """The newest window first."""
    rhythm = Rhythm(datetime.fromisoformat(end), 3600 * step_h, 7.0 * 86400, zone_of(zone))
    assert Clock(rhythm.reach(1)).lasts()[:4] == expected


def test_only_where_clocks_shift_are_there_three_comparisons() -> None:
    """In summer the same hours are the same hours everywhere."""
    for end, zone, count in (
        (datetime(2026, 8, 1), None, 0), (datetime(2026, 11, 3), None, 1), (datetime(2026, 11, 3), BERLIN, 0),
    ):  # fmt: skip
        assert Rhythm(end, 3600, 7.0 * 86400, zone).grid.hour == count


@pytest.mark.parametrize(
    "text",
    [
        '[collector]\ntz = "Europe/Berln"',
        '[[monitor]]\nname = "m"\nmetric = "requests"\ncondition = "< 1"\ntz = "Europe/Berln"',
    ],
)
def test_an_unknown_zone_of_the_file_is_named(tmp_path: Path, text: str) -> None:
    """With the nearest."""
    (tmp_path / "ragpulse.toml").write_text(text)
    with pytest.raises(SettingsError, match="did you mean 'Europe/Berlin'"):
        load_settings(tmp_path / "ragpulse.toml")
