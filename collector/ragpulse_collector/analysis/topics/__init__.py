"""`GET topics`: what people ask, how much of it, and where they are failed, by topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Bucket, Figures, Measured, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.topics.ranking import ALPHA, Rate, adjusted, p_changed, p_worse, shrunk
from ragpulse_collector.analysis.traffic import TrafficBucket, by_user, means, traffic
from ragpulse_collector.store import Store
from ragpulse_collector.store import topics as stored
from ragpulse_collector.store.estimates import CLUSTER, IDENTIFIED, KEPT, WEIGHT
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, trace_rows
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.queries.traces import FACTS, Filter, of_range
from ragpulse_collector.topics.fitting import same
from ragpulse_evaluators.statistics import Interval, Moments, Uncertain, benjamini_hochberg, minus

WORST = 3
"""Answers that are shown of each topic."""
_NEW = 1.0 / 3.0
"""A new topic had at most this part of its share in the range before."""
_FEWEST_SCORES = 20
"""Fewer requests of a retriever do not tell which scores are usual."""
_BY_TOPIC = ("topic",)


@dataclass(frozen=True, slots=True)
class FitSummary:
    """The fit whose topics are in force."""

    fitted_at: datetime
    topics: int
    questions: int
    other: int
    assigned_from: datetime | None
    """Requests of this time and later have topics of this fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """A topic with its requests of the range."""

    topic_id: int | None
    """Null for `other`."""
    name: str
    named_by: str | None
    question: str | None
    """The most central question that enough users asked."""
    terms: Sequence[str]
    n: int
    share: Figures
    change: Uncertain
    """The share minus that in the range of the same length before."""
    change_p: float
    """Adjusted for all topics (Benjamini-Hochberg)."""
    quality: Measured | None
    """By the evaluator of the answer."""
    unanswered: Figures
    """Refusals, empty answers, and requests whose best context scored below what is usual."""
    failure: float | None
    """How many requests get no good answer: 1 - (1 - unanswered) x quality; small topics are drawn to all."""
    lost: float
    """Answers lost: share x failure."""
    worse_p: float
    """That it is unanswered or fails as often as the others; adjusted for all topics."""
    worse: bool
    cost_usd: float | None
    """Per request with a known cost."""
    latency_p95: float | None
    thumbs: Figures
    worst: Sequence[ScoredTrace]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """Topics in order of the answers lost; `other` is the last."""

    fit: FitSummary | None
    running: bool
    """Whether a fit runs."""
    problem: str | None
    """Why there are no topics, or no new ones."""
    evaluator: str
    n: int
    """Requests with a topic, `other` among them."""
    unassigned: int
    """Requests with a question and without a topic."""
    topics: Sequence[TopicFigures]
    more: int
    """Topics beyond `limit`."""
    appeared: Sequence[str]
    """Topics that the last fit found first."""
    vanished: Sequence[str]
    """Topics of the fit before that the last one did not find."""
    grew: Sequence[str]
    """Topics whose share surely grew."""


def topic_report(
    store: Store, query: Query, evaluator: str, *, limit: int, running: bool = False, problem: str | None = None
) -> TopicReport:
    """Answer `GET topics`.

    Users are clusters. A topic is `worse` where it is unanswered, or fails the evaluator, surely more often than the
    other requests: false discoveries are bounded over all topics. Failures of small topics are drawn to those of all,
    as far as their size explains the difference, so that no topic leads by chance.
    """
    known, fit = stored.stored_topics(store.read), stored.last_fit(store.read)
    in_force = sum(one.fit_id == fit.fit_id for one in known) if fit else 0
    figures = _ranked(_read(store, query, evaluator), {topic.name: topic for topic in known})
    shown = figures[:limit]
    worst = _worst(store, query, evaluator)
    rows = {
        row.trace_id: row for row in trace_rows(store, [trace for one in shown for trace in worst.get(one.name, ())])
    }
    kinds = "topic IS NOT NULL", "topic IS NULL AND query IS NOT NULL"
    counts = (f"coalesce(sum({WEIGHT}) FILTER ({kind}), 0)" for kind in kinds)
    sql = f"SELECT {', '.join(counts)} {_inside(query.filters)}"
    assigned, unassigned = map(round, store.read(sql, query.parameters).rows[0])
    return TopicReport(
        fit=FitSummary(fit.fitted_at, in_force, fit.questions, fit.other, fit.assigned_from) if fit else None,
        running=running,
        problem=problem,
        evaluator=evaluator,
        n=assigned,
        unassigned=unassigned,
        topics=[
            replace(one, worst=_once([rows[trace] for trace in worst.get(one.name, ()) if trace in rows]))
            for one in shown
        ],
        more=len(figures) - len(shown),
        appeared=(moved := news(store, query, known, fit.fit_id if fit else 0))[0],
        vanished=moved[1],
        grew=[one.name for one in figures if one.change_p <= ALPHA and (one.change.value or 0.0) > 0.0],
    )


