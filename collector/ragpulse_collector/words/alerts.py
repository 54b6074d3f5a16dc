"""Sentences of alerts: what a look at a monitor found, in a group and over a window."""

from __future__ import annotations

import json
from datetime import datetime

from ragpulse_collector.words import called

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def silence_text(metric: str, group: str, window_s: float, *, is_silent: bool) -> str:
    """Whether anything arrives: `no requests (service a) in the last hour`."""
    evaluator = metric.partition(":")[2]
    events = f"evaluations by {called(evaluator)}" if evaluator else "requests"
    silent = f"no {events}{of_group(group)} in the last {window_text(window_s)}"
    return silent if is_silent else f"{events}{of_group(group)} arrive"


def limit_text(
    metric: str, group: str, figures: tuple[float, float | None, float | None], window_s: float, verdict: str
) -> str:
    """Value, interval and verdict: `error_rate = 0.2 (0.15 to 0.25) over the last hour: is > 0.1`."""
    value, lo, hi = figures
    ends = "" if lo is None or hi is None else f" ({number(lo)} to {number(hi)})"
    return f"{level_text(metric, group, value)}{ends} over the last {window_text(window_s)}: {verdict}"


def level_text(metric: str, group: str, value: float) -> str:
    """`error_rate (service a) = 0.2`."""
    return f"{called(metric)}{of_group(group)} = {number(value)}"


def holds_text(metric: str, group: str, level: float) -> str:
    """That nothing changed."""
    return f"{called(metric)}{of_group(group)} holds its level of {number(level)}"


def change_text(
    metric: str, group: str, levels: tuple[float, float], usual: str, replaced: str | None, start: datetime | None
) -> str:
    """Both levels, since when, and what the last windows are compared with."""
    before, after = levels
    verb, since = "fell" if after < before else "rose", f" since {start:%a %d %b %H:%M} UTC" if start else ""
    against = f"{plain_group(replaced)}: {usual}" if replaced else usual
    return f"{called(metric)}{of_group(group)} {verb} {number(before)} -> {number(after)}{since}, against {against}"


def window_text(seconds: float) -> str:
    """The length of a window in words: `hour`, `10 minutes`."""
    unit, length = next((unit, length) for unit, length in _UNITS if seconds % length == 0 or length == 1)
    return unit if seconds == length else f"{seconds / length:g} {unit}s"


def of_group(group: str) -> str:
    """A group in parentheses; nothing for the only group."""
    return "" if group == "{}" else f" ({plain_group(group)})"


def plain_group(group: str) -> str:
    """A group without JSON syntax."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(group).items())


def number(value: float) -> str:
    """A number with three digits; from 1000 on whole, with separators."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
