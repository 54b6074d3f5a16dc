"""The messages of monitors: what they say, and what they hold until they are bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

import orjson
from pydantic import TypeAdapter

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.changes.usual import Move
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.selection import duration_s
from ragpulse_collector.monitoring.definitions import DRIFT
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.words import usual_words
from ragpulse_collector.words.alerts import change_text, level_text, limit_text, silence_text
from ragpulse_evaluators.statistics import Uncertain


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(Uncertain):
    """A message about a change of state, or a digest; a test message has no more than its text."""

    event_id: UUID | None = None
    """The same in every attempt to send it."""
    monitor: str
    metric: str
    group: Mapping[str, GroupValue] = field(default_factory=dict)
    state: State | Literal["test", "digest"]
    since: datetime | None = None
    text: str
    false_alarms_per_year: float | None = None
    link: str | None = None
    worst: Sequence[str] = ()
    """Links to the worst traces of the window."""

    def encode(self) -> bytes:
        """Return the alert as JSON."""
        return orjson.dumps(self, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)

    @classmethod
    def decode(cls, text: str) -> Alert:
        """Read a stored alert."""
        return TypeAdapter(cls).validate_json(text)


_YEAR_S = 365.25 * 86_400
_DRIFT_ALPHA = 0.05
"""A check calls a judge moved where its 95 % interval excludes 0."""


def false_alarms_per_year(monitor: MonitorSettings) -> float:
    """Return how often a monitor alarms falsely at most."""
    if not monitor.name.startswith(DRIFT):
        return monitor.false_alarms_per_year
    checks = _YEAR_S / duration_s(monitor.window) if monitor.window != "never" else 1.0
    return round(checks * _DRIFT_ALPHA, 2)


def expected_together(monitors: Sequence[MonitorSettings]) -> str:
    """Return how many false alarms monitors have together; silence is a fact and no test."""
    tested = [monitor for monitor in monitors if monitor.condition != "no data"]
    month = f"{sum(map(false_alarms_per_year, tested)) / 12.0:.2g}"
    alarms = "false alarm" if month == "1" else "false alarms"
    number_of = "1 monitor" if len(monitors) == 1 else f"{len(monitors):,} monitors"
    return f"{number_of}: about {month} {alarms} a month expected together" if tested else ""


def found_text(monitor: MonitorSettings, group: str, reading: Figures, state: State, before: State) -> str:
    """Return the outcome of a look at a limit."""
    metric, window_s = monitor.metric, duration_s(monitor.window)
    if monitor.condition == "no data" or reading.value is None:
        return silence_text(metric, group, window_s, is_silent=not reading.n)
    if state == "undecided" and reading.n is not None and reading.n < monitor.min_n:
        return f"{level_text(metric, group, reading.value)} from {reading.n:g}; {monitor.min_n} are needed"
    ok = "is no longer" if before == "firing" else "is not"
    verb = {"firing": "is", "ok": ok}.get(state, "may or may not be")
    figures = reading.value, reading.lo, reading.hi
    return limit_text(metric, group, figures, window_s, f"{verb} {monitor.condition}")


def moved_text(
    monitor: MonitorSettings, group: str, move: Move, replaced: str | None, start: datetime | None = None
) -> str:
    """Return what moved, and against what."""
    usual = usual_words(move.usual.kind, len(move.usual.starts))
    return change_text(monitor.metric, group, (move.before, move.after), usual, replaced, start)
