"""What a request covers: time range, bucket width and filters, as users write them and as SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby, pairwise
from typing import Any, Final

from ragpulse_collector import zones
from ragpulse_collector.refusals import Invalid, nearest
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.labels import PREFIX as LABEL
from ragpulse_collector.store.queries.labels import label_column
from ragpulse_collector.store.queries.traces import DIMENSIONS, Filter, Grouping, grouping_of, metadata_column
from ragpulse_collector.zones import DAY_S, DAYS, aligned, days_of, following

STEPS = (1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 604800, 2_592_000)
"""Bucket widths that `auto` chooses from, in seconds."""
MAX_POINTS = 2_000
MAX_GROUPS, MAX_GROUPED_POINTS = 100, 20_000
"""The groups of an answer, and the points of all its groups together; all other groups are one."""
MAX_DURATION_S = 1e10
"""About 317 years: longer durations lead to times that Python does not have."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")


@dataclass(frozen=True, slots=True)
class Window:
    """A range of request times, first included and last not, cut into buckets of `step_s` seconds.

    Buckets begin where a clock of the zone shows a multiple of their length: a local day has 23, 24 or 25 hours.
    """

    first: datetime
    last: datetime
    step_s: int
    """0: the whole range is one bucket."""
    zone: tzinfo = UTC

    @property
    def whole(self) -> Window:
        """The same range as one bucket."""
        return replace(self, step_s=0)

    @property
    def bucket_s(self) -> float:
        """The usual length of a bucket."""
        return float(self.step_s) or (self.last - self.first).total_seconds()

    def bucket(self, column: str) -> str:
        """The SQL expression of a column's bucket start."""
        if self.step_s == 0:
            return f"TIMESTAMP '{self.first}'"
        if self.zone is UTC:
            return _equal_buckets(aligned(self.first, self.step_s), timedelta(seconds=self.step_s), column)
        starts = self.starts()
        runs = groupby(pairwise([*starts, self.end(starts[-1])]), key=lambda edges: edges[1] - edges[0])
        known = [(length, list(buckets)) for length, buckets in runs]
        cases = (
            f"WHEN {column} < TIMESTAMP '{buckets[-1][1]}' THEN {_equal_buckets(buckets[0][0], length, column)}"
            for length, buckets in known
        )
        return f"CASE {' '.join(cases)} END"

    def starts(self) -> list[datetime]:
        """Return the start of each bucket, in order."""
        if self.step_s == 0:
            return [self.first]
        first = aligned(self.first, self.step_s, self.zone)
        count = (self.last - first + _LONGEST_SHIFT) // timedelta(seconds=self.step_s) + 2
        edges = zones.edges(first, self.step_s, self.zone, range(-1, count))
        return [edge for edge in edges if first <= edge < self.last]

    def end(self, start: datetime) -> datetime:
        """Return the end of the bucket that begins then; it may lie after the range."""
        return following(start, self.step_s, self.zone) if self.step_s else self.last

    @property
    def parameters(self) -> dict[str, Any]:
        """`first` and `last` for a query."""
        return {"first": self.first, "last": self.last}


_LONGEST_SHIFT: Final = timedelta(hours=24)
"""How far a zone's clock has ever been shifted: a zone that changed sides of the date line."""


def _equal_buckets(first: datetime, length: timedelta, column: str) -> str:
    return f"time_bucket(INTERVAL {length // timedelta(seconds=1)} SECOND, {column}, TIMESTAMP '{first}')"


def auto_step(seconds: float, width: int) -> int:
    """Return the shortest bucket that divides a range of these seconds into at most `width`."""
    return next((step for step in STEPS if seconds / step <= width), STEPS[-1])


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


def instant(value: Any, *, now: datetime, zone: tzinfo = UTC) -> datetime | None:
    """UTC (naive) of an ISO text, `-24h`, `now`, `today`, a datetime or a timedelta from now; None for nothing.

    A time without an offset is what a clock of the zone shows. Raises Invalid.
    """
    if value is None or value == "":
        return None
    if isinstance(value, timedelta):
        return now + value
    if isinstance(value, datetime):
        _in_calendar(value)
        return zones.utc(value, value.tzinfo or zone, fold=value.fold)
    text = str(value).strip()
    if text == "now":
        return now
    if text in DAYS:
        return _beginning(text, now, zone)
    try:
        if text.startswith("-"):
            return now - timedelta(seconds=duration_s(text[1:]))
        return instant(datetime.fromisoformat(text), now=now, zone=zone)
    except (ValueError, OverflowError):
        raise Invalid(f"{text!r} is no time: write 2026-11-21T14:00Z, -24h, or one of {', '.join(DAYS)}") from None


def _beginning(day: str, now: datetime, zone: tzinfo) -> datetime:
    """Return the beginning of a local day or week."""
    length = days_of(day) * DAY_S
    start = aligned(now, length, zone)
    return aligned(start - timedelta(microseconds=1), length, zone) if day in ("yesterday", "last-week") else start


def _in_calendar(time: datetime) -> None:
    """Raise Invalid near the ends of the calendar, where the start of a bucket has no date."""
    if not 1900 <= time.year <= 9000:
        raise Invalid(f"{time.replace(tzinfo=None).isoformat()} is not between the years 1900 and 9000")


def iso(time: datetime | None) -> str | None:
    """ISO 8601 in UTC with Z, as the API writes times."""
    return None if time is None else time.isoformat() + "Z"


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
    if name.startswith((LABEL, "label.")) and len(name) > len(LABEL):
        return label_column(name[len(LABEL) :])
    if name not in (*DIMENSIONS, *SEVERAL):
        possible = (*DIMENSIONS, *SEVERAL, "metadata.<key>", "label:<evaluator>")
        raise Invalid(f"cannot group by {name!r}{nearest(name, possible) or '; possible: ' + ', '.join(possible)}")
    return name
