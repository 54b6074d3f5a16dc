"""Time zones: what a local clock shows, and when; for pages and collector. Times are UTC without a zone."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import groupby
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

_HOUR_S, DAY_S = 3_600, 86_400
_FINE_S: Final = 900
"""Offsets of zones are multiples of a quarter of an hour: shorter buckets are the same in every zone."""
_ORIGIN: Final = datetime(2000, 1, 3)
"""A Monday: buckets of any width are counted from here, so that weeks begin on Mondays."""

Day = Literal["today", "yesterday", "this-week", "last-week"]
DAYS: Final[Sequence[Day]] = get_args(Day)
"""Times that are the beginning of a local day or week; weeks begin on Mondays."""

SHOWN: Final[ContextVar[tzinfo]] = ContextVar("SHOWN", default=UTC)
"""The zone of the times on the page that is rendered."""
names = cache(available_timezones)


@lru_cache(64)
def find(name: str) -> tzinfo | None:
    """Return the zone of an IANA name; None for an unknown one."""
    return UTC if name == "UTC" else ZoneInfo(name) if name in names() else None


def local(time: datetime, zone: tzinfo) -> datetime:
    """Return what a local clock shows."""
    return time.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def utc(shown: datetime, zone: tzinfo, *, fold: int = 0) -> datetime:
    """Return when a local clock shows a time: of an hour shown twice the first, or with `fold` the second time.

    A time that a clock skips is as long after the shift as the time before it would have been.
    """
    return shown.replace(tzinfo=zone, fold=fold).astimezone(UTC).replace(tzinfo=None)


def edges(near: datetime, step_s: int, zone: tzinfo, steps: range) -> list[datetime]:
    """Return when a local clock shows multiples of the step, so many steps from a time, in order.

    A step of an hour or less begins twice in an hour that is shown twice, a longer one once.
    """
    zone = UTC if step_s <= _FINE_S else zone
    step, shown = timedelta(seconds=step_s), local(near, zone)
    shown -= (shown - _ORIGIN) % step
    multiples = [shown + number * step for number in steps]
    found = {utc(multiple, zone) for multiple in multiples}
    if step_s <= _HOUR_S:
        again = ((utc(multiple, zone, fold=1), multiple) for multiple in multiples)
        found |= {time for time, multiple in again if local(time, zone) == multiple}
    return sorted(found)


_AROUND: Final = range(-4, 4)


def aligned(time: datetime, step_s: int, zone: tzinfo = UTC) -> datetime:
    """Return the start of the bucket that a time lies in."""
    return max(edge for edge in edges(time, step_s, zone, _AROUND) if edge <= time)


def following(time: datetime, step_s: int, zone: tzinfo = UTC) -> datetime:
    """Return the end of the bucket that a time lies in."""
    return min(edge for edge in edges(time, step_s, zone, _AROUND) if edge > time)


def days_of(day: object) -> int:
    """Return how many days the range has that begins so; 0 where it begins otherwise."""
    return 0 if day not in DAYS else 7 if str(day).endswith("week") else 1


def offsets(first: datetime, last: datetime, zone: tzinfo) -> list[tuple[datetime, timedelta]]:
    """Return how far a local clock is ahead of UTC, and since when: at the first time, and after each shift."""
    if zone is UTC:
        return [(first, timedelta())]
    quarter = timedelta(seconds=_FINE_S)
    start = aligned(first, _FINE_S)
    times = (start + number * quarter for number in range((last - start) // quarter + 1))
    runs = groupby(times, key=lambda time: local(time, zone) - time)
    return [(next(run), offset) for offset, run in runs]
