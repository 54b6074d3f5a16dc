"""The buckets of a range read again only where something came or went since they were read last.

Verdicts and decisions are appended and deleted, never changed (but for which decision is the latest, which changes with
an append). So a bucket is what it was while the number of its rows and the sum of their instants are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.metrics.filters import Filter
from ragpulse_collector.metrics.quality import Bucket, estimates, in_order
from ragpulse_collector.metrics.window import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import Share, shares

__all__ = ["Reading", "read_again"]

_Marks = Mapping[datetime, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Every evaluator's buckets of a range without filter or grouping, and by what each is known to be unchanged."""

    buckets: Sequence[Bucket]
    marks: _Marks
    replays: frozenset[Share]
    """How much of each replay is done: while that moves, so does the weight of all that it scored."""


def read_again(store: Store, window: Window, older: Reading | None) -> Reading:
    """Read a range, of which an older reading (same bucket width) may hold most."""
    # Before the buckets: what comes in between is seen by the next reading.
    marks, replays = _marks(store, window), frozenset(shares(store, None))
    known = older.marks if older is not None and older.replays == replays else {}
    changed = sorted(at for at, mark in marks.items() if known.get(at) != mark)
    if older is None or 2 * len(changed) > len(marks):
        return Reading(estimates(store, None, window, Filter()), marks, replays)
    same = [one for one in older.buckets if one.at in marks and marks[one.at] == known.get(one.at)]
    fresh = [one for part in _runs(window, changed) for one in estimates(store, None, part, Filter())]
    return Reading(in_order([*same, *fresh]), marks, replays)


def _runs(window: Window, starts: Sequence[datetime]) -> Iterator[Window]:
    """The parts of the window that these buckets make up, neighbours together."""
    step = timedelta(seconds=window.step_s)
    first = last = None
    for at in starts:
        if last is not None and at != last:
            yield _part(window, first or at, last)
            first = None
        first, last = first or at, at + step
    if first is not None and last is not None:
        yield _part(window, first, last)


def _part(window: Window, first: datetime, last: datetime) -> Window:
    return replace(window, first=max(first, window.first), last=min(last, window.last))


def _marks(store: Store, window: Window) -> _Marks:
    rows = store.read(
        f"SELECT {window.bucket('request_time')} AS t, count(*), sum(epoch_us(came)) FROM ("
        "SELECT request_time, created_at AS came FROM raw.scores"
        " UNION ALL SELECT request_time, decided_at AS came FROM raw.decisions"
        ") WHERE request_time >= $first AND request_time < $last GROUP BY ALL",
        window.parameters,
    ).rows
    return {at: (count, total) for at, count, total in rows}
