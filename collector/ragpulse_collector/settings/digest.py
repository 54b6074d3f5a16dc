"""The `[digest]` table: when the week is sent, and to whom."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from pydantic import field_validator

from ragpulse_collector.settings.tables import Section

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


class DigestSettings(Section):
    """The `[digest]` table: when the week is sent, and to whom."""

    when: str = "Mon 08:00"
    """Weekday and time in UTC, or with a time zone, as in `Mon 08:00 Europe/Berlin`."""
    to: tuple[str, ...] = ()
    """Names of destinations with `slack`, `webhook` or `email`; none: nothing is sent."""

    @field_validator("when")
    @classmethod
    def _weekly(cls, when: str) -> str:
        try:
            _moment(when)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError('write weekday and time, as in "Mon 08:00" or "Mon 08:00 Europe/Berlin"') from error
        return when

    def last(self, now: datetime) -> datetime:
        """Return the latest time to send up to now, both in UTC."""
        weekday, clock, zone = _moment(self.when)
        today = now.replace(tzinfo=UTC).astimezone(zone).date()
        days = (today - timedelta(days=back) for back in range(8))
        times = (datetime.combine(day, clock, zone).astimezone(UTC) for day in days if day.weekday() == weekday)
        return max(moment for each in times if (moment := each.replace(tzinfo=None)) <= now)


def _moment(text: str) -> tuple[int, time, ZoneInfo]:
    """Read `Mon 08:00` with or without a time zone; raises ValueError, and what zones raise: KeyError, OSError."""
    day, clock, *zone = text.split()
    (weekday,) = (number for number, name in enumerate(_DAYS) if day.lower() in (name, name[:3]))
    (name,) = zone or ["UTC"]
    return weekday, datetime.strptime(clock, "%H:%M").time(), ZoneInfo(name)
