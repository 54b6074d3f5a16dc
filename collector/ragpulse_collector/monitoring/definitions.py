"""Monitors of the file (read-only) and those made over the API (kept in the store); changed meanings are logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ragpulse_collector.analysis.plan import changed_meaning
from ragpulse_collector.analysis.selection import dimensions, duration_s, filter_of
from ragpulse_collector.analysis.traffic import check_metric
from ragpulse_collector.configuration import source_line
from ragpulse_collector.monitoring.changes import check_change
from ragpulse_collector.monitoring.measure import parse
from ragpulse_collector.sampling.rule import Rule
from ragpulse_collector.settings import (
    DestinationSettings,
    DriftSettings,
    MonitorSettings,
    Settings,
    SettingsError,
    TargetSettings,
)
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.monitors import Stored, add_monitor, stored_monitors
from ragpulse_evaluators.errors import nearest

__all__ = ["DRIFT", "Definitions", "Monitor", "destinations", "log_changed_meanings"]

_SCORED = ("quality", "score")
"""The metrics that average scores; a pass rate has the evaluator's own limit."""
_log = logging.getLogger("ragpulse.collector")


def log_changed_meanings(
    store: Store, *, monitors: Iterable[Monitor], targets: Iterable[TargetSettings], rules: Iterable[Rule]
) -> None:
    """Log one warning for each evaluator of changed meaning that a limit is set on, while former scores are stored."""
    owners: dict[str, list[str]] = {}
    for evaluator, owner in _limits(monitors, targets, rules):
        owners.setdefault(evaluator, []).append(owner)
    for evaluator, named in owners.items():
        if note := changed_meaning(store, evaluator):
            _log.warning("%s; look at the limits of %s", note, ", ".join(named))


def _limits(
    monitors: Iterable[Monitor], targets: Iterable[TargetSettings], rules: Iterable[Rule]
) -> Iterator[tuple[str, str]]:
    """Yield the evaluator that each limit is set on, and what sets it."""
    metrics = [(f"monitor {one.settings.name!r}", one.settings.metric) for one in monitors]
    metrics += [(f"target {one.metric!r}", one.metric) for one in targets]
    for owner, metric in metrics:
        family, _, evaluator = metric.partition(":")
        if family in _SCORED:
            yield evaluator.partition("@")[0], owner
    for rule in rules:
        for evaluator in rule.scores:
            yield evaluator, f"rule {rule.name!r}"


DRIFT = "drift:"
"""The prefix of monitors that watch a judge."""
_OWN = (("webhook", "webhook"), ("slack", "Slack"))


@dataclass(frozen=True, slots=True)
class Monitor:
    """A monitor and where it comes from."""

    settings: MonitorSettings
    source: Literal["file", "api", "drift"]
    mute_until: datetime | None = None
    broken: str | None = None
    """Why it cannot be watched any more; it alerts nobody."""

    @property
    def notify(self) -> tuple[str, ...]:
        """The names of its destinations."""
        own = (_own_name(self.settings.name, word) for key, word in _OWN if getattr(self.settings, key))
        return (*self.settings.notify, *own)


def destinations(settings: Settings) -> dict[str, DestinationSettings]:
    """Return where messages can go: the named destinations, and those written in a monitor or in `[drift]`."""
    found = {one.name: one for one in settings.destination}
    for owner in (*settings.monitor, _drift_settings(settings.drift)):
        for key, word in _OWN:
            if address := getattr(owner, key):
                name = _own_name(owner.name, word)
                secret = owner.secret if key == "webhook" else None
                found[name] = DestinationSettings.model_validate({"name": name, key: address, "secret": secret})
    return found


def _own_name(owner: str, word: str) -> str:
    """The name of the destination that a monitor has of its own; all judges' monitors share theirs."""
    return f"{DRIFT if owner.startswith(DRIFT) else owner} {word}"


def _drift_settings(drift: DriftSettings, name: str = DRIFT) -> MonitorSettings:
    addresses = drift.model_dump(include={"webhook", "slack", "secret"})
    return MonitorSettings(name=name, metric=name, condition="moves", window=drift.every, **addresses)


