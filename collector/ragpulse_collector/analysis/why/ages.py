"""When a document was last changed, as its metadata say: one table of names, and the usual forms of dates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

KEYS = (
    "updated_at", "last_updated", "updated", "modified_at", "modified", "last_modified", "last_modified_at",
    "last_modified_date", "date_modified", "modification_date", "modified_time", "last_edited_time", "lastmod", "mtime",
)  # fmt: skip
"""Names of the time of the last change in metadata, the surest first; also in camel case. Times of creation and of
indexing are none."""
_FOLDED = {name.replace("_", ""): place for place, name in enumerate(KEYS)}
_FORMS = (
    "%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y.%m.%d", "%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y",
    "%d.%m.%Y", "%Y-%m",
)  # fmt: skip
"""Forms beside ISO 8601, RFC 2822 and seconds; 01/02/2024 is left out: nobody knows which is the month."""
_SECONDS, _MILLISECONDS = (1e8, 1e10), (1e11, 1e13)
"""Numbers between 1973 and 2286."""
_LONGEST = 64


def changed_at(metadata: str | None, now: datetime, field: str | None = None) -> datetime | None:
    """Return the time (UTC, naive) in a document's metadata; None for none that can be read, and for the future.

    `field` names the member that has it; by default the first of KEYS.
    """
    try:
        value = json.loads(metadata or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, Mapping):
        return None
    if field is not None:
        return instant_of(value.get(field), now)
    named = {_FOLDED.get(str(key).replace("_", "").lower(), len(KEYS)): one for key, one in value.items()}
    times = (instant_of(named[place], now) for place in sorted(named) if place < len(KEYS))
    return next((time for time in times if time is not None), None)


def instant_of(value: Any, now: datetime) -> datetime | None:
    """Return the time that a value states, in any of the usual forms; without a zone it is UTC."""
    time = _read(value)
    if time is None:
        return None
    time = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
    return time if datetime(1973, 1, 1) <= time <= now else None


def _read(value: Any) -> datetime | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()[:_LONGEST]
    with suppress(ValueError, OverflowError):
        number = float(text)
        for (least, most), scale in ((_SECONDS, 1.0), (_MILLISECONDS, 1e3)):
            if math.isfinite(number) and least <= number < most:
                return datetime.fromtimestamp(number / scale, UTC)
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text.removesuffix(" UTC"))
    for form in _FORMS:
        with suppress(ValueError):
            return datetime.strptime(text, form)
    with suppress(ValueError, TypeError, IndexError, OverflowError):
        return parsedate_to_datetime(text)
    return None
