"""The `[digest]` table: when the week is sent, and to whom."""

from __future__ import annotations

from datetime import datetime, time, timedelta, tzinfo

from pydantic import field_validator

from ragpulse_collector.settings.tables import Section
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.zones import local, utc

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class DigestSettings(Section):
    """The `[digest]` table: when the week is sent, and to whom."""

    when: str = "Mon 08:00"
    """Weekday and time, in the zone of `[collector] tz` or in its own, as in `Mon 08:00 Europe/Berlin`."""
    to: tuple[str, ...] = ()
    """Names of destinations with `slack`, `webhook` or `email`; none: nothing is sent."""

    @field_validator("when")
    @classmethod
    def _weekly(cls, when: str) -> str:
        try:
            _moment(when)
        except ValueError as error:
            raise ValueError('write weekday and time, as in "Mon 08:00" or "Mon 08:00 Europe/Berlin"') from error
        return when

    def last(self, now: datetime, tz: str | None = None) -> datetime:
        """Return the latest time to send up to now, both in UTC; `tz` is the zone of a time without one."""
        weekday, clock, zone = _moment(self.when, tz)
        days = (local(now, zone).date() - timedelta(days=back) for back in range(8))
        times = (utc(datetime.combine(day, clock), zone) for day in days if day.weekday() == weekday)
        return max(moment for moment in times if moment <= now)


def _moment(text: str, tz: str | None = None) -> tuple[int, time, tzinfo]:
    """Read `Mon 08:00` with or without a time zone; raises ValueError."""
    day, clock, *zone = text.split()
    (weekday,) = (number for number, name in enumerate(_DAYS) if day.lower() in (name, name[:3]))
    (name,) = zone or [tz or "UTC"]
    return weekday, datetime.strptime(clock, "%H:%M").time(), zone_of(name)
