"""Says at the start which limits may have been chosen for scores that meant something else."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from ragpulse_collector.analysis.plan import changed_meaning
from ragpulse_collector.monitoring.definitions import Monitor
from ragpulse_collector.sampling.rule import Rule
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store import Store

__all__ = ["log_changed_meanings"]

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
