"""Instants: Unix nanoseconds on the wire, microseconds and UTC without a zone in the tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = EPOCH.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST_US = (datetime(9999, 1, 1) - EPOCH) // _MICROSECOND


def instant(nanoseconds: int) -> datetime:
    """Return the UTC instant (naive, as stored) of Unix nanoseconds; clamped to the valid range."""
    return EPOCH + timedelta(microseconds=microseconds(nanoseconds))


def microseconds(nanoseconds: int) -> int:
    """Return Unix microseconds, which a TIMESTAMP column accepts and which cost less than a datetime."""
    return min(max(nanoseconds // 1000, 0), _LAST_US)


def unix_us(time: datetime) -> int:
    """Return the Unix microseconds of a time; one without a zone is UTC."""
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH_UTC) // _MICROSECOND


def unix_ns(time: datetime) -> int:
    """Return the Unix nanoseconds of a time; one without a zone is UTC."""
    return unix_us(time) * 1000
