"""Targets (SLO): is a metric where it should be, over the range somebody looks at, by its interval."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality import current, estimates
from ragpulse_collector.analysis.selection import Window, filter_of, window_of
from ragpulse_collector.analysis.traffic import NAMES, check_metric
from ragpulse_collector.monitoring.measure import Condition, Reading, decide, readings
from ragpulse_collector.settings import SettingsError, TargetSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.rows import utc_now

__all__ = ["Targets"]

_CONFIDENCE = 0.95


class Targets:
    """Answers `GET targets`; raises SettingsError for a metric or a condition that there is not."""

    def __init__(
        self,
        store: Store,
        settings: Sequence[TargetSettings],
        *,
        known: Callable[[], Collection[str]] = tuple,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`known()` returns the names of evaluators."""
        self._store, self._settings, self._clock = store, settings, clock
        for one in settings:
            try:
                check_metric(one.metric, known())
                filter_of({"where": one.where})
            except ValueError as error:
                raise SettingsError(f"target {one.metric!r}: {error}") from error

    def __call__(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return each target with value, interval and `state`, over `from` .. `to` and the common filters.

        `met` and `missed` only where the whole 95 % interval lies on one side, else `undecided`.
        """
        return {"targets": [self._told(one, params) for one in self._settings]}

    def _told(self, one: TargetSettings, params: Mapping[str, Any]) -> dict[str, Any]:
        window = window_of({"width": 1, **params}, now=self._clock()).whole
        wheres = [f"({where})" for where in (params.get("where"), one.where) if where]
        options = {**params, "group_by": (), "where": " AND ".join(wheres)}
        limit = one.min if one.min is not None else one.max
        assert limit is not None
        missed = Condition("<" if one.min is not None else ">", limit)
        store = self._store.limited() if options["where"] else self._store
        reading, n = self._reading(store, one.metric, window, options, missed)
        state = decide(missed, reading, reading, "undecided")
        return {
            **one.model_dump(include={"metric", "min", "max", "where"}),
            "unit": NAMES[one.metric].unit if one.metric in NAMES else "share",
            "value": reading.value,
            "lo": reading.lo,
            "hi": reading.hi,
            "n": n,
            "state": {"firing": "missed", "ok": "met"}.get(state, "undecided"),
        }

    def _reading(
        self, store: Store, metric: str, window: Window, options: Mapping[str, Any], missed: Condition
    ) -> tuple[Reading, int | None]:
        """The metric as the charts show it; n of a measure of quality."""
        family, _, evaluator = metric.partition(":")
        if family not in MEASURES:
            found = readings(store, metric, window, options, missed).get("{}")
            return found(_CONFIDENCE) if found else Reading(None, None, None), None
        chosen = current(estimates(store, evaluator, window, filter_of(options), family=family))
        if chosen is None or chosen.estimate is None:
            return Reading(None, None, None), 0
        return Reading(chosen.estimate.estimate, *chosen.limits(chosen.estimate)), chosen.estimate.n
