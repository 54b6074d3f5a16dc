"""The operations that measure: quality, traffic and cost over a range of request times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ragpulse_collector.analysis.attribution import FailureAttribution, failure_attribution
from ragpulse_collector.analysis.cache import Snapshot, Snapshots
from ragpulse_collector.analysis.calibration import Calibration, calibration
from ragpulse_collector.analysis.compare import Comparison, compare
from ragpulse_collector.analysis.exemplars import ExemplarTraces, exemplars
from ragpulse_collector.analysis.explain import Box, Explanation, explain
from ragpulse_collector.analysis.gaps import ContentGaps, gaps
from ragpulse_collector.analysis.limits import Limit
from ragpulse_collector.analysis.overview import RangeSummary, overview, traffic_alone
from ragpulse_collector.analysis.plan import Check, Plan, check, plan
from ragpulse_collector.analysis.quality.coverage import Coverage, coverage
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.series import ManySeries, MetricSeries, series
from ragpulse_collector.analysis.suggestions import Suggestions, suggest
from ragpulse_collector.analysis.why.documents import RatedDocuments, documents
from ragpulse_collector.api import models
from ragpulse_collector.api.operations import AnyOperation, Operation
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock, utc_now
from ragpulse_collector.topics import LEAST_USERS


@dataclass(frozen=True)
class Measures:
    """What the operations share, and those that read more than filters."""

    store: Store
    clock: Clock
    """Gives the time that relative times are read at."""
    lead: Lead
    snapshots: Snapshots

    def asked(self, params: models.Filters) -> tuple[Store, Query]:
        """Return the store to read and what the request covers."""
        query = params.query(self.clock())
        return query.reader(self.store), query

    def _snapshot(self, params: models.Cached) -> Snapshot:
        return self.snapshots.of(params.query(self.clock()), params.max_age or 0.0)

    def metrics(self, params: models.Metrics) -> MetricSeries | ManySeries:
        """Answer `GET metrics`."""
        ask = partial(series, self._snapshot(params), corrected=params.corrected, assisted_by=params.assisted_by)
        return ask(params.name) if isinstance(params.name, str) else ManySeries([ask(name) for name in params.name])

    def overview(self, params: models.Overview) -> RangeSummary:
        """Answer `GET overview`."""
        snapshot = self._snapshot(params)
        return traffic_alone(snapshot) if params.only == "traffic" else overview(snapshot, self.lead())

    def explain(self, params: models.Explain) -> Explanation:
        """Answer `GET explain`."""
        reader, query = self.asked(params)
        edges = (params.sel_from, params.sel_to, params.at)
        first, last, at = (params.instant(edge, query.now) for edge in edges)
        box = Box(first=first, last=last, low=params.sel_lo, high=params.sel_hi)
        return explain(reader, query, params.one_metric or "latency_p50", box, bad=params.bad, at=at)

    def compare(self, params: models.Compare) -> Comparison:
        """Answer `GET compare`."""
        ask = partial(compare, *self.asked(params), evaluator=params.evaluator, by=params.by, lead=self.lead())
        return ask(params.a, params.b)

    def check(self, params: models.Check) -> Check:
        """Answer `GET check`."""
        limit = Limit.of(params.min, params.max)
        return check(*self.asked(params), params.evaluator, limit, measure=params.measure, corrected=params.corrected)

    def documents(self, params: models.Documents) -> RatedDocuments:
        """Answer `GET documents`."""
        ask = partial(documents, *self.asked(params), sort=params.sort, limit=params.limit)
        return ask(evaluator=params.evaluator, lead=self.lead())


def measures(
    store: Store,
    clock: Clock = utc_now,
    lead: Lead = str,
    snapshots: Snapshots | None = None,
    least_users: int = LEAST_USERS,
) -> tuple[AnyOperation, ...]:
    """Return the operations; `lead` returns the evaluator that leads (none: the most trusted with a verdict)."""
    of = Measures(store, clock, lead, snapshots or Snapshots(store))
    return (
        Operation("GET metrics", of.metrics, "A metric over request time.", models.Metrics,
                  MetricSeries | ManySeries, bound=True),
        Operation("GET overview", of.overview, "The headline of a range.", models.Overview, RangeSummary),
        Operation("GET coverage", lambda params: coverage(*of.asked(params)),
                  "What was eligible, selected, scored and dropped.", models.Filters, Coverage),
        Operation("GET exemplars", lambda params: exemplars(*of.asked(params), params.one_metric),
                  "The worst, median and best traces behind a point.", models.Exemplars, ExemplarTraces, bound=True),
        Operation("GET explain", of.explain, "What differs in a selection.", models.Explain, Explanation),
        Operation("GET compare", of.compare, "Two sides: difference, interval, test, worst flips.", models.Compare,
                  Comparison),
        Operation("GET check", of.check, "Is quality above a limit?", models.Check, Check, bound=True),
        Operation("GET plan", lambda params: plan(*of.asked(params), params.evaluator, params.half_width),
                  "How many to score for a wanted precision.", models.Plan, Plan),
        Operation("GET documents", of.documents, "Quality by retrieved document.", models.Documents,
                  RatedDocuments, bound=True),
        Operation("GET gaps", lambda params: gaps(*of.asked(params), params.evaluator or lead(), least_users),
                  "Groups of questions that fail, and the collection of documents.", models.Gaps, ContentGaps),
        Operation("GET blame", lambda params: failure_attribution(*of.asked(params), lead()),
                  "Retrieval or generation?", models.Blame, FailureAttribution),
        Operation("GET calibration", lambda params: calibration(*of.asked(params), params.evaluator),
                  "A judge against people's labels.", models.Calibration, Calibration),
        Operation("GET labels/suggest", lambda params: suggest(*of.asked(params), params.evaluator, params.limit),
                  "Traces worth a label.", models.Suggest, Suggestions),
    )  # fmt: skip
