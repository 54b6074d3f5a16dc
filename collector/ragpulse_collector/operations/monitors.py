"""Monitors, targets and the digest."""

from __future__ import annotations

from typing import Annotated, Literal

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.api.drafts import MonitorDraft
from ragpulse_collector.api.models import Filters, WeekInBuckets
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Caller, Duration
from ragpulse_collector.interface import Command
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.monitoring.digest import Digest, Digests
from ragpulse_collector.monitoring.listing import AlertSent, MonitorList, MonitorPreview, SavedMonitor
from ragpulse_collector.monitoring.targets import TargetStates
from ragpulse_collector.store.protocol import Clock

_COLUMNS = {
    "name": "name",
    "metric": "metric",
    "state": "state",
    "condition": "condition",
    "now": "text",
    "would have fired": "past",
}


@operation("GET monitors", command=Command("monitors", columns={"monitors": _COLUMNS, "expected": {}}))
def monitor_list(
    monitors: Monitors,
    /,
    only: Annotated[Literal["firing"] | None, "Those that are firing, without corrections."] = None,
) -> MonitorList:
    """The monitors with their states and their history."""
    return monitors.list(only_firing=only == "firing")


@operation("GET monitors/preview")
def monitor_preview(monitors: Monitors, /, draft: MonitorDraft) -> MonitorPreview:
    """How often a monitor would have fired in the stored past."""
    return monitors.preview(draft.settings())


@operation("POST monitors", scope="admin")
def add_monitor(monitors: Monitors, /, draft: MonitorDraft, caller: Caller) -> SavedMonitor:
    """Make a monitor."""
    return SavedMonitor.of(monitors.definitions.save(draft.settings(), actor=caller.actor, replace=False))


@operation("PUT monitors/{name}", scope="admin")
def change_monitor(monitors: Monitors, /, draft: MonitorDraft, caller: Caller) -> SavedMonitor:
    """Change a monitor."""
    return SavedMonitor.of(monitors.definitions.save(draft.settings(), actor=caller.actor, replace=True))


@operation("DELETE monitors/{name}", scope="admin")
def delete_monitor(monitors: Monitors, /, name: str, caller: Caller) -> Done:
    """Delete a monitor."""
    monitors.definitions.delete(name, actor=caller.actor)
    return Done()


@operation("POST monitors/{name}/mute", scope="admin")
def mute(monitors: Monitors, /, name: str, caller: Caller, for_: Duration | None = None) -> SavedMonitor:
    """Send no messages until a time; without `for` send them again."""
    return SavedMonitor.of(monitors.mute(name, for_, actor=caller.actor))


@operation("POST monitors/{name}/test", scope="admin")
def test_alert(monitors: Monitors, /, name: str) -> AlertSent:
    """Send a test alert."""
    return monitors.test(name)


@operation("GET targets")
def target_states(targets: Targets, clock: Clock, /, choice: Filters) -> TargetStates:
    """Targets of metrics, and whether they are met."""
    return targets(choice.query(clock()))


@operation("GET digest", tool="digest")
def digest(digests: Digests, clock: Clock, /, choice: WeekInBuckets) -> Digest:
    """What changed against the range before, what failed, the worst answers, and what was not measured."""
    return digests.of(choice.query(clock()))
