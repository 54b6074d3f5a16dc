"""Monitors of the file (read-only) and of the API (stored); changed meanings of evaluators are logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ragpulse_collector.analysis.changes.lines import check_change
from ragpulse_collector.analysis.plan import changed_meaning
from ragpulse_collector.analysis.query import columns_of, meeting
from ragpulse_collector.analysis.selection import duration_s
from ragpulse_collector.analysis.traffic import check_metric, stored_metrics, traffic_of
from ragpulse_collector.configuration import source_line
from ragpulse_collector.monitoring.measure import parse
from ragpulse_collector.refusals import Conflict, Invalid, NotFound, Refusal, nearest
from ragpulse_collector.sampling.rules import Rule
from ragpulse_collector.settings import (
    DestinationSettings,
    DriftSettings,
    MonitorSettings,
    Settings,
    SettingsError,
    TargetSettings,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import Stored, add_monitor, stored_monitors
from ragpulse_collector.store.queries.scores import met_evaluators, refuse_unclear
from ragpulse_collector.store.queries.traces import requests_since

__all__ = ["DIGEST", "DRIFT", "RECOUNTED", "Definitions", "Monitor", "destinations", "log_changed_meanings"]

_SCORED = ("quality", "score")
"""The metrics that average scores; a pass rate has the evaluator's own limit."""
_log = logging.getLogger("ragpulse.collector")
RECOUNTED = timedelta(days=7)
"""For so long after the upgrade that counts requests alone, a limit fires only if it would when all roots count."""


def log_changed_meanings(
    store: Store, *, monitors: Iterable[Monitor], targets: Iterable[TargetSettings], rules: Iterable[Rule]
) -> None:
    """Log a warning for each evaluator of changed meaning that has a limit, while former scores are stored.

    So for limits of the traffic, after the upgrade that counts requests alone.
    """
    monitors, since = list(monitors), requests_since(store)
    counted = [one.settings.name for one in monitors if traffic_of(one.settings.metric)]
    if counted and since and utc_now() < since + RECOUNTED:
        _log.warning(
            "requests alone are counted since %s; look at the limits of the monitors %s", since, ", ".join(counted)
        )
    owners: dict[str, list[str]] = {}
    for evaluator, owner in _limits(monitors, targets, rules):
        owners.setdefault(evaluator, []).append(owner)
    for evaluator, owners_of_limits in owners.items():
        if text := changed_meaning(store, evaluator):
            _log.warning("%s; look at the limits of %s", text, ", ".join(owners_of_limits))


def _limits(
    monitors: Iterable[Monitor], targets: Iterable[TargetSettings], rules: Iterable[Rule]
) -> Iterator[tuple[str, str]]:
    """Yield the evaluator of each limit, and the owner of the limit."""
    metrics = [(f"monitor {monitor.settings.name!r}", monitor.settings.metric) for monitor in monitors]
    metrics += [(f"target {target.metric!r}", target.metric) for target in targets]
    for owner, metric in metrics:
        family, _, evaluator = metric.partition(":")
        if family in _SCORED:
            yield evaluator.partition("@")[0], owner
    for rule in rules:
        for evaluator in rule.scores:
            yield evaluator, f"rule {rule.name!r}"


DRIFT = "drift:"
"""The prefix of monitors that watch a judge."""
DIGEST = "digest:"
"""The name under which sent digests are stored among the states of monitors."""
_OWN = (("webhook", "webhook"), ("slack", "Slack"))


@dataclass(frozen=True, slots=True)
class Monitor:
    """A monitor and its source."""

    settings: MonitorSettings
    source: Literal["file", "api", "drift"]
    mute_until: datetime | None = None
    broken: str | None = None
    """Why it cannot be watched any more; it sends no alert."""

    @property
    def notify(self) -> tuple[str, ...]:
        """The names of its destinations."""
        own_destinations = (_own_name(self.settings.name, word) for key, word in _OWN if getattr(self.settings, key))
        return (*self.settings.notify, *own_destinations)


def destinations(settings: Settings) -> dict[str, DestinationSettings]:
    """Return the destinations of messages: the named ones, and those of monitors and of `[drift]`."""
    by_name = {destination.name: destination for destination in settings.destination}
    for owner in (*settings.monitor, _drift_settings(settings.drift)):
        for key, word in _OWN:
            if address := getattr(owner, key):
                name = _own_name(owner.name, word)
                secret = owner.secret if key == "webhook" else None
                by_name[name] = DestinationSettings.model_validate({"name": name, key: address, "secret": secret})
    return by_name


def _own_name(owner: str, word: str) -> str:
    """Return the name of a monitor's own destination; all monitors of judges share one."""
    return f"{DRIFT if owner.startswith(DRIFT) else owner} {word}"


def _drift_settings(drift: DriftSettings, name: str = DRIFT) -> MonitorSettings:
    addresses = drift.model_dump(include={"webhook", "slack", "secret"})
    return MonitorSettings(name=name, metric=name, condition="moves", window=drift.every, **addresses)


