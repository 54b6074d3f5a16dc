"""Targets (SLO): where a metric should be, and whether it surely is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragpulse_collector.analysis.calibration.decisive import decisive
from ragpulse_collector.analysis.figures import Condition, finest_estimates, is_total, readings
from ragpulse_collector.analysis.quality import Figures, changed_version, current
from ragpulse_collector.analysis.query import Query, meeting
from ragpulse_collector.analysis.traffic import NAMES, check_metric
from ragpulse_collector.monitoring.measure import decide
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import SettingsError, TargetSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.monitors import State
from ragpulse_collector.store.queries.scores import MEASURES, refuse_unclear
from ragpulse_collector.words import FEW
from ragpulse_evaluators.statistics import Uncertain

__all__ = ["TargetState", "TargetStates", "Targets"]

_CONFIDENCE, _LEAST = 0.95, 10
"""Fewer answers decide no target, however far their interval lies from its limit."""
Met = Literal["met", "missed", "undecided"]
_MET: Mapping[State, Met] = {"firing": "missed", "ok": "met"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetState(Uncertain):
    """A target and whether it is met."""

    metric: str
    min: float | None
    max: float | None
    where: str | None
    unit: str | None
    n: int | None
    """Answers of a measure of quality."""
    state: Met
    refused: str | None
    """Why it cannot be decided: too many answers are unclear for a pass rate, or its `where` takes too long."""
    note: str | None = None
    """What else the reader needs to know: the evaluator changed in the range."""
    correction: str | None = None
    """What people's labels did to a judge's figure or could do, in words."""
    assisted_by: None = None
    """Always null."""


@dataclass(frozen=True, slots=True)
class TargetStates:
    """The targets of metrics."""

    targets: Sequence[TargetState]


class Targets:
    """Answers `GET targets`; raises SettingsError for an unknown metric or a wrong condition."""

    def __init__(
        self,
        store: Store,
        settings: Sequence[TargetSettings],
        *,
        evaluators: Callable[[], Collection[str]] = tuple,
        line: Callable[[int], str] = lambda _: "",
    ) -> None:
        """`evaluators` returns the known names, `line` the place of the target of a number in the file."""
        self._store, self._settings = store, settings
        for number, target in enumerate(settings):
            try:
                check_metric(target.metric, evaluators())
                meeting(target.where)
            except Refusal as error:
                place = f"{where}: " if (where := line(number)) else ""
                raise SettingsError(f"{place}target {target.metric!r}: {error}") from error

    def __call__(self, query: Query) -> TargetStates:
        """Return each target with value, interval and `state`.

        A target is `met` or `missed` only where the whole 95 % interval, of ten answers at least, lies on one side;
        else it is `undecided`. Where the evaluator changed in the range, the new version needs thirty answers.
        """
        return TargetStates([self._state(target, query) for target in self._settings])

    def _state(self, target: TargetSettings, query: Query) -> TargetState:
        wanted = replace(query, filters=query.filters & meeting(target.where))
        limit = target.min if target.min is not None else target.max
        assert limit is not None
        miss = Condition("<" if target.min is not None else ">", limit)
        measured, refused = _Measured(Figures()), None
        try:
            measured = _measured(wanted.reader(self._store), target, wanted, miss)
            refuse_unclear(self._store, target.metric)
        except Refusal as refusal:  # the other targets are answered all the same
            refused = str(refusal)
        reading, behind = measured.reading, measured.reading.n if measured.n is None else measured.n
        few = not is_total(target.metric) and behind < _LEAST
        waits = bool(refused) or measured.waits or few
        return TargetState(
            metric=target.metric,
            min=target.min,
            max=target.max,
            where=target.where,
            unit=NAMES[target.metric].unit if target.metric in NAMES else "share",
            value=reading.value,
            lo=reading.lo,
            hi=reading.hi,
            n=measured.n,
            state="undecided" if waits else _MET.get(decide(miss, reading, reading, "undecided"), "undecided"),
            refused=refused,
            note=measured.note,
            correction=measured.correction,
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a target is compared with."""

    reading: Figures
    n: int | None = None
    note: str | None = None
    correction: str | None = None
    waits: bool = False
    """Whether a new version of the evaluator has too few answers yet."""


def _measured(store: Store, target: TargetSettings, query: Query, miss: Condition) -> _Measured:
    """Return the metric as charts show it or corrected by labels, and n of a measure of quality."""
    family, _, evaluator = target.metric.partition(":")
    if family not in MEASURES:
        read = readings(store, target.metric, query, miss).get("{}")
        return _Measured(read(_CONFIDENCE) if read else Figures())
    buckets = finest_estimates(store, evaluator, query.window.whole, query.filters, (), family, miss)
    newest = current(buckets)
    if newest is None or newest.estimate is None:
        return _Measured(Figures(), 0)
    changed, n = changed_version(buckets, newest), newest.estimate.n
    decided = decisive(store, query, newest, evaluator=evaluator, family=family, corrected=target.corrected).measured
    reading = Figures(value=decided.value, lo=decided.least, hi=decided.most)
    return _Measured(reading, n, changed, decided.correction, waits=changed is not None and n < FEW)
