"""Checks the names of metrics and evaluators in requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from ragpulse_collector.analysis.traffic import check_evaluator, check_metric, stored_metrics
from ragpulse_collector.api.params import Caller, Named
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import measured, met_evaluators


class KnownNames:
    """Checks names of metrics and evaluators; the charts of monitors and targets are empty until the first score."""

    def __init__(self, store: Store, names: Callable[[], Set[str]], watched: Callable[[], Iterable[str]]) -> None:
        """`names` returns the evaluators, `watched` the metrics of monitors and targets."""
        self._store, self._names, self._watched = store, names, watched

    def __call__(self, named: Sequence[Named], caller: Caller) -> None:
        """Raise Invalid for an unknown name."""
        names = self._names()

        def met() -> set[str]:
            found = {*met_evaluators(self._store, caller.binding)}
            if caller.binding:
                return found
            families = (metric.partition(":")[::2] for metric in self._watched())
            watched = {measured(family, name.partition("@")[0]) for family, name in families}
            return found | watched | {*stored_metrics(self._store)}

        for one in named:
            (check_metric if one.kind == "metric" else check_evaluator)(one.name, names, met)
