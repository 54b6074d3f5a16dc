"""What people see of monitors: the list with states and history, a preview, whether a test message arrived."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ragpulse_collector.analysis.answers import GroupValue, extended
from ragpulse_collector.monitoring.definitions import Monitor
from ragpulse_collector.monitoring.messages import false_alarms_per_year
from ragpulse_collector.store.queries.monitors import State, StoredState


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMonitor:
    """A stored monitor, without the addresses and the secret of the file."""

    name: str
    metric: str
    condition: str
    notify: Sequence[str]
    min_n: int
    group_by: Sequence[str]
    where: str | None
    window: str
    baseline: str
    false_alarms_per_year: float
    tz: str | None = None

    @classmethod
    def of(cls, monitor: Monitor) -> SavedMonitor:
        """Return a monitor's settings as they are shown."""
        settings = monitor.settings
        return cls(
            name=settings.name,
            metric=settings.metric,
            condition=settings.condition,
            notify=monitor.notify,
            min_n=settings.min_n,
            group_by=settings.group_by,
            where=settings.where,
            window=settings.window,
            baseline=settings.baseline,
            false_alarms_per_year=settings.false_alarms_per_year,
            tz=settings.tz,
        )


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    """A change of state of one group."""

    t: datetime
    group: Mapping[str, GroupValue]
    state: State
    text: str
    delivery: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMonitor(SavedMonitor):
    """A monitor with the state and the figures of its worst group, and its history, newest first."""

    source: Literal["file", "api", "drift"]
    mute_until: datetime | None
    state: State | Literal["broken"]
    since: datetime | None
    value: float | None
    lo: float | None
    hi: float | None
    text: str | None
    detects: None = None
    """Always null: a preview counts how often it would have fired."""
    correction: str | None = None
    """How people's labels would correct the judge's figure, over the window and all groups; the monitor keeps it."""
    false_alarm_rate: str
    would_have_fired: int | None = None
    """How often it would have fired in the stored past; null where that is unknown."""
    days: int | None = None
    """The days of that past."""
    past: str | None = None
    """Both in words."""
    other_groups: int
    """Groups beyond the limit: they have no state of their own."""
    history: Sequence[MonitorEvent]


@dataclass(frozen=True, slots=True)
class MonitorList:
    """All monitors, and the names of the destinations for their messages."""

    monitors: Sequence[ShownMonitor]
    destinations: Sequence[str]
    expected: str = ""
    """How many false alarms all monitors that are watched have together; empty without any."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A time at which a monitor would have fired."""

    t: datetime
    group: Mapping[str, GroupValue]
    text: str


@dataclass(frozen=True, slots=True)
class MonitorPreview:
    """How often a monitor would have fired in the stored past; the last twenty times."""

    days: int
    would_have_fired: int
    firings: Sequence[Firing]
    detects: None = None
    wider: None = None
    """Both always null."""


@dataclass(frozen=True, slots=True)
class AlertSent:
    """Whether a test alert was delivered; `delivery` is null where nobody is notified."""

    ok: bool
    delivery: str | None


def shown(
    monitor: Monitor, rows: Sequence[StoredState], *, correction: str | None, past: MonitorPreview | None,
    other_groups: int,
) -> ShownMonitor:  # fmt: skip
    """Return a monitor with its stored states, newest first."""
    latest = {row.group: row for row in reversed(rows)}
    worst = next((row for row in latest.values() if row.state == "firing"), rows[0] if rows else None)
    return extended(
        ShownMonitor,
        SavedMonitor.of(monitor),
        source=monitor.source,
        mute_until=monitor.mute_until,
        state="broken" if monitor.broken else worst.state if worst else "undecided",
        since=worst and worst.created_at,
        value=worst and worst.value,
        lo=worst and worst.lo,
        hi=worst and worst.hi,
        text=monitor.broken or (worst and worst.text),
        correction=correction,
        false_alarm_rate=f"at most {false_alarms_per_year(monitor.settings):g} a year",
        would_have_fired=past and past.would_have_fired,
        days=past and past.days,
        past=past and f"{past.would_have_fired} in {past.days} {'day' if past.days == 1 else 'days'}",
        other_groups=other_groups,
        history=[
            MonitorEvent(row.created_at, json.loads(row.group), row.state, row.text, row.delivery) for row in rows
        ],
    )
