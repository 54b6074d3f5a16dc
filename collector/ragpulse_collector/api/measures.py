"""The operations that measure: quality, traffic and cost over a range of request times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from ragpulse_collector.analysis.attribution import documents, failure_attribution
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import calibration, suggest
from ragpulse_collector.analysis.compare import compare
from ragpulse_collector.analysis.exemplars import exemplars
from ragpulse_collector.analysis.explain import explain
from ragpulse_collector.analysis.overview import RangeSummary, overview, traffic_alone
from ragpulse_collector.analysis.plan import Check, Limit, Plan, check, plan
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.series import ManySeries, MetricSeries, series
from ragpulse_collector.analysis.traffic import Coverage, coverage
from ragpulse_collector.api import models, reports
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now


def measures(store: Store, clock: Callable[[], datetime] = utc_now) -> tuple[Operation, ...]:
    """Return the operations; `clock` gives the time that relative times are read at."""
    over, snapshots = partial(_measure, store, clock=clock), Snapshots(store)

    def asked(params: models.Filters) -> tuple[Store, Query]:
        """Return the store to read and what the request covers."""
        query = params.query(clock())
        return query.reader(store), query

    def run_metrics(params: models.Metrics) -> MetricSeries | ManySeries:
        snapshot = snapshots.of(params.query(clock()), params.max_age or 0.0)
        ask = partial(series, snapshot, corrected=params.corrected, assisted_by=params.assisted_by)
        return ask(params.name) if isinstance(params.name, str) else ManySeries([ask(name) for name in params.name])

    def run_overview(params: models.Overview) -> RangeSummary:
        snapshot = snapshots.of(params.query(clock()), params.max_age or 0.0)
        return traffic_alone(snapshot) if params.only == "traffic" else overview(snapshot)

    def run_coverage(params: models.Filters) -> Coverage:
        return coverage(*asked(params))

    def run_check(params: models.Check) -> Check:
        return check(*asked(params), params.evaluator, Limit.of(params.min, params.max), measure=params.measure)

    def run_plan(params: models.Plan) -> Plan:
        return plan(*asked(params), params.evaluator, params.half_width)

    return (
        Operation("GET metrics", run_metrics, "A metric over request time.", models.Metrics,
                  MetricSeries | ManySeries, bound=True),
        Operation("GET overview", run_overview, "The headline of a range.", models.Overview, RangeSummary),
        Operation("GET coverage", run_coverage, "What was eligible, selected, scored and dropped.", models.Filters,
                  Coverage),
        Operation("GET exemplars", over(exemplars), "The worst, median and best traces behind a point.",
                  models.Exemplars, reports.Exemplars, bound=True),
        Operation("GET explain", over(explain), "What differs in a selection.", models.Explain, reports.Explanation),
        Operation("GET compare", over(compare), "Two sides: difference, interval, test, worst flips.", models.Compare,
                  reports.Comparison),
        Operation("GET check", run_check, "Is quality above a limit?", models.Check, Check, bound=True),
        Operation("GET plan", run_plan, "How many to score for a wanted precision.", models.Plan, Plan),
        Operation("GET documents", over(documents), "Quality by retrieved document.", models.Documents,
                  reports.Documents, bound=True),
        Operation("GET blame", over(failure_attribution), "Retrieval or generation?", models.Blame,
                  reports.Attribution),
        Operation("GET calibration", over(calibration), "A judge against people's labels.", models.OfEvaluator,
                  reports.Calibration),
        Operation("GET labels/suggest", over(suggest), "Traces worth a label.", models.Suggest, reports.Suggestions),
    )  # fmt: skip


def _measure(store: Store, ask: Callable[..., Any], **more: Any) -> Callable[[models.Filters], Any]:
    """Return the operation of a function of `analysis`."""
    return lambda params: ask(params.limited(store), params.values(), **more)
