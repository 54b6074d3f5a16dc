"""The table of operations of the API and the pages, and what a collector gives to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.traffic import check_evaluator, check_metric, topic_metrics
from ragpulse_collector.api.copies import Copies
from ragpulse_collector.api.operations import CheckNames, Operations, Services
from ragpulse_collector.api.params import Caller, Mask, Named
from ragpulse_collector.api.status import Status
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.conventions.redaction import masking
from ragpulse_collector.evaluation import DriftWatch, Worker
from ragpulse_collector.evaluation.judge_checking import JudgeChecker
from ragpulse_collector.evaluation.replay import Replays
from ragpulse_collector.monitoring import Monitors, Targets
from ragpulse_collector.monitoring.digest import Digests
from ragpulse_collector.operations import all_operations
from ragpulse_collector.operations.collector import InForce
from ragpulse_collector.sampling import Rules, Sampler
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Prices, Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.store.queries.scores import measured, met_evaluators
from ragpulse_collector.store.reading import outbox_folder
from ragpulse_collector.topics.refitting import Refits

if TYPE_CHECKING:
    from ragpulse_collector.app.wiring import Components


def operations(components: Components) -> Operations:
    """Return the operations, each with what this collector gives."""
    return Operations(all_operations(), services(components))


def services(components: Components) -> Services:
    """Return what a collector gives to its operations, by type."""
    one: Callable[[Any], Callable[[], Any]] = lambda value: lambda: value  # noqa: E731
    snapshots = Snapshots(components.store)
    made: Mapping[Any, Callable[[], Any]] = {
        Store: one(components.store),
        Settings: one(components.started_with),
        InForce: one(components.in_force),
        Clock: one(utc_now),
        Lead: one(components.lead),
        Mask: one(masking(components.started_with.collector.redact)),
        Copies: one(Copies(outbox_folder(components.store.path))),
        Snapshots: one(snapshots),
        Prices: one(components.prices),
        Catalog: one(components.catalog),
        Rules: one(components.rules),
        Status: lambda: components.status,
        Sampler: lambda: components.sampler,
        Worker: lambda: components.worker,
        Replays: lambda: components.replays,
        Refits: lambda: components.refits,
        Monitors: lambda: components.monitors,
        Targets: lambda: components.targets,
        Digests: lambda: components.digests,
        DriftWatch: lambda: components.drift,
        JudgeChecker: lambda: components.checker,
        CheckNames: one(_Known(components)),
    }
    return made


class _Known:
    """Checks names of metrics and evaluators; the charts of monitors and targets are empty until the first score."""

    def __init__(self, components: Components) -> None:
        self._components = components

    def __call__(self, named: Sequence[Named], caller: Caller) -> None:
        """Raise Invalid for an unknown name."""
        store, names = self._components.store, self._components.names()

        def met() -> set[str]:
            others = () if caller.binding else {*self._watched(), *topic_metrics(store)}
            return {*met_evaluators(store, caller.binding), *others}

        for one in named:
            (check_metric if one.kind == "metric" else check_evaluator)(one.name, names, met)

    def _watched(self) -> set[str]:
        """Return the evaluators of monitors and targets."""
        monitored = (monitor.settings.metric for monitor in self._components.monitors.definitions)
        metrics = (*monitored, *(target.metric for target in self._components.started_with.target))
        families = (metric.partition(":")[::2] for metric in metrics)
        return {measured(family, name.partition("@")[0]) for family, name in families}
