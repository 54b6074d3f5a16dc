"""What monitors say in messages and on pages: levels, limits, groups, false alarms."""

from __future__ import annotations

import json

from ragpulse_collector.analysis.selection import duration_s
from ragpulse_collector.monitoring.definitions import DRIFT
from ragpulse_collector.monitoring.measure import Reading, State
from ragpulse_collector.settings import MonitorSettings

__all__ = ["false_alarm_rate", "limit_text", "number", "of_group", "plain_group"]

_YEAR_S = 365.25 * 86_400
_DRIFT_ALPHA = 0.05
"""A check calls a judge moved where its 95 % interval excludes 0."""


def false_alarm_rate(one: MonitorSettings) -> str:
    """How often a monitor alarms falsely."""
    if not one.name.startswith(DRIFT):
        return f"at most {one.false_alarms_per_year:g} a year"
    checks = _YEAR_S / duration_s(one.window) if one.window != "never" else 1.0
    return f"at most {round(checks * _DRIFT_ALPHA, 2):g} a year"


def limit_text(one: MonitorSettings, group: str, reading: Reading, state: State, before: State) -> str:
    """What a look at a limit found."""
    where = of_group(group)
    evaluator = one.metric.partition(":")[2]
    if one.condition == "no data" or reading.value is None:
        what = f"evaluations by {evaluator}" if evaluator else "requests"
        return f"no {what}{where} in the last {one.window}" if not reading.n else f"{what}{where} arrive"
    ends = "" if reading.lo is None or reading.hi is None else f" ({number(reading.lo)} to {number(reading.hi)})"
    if state == "undecided" and reading.n is not None and reading.n < one.min_n:
        return f"{one.metric}{where} = {number(reading.value)} from {reading.n:g}; {one.min_n} are needed"
    ok = "is no longer" if before == "firing" else "is not"
    said = {"firing": "is", "ok": ok}.get(state, "may or may not be")
    return f"{one.metric}{where} = {number(reading.value)}{ends} over {one.window}: {said} {one.condition}"


def of_group(group: str) -> str:
    """A group in parentheses; nothing where there is only one."""
    return "" if group == "{}" else f" ({plain_group(group)})"


def plain_group(group: str) -> str:
    """A group without the signs of JSON."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(group).items())


def number(value: float) -> str:
    """Three digits; larger numbers whole, with thousands apart."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
