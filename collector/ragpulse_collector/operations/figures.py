"""Quality, traffic and cost over a range of request times."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from ragpulse_collector.analysis.attribution import FailureAttribution, failure_attribution
from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.calibration import Calibration
from ragpulse_collector.analysis.calibration import calibration as agreement
from ragpulse_collector.analysis.compare import Comparison
from ragpulse_collector.analysis.compare import compare as compared
from ragpulse_collector.analysis.exemplars import ExemplarTraces
from ragpulse_collector.analysis.exemplars import exemplars as traces_behind
from ragpulse_collector.analysis.explain import Box, Explanation
from ragpulse_collector.analysis.explain import explain as differences
from ragpulse_collector.analysis.failures import Failures, what_went_wrong
from ragpulse_collector.analysis.gaps import ContentGaps
from ragpulse_collector.analysis.gaps import gaps as failing_groups
from ragpulse_collector.analysis.limits import Limit, Measure
from ragpulse_collector.analysis.overview import RangeSummary, traffic_alone
from ragpulse_collector.analysis.overview import overview as summary
from ragpulse_collector.analysis.plan import Check, Plan
from ragpulse_collector.analysis.plan import check as checked
from ragpulse_collector.analysis.plan import plan as planned
from ragpulse_collector.analysis.quality.coverage import Coverage
from ragpulse_collector.analysis.quality.coverage import coverage as covered
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.series import ManySeries, MetricSeries, series
from ragpulse_collector.analysis.suggestions import Suggestions, suggest
from ragpulse_collector.analysis.why.documents import DocumentSort, RatedDocuments
from ragpulse_collector.analysis.why.documents import documents as rated
from ragpulse_collector.api.models import HOUR_S, Buckets, Filters, Last90Days, LastWeek
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Count, Duration, EvaluatorName, MetricName, Names, Time
from ragpulse_collector.interface import Command, Tool
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock

_log = logging.getLogger(__name__)
HalfWidth = Annotated[float, "The precision: 0.02 means +-0.02."]
MaxAge = Annotated[float | None, Field(ge=0), "Accept figures up to this many seconds old."]
Metric = Annotated[MetricName | None, "The metric; `name` is another name of it."]


@operation(
    "GET metrics",
    bound=True,
    tools=(Tool("metrics", ("name", "since", "step", "group_by", "tz", "where"), {"step": "auto"}),),
)
def metrics(
    snapshots: Snapshots,
    clock: Clock,
    /,
    choice: Buckets,
    name: Annotated[
        MetricName | list[MetricName],
        "A metric, or several: requests, errors, latency_p95, cost_usd, quality:groundedness, ...",
    ],
    group_by: Annotated[Names, "service, release, prompt_version, model, tag, metadata.KEY, label:EVALUATOR, ..."] = [],
    corrected: Annotated[bool, "Correct quality by people's labels."] = False,
    assisted_by: Annotated[str | None, "Ignored: a judge has its own interval."] = None,
    max_age: MaxAge = None,
) -> MetricSeries | ManySeries:
    """A metric over request time with intervals, and markers where a version began."""
    snapshot = snapshots.of(choice.query(clock(), group_by), max_age or 0.0)
    if assisted_by:
        _log.warning("GET metrics: assisted_by is ignored: a judge has its own interval, and a check its own line")
    ask = partial(series, snapshot, corrected=corrected)
    return ask(name) if isinstance(name, str) else ManySeries([ask(one, alone=len(name) == 1) for one in name])


@operation("GET overview")
def overview(
    snapshots: Snapshots,
    clock: Clock,
    lead: Lead,
    /,
    choice: Buckets,
    only: Literal["traffic"] | None = None,
    points: Annotated[
        Count | None, "Read the figures with charts of so many points; changes are looked for in `width`."
    ] = None,
    max_age: MaxAge = None,
) -> RangeSummary:
    """The headline of a range."""
    query = choice.query(clock())
    snapshot = snapshots.of(query.cut_into(points) if points else query, max_age or 0.0)
    if only == "traffic":
        return traffic_alone(snapshot)
    return summary(snapshot, lead(), finer=snapshots.of(query, max_age or 0.0))


@operation("GET coverage")
def coverage(store: Store, clock: Clock, /, choice: Filters) -> Coverage:
    """What was eligible, selected, scored and dropped."""
    return covered(*choice.asked(store, clock()))


@operation("GET exemplars", bound=True)
def exemplars(
    store: Store,
    clock: Clock,
    /,
    choice: Filters,
    name: Metric = None,
    metric: Metric = None,
    t: Annotated[Time | None, "Start of the bucket."] = None,
    step: Annotated[Duration | None, "Length of the bucket."] = None,
) -> ExemplarTraces:
    """The worst, median and best traces behind a point."""
    reader, query = choice.asked(store, clock())
    if start := choice.instant(t, query.now):
        query = replace(query, window=Window(start, start + timedelta(seconds=step or HOUR_S), 0))
    return traces_behind(reader, query, metric or name or "")


@operation(
    "GET explain", tools=(Tool("explain", ("metric", "since", "lowest=sel_lo", "highest=sel_hi", "bad", "where")),)
)
def explain(
    store: Store,
    clock: Clock,
    /,
    choice: Buckets,
    name: Metric = None,
    metric: Metric = None,
    width: Annotated[int, Field(ge=1)] = 60,
    sel_from: Time | None = None,
    sel_to: Time | None = None,
    sel_lo: Annotated[float | None, "The selection: values from here ..."] = None,
    sel_hi: Annotated[float | None, "... to here."] = None,
    bad: Annotated[bool, "Only failing answers, failed requests, or the highest tenth of a number."] = False,
    at: Annotated[Time | None, "Compare the time after this moment with as long before."] = None,
) -> Explanation:
    """Which versions, models, documents and words are more common where a metric lies in a range."""
    reader, query = choice.asked(store, clock())
    first, last, moment = (choice.instant(edge, query.now) for edge in (sel_from, sel_to, at))
    box = Box(first=first, last=last, low=sel_lo, high=sel_hi)
    return differences(reader, query, metric or name or "latency_p50", box, bad=bad, at=moment)


@operation("GET compare", tool="compare")
def compare(
    store: Store,
    clock: Clock,
    lead: Lead,
    /,
    *,
    choice: LastWeek,
    evaluator: Annotated[EvaluatorName | None, "What to compare by; default: all that both sides have."] = None,
    a: Annotated[
        EvaluatorName,
        "NAME@VERSION, judge:..., run:ID, prompt:v7, model:..., variant:..., service:..., release:..., tag:...,"
        " metadata.KEY:... or label.NAME:....",
    ],
    b: Annotated[EvaluatorName, "The other side."],
    by: Annotated[str | None, "Also within each value of this column, as in metadata.tenant or label:language."] = None,
) -> Comparison:
    """Two sides: difference with interval, test, verdict on b, and the worst flips."""
    return compared(*choice.asked(store, clock()), a, b, evaluator=evaluator, by=by, lead=lead())


@operation("GET check", bound=True)
def check(
    store: Store,
    clock: Clock,
    /,
    choice: Filters,
    evaluator: EvaluatorName,
    min: float | None = None,
    max: float | None = None,
    measure: Measure = "quality",
    corrected: Annotated[bool, "Whether enough labels of people correct the judge's figure."] = True,
) -> Check:
    """Is quality above a limit?"""
    reader, query = choice.asked(store, clock())
    return checked(reader, query, evaluator, Limit.of(min, max), measure=measure, corrected=corrected)


@operation("GET plan", command="plan")
def plan(store: Store, clock: Clock, /, choice: LastWeek, evaluator: EvaluatorName, half_width: HalfWidth) -> Plan:
    """How many traces to score for a wanted precision, at which rate, at what cost."""
    return planned(*choice.asked(store, clock()), evaluator, half_width)


@operation("GET documents", bound=True)
def documents(
    store: Store,
    clock: Clock,
    lead: Lead,
    settings: Settings,
    /,
    choice: LastWeek,
    evaluator: EvaluatorName | None = None,
    sort: DocumentSort = "retrieved",
    limit: Count = 100,
) -> RatedDocuments:
    """Quality by retrieved document, with its age and what it costs; `sort=stale` lists old ones by their damage."""
    ask = partial(rated, *choice.asked(store, clock()), sort=sort, limit=limit)
    return ask(evaluator=evaluator, lead=lead(), updated_at=settings.documents.updated_at)


@operation("GET gaps", tool="gaps")
def gaps(
    store: Store,
    clock: Clock,
    lead: Lead,
    settings: Settings,
    /,
    choice: LastWeek,
    evaluator: Annotated[EvaluatorName | None, "What finds unsupported answers; default: the one that leads."] = None,
) -> ContentGaps:
    """Groups of questions that fail: content to write, and documents that nobody retrieves or that compete."""
    return failing_groups(*choice.asked(store, clock()), evaluator or lead(), settings.topics.least_users)


_FAILURES = {"kind": "kind", "share": "value", "lo": "lo", "hi": "hi", "n": "n", "such requests": "words"}


@operation(
    "GET failures",
    command=Command("failures", columns={"failures": _FAILURES}),
    tool="failures",
)
def failures(store: Store, clock: Clock, /, choice: LastWeek, group_by: Names = []) -> Failures:
    """What went wrong: the share of requests of each kind of failure, with its interval."""
    return what_went_wrong(*choice.asked(store, clock(), group_by))


@operation("GET blame")
def blame(
    store: Store,
    clock: Clock,
    lead: Lead,
    /,
    choice: Buckets,
    group_by: Names = [],
    width: Annotated[int, Field(ge=1)] = 30,
) -> FailureAttribution:
    """Retrieval or generation?"""
    return failure_attribution(*choice.asked(store, clock(), group_by), lead())


@operation("GET calibration")
def calibration(store: Store, clock: Clock, /, choice: Last90Days, evaluator: EvaluatorName) -> Calibration:
    """A judge against people's labels."""
    return agreement(*choice.asked(store, clock()), evaluator)


@operation("GET labels/suggest")
def suggestions(
    store: Store, clock: Clock, /, choice: LastWeek, evaluator: EvaluatorName, limit: Count = 20
) -> Suggestions:
    """Traces worth a label."""
    return suggest(*choice.asked(store, clock()), evaluator, limit)
