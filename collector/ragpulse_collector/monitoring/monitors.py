"""Checks each monitor a few times per window, stores changes of state, and passes messages to the outbox."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from uuid import UUID, uuid4

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.calibration.decisive import decisive
from ragpulse_collector.analysis.changes.lines import Lines, Moved, Rhythm, read_lines, started_near, wording_since
from ragpulse_collector.analysis.changes.usual import LENGTHS
from ragpulse_collector.analysis.exemplars import exemplar_ids
from ragpulse_collector.analysis.figures import NEVER, Condition, Read, absent, readings, readings_by_bucket
from ragpulse_collector.analysis.quality import Figures, current, estimates
from ragpulse_collector.analysis.query import Query, having_group, meeting
from ragpulse_collector.analysis.selection import Window, duration_s, iso
from ragpulse_collector.analysis.traffic import traffic_of
from ragpulse_collector.monitoring.definitions import DRIFT, RECOUNTED, Definitions, Monitor
from ragpulse_collector.monitoring.delivery import Outbox, Undelivered, send
from ragpulse_collector.monitoring.findings import (
    Finding,
    known_first,
    of_others,
    sees_silence,
    state_of,
    watched_by,
)
from ragpulse_collector.monitoring.listing import AlertSent, Firing, MonitorList, MonitorPreview, ShownMonitor, shown
from ragpulse_collector.monitoring.measure import LOOKS, Watched, confidence_for, parse
from ragpulse_collector.monitoring.messages import Alert, expected_together, found_text, moved_text
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.settings.zones import zone_of
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import (
    State,
    add_messages,
    add_state,
    firing,
    latest_states,
    monitors_named,
)
from ragpulse_collector.store.queries.monitors import states as stored_states
from ragpulse_collector.store.queries.traces import Filter, first_span, requests_since
from ragpulse_collector.words.alerts import holds_text
from ragpulse_collector.zones import DAY_S, aligned

if TYPE_CHECKING:
    from ragpulse_collector.evaluation.drift import DriftReport

__all__ = ["Monitors"]

_log = logging.getLogger(__name__)
_LENIENT = 0.8
"""Confidence of the interval that must be clear before a firing monitor recovers."""
_SETTLED = 0.05
"""A change is over when no comparison is sure at this level of error."""
_NO_LEVEL = "no earlier level to compare with"
_RECOUNTED = "beyond the limit only since the upgrade that counts requests alone: look at the limit"
_HEADS = {"firing": "ALERT", "ok": "recovered"}
"""The first word of a message, by the state; other states have their name."""
_WORST = 3
"""Links to traces in a message."""
_PAST = timedelta(days=28)
"""A backtest looks so far back ..."""
_MAX_LOOKS, _MAX_READINGS = 700, 7_000
"""... at most at so many windows, and so many figures of all its groups."""


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
        self._url = settings.collector.pages_url
        self._last_looks: dict[str, datetime] = {}
        self._backtests: dict[str, tuple[MonitorSettings, datetime, MonitorPreview]] = {}
        self.other_groups: dict[str, int] = {}
        """By monitor, the number of groups of the last look beyond the limit: they have no state of their own."""

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

    def list(self, *, only_firing: bool = False) -> MonitorList:
        """Answer `GET monitors`: each monitor with its states and their history; the firing ones uncorrected."""
        judges = [self.definitions.drift(name) for name in monitors_named(self._store.read, DRIFT)]
        monitors = [*self.definitions, *judges]
        watched = [monitor.settings for monitor in monitors if not monitor.broken]
        alight = firing(self._store.read) if only_firing else None
        listed = (one for one in monitors if alight is None or one.settings.name in alight)
        shown = [self._shown(monitor, corrected=not only_firing) for monitor in listed]
        return MonitorList(shown, sorted(self.definitions.destinations), expected_together(watched))

    def _shown(self, monitor: Monitor, *, corrected: bool) -> ShownMonitor:
        name, correction, past = monitor.settings.name, None, None
        rows = stored_states(self._store.read, name)
        if corrected and monitor.source != "drift" and not monitor.broken:
            try:
                correction = self._correction(monitor.settings)
            except Exception as error:  # noqa: BLE001 - the boundary of a monitor: the others are listed all the same
                _log.warning("the correction of monitor %s could not be read", name, exc_info=True)
                correction = f"how labels would correct it is unknown: {error}"
            try:
                past = self._past_of(monitor.settings)
            except Exception:  # noqa: BLE001 - as above
                _log.warning("the past of monitor %s could not be read", name, exc_info=True)
        return shown(monitor, rows, correction=correction, past=past, other_groups=self.other_groups.get(name, 0))

    def _past_of(self, monitor: MonitorSettings) -> MonitorPreview:
        """Return the backtest of a monitor, read once an hour."""
        hour = aligned(self._clock(), 3_600)
        known = self._backtests.get(monitor.name)
        if known is None or known[:2] != (monitor, hour):
            known = self._backtests[monitor.name] = monitor, hour, self._backtest(monitor, self._clock())
        return known[2]

    def _correction(self, monitor: MonitorSettings) -> str | None:
        """Return how labels would correct the judge's figure: the exact tests of its tails need the judge's own."""
        family, _, evaluator = monitor.metric.partition(":")
        now = self._clock()
        window = Window(now - timedelta(seconds=duration_s(monitor.window)), now, 0)
        if family != "quality":
            return None
        query, reader = Query(window=window, filters=meeting(monitor.where), now=now), self._reader(monitor)
        newest = current(estimates(reader, evaluator, window, query.filters))
        if newest is None:
            return None
        return decisive(reader, query, newest, evaluator=evaluator, corrected=False).correction

    def preview(self, draft: MonitorSettings) -> MonitorPreview:
        """Answer `GET monitors/preview`: how often it would have fired in the stored past; raises Invalid."""
        self.definitions.check_draft(draft)
        return self._backtest(draft, self._clock())

    def _backtest(self, monitor: MonitorSettings, now: datetime) -> MonitorPreview:
        """Look once at each whole window of the stored past."""
        states: dict[str, State] = {}
        firings: list[Firing] = []
        first = now
        for time, findings in self._past(monitor, now, states):
            first = min(first, time)
            for group, finding in findings.items():
                if finding.state == "firing" and states.get(group) != "firing":
                    firings.append(Firing(time, json.loads(group), finding.text))
                states[group] = finding.state
        days = max(1, round((now - first).total_seconds() / DAY_S + duration_s(monitor.window) / DAY_S))
        return MonitorPreview(days, len(firings), firings[-20:])

    def _past(
        self, monitor: MonitorSettings, now: datetime, states: Mapping[str, State]
    ) -> Iterator[tuple[datetime, dict[str, Finding]]]:
        """Yield what a monitor would have found in each window, the oldest first, given the states of its caller."""
        condition, rhythm = parse(monitor.condition), self._rhythm(monitor, now)
        length = timedelta(seconds=rhythm.window_s)
        stored = max(now - _PAST, first_span(self._store) or now)
        looks = min(_MAX_LOOKS, max(1, math.ceil((rhythm.end - stored) / length)))
        watched = self._watched(monitor, now, looks * rhythm.window_s)
        if condition.sign == "change":
            lines = read_lines(self._reader(monitor), monitor.metric, rhythm, watched.filters, watched.groups, looks)
            for look in reversed(range(_affordable(looks, len(lines.keys)))):
                time = rhythm.start(look * rhythm.grid.window)
                yield time, self._moved(monitor, lines, rhythm, look, states, watched.others, told=False)
            return
        window = Window(rhythm.end - looks * length, rhythm.end, rhythm.window_s, rhythm.zone or UTC)
        by_bucket = readings_by_bucket(self._reader(monitor), monitor.metric, watched.query(window), condition)
        groups = {group for readings in by_bucket.values() for group in readings}
        for start in window.starts()[-_affordable(looks, len(groups)) :]:
            found = by_bucket.get(start, {})
            if sees_silence(monitor.metric, condition):
                found = known_first(found, states)
            yield window.end(start), self._limits(monitor, condition, found, states, watched.others, told=False)

    def mute(self, name: str, seconds: float | None, *, actor: str) -> Monitor:
        """Send no messages of a monitor for `seconds`, None: send them again. Raises NotFound."""
        until = None if seconds is None else self._clock() + timedelta(seconds=seconds)
        return self.definitions.mute(name, until, actor=actor)

    def test(self, name: str) -> AlertSent:
        """Send a test message to each destination of a monitor, now; raises NotFound."""
        monitor = self.definitions.named(name)
        text = f"{name}: a test message of ragpulse"
        alert = Alert(monitor=name, metric=monitor.settings.metric, state="test", text=text)
        outcomes = {destination: self._send_test(destination, alert) for destination in monitor.notify}
        failures = [f"{destination}: {error}" for destination, error in outcomes.items() if error]
        sent = "failed: " + "; ".join(failures) if failures else "sent"
        return AlertSent(ok=not failures, delivery=sent if outcomes else None)

    def drift(self, report: DriftReport) -> int:
        """Store the state of a judge, with a message when it fires or recovers."""
        monitor = self.definitions.drift(f"{DRIFT}{report.evaluator}")
        move = report.checks[0].judge_move if report.checks else None
        reading = Figures(value=move.value, lo=move.lo, hi=move.hi) if move else Figures()
        judge = f"the judge of {report.evaluator}"
        text = f"{judge} holds its level"
        if move and report.state == "firing":
            text = f"{judge} moved by {move.value:+.3g} ({move.lo:+.3g} to {move.hi:+.3g}) on {move.n} frozen"
            text += f" answers since {report.frozen_at:%Y-%m-%d}: {report.verdict}"
        before = latest_states(self._store.read, monitor.settings.name).get("{}")
        finding = Finding(report.state, reading, text)
        return self._store_state(monitor, "{}", finding, before.state if before else None)

    def _send_test(self, destination: str, alert: Alert) -> str | None:
        try:
            send(alert, self.definitions.destinations[destination], self._settings.smtp, time=self._clock())
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
        states = {group: stored.state for group, stored in latest_states(self._store.read, name).items()}
        watched = self._watched(monitor.settings, now)
        findings = self._findings(monitor.settings, now, states, watched)
        self._last_looks[name], self.other_groups[name] = now, watched.others
        return sum(self._store_state(monitor, group, finding, states.get(group)) for group, finding in findings.items())

    def _reader(self, monitor: MonitorSettings) -> Store:
        """Return the store; with a `where` under the limits of users' SQL."""
        return self._store.limited() if monitor.where else self._store

    def _zone(self, monitor: MonitorSettings) -> tzinfo | None:
        """Return the zone of the users; None where nobody names it."""
        name = monitor.tz or self._settings.collector.tz
        return zone_of(name) if name else None

    def _watched(self, monitor: MonitorSettings, now: datetime, least_s: float = 0.0) -> Watched:
        """Return the largest groups of the window, or of the baseline where changes are looked for."""
        is_change = parse(monitor.condition).sign == "change"
        seconds = max(least_s, duration_s(monitor.baseline if is_change else monitor.window))
        return watched_by(self._reader(monitor), monitor, Window(now - timedelta(seconds=seconds), now, 0))

    def _findings(
        self, monitor: MonitorSettings, now: datetime, states: Mapping[str, State], watched: Watched | None = None
    ) -> dict[str, Finding]:
        condition = parse(monitor.condition)
        watched = watched or self._watched(monitor, now)
        if condition.sign == "change":
            rhythm = self._rhythm(monitor, now)
            lines = read_lines(self._reader(monitor), monitor.metric, rhythm, watched.filters, watched.groups)
            return self._moved(monitor, lines, rhythm, 0, states, watched.others)
        findings = self._beyond(monitor, condition, now, states, watched)
        since = requests_since(self._store) if traffic_of(monitor.metric) else None
        if since and now < since + RECOUNTED:
            watched = replace(watched, filters=watched.filters & Filter(roots="all"))
            former = self._beyond(monitor, condition, now, states, watched)
            for group, finding in findings.items():
                before = states.get(group, "undecided")
                if finding.state == "firing" != before and former[group].state != "firing":
                    findings[group] = replace(finding, state=before, text=_RECOUNTED)
        return findings

    def _beyond(
        self,
        monitor: MonitorSettings,
        condition: Condition,
        now: datetime,
        states: Mapping[str, State],
        watched: Watched,
    ) -> dict[str, Finding]:
        """Return which groups are beyond the limit."""
        window = Window(now - timedelta(seconds=duration_s(monitor.window)), now, 0)
        found = readings(self._reader(monitor), monitor.metric, watched.query(window), condition)
        if sees_silence(monitor.metric, condition):
            return self._limits(monitor, condition, known_first(found, states), states, 0)
        return self._limits(monitor, condition, found, states, watched.others)

    def _limits(
        self,
        monitor: MonitorSettings,
        condition: Condition,
        readings_by_group: Mapping[str, Read],
        states: Mapping[str, State],
        others: int,
        *,
        told: bool = True,
    ) -> dict[str, Finding]:
        beyond = states.keys() - readings_by_group.keys() if others else set()
        groups = readings_by_group.keys() | states.keys() | (set() if monitor.group_by else {"{}"})
        groups -= beyond
        # The promised rate is that of the monitor, over all its groups.
        confidence = confidence_for(monitor.false_alarms_per_year / max(1, len(groups)), duration_s(monitor.window))
        blank: Read = partial(absent, monitor.metric, NEVER)
        findings = {}
        for group in groups:
            read = readings_by_group.get(group, blank)
            before, lenient = states.get(group, "undecided"), read(_LENIENT)
            # What is not beyond the limit by the narrow interval is not by the wide one: half of a backtest's time.
            is_near = told or state_of(monitor, condition, lenient, lenient, "ok") == "firing"
            reading = read(confidence) if is_near else lenient
            state = state_of(monitor, condition, reading, lenient, before)
            findings[group] = Finding(state, reading, found_text(monitor, group, reading, state, before))
        return findings | of_others(beyond)

    def _rhythm(self, monitor: MonitorSettings, now: datetime) -> Rhythm:
        window, zone = max(1, round(duration_s(monitor.window))), self._zone(monitor)
        return Rhythm(aligned(now, window, zone or UTC), window, duration_s(monitor.baseline), zone)

    def _moved(
        self,
        monitor: MonitorSettings,
        lines: Lines,
        rhythm: Rhythm,
        look: int,
        states: Mapping[str, State],
        others: int,
        *,
        told: bool = True,
    ) -> dict[str, Finding]:
        """Return which groups differ from what is usual, in the window that ended so many windows ago."""
        at, looks = look * rhythm.grid.window, max(1, len(lines.keys)) * LENGTHS
        # The promised rate is that of the monitor, over all its groups and lengths, to either side.
        strict = (1.0 - confidence_for(monitor.false_alarms_per_year / looks / 2.0, rhythm.window_s, looks=1.0)) / 2.0
        findings = {}
        for group in (key for key in lines.keys if not lines.is_silent(key, at)):
            is_firing = states.get(group) == "firing"
            tail = _SETTLED / LENGTHS / 2.0 if is_firing else strict
            moved = lines.surest(group, at, tail)
            if moved is None:
                state: State = "firing" if is_firing else "undecided"
                findings[group] = Finding(state, Figures(), _NO_LEVEL)
            elif moved.move.chance >= tail:
                text = holds_text(monitor.metric, group, moved.move.before)
                findings[group] = Finding("ok", Figures(value=moved.move.after), text)
            elif is_firing or not told:  # only a new firing is stored and sent: its text takes longer
                text = moved_text(monitor, group, moved.move, moved.replaced)
                findings[group] = Finding("firing", Figures(value=moved.move.after), text)
            else:
                findings[group] = self._new_change(monitor, group, moved, rhythm, at)
        gone, blank = states.keys() - findings.keys(), Figures()
        if others:
            return findings | of_others(gone)
        return findings | {
            group: Finding("no data", blank, found_text(monitor, group, blank, "no data", "undecided"))
            for group in gone
        }

    def _new_change(self, monitor: MonitorSettings, group: str, moved: Moved, rhythm: Rhythm, at: int) -> Finding:
        """Return a change with its time, and what started then."""
        move = moved.line.since(at, moved.move, moved.past)
        start, end, reader = rhythm.start(at + move.size), rhythm.start(at), self._reader(monitor)
        text = moved_text(monitor, group, move, moved.replaced, start)
        filters = having_group(json.loads(group)) & meeting(monitor.where)
        before = Window(start - timedelta(seconds=rhythm.baseline_s), start, 0)
        wording = wording_since(reader, monitor.metric, before, Window(start, end, 0), filters)
        cause = started_near(self._store, monitor.metric, start, 2.0 * rhythm.window_s, end)
        said = "; ".join(part for part in (text, wording, cause) if part)
        return Finding("firing", Figures(value=move.after), said, f"since {iso(start)}")

    def _store_state(self, monitor: Monitor, group: str, finding: Finding, before: State | None) -> int:
        """Store a changed state, and its messages in the same transaction."""
        if before == finding.state:
            return 0
        reading, now = finding.reading, self._clock()
        ends = before == "firing" and finding.state in ("ok", "no data")
        is_muted = monitor.mute_until is not None and now < monitor.mute_until
        recipients = monitor.notify if (finding.state == "firing" or ends) and not is_muted else ()
        event_id = uuid4()
        message = self._alert(monitor.settings, group, finding, event_id, now).encode().decode() if recipients else ""
        key = (monitor.settings.name, group, finding.state)

        def work(tx: Transaction) -> None:
            add_state(tx, key, (reading.value, reading.lo, reading.hi), (finding.text, finding.statistic), event_id)
            add_messages(tx, event_id, message, recipients, at=now)

        self._store.write(work).result()
        self.outbox.wake()
        return 1

    def _alert(self, monitor: MonitorSettings, group: str, finding: Finding, event_id: UUID, now: datetime) -> Alert:
        reading, values = finding.reading, json.loads(group)
        start = now - timedelta(seconds=duration_s(monitor.window)) if monitor.window != "never" else now
        span = {"from": iso(start), "to": iso(now)}
        return Alert(
            event_id=event_id,
            monitor=monitor.name,
            metric=monitor.metric,
            group=values,
            state=finding.state,
            since=now,
            text=f"{_HEADS.get(finding.state, finding.state)} {monitor.name}: {finding.text}",
            value=reading.value,
            lo=reading.lo,
            hi=reading.hi,
            false_alarms_per_year=monitor.false_alarms_per_year,
            link=f"{self._url}/figures?{urlencode({'metric': monitor.metric, **span, **values})}",
            worst=self._worst(monitor, values, Window(start, now, 0)) if finding.state == "firing" else (),
        )

    def _worst(self, monitor: MonitorSettings, group: Mapping[str, GroupValue], window: Window) -> Sequence[str]:
        """Return links to the worst traces of the window; none for a metric that single traces do not have."""
        try:
            filters = having_group(group) & meeting(monitor.where)
            query = Query(window=window, filters=filters, now=window.last)
            traces = exemplar_ids(self._reader(monitor), query, monitor.metric).worst
        except Refusal:
            return []
        return [f"{self._url}/traces/{quote(trace_id)}" for trace_id in traces[:_WORST]]


def _affordable(looks: int, groups: int) -> int:
    """Return at how many windows a backtest of so many groups looks."""
    return min(looks, max(24, _MAX_READINGS // max(1, groups)))