class Definitions:
    """The monitors of a collector; raises SettingsError for a monitor of the file that cannot be watched."""

    def __init__(self, store: Store, settings: Settings, *, evaluators: Callable[[], Collection[str]] = tuple) -> None:
        """`evaluators` returns the known names, for messages about a misspelt name."""
        self._store, self._settings, self._evaluators = store, settings, evaluators
        self._file = settings.source or "ragpulse.toml"
        self.destinations = destinations(settings)
        self.reload(settings)()

    def reload(self, settings: Settings) -> Callable[[], None]:
        """Check the monitors of the file; returns a function that applies them. Raises SettingsError."""
        if destinations(settings) != self.destinations:
            raise SettingsError(f"{self._file}: other destinations of messages need a restart")
        fixed = {monitor.name: monitor for monitor in settings.monitor}
        for number, monitor in enumerate(settings.monitor):
            try:
                self.check(monitor)
            except Refusal as error:
                line = source_line(settings, "monitor", number) or self._file
                raise SettingsError(f"{line}: monitor {monitor.name!r}: {error}") from error

        def apply() -> None:
            self._fixed = fixed

        return apply

    def __iter__(self) -> Iterator[Monitor]:
        """Yield every monitor, those of the file first."""
        stored = {monitor.name: monitor for monitor in stored_monitors(self._store.read)}
        for name, fixed in self._fixed.items():
            muted = stored[name].mute_until if name in stored else None
            yield Monitor(fixed, "file", muted, self._refusal(self._check_rate, fixed))
        for name, monitor in stored.items():
            if name not in self._fixed and monitor.definition is not None and not monitor.deleted:
                settings = MonitorSettings.model_validate_json(monitor.definition)
                yield Monitor(settings, "api", monitor.mute_until, self._refusal(self._check_new, settings))

    def named(self, name: str) -> Monitor:
        """Return a monitor by name; raises NotFound."""
        monitor = (
            self.drift(name) if name.startswith(DRIFT) else next((m for m in self if m.settings.name == name), None)
        )
        if monitor is None:
            raise NotFound(f"there is no monitor {name!r}")
        return monitor

    def drift(self, name: str) -> Monitor:
        """Return the monitor of a judge."""
        return Monitor(_drift_settings(self._settings.drift, name), "drift")

    def save(self, monitor: MonitorSettings, *, actor: str, replace: bool) -> Monitor:
        """Store a monitor; raises Invalid naming the mistake, Conflict where the name is taken."""
        self.check_draft(monitor)
        self._check_rate(monitor)
        self._refuse_fixed(monitor.name)
        exists = any(other.settings.name == monitor.name for other in self)
        if exists and not replace:
            raise Conflict(f"monitor {monitor.name!r} exists; change it with PUT monitors/{monitor.name}")
        text = json.dumps(monitor.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
        self._append(Stored(monitor.name, text, None, False), actor, "change" if exists else "create")
        return Monitor(monitor, "api")

    def mute(self, name: str, until: datetime | None, *, actor: str) -> Monitor:
        """Send no messages until a time, None: send them again; also for monitors of the file. Raises NotFound."""
        monitor = self.named(name)
        text = monitor.settings.model_dump_json(exclude_defaults=True) if monitor.source == "api" else None
        self._append(Stored(name, text, until, False), actor, "mute")
        return self.named(name)

    def delete(self, name: str, *, actor: str) -> None:
        """Delete a stored monitor; raises NotFound, Conflict for one of the file."""
        self._refuse_fixed(name)
        self.named(name)
        self._append(Stored(name, None, None, True), actor, "delete")

    def check_draft(self, monitor: MonitorSettings) -> None:
        """Raise Invalid like `check`, also for a name with neither an evaluator nor anything stored.

        A file may name an evaluator whose scores arrive later, so that a new store can start.
        """
        self.check(monitor, lambda: {*met_evaluators(self._store), *stored_metrics(self._store)})

    def check(self, monitor: MonitorSettings, stored_names: Callable[[], Collection[str]] | None = None) -> None:
        """Raise Invalid with the mistake and the nearest name."""
        check_metric(monitor.metric, self._evaluators(), stored_names)
        condition = parse(monitor.condition)
        columns_of(monitor.group_by)
        meeting(monitor.where)
        if not duration_s(monitor.window) or not duration_s(monitor.baseline):
            raise Invalid("window and baseline must be longer than 0s")
        if condition.sign == "change":
            check_change(monitor.metric, duration_s(monitor.baseline), duration_s(monitor.window))
        for name in monitor.notify:
            if name not in self.destinations:
                raise Invalid(f"no destination {name!r}{nearest(name, self.destinations) or self._possible()}")

    def _possible(self) -> str:
        names = ", ".join(self.destinations)
        return f"; there are: {names}" if names else "; add a [[destination]] to ragpulse.toml"

    def _check_new(self, monitor: MonitorSettings) -> None:
        self.check(monitor)
        self._check_rate(monitor)

    def _check_rate(self, monitor: MonitorSettings) -> None:
        refuse_unclear(self._store, monitor.metric)

    @staticmethod
    def _refusal(check: Callable[[MonitorSettings], None], monitor: MonitorSettings) -> str | None:
        try:
            check(monitor)
        except Refusal as error:
            return str(error)
        return None

    def _refuse_fixed(self, name: str) -> None:
        if name in self._fixed or name.startswith((DRIFT, DIGEST)):
            raise Conflict(f"monitor {name!r} is written in {self._file}: change it there, then restart or send SIGHUP")

    def _append(self, monitor: Stored, actor: str, action: str) -> None:
        self._store.write(lambda tx: add_monitor(tx, monitor, actor=actor, action=action)).result()
