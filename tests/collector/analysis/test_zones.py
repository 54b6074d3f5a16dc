"""Local days: buckets, ranges and comparisons in the zone of a request, over both shifts of a clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import Units

from ragpulse_collector.analysis.query import Query, window_between
from ragpulse_collector.analysis.selection import Window, instant
from ragpulse_collector.api.models import Buckets, Filters
from ragpulse_collector.refusals import Invalid, Refusal
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store.embedded import EmbeddedStore

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text)


def lengths(window: Window) -> list[float]:
    """The hours of each bucket."""
    return [(window.end(start) - start) / HOUR for start in window.starts()]


@pytest.mark.parametrize(
    ("zone", "first", "midnight", "hours"),
    [
        ("UTC", "2026-03-28", "2026-03-28T00:00", [24, 24, 24]),
        ("Europe/Berlin", "2026-03-28", "2026-03-27T23:00", [24, 23, 24]),
        ("Europe/Berlin", "2026-10-24", "2026-10-23T22:00", [24, 25, 24]),
        ("America/New_York", "2026-03-07", "2026-03-07T05:00", [24, 23, 24]),
        ("Australia/Sydney", "2026-04-04", "2026-04-03T13:00", [24, 25, 24]),
        ("Australia/Adelaide", "2026-10-03", "2026-10-02T14:30", [24, 23, 24]),
        ("Australia/Lord_Howe", "2026-10-03", "2026-10-02T13:30", [24, 23.5, 24]),
        ("Asia/Kolkata", "2026-03-28", "2026-03-27T18:30", [24, 24, 24]),
        ("Pacific/Chatham", "2026-04-04", "2026-04-03T10:15", [24, 25, 24]),
        ("America/Havana", "2026-03-07", "2026-03-07T05:00", [24, 23, 24]),  # there is no midnight on the 8th
        ("America/Havana", "2026-10-31", "2026-10-31T04:00", [24, 25, 24]),  # there are two on the 1st
        ("America/Santiago", "2026-04-03", "2026-04-03T03:00", [24, 25, 24]),
    ],
)
def test_a_day_is_a_local_day(store: EmbeddedStore, zone: str, first: str, midnight: str, hours: list[float]) -> None:
    """A bucket of a day begins at local midnight; each request is counted on its local day, in Python and in SQL."""
    window = window_between(at(first), at(first) + timedelta(days=3), now=at(first), step=86400, zone=zone_of(zone))
    assert (window.first, lengths(window)) == (at(midnight), hours)
    units = Units(store)
    for number in range(round(2 * sum(hours))):
        units.unit(number, at=window.first + number * HOUR / 2)
    units.save()
    params = {"name": "requests", "from": first, "to": f"{window.last.isoformat()}Z", "step": "1d", "tz": zone}
    answer = ask(store, "metrics", params, clock=lambda: window.last)
    (line,) = answer["series"]
    assert [point["value"] for point in line["points"]] == [2 * length for length in hours]
    assert [point["t"] for point in line["points"]] == [f"{start.isoformat()}Z" for start in window.starts()]
    assert answer["until"] == f"{window.last.isoformat()}Z"


@pytest.mark.parametrize(
    ("zone", "first", "hours", "step_h", "expected"),
    [
        ("Europe/Berlin", "2026-03-28T23:00", 23, 6, [5, 6, 6, 6]),
        ("Europe/Berlin", "2026-10-24T22:00", 25, 6, [7, 6, 6, 6]),
        ("Asia/Kolkata", "2026-10-24T18:30", 24, 12, [12, 12]),
        ("Europe/Berlin", "2026-10-24T23:00", 5, 1, [1, 1, 1, 1, 1]),  # 02:00 is shown twice, and is two buckets
        ("Australia/Adelaide", "2026-10-03T14:30", 4, 1, [1, 1, 1, 1]),  # 02:00 is not shown
        ("Europe/Berlin", "2026-10-24T23:00", 2, 0.25, [0.25] * 8),
    ],
)
def test_shorter_buckets_follow_the_clock(
    zone: str, first: str, hours: int, step_h: float, expected: list[float]
) -> None:
    """Buckets begin where the local clock shows a multiple of their length."""
    window = Window(at(first), at(first) + hours * HOUR, round(step_h * 3600), zone_of(zone))
    assert lengths(window) == expected


def test_a_week_begins_on_a_local_monday() -> None:
    """Also in the week of a shift, which has 167 hours."""
    window = Window(at("2026-03-20"), at("2026-04-03"), 7 * 86400, zone_of("Europe/Berlin"))
    assert window.starts()[1:] == [at("2026-03-22T23:00"), at("2026-03-29T22:00")]
    assert lengths(window) == [168, 167, 168]


NOON = at("2026-03-31T10:00")
"""A Tuesday at noon in Berlin, two days after its clocks went forward."""


@pytest.mark.parametrize(
    ("first", "last", "expected", "before"),
    [
        ("today", None, ("2026-03-30T22:00", "2026-03-31T10:00"), ("2026-03-29T22:00", "2026-03-30T10:00")),
        ("yesterday", "today", ("2026-03-29T22:00", "2026-03-30T22:00"), ("2026-03-28T23:00", "2026-03-29T22:00")),
        ("this-week", None, ("2026-03-29T22:00", "2026-03-31T10:00"), ("2026-03-22T23:00", "2026-03-24T11:00")),
        ("last-week", "this-week", ("2026-03-22T23:00", "2026-03-29T22:00"), ("2026-03-15T23:00", "2026-03-22T23:00")),
        ("-24h", None, ("2026-03-30T10:00", "2026-03-31T10:00"), ("2026-03-29T10:00", "2026-03-30T10:00")),
        ("2026-03-29T02:30", "2026-03-29T04:00", ("2026-03-29T01:30", "2026-03-29T02:00"),
         ("2026-03-29T01:00", "2026-03-29T01:30")),
    ],
)  # fmt: skip
def test_ranges_of_local_days(first: str, last: str | None, expected: tuple[str, str], before: tuple[str, str]) -> None:
    """Days and weeks begin at local midnight; the range before one is the day or week before, up to the same time."""
    query = _query(first, last, tz="Europe/Berlin")
    assert (query.window.first, query.window.last) == tuple(map(at, expected))
    assert (query.before.first, query.before.last) == tuple(map(at, before))


def _query(first: str, last: str | None = None, **params: Any) -> Query:
    return Filters.parse({"from": first, "to": last, **params}).query(NOON)


def test_days_are_utc_without_a_zone() -> None:
    """Also times without an offset."""
    assert _query("today").window.first == at("2026-03-31")
    assert _query("2026-03-30T08:00").window.first == at("2026-03-30T08:00")
    assert _query("2026-03-30T08:00+05:30", tz="Europe/Berlin").window.first == at("2026-03-30T02:30")


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "Australia/Adelaide", "America/Sao_Paulo"])
def test_a_relative_range_in_days_begins_with_a_local_day(zone: str) -> None:
    """So that its first bucket is a whole day."""
    query = Buckets.parse({"from": "-7d", "step": "1d", "tz": zone}).query(NOON)
    assert query.window.first == instant("2026-03-24", now=NOON, zone=zone_of(zone))
    assert query.window.starts()[0] == query.window.first


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("CET+1", "CET"),
        ("../../etc/passwd", "IANA"),
        ("right/Europe/Berlin", "Europe/Berlin"),
        ("x" * 5000, "IANA"),
        ("\0", "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(name: str, hint: str) -> None:
    """By the parameter's name; a name is never a path."""
    with pytest.raises(Invalid, match="no time zone"):
        zone_of(name)
    with pytest.raises(Refusal) as refused:
        Buckets.parse({"tz": name})
    assert refused.value.status == 400
    assert refused.value.message.startswith("tz: no time zone")
    assert hint in refused.value.message


def test_two_zones_are_two_answers(store: EmbeddedStore) -> None:
    """The cache of a range does not mix them."""
    units = Units(store)
    units.unit(1, at=at("2026-03-30T22:30"))
    units.save()
    params = {"name": "requests", "from": "-2d", "step": "1d"}
    days = [
        [point["t"] for point in ask(store, "metrics", params | {"tz": tz}, clock=lambda: NOON)["series"][0]["points"]
         if point["value"]]
        for tz in ("UTC", "Europe/Berlin")
    ]  # fmt: skip
    assert days == [["2026-03-30T00:00:00Z"], ["2026-03-30T22:00:00Z"]]
