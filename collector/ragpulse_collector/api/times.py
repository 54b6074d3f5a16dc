"""Instants in parameters: ISO 8601, or relative to now such as `-24h`, `7d`, `now`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_SPAN = re.compile(r"-?\s*(\d+(?:\.\d+)?)\s*([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration(text: str) -> timedelta:
    """Read `90s`, `30m`, `6h`, `7d`, `2w`; raises ValueError with the forms."""
    match = _SPAN.match(text.strip())
    if not match:
        raise ValueError(f"{text!r} is no duration; write 90s, 30m, 6h, 7d or 2w")
    return timedelta(seconds=float(match[1]) * _SECONDS[match[2]])


def instant(value: Any, now: datetime) -> datetime | None:
    """Read an instant as UTC without zone; None stays None; raises ValueError with the forms."""
    if value is None or isinstance(value, datetime):
        return value
    text = str(value).strip()
    if text in ("", "now"):
        return now
    if _SPAN.match(text):
        return now - duration(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no instant; write 2026-01-31T12:00:00Z or -24h") from error
    return parsed.astimezone(UTC).replace(tzinfo=None) if parsed.tzinfo else parsed
