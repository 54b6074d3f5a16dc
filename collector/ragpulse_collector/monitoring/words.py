"""The texts of monitors in messages and on pages: levels, limits, groups, false alarms."""

from __future__ import annotations

import json

from ragpulse_collector.analysis.selection import duration_s
from ragpulse_collector.monitoring.definitions import DRIFT
from ragpulse_collector.monitoring.measure import Reading, State
from ragpulse_collector.settings import MonitorSettings

__all__ = ["false_alarm_rate", "limit_text", "number", "of_group", "plain_group", "window_text"]

_YEAR_S = 365.25 * 86_400
_DRIFT_ALPHA = 0.05
"""A check calls a judge moved where its 95 % interval excludes 0."""


def false_alarm_rate(monitor: MonitorSettings) -> str:
    """Return how often a monitor alarms falsely."""
    if not monitor.name.startswith(DRIFT):
        return f"at most {monitor.false_alarms_per_year:g} a year"
    checks = _YEAR_S / duration_s(monitor.window) if monitor.window != "never" else 1.0
    return f"at most {round(checks * _DRIFT_ALPHA, 2):g} a year"


def limit_text(monitor: MonitorSettings, group: str, reading: Reading, state: State, before: State) -> str:
    """Return the outcome of a look at a limit."""
    group_text = of_group(group)
    evaluator = monitor.metric.partition(":")[2]
    if monitor.condition == "no data" or reading.value is None:
        events = f"evaluations by {evaluator}" if evaluator else "requests"
        return (
            f"no {events}{group_text} in the last {window_text(monitor.window)}"
            if not reading.n
            else f"{events}{group_text} arrive"
        )
    ends = "" if reading.lo is None or reading.hi is None else f" ({number(reading.lo)} to {number(reading.hi)})"
    if state == "undecided" and reading.n is not None and reading.n < monitor.min_n:
        return f"{monitor.metric}{group_text} = {number(reading.value)} from {reading.n:g}; {monitor.min_n} are needed"
    ok = "is no longer" if before == "firing" else "is not"
    verb = {"firing": "is", "ok": ok}.get(state, "may or may not be")
    value = f"{monitor.metric}{group_text} = {number(reading.value)}{ends}"
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
