"""Checks each monitor a few times per window, stores changes of state, and passes messages to the outbox."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode
from uuid import uuid4

from ragpulse_collector.analysis.exemplars import exemplars
from ragpulse_collector.analysis.selection import Window, duration_s, iso
from ragpulse_collector.monitoring.changes import changes_by_group, started_near
from ragpulse_collector.monitoring.counts import Change, Periods
from ragpulse_collector.monitoring.definitions import DRIFT, Definitions, Monitor
from ragpulse_collector.monitoring.delivery import (
    Outbox,
    Undelivered,
    false_alarm_rate,
    limit_text,
    number,
    of_group,
    plain_group,
    send,
)
from ragpulse_collector.monitoring.detection import NOTHING_MEASURED, detects
from ragpulse_collector.monitoring.findings import (
    Finding,
    known_first,
    of_others,
    sees_silence,
    state_of,
    watched_groups,
)
from ragpulse_collector.monitoring.measure import (
    LOOKS,
    Condition,
    Read,
    Reading,
    State,
    absent,
    confidence_for,
    parse,
    readings,
    readings_by_bucket,
)
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import add_messages, add_state, latest_states, monitors_named, states
from ragpulse_collector.store.queries.traces import Grouping
from ragpulse_dashboards.words import called

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.drift import DriftReport

__all__ = ["Monitors"]

_log = logging.getLogger(__name__)
_LENIENT = 0.8
"""Confidence of the interval that must be clear before a firing monitor recovers."""
_SETTLED = 0.05
"""A change is over when no comparison is sure at this level of error."""
_NO_LEVEL = "no earlier level to compare with"
_ORIGIN = datetime(2000, 1, 3)
_HEADS = {"firing": "ALERT", "ok": "recovered"}
"""The first word of a message, by the state; other states have their name."""
_WORST = 3
"""Links to traces in a message."""
_PREVIEW = timedelta(days=7)
_MAX_LOOKS = 50
"""Looks at stored data for a preview if each has queries of its own ..."""
_MAX_BUCKETS = 500
"""... and if all are read at once; more looks per window find little more."""
_DETECTS_MAX_AGE = timedelta(minutes=5)
"""How old the text about what a monitor can detect may be; it describes the last day."""
_EMPTY_MAX_AGE = timedelta(seconds=10)
"""The same while nothing is measured."""


class Monitors:
    """The monitors of a collector: `check` looks at them; the API lists, makes, changes, mutes and tests them."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        evaluators: Callable[[], Collection[str]] = tuple,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`evaluators` returns the known names. Raises SettingsError for a monitor that cannot be watched."""
        self._store, self._clock, self._settings = store, clock, settings
        self.definitions = Definitions(store, settings, evaluators=evaluators)
        self.outbox = Outbox(store, self.definitions.destinations, settings.smtp, clock=clock)
        self._url = (settings.collector.public_url or f"http://127.0.0.1:{settings.collector.port}").rstrip("/")
        self._last_looks: dict[str, datetime] = {}
        self.other_groups: dict[str, int] = {}
        """By monitor, the number of groups of the last look beyond the limit: they have no state of their own."""
        self._detected: dict[MonitorSettings, tuple[datetime, str | None]] = {}

    def check(self, now: datetime | None = None) -> int:
        """Look at every monitor that is due; returns the number of changed states."""
        time = now or self._clock()
        due = [
            monitor for monitor in self.definitions if monitor.broken is None and self._is_due(monitor.settings, time)
        ]
        changed = 0
        for monitor in due:
            try:
                changed += self._look(monitor, time)
            except Exception:  # noqa: BLE001 - the boundary of a monitor: the others must alert all the same
                _log.exception("monitor %s could not be checked; it is checked again", monitor.settings.name)
        return changed

    def list(self) -> dict[str, Any]:
        """Answer `GET monitors`: every monitor with its states and their history."""
        judges = [self.definitions.drift(name) for name in monitors_named(self._store.read, DRIFT)]
        return {
            "monitors": [self._as_json(monitor) for monitor in (*self.definitions, *judges)],
            "destinations": sorted(self.definitions.destinations),
        }

    def preview(self, draft: MonitorSettings) -> dict[str, Any]:
        """Answer `GET monitors/preview`: how often it would have fired in the last week, and what it can detect.

        Raises Invalid naming the mistake.
        """
        self.definitions.check_draft(draft)
        now = self._clock()
        state: dict[str, dict[str, Any]] = {}
        firings: list[dict[str, Any]] = []
        for time, findings in self._past(draft, now, state):
            for group, finding in findings.items():
                if finding.state == "firing" and state.get(group, {}).get("state") != "firing":
                    firings.append({"t": iso(time), "group": json.loads(group), "text": finding.text})
                state[group] = {"state": finding.state}
        answer = {"days": _PREVIEW.days, "would_have_fired": len(firings), "firings": firings[-20:]}
        return answer | {"detects": detects(self._reader(draft), draft, now)}

    def _past(
        self, draft: MonitorSettings, now: datetime, state: Mapping[str, Mapping[str, Any]]
    ) -> Iterator[tuple[datetime, dict[str, Finding]]]:
        """Yield what a monitor would have found in the last week, given the states that its caller keeps.

        Short windows are read all at once, side by side; long ones overlap, a quarter of their length apart.
        """
        condition, seconds = parse(draft.condition), duration_s(draft.window)
        groups = self._groups(draft, now, _PREVIEW.total_seconds())
        step = timedelta(seconds=max(seconds / LOOKS, _PREVIEW.total_seconds() / _MAX_LOOKS))
        is_long = step.total_seconds() * LOOKS <= seconds
        if is_long or condition.sign == "change" or draft.metric.startswith("coverage:"):
            for look in range(int(_PREVIEW / step), -1, -1):
                yield now - look * step, self._findings(draft, now - look * step, state, groups)
            return
        window = Window(now - _PREVIEW, now, max(1, round(seconds)))
        options = {"group_by": groups, "where": draft.where}
        by_bucket = readings_by_bucket(self._reader(draft), draft.metric, window, options, condition)
        length, whole = timedelta(seconds=window.step_s), [*window.starts()][1:-1]
        for start in whole[:: 1 + len(whole) // _MAX_BUCKETS]:
            yield start + length, self._limits(draft, condition, by_bucket.get(start, {}), state, groups.others)

    def mute(self, name: str, seconds: float | None, *, actor: str) -> Monitor:
        """Send no messages of a monitor for `seconds`, None: send them again. Raises NotFound."""
        until = None if seconds is None else self._clock() + timedelta(seconds=seconds)
        return self.definitions.mute(name, until, actor=actor)

    def test(self, name: str) -> dict[str, Any]:
        """Send a test message to each destination of a monitor, now; raises NotFound."""
        monitor = self.definitions.named(name)
        text = f"{name}: a test message of ragpulse"
        message = {"monitor": name, "metric": monitor.settings.metric, "state": "test", "text": text}
        outcomes = {destination: self._send_test(destination, message) for destination in monitor.notify}
        failures = [f"{destination}: {error}" for destination, error in outcomes.items() if error]
        sent = "failed: " + "; ".join(failures) if failures else "sent"
        return {"ok": not failures, "delivery": sent if outcomes else None}

    def drift(self, report: DriftReport) -> int:
        """Store the state of a judge, with a message when it fires or recovers."""
        monitor = self.definitions.drift(f"{DRIFT}{report.evaluator}")
        move = report.checks[0].judge_move if report.checks else None
        reading = Reading(move.value, move.lo, move.hi) if move else Reading(None, None, None)
        judge = f"the judge of {report.evaluator}"
        text = f"{judge} holds its level"
        if move and report.state == "firing":
            text = f"{judge} moved by {move.value:+.3g} ({move.lo:+.3g} to {move.hi:+.3g}) on {move.n} frozen"
            text += f" answers since {report.frozen_at:%Y-%m-%d}: {report.verdict}"
        stored_state = latest_states(self._store.read, monitor.settings.name).get("{}")
        return self._store_state(monitor, "{}", Finding(report.state, reading, text), stored_state)

    def _send_test(self, destination: str, message: Mapping[str, Any]) -> str | None:
        try:
            send(message, self.definitions.destinations[destination], self._settings.smtp, time=self._clock())
        except Undelivered as error:
            return str(error)
        return None

    def _is_due(self, monitor: MonitorSettings, now: datetime) -> bool:
        last_look = self._last_looks.get(monitor.name)
        if last_look is None or last_look > now:  # the clock was set back
            return True
        return (now - last_look).total_seconds() >= max(30.0, duration_s(monitor.window) / LOOKS)

    def _look(self, monitor: Monitor, now: datetime) -> int:
        name = monitor.settings.name
        stored_states = latest_states(self._store.read, name)
        groups = self._groups(monitor.settings, now)
        findings = self._findings(monitor.settings, now, stored_states, groups)
        self._last_looks[name], self.other_groups[name] = now, groups.others
        return sum(
            self._store_state(monitor, group, finding, stored_states.get(group)) for group, finding in findings.items()
        )

    def _reader(self, monitor: MonitorSettings) -> Store:
        """Return the store; with a `where` under the limits of users' SQL."""
        return self._store.limited() if monitor.where else self._store

    def _groups(self, monitor: MonitorSettings, now: datetime, least_s: float = 0.0) -> Grouping:
        """Return the largest groups of the window, or of the baseline where changes are looked for."""
        is_change = parse(monitor.condition).sign == "change"
        seconds = max(least_s, duration_s(monitor.baseline if is_change else monitor.window))
        return watched_groups(self._reader(monitor), monitor, Window(now - timedelta(seconds=seconds), now, 0))

    def _findings(
        self,
        monitor: MonitorSettings,
        now: datetime,
        stored_states: Mapping[str, Mapping[str, Any]],
        groups: Grouping | None = None,
    ) -> dict[str, Finding]:
        condition = parse(monitor.condition)
        groups = groups or self._groups(monitor, now)
        if condition.sign == "change":
            return self._changes(monitor, now, stored_states, groups)
        seconds = duration_s(monitor.window)
        window = Window(now - timedelta(seconds=seconds), now, 0)
        options = {"group_by": groups, "where": monitor.where}
        readings_by_group = readings(self._reader(monitor), monitor.metric, window, options, condition)
        if sees_silence(monitor.metric, condition):
            return self._limits(monitor, condition, known_first(readings_by_group, stored_states), stored_states, 0)
        return self._limits(monitor, condition, readings_by_group, stored_states, groups.others)

    def _limits(
        self,
        monitor: MonitorSettings,
        condition: Condition,
        readings_by_group: Mapping[str, Read],
        stored_states: Mapping[str, Mapping[str, Any]],
        others: int,
    ) -> dict[str, Finding]:
        beyond = stored_states.keys() - readings_by_group.keys() if others else set()
        groups = readings_by_group.keys() | stored_states.keys() | (set() if monitor.group_by else {"{}"})
        groups -= beyond
        # The promised rate is that of the monitor, over all its groups.
        confidence = confidence_for(monitor.false_alarms_per_year / max(1, len(groups)), duration_s(monitor.window))
        blank = absent(monitor.metric)
        findings = {}
        for group in groups:
            read = readings_by_group.get(group)
            reading, lenient = (read(confidence), read(_LENIENT)) if read else (blank, blank)
            before: State = stored_states[group]["state"] if group in stored_states else "undecided"
            state = state_of(monitor, condition, reading, lenient, before)
            findings[group] = Finding(state, reading, limit_text(monitor, group, reading, state, before))
        return findings | of_others(beyond)

    def _changes(
        self,
        monitor: MonitorSettings,
        now: datetime,
        stored_states: Mapping[str, Mapping[str, Any]],
        groups: Grouping,
    ) -> dict[str, Finding]:
        """Compare whole windows, so that each window is looked at once."""
        step = max(1, round(duration_s(monitor.window)))
        end = _ORIGIN + (now - _ORIGIN) // timedelta(seconds=step) * timedelta(seconds=step)
        periods = Periods(end, step, duration_s(monitor.baseline))
        options = {"group_by": groups, "where": monitor.where}
        changes = changes_by_group(
            self._reader(monitor), monitor.metric, periods, options,
            strict=lambda tests: confidence_for(monitor.false_alarms_per_year / tests / 2.0, step, looks=1.0),
            lenient=lambda tests: 1.0 - _SETTLED / tests,
        )  # fmt: skip
        findings, blank = {}, Reading(None, None, None, 0)
        for group, (strict, lenient) in changes.items():
            is_firing = stored_states.get(group, {}).get("state") == "firing"
            change = lenient if is_firing else strict
            if strict is None or lenient is None or change is None:
                findings[group] = Finding("firing" if is_firing else "undecided", Reading(None, None, None), _NO_LEVEL)
                continue
            lo, hi = (None if math.isinf(end) else end for end in (lenient.lo, lenient.hi))
            reading = Reading(strict.after, lo, hi)
            if change.is_sure:
                # Only a new firing is stored and sent; its text costs a look at a week.
                text = "" if is_firing else self._change_text(monitor, change, now)
                findings[group] = Finding("firing", reading, text, f"since {iso(change.start)}")
            else:
                text = f"{called(monitor.metric)}{of_group(group)} holds its level of {number(strict.before)}"
                findings[group] = Finding("ok", reading, text)
        absent_groups = stored_states.keys() - changes.keys()
        if groups.others:
            return findings | of_others(absent_groups)
        for group in absent_groups:
            findings[group] = Finding("no data", blank, limit_text(monitor, group, blank, "no data", "undecided"))
        return findings

    def _change_text(self, monitor: MonitorSettings, change: Change, now: datetime) -> str:
        verb = "fell" if change.after < change.before else "rose"
        levels = f"{number(change.before)} -> {number(change.after)}"
        text = (
            f"{called(monitor.metric)}{of_group(change.group)} {verb} {levels} since {change.start:%a %d %b %H:%M} UTC"
        )
        if change.predecessor is not None:
            text += f", against {plain_group(change.predecessor)}"
        if change.wording:
            text += f"; {change.wording}"
        cause = started_near(self._store, monitor.metric, change.start, 2 * duration_s(monitor.window), now)
        return f"{text}; {cause}" if cause else text

    def _store_state(
        self, monitor: Monitor, group: str, finding: Finding, stored_state: Mapping[str, Any] | None
    ) -> int:
        """Store a changed state, and its messages in the same transaction."""
        if stored_state is not None and stored_state["state"] == finding.state:
            return 0
        reading, now = finding.reading, self._clock()
        was_firing = stored_state is not None and stored_state["state"] == "firing"
        ends = was_firing and finding.state in ("ok", "no data")
        is_muted = monitor.mute_until is not None and now < monitor.mute_until
        recipients = monitor.notify if (finding.state == "firing" or ends) and not is_muted else ()
        event_id = uuid4()
        message = self._message(monitor.settings, group, finding, str(event_id), now) if recipients else {}
        key = (monitor.settings.name, group, finding.state)

        def work(tx: Transaction) -> None:
            add_state(tx, key, (reading.value, reading.lo, reading.hi), (finding.text, finding.statistic), event_id)
            add_messages(tx, event_id, json.dumps(message, default=str), recipients, at=now)

        self._store.write(work).result()
        self.outbox.wake()
        return 1

    def _message(
        self, monitor: MonitorSettings, group: str, finding: Finding, event_id: str, now: datetime
    ) -> dict[str, Any]:
        reading = finding.reading
        start = now - timedelta(seconds=duration_s(monitor.window)) if monitor.window != "never" else now
        span = {"from": iso(start), "to": iso(now)}
        return {
            "event_id": event_id,
            "monitor": monitor.name,
            "metric": monitor.metric,
            "group": json.loads(group),
            "state": finding.state,
            "since": iso(now),
            "text": f"{_HEADS.get(finding.state, finding.state)} {monitor.name}: {finding.text}",
            **{"value": reading.value, "lo": reading.lo, "hi": reading.hi},
            "false_alarms_per_year": monitor.false_alarms_per_year,
            "link": f"{self._url}/figures?{urlencode({'metric': monitor.metric, **span, **json.loads(group)})}",
            "worst": self._worst(monitor, group, span) if finding.state == "firing" else [],
        }

    def _worst(self, monitor: MonitorSettings, group: str, span: Mapping[str, Any]) -> Sequence[str]:
        """Return links to the worst traces of the window; none for a metric that single traces do not have."""
        params = {"name": monitor.metric, "where": monitor.where, **span, **json.loads(group)}
        try:
            traces = exemplars(self._reader(monitor), params, clock=self._clock)
        except Refusal:
            return []
        return [f"{self._url}/traces/{quote(row['trace_id'])}" for row in traces["worst"][:_WORST]]

    def _detects(self, monitor: MonitorSettings) -> str | None:
        now = self._clock()
        read_at, text = self._detected.get(monitor, (datetime.min, None))
        if now - read_at >= (_EMPTY_MAX_AGE if text == NOTHING_MEASURED else _DETECTS_MAX_AGE):
            text = detects(self._reader(monitor), monitor, now)
            self._detected[monitor] = now, text
        return text

    def _as_json(self, monitor: Monitor) -> dict[str, Any]:
        settings = monitor.settings
        rows = states(self._store.read, settings.name)
        latest = {row["group"]: row for row in reversed(rows)}
        worst = next((row for row in latest.values() if row["state"] == "firing"), rows[0] if rows else None)
        latest_figures = {key: None if worst is None else worst[key] for key in ("value", "lo", "hi", "text")}
        history = [
            {"t": iso(row["created_at"]), "group": json.loads(row["group"])}
            | {key: row[key] for key in ("state", "text", "delivery")}
            for row in rows
        ]
        state = "undecided" if worst is None else worst["state"]
        return {
            "name": settings.name,
            "metric": settings.metric,
            "group_by": list(settings.group_by),
            "where": settings.where,
            "condition": settings.condition,
            "window": settings.window,
            "baseline": settings.baseline,
            "min_n": settings.min_n,
            "notify": list(monitor.notify),
            "source": monitor.source,
            "mute_until": iso(monitor.mute_until),
            "state": state if monitor.broken is None else "broken",
            "since": None if worst is None else iso(worst["created_at"]),
            **(latest_figures if monitor.broken is None else latest_figures | {"text": monitor.broken}),
            **({} if monitor.source == "drift" or monitor.broken else {"detects": self._detects(settings)}),
            "false_alarms_per_year": settings.false_alarms_per_year,
            "false_alarm_rate": false_alarm_rate(settings),
            "other_groups": self.other_groups.get(settings.name, 0),
            "history": history,
        }
