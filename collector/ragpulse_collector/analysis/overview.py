"""The headline of a range: traffic, quality and its change, cost, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ragpulse_collector.analysis.answers import Place, extended, uncertain
from ragpulse_collector.analysis.attribution import cost_of_good, good_by, good_share, mean_cost
from ragpulse_collector.analysis.cache import Snapshot
from ragpulse_collector.analysis.changes import Shift, changes
from ragpulse_collector.analysis.changes.news import UsualLevel, news
from ragpulse_collector.analysis.quality import Bucket, Measured, current
from ragpulse_collector.analysis.quality.coverage import CoverageRow, sum_coverage
from ragpulse_collector.analysis.topics.drift import QuestionDrift, topics_moved
from ragpulse_collector.analysis.traffic import cost_unknown_reason
from ragpulse_collector.store.queries.scores import OtherScores, other_scores
from ragpulse_collector.store.queries.traces import has_service, newest_span
from ragpulse_evaluators.statistics import Interval, Uncertain, minus

__all__ = ["DEMO_SERVICE", "RangeSummary", "overview", "traffic_alone"]

DEMO_SERVICE = "demo"
"""The service of generated traffic, which pages mark as a demo."""
_WHOLE = Place(None, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline(Measured):
    """The quality of one evaluator in a range."""

    evaluator: str
    version: str | None
    judge: str | None
    always: None = None
    """Always null."""
    passing_rate: float | None
    clear_share: float | None
    """The share of answers with pass or fail; null where the evaluator has none."""
    previous: Uncertain | None
    """The estimate in the range of equal length before."""
    difference: Uncertain | None
    """From then to now; null where one of the intervals is unknown."""
    verdict: Literal["better", "worse", "undecided"] | None
    wording: str | None
    """That the share of clear answers moved, where it surely did: then the wording of the answers changed."""
    mix: None = None
    """Always null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodCost(Uncertain):
    """The cost of a good answer, which passes the `evaluators`."""

    evaluators: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSummary:
    """The traffic of a range, read at `as_of`."""

    as_of: datetime
    estimated: bool
    """Whether an upstream sampler dropped requests: counts and totals are scaled up."""
    demo: bool
    """Whether generated traffic is in the range."""
    newest_span: datetime | None
    lag_s: float | None
    n_traces: int
    error_rate: float | None
    error_interval: tuple[float, float] | None
    n_errors: int | None = None
    """Null where an upstream sampler dropped requests: then nobody counted them."""
    n_answers: int
    """Requests that are known to be answered or not."""
    n_empty: int
    n_refused: int
    latency_p95: float | None
    """Milliseconds."""
    cost_usd: float | None
    cost_unknown_share: float | None
    cost_unknown_reason: str | None = None
    """Why most of these have none."""
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSummary(TrafficSummary):
    """The headline of a range; `only=traffic` omits quality and coverage."""

    lead: str = ""
    """The evaluator whose quality leads."""
    error_change: Uncertain | None = None
    """The difference of the error rate from the range of equal length before."""
    error_mix: None = None
    """Always null."""
    quality: Sequence[Headline] = ()
    coverage: Sequence[CoverageRow] = ()
    queued: int = 0
    dropped: int = 0
    usual: Mapping[str, UsualLevel] = field(default_factory=dict)
    """What is usual for each metric that differs surely from the range before."""
    changes: Sequence[Shift] = ()
    """The level shifts inside the range, the surest first."""
    drift: Sequence[QuestionDrift] = ()
    """Topics that are asked about more or less than usual, the largest change first."""
    others: Sequence[OtherScores] = ()
    """Labels, people's scores, and scores on scales of their own."""
    cost_per_good_answer: GoodCost | None = None


def overview(snapshot: Snapshot, lead: str = "", *, finer: Snapshot | None = None) -> RangeSummary:
    """Answer `GET overview`: quality against the window of equal length before; charts of its buckets share its data.

    Changes are looked for in `finer` buckets.
    """
    summary, window, filters = _traffic(snapshot), snapshot.window.whole, snapshot.filters
    buckets, before = snapshot.whole(), snapshot.before()
    rows = sum_coverage(snapshot.decided(), buckets)
    names = sorted({bucket.evaluator for bucket in buckets})
    answers = sum(row.scored for row in rows)
    share = snapshot.part_of_size("good", answers, lambda: good_share(snapshot.store, window, filters, buckets, lead))
    error_change, quality = _error_change(snapshot), [_headline(name, buckets, before) for name in names]
    return extended(
        RangeSummary,
        summary,
        lead=lead,
        error_change=error_change,
        quality=quality,
        usual=snapshot.part("usual", lambda: _usual(snapshot, summary.error_rate, error_change, quality)),
        dropped=sum(row.dropped for row in rows),
        queued=snapshot.queued(),
        coverage=rows,
        others=snapshot.part("others", lambda: other_scores(snapshot.store, window.parameters, filters)),
        changes=snapshot.part("changes", lambda: changes(finer or snapshot)),
        drift=snapshot.part("drift", lambda: topics_moved(snapshot.store, snapshot.query)),
        cost_per_good_answer=_good_cost(snapshot, summary, share, good_by(names, lead)),
    )


