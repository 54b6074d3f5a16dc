"""What a look at a monitor finds, and in which groups: senders choose their values, and there may be very many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ragpulse_collector.analysis.figures import Condition, Read, absent
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.query import columns_of, meeting
from ragpulse_collector.analysis.selection import MAX_GROUPS, Window, grouping
from ragpulse_collector.monitoring.measure import Watched, decide, parse
from ragpulse_collector.settings import MonitorSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.words.alerts import plain_group

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one look at one group."""

    state: State
    reading: Figures
    text: str
    statistic: str | None = None


def sees_silence(metric: str, condition: Condition) -> bool:
    """Return whether a group of which nothing arrives can fire."""
    return condition.sign == "no data" or (condition.sign == "<" and absent(metric).value is not None)


def watched_by(store: Store, monitor: MonitorSettings, window: Window) -> Watched:
    """Return the largest groups of a range; all others are one, `(other)`.

    A monitor that sees silence has no such group: a silent group is none of the largest, and must be told from them.
    """
    columns, filters = columns_of(monitor.group_by), meeting(monitor.where)
    largest = grouping(store, window, filters, columns)
    groups = columns if sees_silence(monitor.metric, parse(monitor.condition)) else largest.columns
    return Watched(filters, groups, largest.others)


def known_first(found: Mapping[str, Read], known: Collection[str]) -> dict[str, Read]:
    """Return the groups that have a state, and the largest new ones while there are fewer than the limit."""
    new = sorted(found.keys() - set(known), key=lambda group: (-found[group](_CONFIDENCE).n, group))
    kept = {*known, *new[: max(0, MAX_GROUPS - len(known))]}
    return {group: read for group, read in found.items() if group in kept}


def of_others(groups: Collection[str]) -> dict[str, Finding]:
    """Return what is found of groups that are not among the largest any more."""
    why = f"is not among the {MAX_GROUPS} largest groups: it is watched with all others"
    return {group: Finding("no data", Figures(), f"{plain_group(group)} {why}") for group in groups}


def state_of(monitor: MonitorSettings, condition: Condition, strict: Figures, lenient: Figures, before: State) -> State:
    """Return the next state of a group from its strict and its lenient reading."""
    if condition.sign == "no data":
        return "firing" if not strict.n else "ok"
    if strict.value is not None and strict.n < monitor.min_n:
        return before if before == "firing" else "undecided"
    return decide(condition, strict, lenient, before)
