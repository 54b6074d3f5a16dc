"""The operations that measure: quality, traffic and cost over a range of request times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ragpulse_collector.analysis.attribution import FailureAttribution, failure_attribution
from ragpulse_collector.analysis.cache import Snapshot, Snapshots
from ragpulse_collector.analysis.calibration import Calibration, calibration
from ragpulse_collector.analysis.compare import Comparison, compare
from ragpulse_collector.analysis.exemplars import ExemplarTraces, exemplars
from ragpulse_collector.analysis.explain import Box, Explanation, explain
from ragpulse_collector.analysis.gaps import ContentGaps, gaps
from ragpulse_collector.analysis.overview import RangeSummary, overview, traffic_alone
from ragpulse_collector.analysis.plan import Check, Limit, Plan, check, plan
from ragpulse_collector.analysis.quality.coverage import Coverage, coverage
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.series import ManySeries, MetricSeries, series
from ragpulse_collector.analysis.suggestions import Suggestions, suggest
from ragpulse_collector.analysis.why.documents import RatedDocuments, documents
from ragpulse_collector.api import models
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.topics import LEAST_USERS


class Measures:
    """The operations, each by the function that answers it; `clock` gives the time that relative times are read at."""

    def __init__(
        self, store: Store, clock: Callable[[], datetime], lead: Callable[[], str], snapshots: Snapshots,
        least_users: int,
    ) -> None:  # fmt: skip
        self._store, self._clock, self._lead, self._snapshots = store, clock, lead, snapshots
        self._least_users = least_users

    def _asked(self, params: models.Filters) -> tuple[Store, Query]:
        """Return the store to read and what the request covers."""
        query = params.query(self._clock())
        return query.reader(self._store), query

    def _snapshot(self, params: models.Cached) -> Snapshot:
        return self._snapshots.of(params.query(self._clock()), params.max_age or 0.0)

    def metrics(self, params: models.Metrics) -> MetricSeries | ManySeries:
        """Answer `GET metrics`."""
        ask = partial(series, self._snapshot(params), corrected=params.corrected, assisted_by=params.assisted_by)
        return ask(params.name) if isinstance(params.name, str) else ManySeries([ask(name) for name in params.name])

    def overview(self, params: models.Overview) -> RangeSummary:
        """Answer `GET overview`."""
        snapshot = self._snapshot(params)
        return traffic_alone(snapshot) if params.only == "traffic" else overview(snapshot, self._lead())

    def coverage(self, params: models.Filters) -> Coverage:
        """Answer `GET coverage`."""
        return coverage(*self._asked(params))

    def exemplars(self, params: models.Exemplars) -> ExemplarTraces:
        """Answer `GET exemplars`."""
        return exemplars(*self._asked(params), params.one_metric)

    def explain(self, params: models.Explain) -> Explanation:
        """Answer `GET explain`."""
        reader, query = self._asked(params)
        edges = (params.sel_from, params.sel_to, params.at)
        first, last, at = (params.instant(edge, query.now) for edge in edges)
        box = Box(first=first, last=last, low=params.sel_lo, high=params.sel_hi)
        return explain(reader, query, params.one_metric or "latency_p50", box, bad=params.bad, at=at)

    def compare(self, params: models.Compare) -> Comparison:
        """Answer `GET compare`."""
        ask = partial(compare, *self._asked(params), evaluator=params.evaluator, by=params.by, lead=self._lead())
        return ask(params.a, params.b)

    def check(self, params: models.Check) -> Check:
        """Answer `GET check`."""
        limit = Limit.of(params.min, params.max)
        return check(*self._asked(params), params.evaluator, limit, measure=params.measure, corrected=params.corrected)

    def plan(self, params: models.Plan) -> Plan:
        """Answer `GET plan`."""
        return plan(*self._asked(params), params.evaluator, params.half_width)

    def documents(self, params: models.Documents) -> RatedDocuments:
        """Answer `GET documents`."""
        ask = partial(documents, *self._asked(params), sort=params.sort, limit=params.limit)
        return ask(evaluator=params.evaluator, lead=self._lead())

    def gaps(self, params: models.Gaps) -> ContentGaps:
        """Answer `GET gaps`."""
        return gaps(*self._asked(params), params.evaluator or self._lead(), self._least_users)

    def blame(self, params: models.Blame) -> FailureAttribution:
        """Answer `GET blame`."""
        return failure_attribution(*self._asked(params), self._lead())

    def calibration(self, params: models.Calibration) -> Calibration:
        """Answer `GET calibration`."""
        return calibration(*self._asked(params), params.evaluator)

    def suggest(self, params: models.Suggest) -> Suggestions:
        """Answer `GET labels/suggest`."""
        return suggest(*self._asked(params), params.evaluator, params.limit)


def measures(
    store: Store,
    clock: Callable[[], datetime] = utc_now,
    lead: Callable[[], str] = str,
    snapshots: Snapshots | None = None,
    least_users: int = LEAST_USERS,
) -> tuple[Operation, ...]:
    """Return the operations; `lead` returns the evaluator that leads (none: the most trusted with a verdict)."""
    of = Measures(store, clock, lead, snapshots or Snapshots(store), least_users)
    return (
        Operation("GET metrics", of.metrics, "A metric over request time.", models.Metrics,
                  MetricSeries | ManySeries, bound=True),
        Operation("GET overview", of.overview, "The headline of a range.", models.Overview, RangeSummary),
        Operation("GET coverage", of.coverage, "What was eligible, selected, scored and dropped.", models.Filters,
                  Coverage),
        Operation("GET exemplars", of.exemplars, "The worst, median and best traces behind a point.",
                  models.Exemplars, ExemplarTraces, bound=True),
        Operation("GET explain", of.explain, "What differs in a selection.", models.Explain, Explanation),
        Operation("GET compare", of.compare, "Two sides: difference, interval, test, worst flips.", models.Compare,
                  Comparison),
        Operation("GET check", of.check, "Is quality above a limit?", models.Check, Check, bound=True),
        Operation("GET plan", of.plan, "How many to score for a wanted precision.", models.Plan, Plan),
        Operation("GET documents", of.documents, "Quality by retrieved document.", models.Documents,
                  RatedDocuments, bound=True),
        Operation("GET gaps", of.gaps, "Groups of questions that fail, and the collection of documents.", models.Gaps,
                  ContentGaps),
        Operation("GET blame", of.blame, "Retrieval or generation?", models.Blame, FailureAttribution),
        Operation("GET calibration", of.calibration, "A judge against people's labels.", models.Calibration,
                  Calibration),
        Operation("GET labels/suggest", of.suggest, "Traces worth a label.", models.Suggest, Suggestions),
    )  # fmt: skip
