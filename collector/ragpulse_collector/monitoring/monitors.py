"""Runs the monitors of the configuration, keeps their states in the store, and tells people about changes of state."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.filters import dimensions
from ragpulse_collector.analysis.window import Window, duration_s, iso
from ragpulse_collector.monitoring.conditions import (
    LOOKS,
    Change,
    Condition,
    Reading,
    State,
    confidence_for,
    decide,
    find_change,
    parse,
)
from ragpulse_collector.monitoring.measure import check_metric, readings, tracks
from ragpulse_collector.monitoring.notifications import deliver
from ragpulse_collector.settings import DriftSettings, MonitorSettings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.filters import Filter
from ragpulse_collector.store.queries.monitors import add_state, latest_states, monitors_named, states
from ragpulse_collector.store.rows import utc_now

__all__ = ["Monitors"]

_log = logging.getLogger(__name__)
_EASY = 0.8
"""Confidence of the interval that must be clear before a firing monitor recovers."""
_YEAR_S = 365.25 * 86_400
_DRIFT = "drift:"
_DRIFT_ALPHA = 0.05
"""A check calls a judge moved where its 95 % interval excludes 0."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one look at one group found."""

    state: State
    reading: Reading
    text: str
    statistic: str | None = None


class Monitors:
    """Looks at each monitor a few times per window; raises ValueError for one that cannot be watched."""

    def __init__(
        self,
        store: Store,
        settings: Sequence[MonitorSettings],
        *,
        drift: DriftSettings | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store, self._clock, self._drift = store, clock, drift or DriftSettings()
        self._settings = {one.name: one for one in settings}
        self._looked: dict[str, datetime] = {}
        for one in settings:
            check_metric(one.metric)
            parse(one.condition)
            dimensions({"group_by": one.group_by})
            duration_s(one.window), duration_s(one.baseline)

    def check(self, now: datetime | None = None) -> int:
        """Look at every monitor that is due; returns how many states changed."""
        at = now or self._clock()
        return sum(self._look(one, at) for one in self._settings.values() if self._due(one, at))

    def list(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Answer `GET monitors`: every monitor with its states and their history."""
        del params
        names = monitors_named(self._store.read, _DRIFT)
        watched = [self._drift_monitor(name) for name in names if name not in self._settings]
        return {"monitors": [self._told(one) for one in (*self._settings.values(), *watched)]}

    def drift(self, report: Mapping[str, Any]) -> int:
        """Keep what a check of a judge found (a report of `GET drift`), and tell people when it moved or came back."""
        one = self._drift_monitor(f"{_DRIFT}{report['evaluator']}")
        move = next((check["judge_move"] for check in report["checks"]), None) or {}
        reading = Reading(move.get("value"), move.get("lo"), move.get("hi"))
        judge = f"the judge of {report['evaluator']}"
        text = f"{judge} holds its level"
        if report["state"] == "firing":
            text = (
                f"{judge} moved by {reading.value:+.3g} ({reading.lo:+.3g} to {reading.hi:+.3g}) on {move['n']} frozen"
            )
            text += f" answers since {report['frozen_at'][:10]}: {report['verdict']}"
        return self._keep(one, "{}", _Finding(report["state"], reading, text), self._latest(one.name).get("{}"))

    def _drift_monitor(self, name: str) -> MonitorSettings:
        every = self._drift.every
        checks = _YEAR_S / duration_s(every) if every != "never" else 1.0
        return MonitorSettings(
            name=name,
            metric=name,
            condition="moves",
            window=every,
            false_alarms_per_year=round(checks * _DRIFT_ALPHA, 2),
            webhook=self._drift.webhook,
            slack=self._drift.slack,
            secret=self._drift.secret,
        )

    def test(self, name: str) -> dict[str, Any]:
        """Send a test message for one monitor; raises LookupError."""
        one = self._drift_monitor(name) if name.startswith(_DRIFT) else self._settings.get(name)
        if one is None:
            raise LookupError(f"no monitor {name!r}")
        message = {
            "monitor": name,
            "metric": one.metric,
            "state": "test",
            "text": f"{name}: a test message of ragpulse",
        }
        return {"ok": True, "delivery": self._deliver(one, message)}

    def _due(self, one: MonitorSettings, at: datetime) -> bool:
        looked = self._looked.get(one.name)
        return looked is None or (at - looked).total_seconds() >= max(30.0, duration_s(one.window) / LOOKS)

    def _look(self, one: MonitorSettings, at: datetime) -> int:
        self._looked[one.name] = at
        known = self._latest(one.name)
        condition = parse(one.condition)
        found = self._changes(one, at) if condition.sign == "change" else self._limits(one, condition, at, known)
        return sum(self._keep(one, group, finding, known.get(group)) for group, finding in found.items())

    def _limits(
        self, one: MonitorSettings, condition: Condition, at: datetime, known: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, _Finding]:
        seconds = duration_s(one.window)
        window = Window(at - timedelta(seconds=seconds), at, 0)
        options = {"group_by": one.group_by, "where": one.where}
        sharp_at = confidence_for(one.false_alarms_per_year, seconds)
        sharp, easy = (
            readings(self._store, one.metric, window, options, condition, confidence)
            for confidence in (sharp_at, _EASY)
        )
        found = {}
        for group in sharp.keys() | known.keys():
            blank = Reading(None, None, None)
            reading = sharp.get(group, blank)
            before: State = known[group]["state"] if group in known else "undecided"
            state = decide(condition, reading, easy.get(group, blank), before)
            found[group] = _Finding(state, reading, _limit_text(one, group, reading, state, before))
        return found

    def _changes(self, one: MonitorSettings, at: datetime) -> dict[str, _Finding]:
        """The last half baseline against the one before it, so that a lasting change becomes the new level in time."""
        step = max(1, round(duration_s(one.window)))
        length = timedelta(seconds=duration_s(one.baseline))
        recent = Window(at - length / 2, at, step)
        baseline = Window(at - length * 1.5, at - length / 2, step)
        run_length = _YEAR_S / step / one.false_alarms_per_year
        options = {"group_by": one.group_by, "where": one.where}
        found = {}
        for track in tracks(self._store, one.metric, baseline, recent, options):
            change = find_change(track.times, track.values, track.sigmas, target=track.target, run_length=run_length)
            value = track.values[-1] if track.values else None
            half = 1.96 * track.sigmas[-1] if track.values else 0.0
            reading = Reading(value, None if value is None else value - half, None if value is None else value + half)
            if change is None:
                state: State = "ok" if track.values else "undecided"
                found[track.group] = _Finding(state, reading, f"{one.metric} holds its level of {track.target:.3g}")
            else:
                text = self._change_text(one, track.group, change, at)
                found[track.group] = _Finding("firing", reading, text, f"since {iso(change.began)}")
        return found

    def _change_text(self, one: MonitorSettings, group: str, change: Change, at: datetime) -> str:
        verb = "fell" if change.after < change.before else "rose"
        where = "" if group == "{}" else f" ({_plain(group)})"
        text = (
            f"{one.metric}{where} {verb} {change.before:.3g} -> {change.after:.3g} since {change.began:%a %d %b %H:%M}"
        )
        suspect = self._suspect(one, change, at)
        return f"{text} UTC; {suspect}" if suspect else f"{text} UTC"

    def _suspect(self, one: MonitorSettings, change: Change, at: datetime) -> str | None:
        """What began nearest to the change, within two windows of it."""
        near = timedelta(seconds=2 * duration_s(one.window))
        evaluator = one.metric.partition(":")[2] or None
        window = Window(change.began - timedelta(days=7), at, 0)
        began = [
            (datetime.fromisoformat(str(mark["t"])).replace(tzinfo=None), mark["text"])
            for mark in Snapshot(self._store, window, Filter(), (), now=at).markers(evaluator)
        ]
        close = [(abs(when - change.began), when, text) for when, text in began if abs(when - change.began) <= near]
        if not close:
            return None
        _, when, text = min(close)
        return f"{text} started {when:%H:%M}"

    def _keep(self, one: MonitorSettings, group: str, finding: _Finding, known: Mapping[str, Any] | None) -> int:
        """Append a changed state and tell people when it fires or recovers; a failed delivery is tried again."""
        same = known is not None and known["state"] == finding.state
        failed = known is not None and str(known["delivery"]).startswith("failed")
        if same and not failed:
            return 0
        tells = finding.state == "firing" or (
            finding.state == "ok" and known is not None and known["state"] == "firing"
        )
        delivery = None
        if tells or (same and failed):
            shown = {"value": finding.reading.value, "lo": finding.reading.lo, "hi": finding.reading.hi}
            text = f"{'ALERT' if finding.state == 'firing' else 'recovered'} {one.name}: {finding.text}"
            about = {"monitor": one.name, "metric": one.metric, "group": json.loads(group), "state": finding.state}
            rate = {"false_alarms_per_year": one.false_alarms_per_year}
            delivery = self._deliver(one, {**about, "text": text, **shown, **rate})
        reading = finding.reading
        figures = (reading.value, reading.lo, reading.hi)

        def work(tx: Transaction) -> None:
            texts = (finding.text, delivery, finding.statistic)
            add_state(tx, one.name, group, finding.state, figures, texts)

        self._store.write(work).result()
        return 1

    def _deliver(self, one: MonitorSettings, message: Mapping[str, Any]) -> str | None:
        delivery = deliver(message, webhook=one.webhook, slack=one.slack, secret=one.secret, at=self._clock())
        if delivery and delivery.startswith("failed"):
            _log.warning("monitor %s: %s", one.name, delivery)
        return delivery

    def _latest(self, name: str) -> dict[str, dict[str, Any]]:
        return latest_states(self._store.read, name)

    def _told(self, one: MonitorSettings) -> dict[str, Any]:
        rows = states(self._store.read, one.name)
        latest = {row["group"]: row for row in reversed(rows)}
        worst = next((row for row in latest.values() if row["state"] == "firing"), rows[0] if rows else None)
        shown = {key: None if worst is None else worst[key] for key in ("value", "lo", "hi", "text")}
        history = [
            {"t": iso(row["created_at"]), "group": json.loads(row["group"])}
            | {key: row[key] for key in ("state", "text", "delivery")}
            for row in rows
        ]
        return {
            "name": one.name,
            "metric": one.metric,
            "group_by": list(one.group_by),
            "condition": one.condition,
            "window": one.window,
            "state": "undecided" if worst is None else worst["state"],
            "since": None if worst is None else iso(worst["created_at"]),
            **shown,
            "false_alarm_rate": f"at most {one.false_alarms_per_year:g} a year",
            "history": history,
        }


def _limit_text(one: MonitorSettings, group: str, reading: Reading, state: State, before: State) -> str:
    where = "" if group == "{}" else f" ({_plain(group)})"
    if reading.value is None:
        return f"{one.metric}{where} was not measured in the last {one.window}"
    ends = "" if reading.lo is None or reading.hi is None else f" ({reading.lo:.3g} to {reading.hi:.3g})"
    ok = "is no longer" if before == "firing" else "is not"
    said = {"firing": "is", "ok": ok, "undecided": "may or may not be"}[state]
    return f"{one.metric}{where} = {reading.value:.3g}{ends} over {one.window}: {said} {one.condition}"


def _plain(group: str) -> str:
    return ", ".join(f"{key} {value}" for key, value in json.loads(group).items())
