"""The messages of monitors: what they say, and what they hold until they are bytes."""

from __future__ import annotations

import json
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
from ragpulse_collector.words import called
from ragpulse_collector.words.changes import usual_words
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


def limit_text(monitor: MonitorSettings, group: str, reading: Figures, state: State, before: State) -> str:
    """Return the outcome of a look at a limit."""
    group_text = of_group(group)
    evaluator = monitor.metric.partition(":")[2]
    if monitor.condition == "no data" or reading.value is None:
        events = f"evaluations by {called(evaluator)}" if evaluator else "requests"
        return (
            f"no {events}{group_text} in the last {window_text(monitor.window)}"
            if not reading.n
            else f"{events}{group_text} arrive"
        )
    ends = "" if reading.lo is None or reading.hi is None else f" ({number(reading.lo)} to {number(reading.hi)})"
    if state == "undecided" and reading.n is not None and reading.n < monitor.min_n:
        value = f"{called(monitor.metric)}{group_text} = {number(reading.value)}"
        return f"{value} from {reading.n:g}; {monitor.min_n} are needed"
    ok = "is no longer" if before == "firing" else "is not"
    verb = {"firing": "is", "ok": ok}.get(state, "may or may not be")
    value = f"{called(monitor.metric)}{group_text} = {number(reading.value)}{ends}"
    return f"{value} over the last {window_text(monitor.window)}: {verb} {monitor.condition}"


def window_text(window: str) -> str:
    """Return the length of a window in words: `hour`, `10 minutes`."""
    seconds = duration_s(window)
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, length = next((unit, length) for unit, length in units if seconds % length == 0 or length == 1)
    return unit if seconds == length else f"{seconds / length:g} {unit}s"


def of_group(group: str) -> str:
    """Return a group in parentheses; nothing for the only group."""
    return "" if group == "{}" else f" ({plain_group(group)})"


def plain_group(group: str) -> str:
    """Return a group without JSON syntax."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(group).items())


def number(value: float) -> str:
    """Format a number with three digits; from 1000 on whole, with separators."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def change_text(
    monitor: MonitorSettings, group: str, move: Move, replaced: str | None, start: datetime | None = None
) -> str:
    """Return both levels, since when, and what the last windows are compared with."""
    verb = "fell" if move.after < move.before else "rose"
    since = f" since {start:%a %d %b %H:%M} UTC" if start else ""
    levels = f"{number(move.before)} -> {number(move.after)}"
    usual = usual_words(move.usual.kind, len(move.usual.starts))
    against = f"{plain_group(replaced)}: {usual}" if replaced else usual
    return f"{called(monitor.metric)}{of_group(group)} {verb} {levels}{since}, against {against}"
