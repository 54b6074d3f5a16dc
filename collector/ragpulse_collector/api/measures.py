"""The operations that measure: quality, traffic and cost over a range of request times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from ragpulse_collector.analysis.attribution import (
    FailureAttribution,
    RatedDocuments,
    documents,
    failure_attribution,
)
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import calibration, suggest
from ragpulse_collector.analysis.compare import Comparison, compare
from ragpulse_collector.analysis.exemplars import exemplars
from ragpulse_collector.analysis.explain import Box, Explanation, explain
from ragpulse_collector.analysis.overview import overview
from ragpulse_collector.analysis.plan import Check, Limit, Plan, check, plan
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import instant
from ragpulse_collector.analysis.series import series
from ragpulse_collector.analysis.traffic import coverage
from ragpulse_collector.api import models, reports
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now


def measures(store: Store, clock: Callable[[], datetime] = utc_now) -> tuple[Operation, ...]:
    """Return the operations; `clock` gives the time that relative times are read at."""
    over, snapshots = partial(_measure, store, clock=clock), Snapshots(store, clock=clock)

    def asked(params: models.Filters) -> tuple[Store, Query]:
        """Return the store to read and what the request covers."""
        query = params.query(clock())
        return query.reader(store), query

    def run_check(params: models.Check) -> Check:
        return check(*asked(params), params.evaluator, Limit.of(params.min, params.max), measure=params.measure)

    def run_plan(params: models.Plan) -> Plan:
        return plan(*asked(params), params.evaluator, params.half_width)

    def run_compare(params: models.Compare) -> Comparison:
        return compare(*asked(params), params.a, params.b, evaluator=params.evaluator, by=params.by)

    def run_explain(params: models.Explain) -> Explanation:
        reader, query = asked(params)
        first, last = (instant(edge, now=query.now) for edge in (params.sel_from, params.sel_to))
        box = Box(first=first, last=last, low=params.sel_lo, high=params.sel_hi)
        metric = next(iter(params.metrics()), "latency_p50")
        return explain(reader, query, metric, box, bad=params.bad)

    def run_documents(params: models.Documents) -> RatedDocuments:
        return documents(*asked(params), evaluator=params.evaluator, sort=params.sort, limit=params.limit)

    def run_blame(params: models.Blame) -> FailureAttribution:
        return failure_attribution(*asked(params))

    return (
        Operation("GET metrics", over(series, snapshots=snapshots), "A metric over request time.",
                  models.Metrics, reports.Metrics | reports.ManyMetrics, bound=True),
        Operation("GET overview", over(overview, snapshots=snapshots), "The headline of a range.", models.Overview,
                  reports.Overview),
        Operation("GET coverage", over(coverage), "What was eligible, selected, scored and dropped.", models.Filters,
                  reports.Coverage),
        Operation("GET exemplars", over(exemplars), "The worst, median and best traces behind a point.",
                  models.Exemplars, reports.Exemplars, bound=True),
        Operation("GET explain", run_explain, "What differs in a selection.", models.Explain, Explanation),
        Operation("GET compare", run_compare, "Two sides: difference, interval, test, worst flips.", models.Compare,
                  Comparison),
        Operation("GET check", run_check, "Is quality above a limit?", models.Check, Check, bound=True),
        Operation("GET plan", run_plan, "How many to score for a wanted precision.", models.Plan, Plan),
        Operation("GET documents", run_documents, "Quality by retrieved document.", models.Documents,
                  RatedDocuments, bound=True),
        Operation("GET blame", run_blame, "Retrieval or generation?", models.Blame, FailureAttribution),
        Operation("GET calibration", over(calibration), "A judge against people's labels.", models.OfEvaluator,
                  reports.Calibration),
        Operation("GET labels/suggest", over(suggest), "Traces worth a label.", models.Suggest, reports.Suggestions),
    )  # fmt: skip


def _measure(store: Store, ask: Callable[..., Any], **more: Any) -> Callable[[models.Filters], Any]:
    """Return the operation of a function of `analysis`."""
    return lambda params: ask(params.limited(store), params.values(), **more)
