"""Looks at each monitor a few times per window, stores changes of state, and hands messages to the outbox."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.explain import exemplars
from ragpulse_collector.analysis.selection import Window, duration_s, iso
from ragpulse_collector.monitoring.changes import moves
from ragpulse_collector.monitoring.counts import Move, Span
from ragpulse_collector.monitoring.definitions import DRIFT, Definitions, Monitor
from ragpulse_collector.monitoring.delivery import Outbox, Undelivered, send
from ragpulse_collector.monitoring.detection import detects
from ragpulse_collector.monitoring.measure import (
    LOOKS,
    Condition,
    Reading,
    State,
    absent,
    confidence_for,
    decide,
    parse,
    readings,
)
from ragpulse_collector.monitoring.words import false_alarm_rate, limit_text, number, of_group, plain_group
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.monitors import add_messages, add_state, latest_states, monitors_named, states
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.rows import utc_now

__all__ = ["Monitors"]

_EASY = 0.8
"""Confidence of the interval that must be clear before a firing monitor recovers."""
_SETTLED = 0.05
"""A change is over where no comparison is sure at this level of error."""
_NO_LEVEL = "no earlier level to compare with"
_ORIGIN = datetime(2000, 1, 3)
_WORST = 3
"""Links to traces in a message."""
_PREVIEW = timedelta(days=7)
_MOST_LOOKS = 200
"""Looks at stored data for a preview; more of them per window would find little more."""
_DETECTS_FOR = timedelta(minutes=5)
"""What a monitor can detect speaks of the last day: the list reads it again after this time."""


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one look at one group found."""

    state: State
    reading: Reading
    text: str
    statistic: str | None = None


