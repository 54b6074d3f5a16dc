"""What a request covers: time range, bucket width and filters, as users write them and as SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import (
    Filter,
    Grouping,
    grouping_of,
    metadata_column,
)
from ragpulse_evaluators.errors import nearest

STEPS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800, 2_592_000)
"""Bucket widths that `auto` chooses from, in seconds."""
MAX_POINTS = 2_000
MAX_GROUPS, MAX_GROUPED_POINTS = 100, 20_000
"""The groups of an answer, and the points of all its groups together; all other groups are one."""
MAX_DURATION_S = 1e10
"""About 317 years: longer durations lead to times that Python does not have."""
_ORIGIN = datetime(2000, 1, 3)
"""A Monday: buckets of any width are counted from here, so that weeks begin on Mondays."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")


@dataclass(frozen=True, slots=True)
class Window:
    """A range of request times, first included and last not, cut into buckets of `step_s` seconds."""

    first: datetime
    last: datetime
    step_s: int
    """0: the whole range is one bucket."""

    @property
    def whole(self) -> Window:
        """The same range as one bucket."""
        return replace(self, step_s=0)

    @property
    def bucket_s(self) -> float:
        """The length of a bucket."""
        return float(self.step_s) or (self.last - self.first).total_seconds()

    def bucket(self, column: str) -> str:
        """The SQL expression of a column's bucket start."""
        if self.step_s == 0:
            return f"TIMESTAMP '{self.first}'"
        return f"time_bucket(INTERVAL {self.step_s} SECOND, {column}, TIMESTAMP '{_ORIGIN}')"

    def starts(self) -> Iterator[datetime]:
        """The start of each bucket, in order."""
        if self.step_s == 0:
            yield self.first
            return
        step = timedelta(seconds=self.step_s)
        start = aligned(self.first, self.step_s)
        while start < self.last:
            yield start
            start += step

    @property
    def parameters(self) -> dict[str, Any]:
        """`first` and `last` for a query."""
        return {"first": self.first, "last": self.last}


def auto_step(seconds: float, width: int) -> int:
    """Return the shortest bucket that divides a range of these seconds into at most `width`."""
    return next((step for step in STEPS if seconds / step <= width), STEPS[-1])


def aligned(moment: datetime, step_s: int) -> datetime:
    """Return the start of the bucket that a time lies in."""
    step = timedelta(seconds=step_s)
    return _ORIGIN + (moment - _ORIGIN) // step * step


def duration_s(value: Any) -> float:
    """Return the seconds of `90`, `"90"`, `30s`, `5m`, `6h`, `7d`, `2w`; raises Invalid."""
    text = str(value).strip()
    match = _SPAN.match(text)
    try:
        seconds = float(match[1]) * _SECONDS[match[2]] if match else float(text)
    except ValueError:
        raise Invalid(f"{text[:80]!r} is no duration: write seconds, or 30s, 5m, 6h, 7d, 2w") from None
    if not 0 < seconds <= MAX_DURATION_S:
        raise Invalid(f"{text[:80]!r} is no duration: it must be positive, and at most 317 years")
    return seconds


def instant(value: Any, *, now: datetime) -> datetime | None:
    """UTC (naive) of an ISO text, `-24h`, `now`, a datetime or a timedelta from now; None for nothing.

    Raises Invalid.
    """
    if value is None or value == "":
        return None
    if isinstance(value, timedelta):
        return now + value
    if isinstance(value, datetime):
        return _in_calendar(value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None))
    text = str(value).strip()
    if text == "now":
        return now
    try:
        if text.startswith("-"):
            return now - timedelta(seconds=duration_s(text[1:]))
        return instant(datetime.fromisoformat(text), now=now)
    except (ValueError, OverflowError):
        raise Invalid(f"{text!r} is no time: write 2026-11-21T14:00Z, or -24h for a day ago") from None


def _in_calendar(time: datetime) -> datetime:
    """Return the time; raises Invalid near the ends of the calendar, where the start of a bucket has no date."""
    if not 1900 <= time.year <= 9000:
        raise Invalid(f"{iso(time)} is not between the years 1900 and 9000")
    return time


def iso(time: datetime | None) -> str | None:
    """ISO 8601 in UTC with Z, as the API writes times."""
    return None if time is None else time.isoformat() + "Z"


DIMENSIONS = (
    "service",
    "environment",
    "model",
    "prompt_name",
    "prompt_version",
    "variant",
    "session_id",
    "user_id",
    "name",
    "retriever",
    "release",
    "finish_reason",
    "agent",
    "data_source",
    "top_k",
    "answer",
    "topic",
    "error",
)
"""Columns of `traces` for filters and `group_by`, beside `tag` and `metadata.<key>`."""
SEVERAL = ("tag", "label")
"""Dimensions of which a trace may have several values."""
METADATA = "metadata."


def grouping(store: Store, window: Window, filters: Filter, columns: tuple[str, ...]) -> Grouping:
    """Return what an answer is grouped by: fewer groups where it has more points in each."""
    points = 1 if not window.step_s else max(1, int((window.last - window.first).total_seconds() // window.step_s))
    limit = max(1, min(MAX_GROUPS, MAX_GROUPED_POINTS // points))
    return grouping_of(store, window.parameters, filters, columns, limit)


def dimension(name: str) -> str:
    """Return the SQL column of a dimension; raises Invalid with the possible ones."""
    if name.startswith(METADATA) and name != METADATA:
        return metadata_column(name.removeprefix(METADATA))
    if name not in (*DIMENSIONS, *SEVERAL):
        possible = (*DIMENSIONS, *SEVERAL, "metadata.<key>")
        raise Invalid(f"cannot group by {name!r}{nearest(name, possible) or '; possible: ' + ', '.join(possible)}")
    return name