def traffic_alone(snapshot: Snapshot) -> RangeSummary:
    """Answer `GET overview` with `only=traffic`: no scores are read."""
    return extended(RangeSummary, _traffic(snapshot))


def _traffic(snapshot: Snapshot) -> TrafficSummary:
    buckets, window = snapshot.traffic(), snapshot.window
    n = math.fsum(bucket.total("requests") for bucket in buckets)
    known = math.fsum(bucket.known["cost_usd"] for bucket in buckets)
    costs = [cost for bucket in buckets if (cost := bucket.values["cost_usd"]) is not None]
    failed = snapshot.failing().get(_WHOLE)
    failing = failed.estimate() if failed else None
    interval = Interval.of(failing)
    received, started = newest_span(snapshot.store)
    return TrafficSummary(
        as_of=snapshot.now,
        estimated=any(bucket.estimated for bucket in buckets),
        demo=has_service(snapshot.store, DEMO_SERVICE, window.parameters),
        newest_span=started,
        lag_s=None if received is None else max(0.0, (snapshot.now - received).total_seconds()),
        n_traces=round(n),
        error_rate=None if failing is None else failing.estimate,
        n_answers=round(math.fsum(bucket.known["answer"] for bucket in buckets)),
        n_empty=round(math.fsum(bucket.empty for bucket in buckets)),
        n_refused=round(math.fsum(bucket.refused for bucket in buckets)),
        n_errors=None
        if any(bucket.estimated for bucket in buckets)
        else round(sum(b.total("errors") for b in buckets)),
        error_interval=None if interval is None else (interval.lo, interval.hi),
        latency_p95=snapshot.p95(window.first, window.last) if n else None,
        cost_usd=math.fsum(costs) if costs else None,
        cost_unknown_share=1.0 - known / n if n else None,
        cost_unknown_reason=snapshot.part(
            "cost unknown", lambda: cost_unknown_reason(snapshot.store, window, snapshot.filters)
        )
        if known < n
        else None,
        tokens=round(math.fsum(b.total("input_tokens") + b.total("output_tokens") for b in buckets)),
    )


def _good_cost(
    snapshot: Snapshot, traffic: TrafficSummary, share: Interval | None, evaluators: Sequence[str]
) -> GoodCost | None:
    """Return what a good answer costs. Cost and answers are counted, but for what an upstream sampler dropped."""
    if share is None or traffic.cost_usd is None or traffic.error_rate is None:
        return None
    known, answered = 1.0 - (traffic.cost_unknown_share or 0.0), 1.0 - traffic.error_rate
    cost = traffic.cost_usd / known / traffic.n_traces
    each, of_all = Interval(cost, cost, cost), Interval(answered, answered, answered)
    if traffic.estimated:
        window, filters = snapshot.window.whole, snapshot.filters
        each = snapshot.part("cost", lambda: mean_cost(snapshot.store, window, filters)) or each
        failing_lo, failing_hi = traffic.error_interval or (traffic.error_rate, traffic.error_rate)
        of_all = Interval(answered, 1.0 - failing_hi, 1.0 - failing_lo)
    found = cost_of_good(each, of_all, share)
    return None if found is None else extended(GoodCost, found, evaluators=evaluators)


def _headline(evaluator: str, now: Sequence[Bucket], before: Sequence[Bucket]) -> Headline:
    bucket = current(candidate for candidate in now if candidate.evaluator == evaluator)
    assert bucket is not None, "an evaluator without a bucket has no name here"
    # Two versions are never compared.
    same = (one for one in before if one.evaluator == evaluator and one.series == bucket.series)
    earlier = next(same, None)
    was, ends = earlier.estimate if earlier else None, (bucket.interval, earlier.interval if earlier else None)
    # The difference holds whatever the missing verdicts are.
    difference = minus(ends[0], ends[1]) if ends[0] and ends[1] else None
    return bucket.measured_as(
        Headline,
        evaluator=evaluator,
        version=bucket.version,
        judge=bucket.judge,
        passing_rate=bucket.passing_rate,
        clear_share=bucket.clear_share,
        previous=was and uncertain(was),
        difference=difference,
        verdict=None
        if difference is None
        else "better"
        if difference.lo > 0
        else "worse"
        if difference.hi < 0
        else "undecided",
        wording=bucket.wording(earlier),
    )


def _usual(
    snapshot: Snapshot, error_rate: float | None, error_change: Uncertain | None, quality: Sequence[Headline]
) -> dict[str, UsualLevel]:
    moved = [("error_rate", error_rate, error_change)]
    moved += [(f"quality:{row.evaluator}", row.value, row.difference) for row in quality]
    found = {metric: news(snapshot, metric, value, move) for metric, value, move in moved if value is not None}
    return {metric: level for metric, level in found.items() if level}


def _error_change(snapshot: Snapshot) -> Interval | None:
    rates = snapshot.failing().get(_WHOLE), snapshot.failing_before()
    now, before = (Interval.of(rate.estimate()) if rate else None for rate in rates)
    return None if now is None or before is None else minus(now, before)