class Definitions:
    """The monitors of a collector; raises SettingsError for one of the file that cannot be watched."""

    def __init__(self, store: Store, settings: Settings, *, known: Callable[[], Collection[str]] = tuple) -> None:
        """`known()` returns the names of evaluators, for messages about a misspelt one."""
        self._store, self._settings, self._known = store, settings, known
        self._file = settings.source or "ragpulse.toml"
        self.destinations = destinations(settings)
        self.reload(settings)()

    def reload(self, settings: Settings) -> Callable[[], None]:
        """Check the monitors of the file; returns what puts them in force. Raises SettingsError."""
        if destinations(settings) != self.destinations:
            raise SettingsError(f"{self._file}: other destinations of messages need a restart")
        fixed = {one.name: one for one in settings.monitor}
        for number, monitor in enumerate(settings.monitor):
            try:
                self.check(monitor)
            except ValueError as error:
                line = source_line(settings, "monitor", number) or self._file
                raise SettingsError(f"{line}: monitor {monitor.name!r}: {error}") from error

        def apply() -> None:
            self._fixed = fixed

        return apply

    def __iter__(self) -> Iterator[Monitor]:
        """Every monitor, those of the file first."""
        stored = {one.name: one for one in stored_monitors(self._store.read)}
        for name, fixed in self._fixed.items():
            yield Monitor(fixed, "file", stored[name].mute_until if name in stored else None)
        for name, one in stored.items():
            if name not in self._fixed and one.definition is not None and not one.deleted:
                settings = MonitorSettings.model_validate_json(one.definition)
                yield Monitor(settings, "api", one.mute_until, self._broken(settings))

    def named(self, name: str) -> Monitor:
        """Return one; raises LookupError."""
        found = self.drift(name) if name.startswith(DRIFT) else next((m for m in self if m.settings.name == name), None)
        if found is None:
            raise LookupError(f"there is no monitor {name!r}")
        return found

    def drift(self, name: str) -> Monitor:
        """Return the monitor of a judge."""
        return Monitor(_drift_settings(self._settings.drift, name), "drift")

    def save(self, monitor: MonitorSettings, *, actor: str, replace: bool) -> Monitor:
        """Keep a monitor; raises ValueError naming the mistake, PermissionError where the name is taken."""
        self.check(monitor)
        self._refuse_fixed(monitor.name)
        taken = any(one.settings.name == monitor.name for one in self)
        if taken and not replace:
            raise PermissionError(f"monitor {monitor.name!r} exists; change it with PUT monitors/{monitor.name}")
        text = json.dumps(monitor.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
        self._append(Stored(monitor.name, text, None, False), actor, "change" if taken else "create")
        return Monitor(monitor, "api")

    def mute(self, name: str, until: datetime | None, *, actor: str) -> Monitor:
        """Send no messages until then, None: send them again; also for a monitor of the file. Raises LookupError."""
        monitor = self.named(name)
        text = monitor.settings.model_dump_json(exclude_defaults=True) if monitor.source == "api" else None
        self._append(Stored(name, text, until, False), actor, "mute")
        return self.named(name)

    def delete(self, name: str, *, actor: str) -> None:
        """Delete a stored monitor; raises LookupError, PermissionError for one of the file."""
        self._refuse_fixed(name)
        self.named(name)
        self._append(Stored(name, None, None, True), actor, "delete")

    def check(self, one: MonitorSettings) -> None:
        """Raise ValueError that names what cannot be watched and the nearest name."""
        check_metric(one.metric, self._known())
        condition = parse(one.condition)
        dimensions({"group_by": one.group_by})
        filter_of({"where": one.where})
        duration_s(one.window), duration_s(one.baseline)
        if condition.sign == "change":
            check_change(one.metric, duration_s(one.baseline), duration_s(one.window))
        for name in one.notify:
            if name not in self.destinations:
                raise ValueError(f"no destination {name!r}{nearest(name, self.destinations) or self._possible()}")

    def _possible(self) -> str:
        known = ", ".join(self.destinations)
        return f"; there are: {known}" if known else "; add a [[destination]] to ragpulse.toml"

    def _broken(self, one: MonitorSettings) -> str | None:
        try:
            self.check(one)
        except ValueError as error:
            return str(error)
        return None

    def _refuse_fixed(self, name: str) -> None:
        if name in self._fixed or name.startswith(DRIFT):
            raise PermissionError(
                f"monitor {name!r} is written in {self._file}: change it there, then restart or send SIGHUP"
            )

    def _append(self, monitor: Stored, actor: str, action: str) -> None:
        self._store.write(lambda tx: add_monitor(tx, monitor, actor=actor, action=action)).result()
