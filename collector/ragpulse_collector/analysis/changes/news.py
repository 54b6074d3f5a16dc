"""Whether a difference is news: the part of a range in which a metric moved, against what is usual at these hours.

What a chart shows as a step may be the morning, or a weekend. The same test as in monitors decides; where neither weeks
nor days are known, the range before does, at three standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes.lines import Rhythm, read_lines
from ragpulse_collector.analysis.selection import auto_step
from ragpulse_collector.words import usual_words
from ragpulse_collector.words.figures import by_unit, unit_of
from ragpulse_collector.zones import DAY_S, following
from ragpulse_evaluators.statistics import Interval, Uncertain

__all__ = ["SURE", "UsualLevel", "news", "standard_errors", "usual_level", "usual_text"]

SURE = 3.0
"""A smaller difference, in standard errors, is noise."""
_TAIL = 0.00135
"""The chance of three standard errors, to one side."""
_PAST_S, _FINEST_S, _CELLS = 28 * DAY_S, 900, 24
_Z = 1.96


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLevel:
    """A level beside the usual one."""

    before: float
    after: float
    against: str | None
    """What is usual, in words; null for the range before."""
    sure: bool
    """Whether the difference is news."""


def usual_text(metric: str, usual: UsualLevel) -> str:
    """Return `0.93 (the same hours of 4 weeks before)`."""
    return f"{by_unit(usual.before, unit_of(metric))} ({usual.against})"


def standard_errors(move: Interval) -> float:
    """Return the size of a difference in standard errors; infinite without any spread."""
    error = (move.hi - move.lo) / 2.0 / _Z
    return abs(move.value) / error if error else float("inf") if move.value else 0.0


def usual_level(
    snapshot: Snapshot, metric: str, first: datetime, last: datetime, added: str | None = None
) -> UsualLevel | None:
    """Compare a part of a range with the same hours of weeks or days; None where these are not known."""
    seconds = (last - first).total_seconds()
    cell = max(_FINEST_S, auto_step(seconds, _CELLS))
    if not cell <= seconds <= 7 * DAY_S or DAY_S % cell:
        return None
    zone = snapshot.window.zone
    end = following(last - timedelta(microseconds=1), cell, zone)
    rhythm = Rhythm(end, max(1, round(seconds / cell)) * cell, _PAST_S, zone, lengths=1)
    moved = read_lines(snapshot.store, metric, rhythm, snapshot.filters, (), added=added).surest("{}", 0, _TAIL)
    if moved is None or moved.move.usual.kind == "range":
        return None
    move = moved.move
    against = usual_words(move.usual.kind, len(move.usual.starts))
    return UsualLevel(before=move.before, after=move.after, against=against, sure=move.chance < _TAIL)


def news(snapshot: Snapshot, metric: str, value: float, difference: Uncertain | None) -> UsualLevel | None:
    """Return whether a range that differs from the one before differs from what is usual; None where it does not."""
    if difference is None or difference.value is None or difference.lo is None or difference.hi is None:
        return None
    move = Interval(difference.value, difference.lo, difference.hi)
    if not (move.lo > 0.0 or move.hi < 0.0):
        return None
    found = usual_level(snapshot, metric, snapshot.window.first, min(snapshot.window.last, snapshot.now))
    before, sure = value - move.value, standard_errors(move) >= SURE
    return found or UsualLevel(before=before, after=value, against=None, sure=sure)