def news(store: Store, query: Query, known: Sequence[stored.StoredTopic], fit: int) -> tuple[list[str], list[str]]:
    """Return the topics that a fit found first, and those that it lost, where their questions are new or gone.

    A fit may group the same questions otherwise: then a topic had a share earlier, too, or its most central question
    is still asked.
    """
    found = [one for one in known if one.fit_id == one.first_fit == fit > 1]
    lost = [one for one in known if fit and one.fit_id == fit - 1]
    if not found and not lost:
        return [], []
    length, first = query.window.last - query.window.first, query.window.first
    # A fit finds what came since the one before, which may be as long ago as the range is.
    now = shares(store, Window(first - length, query.window.last, 0), query.filters)
    before = shares(store, Window(first - 3 * length, first - length, 0), query.filters)
    asked = store.read(
        f"SELECT DISTINCT query {_inside(query.filters)} AND query IS NOT NULL", query.parameters
    ).rows if lost else []  # fmt: skip
    questions = {same(text) for (text,) in asked}
    return (
        [one.name for one in found if _asked_anew(before.get(one.name), now.get(one.name))],
        [one.name for one in lost if one.question is None or same(one.question) not in questions],
    )


def _asked_anew(before: Moments | None, now: Moments | None) -> bool:
    was, is_now = (sums.mean if sums else 0.0 for sums in (before, now))
    return was <= is_now * _NEW


class _Read(NamedTuple):
    """What the store has of each topic, by its name."""

    shares: Mapping[str, Moments]
    before: Mapping[str, Moments]
    unanswered: Mapping[str, Moments]
    quality: Mapping[str, Bucket]
    thumbs: Mapping[str, Moments]
    requests: Mapping[str, TrafficBucket]


def _read(store: Store, query: Query, evaluator: str) -> _Read:
    window, filters = query.window.whole, query.filters
    before = Window(window.first - (window.last - window.first), window.first, 0)
    buckets: dict[GroupValue, list[Bucket]] = {}
    for bucket in estimates(store, evaluator, window, filters, groups=_BY_TOPIC):
        buckets.setdefault(bucket.group[0], []).append(bucket)
    return _Read(
        shares=shares(store, window, filters),
        before=shares(store, before, filters),
        unanswered=unanswered(store, window, filters),
        quality={str(topic): newest for topic, own in buckets.items() if topic and (newest := current(own))},
        thumbs={
            str(place.group[0]): mean for place, mean in means(store, "acceptance", window, filters, _BY_TOPIC).items()
        },
        requests={str(bucket.group[0]): bucket for bucket in traffic(store, window, filters, _BY_TOPIC)},
    )


