"""Targets (SLO): whether a metric meets its limit over a range, decided by its interval."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.quality import current, estimates
from ragpulse_collector.analysis.selection import Window, filter_of, range_of
from ragpulse_collector.analysis.traffic import NAMES, check_metric
from ragpulse_collector.monitoring.measure import Condition, Reading, decide, readings
from ragpulse_collector.settings import SettingsError, TargetSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import MEASURES
from ragpulse_collector.store.rows import utc_now

__all__ = ["Targets"]

_CONFIDENCE = 0.95


class Targets:
    """Answers `GET targets`; raises SettingsError for an unknown metric or a wrong condition."""

    def __init__(
        self,
        store: Store,
        settings: Sequence[TargetSettings],
        *,
        evaluators: Callable[[], Collection[str]] = tuple,
        line: Callable[[int], str] = lambda _: "",
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        """`evaluators` returns the known names, `line` the place of the target of a number in the file."""
        self._store, self._settings, self._clock = store, settings, clock
        for number, target in enumerate(settings):
            try:
                check_metric(target.metric, evaluators())
                filter_of({"where": target.where})
            except ValueError as error:
                place = f"{where}: " if (where := line(number)) else ""
                raise SettingsError(f"{place}target {target.metric!r}: {error}") from error

    def __call__(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return each target with value, interval and `state`, over `from` .. `to` and the common filters.

        A target is `met` or `missed` only where the whole 95 % interval lies on one side, else `undecided`.
        """
        return {"targets": [self._answer(target, params) for target in self._settings]}

    def _answer(self, target: TargetSettings, params: Mapping[str, Any]) -> dict[str, Any]:
        window = range_of(params, now=self._clock())
        wheres = [f"({where})" for where in (params.get("where"), target.where) if where]
        options = {**params, "group_by": (), "where": " AND ".join(wheres)}
        limit = target.min if target.min is not None else target.max
        assert limit is not None
        miss = Condition("<" if target.min is not None else ">", limit)
        store = self._store.limited() if options["where"] else self._store
        reading, n = self._reading(store, target.metric, window, options, miss)
        state = decide(miss, reading, reading, "undecided")
        return {
            **target.model_dump(include={"metric", "min", "max", "where"}),
            "unit": NAMES[target.metric].unit if target.metric in NAMES else "share",
            "value": reading.value,
            "lo": reading.lo,
            "hi": reading.hi,
            "n": n,
            "state": {"firing": "missed", "ok": "met"}.get(state, "undecided"),
        }

    def _reading(
        self, store: Store, metric: str, window: Window, options: Mapping[str, Any], miss: Condition
    ) -> tuple[Reading, int | None]:
        """Return the metric as charts show it, and n of a measure of quality."""
        family, _, evaluator = metric.partition(":")
        if family not in MEASURES:
            read = readings(store, metric, window, options, miss).get("{}")
            return read(_CONFIDENCE) if read else Reading(None, None, None), None
        bucket = current(estimates(store, evaluator, window, filter_of(options), family=family))
        if bucket is None or bucket.estimate is None:
            return Reading(None, None, None), 0
        return Reading(bucket.estimate.estimate, *bucket.limits(bucket.estimate)), bucket.estimate.n