class Monitors:
    """The monitors of a collector: looked at by `check`, listed, made, changed, muted and tested over the API."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        known: Callable[[], Collection[str]] = tuple,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`known()` returns the names of evaluators. Raises SettingsError for a monitor that cannot be watched."""
        self._store, self._clock, self._settings = store, clock, settings
        self.definitions = Definitions(store, settings, known=known)
        self.outbox = Outbox(store, self.definitions.destinations, settings.smtp, clock=clock)
        self._url = (settings.collector.public_url or f"http://127.0.0.1:{settings.collector.port}").rstrip("/")
        self._looked: dict[str, datetime] = {}
        self._detected: dict[MonitorSettings, tuple[datetime, str | None]] = {}

    def check(self, now: datetime | None = None) -> int:
        """Look at every monitor that is due; returns how many states changed."""
        at = now or self._clock()
        due = [one for one in self.definitions if one.broken is None and self._due(one.settings, at)]
        return sum(self._look(one, at) for one in due)

    def list(self) -> dict[str, Any]:
        """Answer `GET monitors`: every monitor with its states and their history."""
        watched = [self.definitions.drift(name) for name in monitors_named(self._store.read, DRIFT)]
        return {
            "monitors": [self._shown(one) for one in (*self.definitions, *watched)],
            "destinations": sorted(self.definitions.destinations),
        }

    def preview(self, draft: MonitorSettings) -> dict[str, Any]:
        """Answer `GET monitors/preview`: how often it would have fired in the last week, and what it can detect.

        Raises ValueError naming the mistake.
        """
        self.definitions.check(draft)
        at = self._clock()
        seconds = duration_s(draft.window)
        looks = _MOST_LOOKS / 4 if draft.condition.strip() == "change" else _MOST_LOOKS  # each reads four lengths
        step = timedelta(seconds=max(seconds / LOOKS, _PREVIEW.total_seconds() / looks))
        state: dict[str, dict[str, Any]] = {}
        fired: list[dict[str, Any]] = []
        for look in range(int(_PREVIEW / step), -1, -1):
            when = at - look * step
            for group, finding in self._findings(draft, when, state).items():
                if finding.state == "firing" and state.get(group, {}).get("state") != "firing":
                    fired.append({"t": iso(when), "group": json.loads(group), "text": finding.text})
                state[group] = {"state": finding.state}
        told = {"days": _PREVIEW.days, "would_have_fired": len(fired), "firings": fired[-20:]}
        return told | {"detects": detects(self._store, draft, at)}

    def mute(self, name: str, seconds: float | None, *, actor: str) -> Monitor:
        """Send no messages of a monitor for so long, None: send them again. Raises LookupError."""
        until = None if seconds is None else self._clock() + timedelta(seconds=seconds)
        return self.definitions.mute(name, until, actor=actor)

    def test(self, name: str) -> dict[str, Any]:
        """Send a test message to each destination of a monitor, now; raises LookupError."""
        one = self.definitions.named(name)
        text = f"{name}: a test message of ragpulse"
        message = {"monitor": name, "metric": one.settings.metric, "state": "test", "text": text}
        outcomes = {destination: self._tested(destination, message) for destination in one.notify}
        failures = [f"{to}: {error}" for to, error in outcomes.items() if error]
        sent = "failed: " + "; ".join(failures) if failures else "sent"
        return {"ok": not failures, "delivery": sent if outcomes else None}

    def drift(self, report: Mapping[str, Any]) -> int:
        """Keep what a check of a judge found (a report of `GET drift`), with a message when it moved or came back."""
        one = self.definitions.drift(f"{DRIFT}{report['evaluator']}")
        move = next((check["judge_move"] for check in report["checks"]), None) or {}
        reading = Reading(move.get("value"), move.get("lo"), move.get("hi"))
        judge = f"the judge of {report['evaluator']}"
        text = f"{judge} holds its level"
        if report["state"] == "firing":
            text = (
                f"{judge} moved by {reading.value:+.3g} ({reading.lo:+.3g} to {reading.hi:+.3g}) on {move['n']} frozen"
            )
            text += f" answers since {report['frozen_at'][:10]}: {report['verdict']}"
        known = latest_states(self._store.read, one.settings.name).get("{}")
        return self._keep(one, "{}", _Finding(report["state"], reading, text), known)

    def _tested(self, destination: str, message: Mapping[str, Any]) -> str | None:
        try:
            send(message, self.definitions.destinations[destination], self._settings.smtp, at=self._clock())
        except Undelivered as error:
            return str(error)
        return None

    def _due(self, one: MonitorSettings, at: datetime) -> bool:
        looked = self._looked.get(one.name)
        return looked is None or (at - looked).total_seconds() >= max(30.0, duration_s(one.window) / LOOKS)

    def _look(self, one: Monitor, at: datetime) -> int:
        name = one.settings.name
        self._looked[name] = at
        known = latest_states(self._store.read, name)
        found = self._findings(one.settings, at, known)
        return sum(self._keep(one, group, finding, known.get(group)) for group, finding in found.items())

    def _findings(
        self, one: MonitorSettings, at: datetime, known: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, _Finding]:
        condition = parse(one.condition)
        if condition.sign == "change":
            return self._changes(one, at, known)
        return self._limits(one, condition, at, known)

    def _limits(
        self, one: MonitorSettings, condition: Condition, at: datetime, known: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, _Finding]:
        seconds = duration_s(one.window)
        window = Window(at - timedelta(seconds=seconds), at, 0)
        options = {"group_by": one.group_by, "where": one.where}
        seen = readings(self._store, one.metric, window, options, condition)
        every = seen.keys() | known.keys() | (set() if one.group_by else {"{}"})
        sharp_at = confidence_for(one.false_alarms_per_year / max(1, len(every)), seconds)  # the monitor's, over all
        blank = absent(one.metric)
        found = {}
        for group in every:
            reading, easy = (seen[group](at) if group in seen else blank for at in (sharp_at, _EASY))
            before: State = known[group]["state"] if group in known else "undecided"
            state = _state(one, condition, reading, easy, before)
            found[group] = _Finding(state, reading, limit_text(one, group, reading, state, before))
        return found

    def _changes(
        self, one: MonitorSettings, at: datetime, known: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, _Finding]:
        """Whole windows only, so that a window is looked at once."""
        step = max(1, round(duration_s(one.window)))
        span = Span(_ORIGIN + (at - _ORIGIN) // timedelta(seconds=step) * timedelta(seconds=step), step,
                    duration_s(one.baseline))  # fmt: skip
        options = {"group_by": one.group_by, "where": one.where}
        both = moves(
            self._store, one.metric, span, options,
            sharp=lambda tests: confidence_for(one.false_alarms_per_year / tests / 2.0, step, looks=1.0),
            easy=lambda tests: 1.0 - _SETTLED / tests,
        )  # fmt: skip
        found = {}
        for group, (sharp, easy) in both.items():
            fired = known.get(group, {}).get("state") == "firing"
            move = easy if fired else sharp
            if sharp is None or easy is None or move is None:
                found[group] = _Finding("firing" if fired else "undecided", Reading(None, None, None), _NO_LEVEL)
                continue
            lo, hi = (None if math.isinf(end) else end for end in (easy.lo, easy.hi))
            reading = Reading(sharp.after, lo, hi)
            if move.sure:
                text = self._change_text(one, move, at)
                found[group] = _Finding("firing", reading, text, f"since {iso(move.began)}")
            else:
                text = f"{one.metric}{of_group(group)} holds its level of {number(sharp.before)}"
                found[group] = _Finding("ok", reading, text)
        return found

    def _change_text(self, one: MonitorSettings, move: Move, at: datetime) -> str:
        verb = "fell" if move.after < move.before else "rose"
        levels = f"{number(move.before)} -> {number(move.after)}"
        text = f"{one.metric}{of_group(move.group)} {verb} {levels} since {move.began:%a %d %b %H:%M} UTC"
        if move.against is not None:
            text += f", against {plain_group(move.against)}"
        suspect = self._suspect(one, move, at)
        return f"{text}; {suspect}" if suspect else text

    def _suspect(self, one: MonitorSettings, change: Move, at: datetime) -> str | None:
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

    def _keep(self, one: Monitor, group: str, finding: _Finding, known: Mapping[str, Any] | None) -> int:
        """Append a changed state, and in the same transaction the messages about it."""
        if known is not None and known["state"] == finding.state:
            return 0
        reading, at = finding.reading, self._clock()
        recovers = finding.state == "ok" and known is not None and known["state"] == "firing"
        muted = one.mute_until is not None and at < one.mute_until
        to = one.notify if (finding.state == "firing" or recovers) and not muted else ()
        event_id = uuid4()
        message = self._message(one.settings, group, finding, str(event_id), at) if to else {}
        key = (one.settings.name, group, finding.state)

        def work(tx: Transaction) -> None:
            add_state(tx, key, (reading.value, reading.lo, reading.hi), (finding.text, finding.statistic), event_id)
            add_messages(tx, event_id, json.dumps(message, default=str), to, at=at)

        self._store.write(work).result()
        self.outbox.wake()
        return 1

    def _message(
        self, one: MonitorSettings, group: str, finding: _Finding, event_id: str, at: datetime
    ) -> dict[str, Any]:
        reading = finding.reading
        start = at - timedelta(seconds=duration_s(one.window)) if one.window != "never" else at
        span = {"from": iso(start), "to": iso(at)}
        return {
            "event_id": event_id,
            "monitor": one.name,
            "metric": one.metric,
            "group": json.loads(group),
            "state": finding.state,
            "since": iso(at),
            "text": f"{'ALERT' if finding.state == 'firing' else 'recovered'} {one.name}: {finding.text}",
            **{"value": reading.value, "lo": reading.lo, "hi": reading.hi},
            "false_alarms_per_year": one.false_alarms_per_year,
            "link": f"{self._url}/figures?{urlencode({'metric': one.metric, **span, **json.loads(group)})}",
            "worst": self._worst(one, group, span) if finding.state == "firing" else [],
        }

    def _worst(self, one: MonitorSettings, group: str, span: Mapping[str, Any]) -> Sequence[str]:
        """Links to the worst traces of the window; none for a metric that no single trace has."""
        params = {"name": one.metric, "where": one.where, **span, **json.loads(group)}
        try:
            found = exemplars(self._store.limited() if one.where else self._store, params, clock=self._clock)
        except (ValueError, LookupError):
            return []
        return [f"{self._url}/traces/{quote(row['trace_id'])}" for row in found["worst"][:_WORST]]

    def _detects(self, one: MonitorSettings) -> str | None:
        at = self._clock()
        read, text = self._detected.get(one, (datetime.min, None))
        if at - read >= _DETECTS_FOR:
            text = detects(self._store, one, at)
            self._detected[one] = at, text
        return text

    def _shown(self, monitor: Monitor) -> dict[str, Any]:
        one = monitor.settings
        rows = states(self._store.read, one.name)
        latest = {row["group"]: row for row in reversed(rows)}
        worst = next((row for row in latest.values() if row["state"] == "firing"), rows[0] if rows else None)
        shown = {key: None if worst is None else worst[key] for key in ("value", "lo", "hi", "text")}
        history = [
            {"t": iso(row["created_at"]), "group": json.loads(row["group"])}
            | {key: row[key] for key in ("state", "text", "delivery")}
            for row in rows
        ]
        state = "undecided" if worst is None else worst["state"]
        return {
            "name": one.name,
            "metric": one.metric,
            "group_by": list(one.group_by),
            "where": one.where,
            "condition": one.condition,
            "window": one.window,
            "baseline": one.baseline,
            "min_n": one.min_n,
            "notify": list(monitor.notify),
            "source": monitor.source,
            "mute_until": iso(monitor.mute_until),
            "state": state if monitor.broken is None else "broken",
            "since": None if worst is None else iso(worst["created_at"]),
            **(shown if monitor.broken is None else shown | {"text": monitor.broken}),
            **({} if monitor.source == "drift" or monitor.broken else {"detects": self._detects(one)}),
            "false_alarms_per_year": one.false_alarms_per_year,
            "false_alarm_rate": false_alarm_rate(one),
            "history": history,
        }


def _state(one: MonitorSettings, condition: Condition, sharp: Reading, easy: Reading, before: State) -> State:
    if condition.sign == "no data":
        return "firing" if not sharp.n else "ok"
    if sharp.value is not None and sharp.n is not None and sharp.n < one.min_n:
        return before if before == "firing" else "undecided"
    return decide(condition, sharp, easy, before)