_SHARES = f"""
    WITH asked AS MATERIALIZED (
        SELECT topic, cluster, max(identified) AS identified, greatest(1.0, max(w) / count(*)) AS w FROM (
            SELECT topic, {CLUSTER} AS cluster, {IDENTIFIED} AS identified, {WEIGHT} AS w, {stored.SAME} AS question
            {{inside}} AND topic IS NOT NULL)
        GROUP BY topic, cluster, question),
    users AS MATERIALIZED (
        SELECT cluster, count(*) AS n, sum(w) AS w, sum(w * w) AS ww, max(w) AS heaviest FROM asked GROUP BY cluster),
    whole AS (
        SELECT sum(n) AS n, count(*) AS clusters, sum(w) AS w, sum(ww) AS ww, sum(w * w) AS w2, sum(ww / w) AS own,
               max(heaviest) AS heaviest, max(w) AS largest FROM users),
    parts AS (SELECT topic, cluster, count(*) AS k, sum(w) AS wy, max(identified) AS i FROM asked GROUP BY ALL),
    sums AS (
        SELECT topic, sum(k) AS k, sum(p.wy) AS wy, sum(p.wy * u.w) AS ws, sum(p.wy * p.wy) AS s2,
               sum(p.wy * (p.wy / u.w)) AS means, max(i) AS i
        FROM parts p JOIN users u USING (cluster) GROUP BY topic)
    SELECT topic, n, clusters, w, wy, wy, ww, w2, ws, s2, means, own, heaviest, largest,
           (k = n)::INTEGER::DOUBLE, 1.0, 0, NULL, NULL, 0, i FROM sums, whole"""


def shares(store: Store, window: Window, filters: Filter) -> dict[str, Moments]:
    """Return the share of each topic (`other` is one) in the questions with a topic; what a user repeats is one."""
    rows = store.read(_SHARES.format(inside=_inside(filters)), {**window.parameters, **filters.parameters}).rows
    return {topic: known for topic, *sums in rows if (known := Moments.of(sums))}


def share_of(found: Mapping[str, Moments], topic: str) -> Moments | None:
    """Return the share of a topic, 0 where nobody asked about it; None where nobody asked anything."""
    if own := found.get(topic):
        return own
    some = next(iter(found.values()), None)
    return some and replace(
        some, wy=0.0, wyy=0.0, cluster_ws=0.0, cluster_ss=0.0, cluster_means=0.0, least=0.0, most=0.0
    )


USUAL = f"""
    SELECT retriever, q[1] - 1.5 * (q[2] - q[1]) AS low FROM (
        SELECT retriever, quantile_cont(top_score, [0.25, 0.75]) AS q FROM ({FACTS})
        WHERE start_time >= $first AND start_time < $last AND top_score IS NOT NULL
        GROUP BY retriever HAVING count(*) >= {_FEWEST_SCORES})"""
"""The least usual score of the best context, by retriever: Tukey's fence, 1.5 quartile ranges below the quartiles."""


def unanswered(store: Store, window: Window, filters: Filter) -> dict[str, Moments]:
    """Return the share of each topic's requests that were refused or empty.

    Where that is unknown, those without a context of a usual score count.
    """
    source = f"""
        SELECT f.*, {KEPT} AS pi, CASE WHEN answer <> 'answered' OR (answer IS NULL AND top_score < low) THEN 1
            WHEN coalesce(answer, (top_score - low)::VARCHAR) IS NOT NULL THEN 0 END AS y
        FROM (SELECT * {_inside(filters)} AND topic IS NOT NULL) f
        LEFT JOIN ({USUAL}) u ON u.retriever IS NOT DISTINCT FROM f.retriever"""
    parameters = {**window.parameters, **filters.parameters}
    found = by_user(store, f"SELECT * FROM ({source}) WHERE y IS NOT NULL", _BY_TOPIC, parameters)
    return {str(topic): mean for (topic,), mean in found.items()}


def _ranked(read: _Read, topics: Mapping[str, stored.StoredTopic]) -> list[TopicFigures]:
    """Return the topics by the answers lost, `other` last."""
    names = sorted(read.shares)
    open_ = [Rate.of(read.unanswered.get(name)) for name in names]
    failing = [Rate.of(own.moments, failing=True) if (own := read.quality.get(name)) else None for name in names]
    worse = adjusted(p_worse(open_), p_worse(failing))
    changed = benjamini_hochberg([p_changed(*_moments(read, name)) for name in names])
    rates = zip(shrunk(open_), shrunk(failing), strict=True)
    failures = [_failure(unanswered_rate, failed) for unanswered_rate, failed in rates]
    rows = [
        _figures(name, read, topics.get(name), failure=failure, worse_p=p, change_p=change_p)
        for name, failure, p, change_p in zip(names, failures, worse, changed, strict=True)
    ]
    return sorted(rows, key=lambda row: (row.name == stored.OTHER_TOPIC, -row.lost, -row.n, row.name))


