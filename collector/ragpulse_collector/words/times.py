"""Times as people read them, in the zone of the page, and as addresses have them."""

from datetime import UTC, datetime
from typing import Any

from ragpulse_collector.words import DASH
from ragpulse_collector.zones import SHOWN


def parse_time(value: Any) -> datetime | None:
    """A time, or its ISO-8601 text, as an aware datetime in UTC, or None."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def iso(moment: datetime | str) -> str:
    """A time in UTC as the API writes it: 2026-11-21T08:00:00Z."""
    if isinstance(moment, str):
        return moment
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _shown(value: Any) -> datetime | None:
    """A time in the zone of the page."""
    moment = parse_time(value)
    return moment and moment.astimezone(SHOWN.get())


def address_time(value: Any) -> str:
    """A time for an address: 2026-11-21T08:00:00Z, or 2026-11-21T09:00:00+01:00 in the zone of the page."""
    moment = _shown(value)
    return str(value) if moment is None else moment.isoformat().replace("+00:00", "Z")


def placed(text: str) -> str:
    """A time of an address with its offset: without one it is a time in the zone of the page."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo and SHOWN.get() is UTC:
        return text
    return address_time((moment if moment.tzinfo else moment.replace(tzinfo=SHOWN.get())).isoformat())


def typed(value: Any) -> str:
    """A time as a form takes it, without offset: 2026-11-21 09:00:00; a relative one as it is."""
    moment = _shown(value)
    return str(value) if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def when(value: Any) -> str:
    """An ISO time as `Nov 21 22:10:54`, in the zone of the page."""
    moment = _shown(value)
    return DASH if moment is None else f"{moment:%b %d %H:%M:%S}"


def minute(value: Any) -> str:
    """An ISO time to the minute, the name of a chart's bucket: `Nov 21 22:10`."""
    moment = _shown(value)
    return DASH if moment is None else f"{moment:%b %d %H:%M}"


def clock(value: Any) -> str:
    """An ISO time of today as `22:10`, of another day with its date."""
    moment = _shown(value)
    if moment is None:
        return DASH
    return f"{moment:%H:%M}" if moment.date() == datetime.now(SHOWN.get()).date() else f"{moment:%b %d %H:%M}"


def zoned(value: Any) -> str:
    """A time in a sentence, which may leave the page: `Nov 21 22:10 CET`."""
    moment = _shown(value)
    return DASH if moment is None else f"{clock(value)} {moment:%Z}"