def _moments(read: _Read, name: str) -> tuple[Moments, Moments | None]:
    """Return a topic's share now, and before; a topic that nobody asked about then had the share 0."""
    return read.shares[name], share_of(read.before, name)


def _failure(unanswered_rate: float | None, failed: float | None) -> float | None:
    if unanswered_rate is None and failed is None:
        return None
    return 1.0 - (1.0 - (unanswered_rate or 0.0)) * (1.0 - (failed or 0.0))


def _figures(
    name: str, read: _Read, topic: stored.StoredTopic | None, *, failure: float | None, worse_p: float, change_p: float
) -> TopicFigures:
    now, before = _moments(read, name)
    share, quality, requests = Figures.of_sums(now), read.quality.get(name), read.requests[name]
    cost, priced = requests.values["cost_usd"], requests.known["cost_usd"]
    return TopicFigures(
        topic_id=topic.topic_id if topic else None,
        name=name,
        named_by=topic.named_by if topic else None,
        question=topic.question if topic else None,
        terms=topic.terms if topic else (),
        n=round(requests.values["requests"] or 0.0),
        share=share,
        change=_change(now, before),
        change_p=change_p,
        quality=quality.measured if quality else None,
        unanswered=Figures.of_sums(read.unanswered.get(name)),
        failure=failure,
        lost=(share.value or 0.0) * (failure or 0.0),
        worse_p=worse_p,
        worse=worse_p <= ALPHA,
        cost_usd=cost / priced if cost is not None and priced else None,
        latency_p95=requests.values["latency_p95"],
        thumbs=Figures.of_sums(read.thumbs.get(name)),
        worst=(),
    )


def _change(now: Moments, before: Moments | None) -> Uncertain:
    if before is None:
        return Uncertain()
    ends = Interval.of(now.estimate()), Interval.of(before.estimate())
    if ends[0] is None or ends[1] is None:
        return Uncertain(value=now.mean - before.mean)
    moved = minus(ends[0], ends[1])
    return Uncertain(value=moved.value, lo=moved.lo, hi=moved.hi)


def _worst(store: Store, query: Query, evaluator: str) -> dict[str, Sequence[str]]:
    """Return trace ids by topic, a question once: of the lowest scores, then of the latest requests without an answer.

    A few more than are shown, since `_once` takes questions that differ in spelling alone for one.
    """
    sample = sample_of(store, evaluator, query.window.parameters, query.filters, columns=(*_BY_TOPIC, "query"))
    rows = store.read(
        f"WITH low AS (SELECT topic, query, trace_id, (0, normalized) AS place FROM ({sample.sql})"
        "  WHERE status = 'ok' AND normalized IS NOT NULL AND topic IS NOT NULL),"
        f" latest AS (SELECT topic, query, trace_id, (1, -epoch(start_time)) AS place {_inside(query.filters)}"
        f"  AND topic IS NOT NULL AND answer <> 'answered'),"
        " once AS (SELECT topic, arg_min(trace_id, place) AS trace_id, min(place) AS place"
        "  FROM (FROM low UNION ALL FROM latest) GROUP BY topic, query)"
        f" SELECT topic, arg_min(replace(trace_id::VARCHAR, '-', ''), place, {4 * WORST}) FROM once GROUP BY topic",
        {**sample.parameters, **query.parameters},
    ).rows
    return dict(rows)


def _inside(filters: Filter) -> str:
    return of_range(filters, relation=f"({FACTS})")


def _once(rows: Sequence[ScoredTrace]) -> list[ScoredTrace]:
    """Return the first rows, of each question one."""
    first: dict[str, ScoredTrace] = {}
    for row in rows:
        first.setdefault(same(row.query or ""), row)
    return [*first.values()][:WORST]
