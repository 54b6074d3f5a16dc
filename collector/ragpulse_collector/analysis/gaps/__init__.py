"""Content gaps: groups of questions that are declined, left empty or answered without support, to write documents for.

Failed questions are grouped by the topics' clusters; a sample of the others shows how often each group is answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from ragpulse_collector.analysis.answers import Uncertain
from ragpulse_collector.analysis.attribution import documents
from ragpulse_collector.analysis.gaps.collection import Collection, collection, first_documents
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, KEPT
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.topics import LEAST_USERS, SMALLEST, Topic, assign_all, fit
from ragpulse_evaluators.statistics import hajek

__all__ = ["ContentGap", "ContentGaps", "NearestDocument", "gaps"]

GapKind = Literal["unanswered", "ungrounded"]
_READ = 3_000
"""Questions of each kind, failed or not, that are read: a random sample where there are more."""
_ROWS = f"""
    WITH t AS (
        SELECT *, trace_id::UUID AS id FROM traces
        WHERE start_time >= $first AND start_time < $last AND query IS NOT NULL AND {{filters}}
    ), usual AS (
        SELECT retriever, quantile_cont(top_score, 0.25) * 2.5 - quantile_cont(top_score, 0.75) * 1.5 AS least
        FROM t GROUP BY retriever
    ), verdicts AS (
        SELECT trace_id AS id, bool_or(passing = false) AS ungrounded FROM ({{scored}}) WHERE status = 'ok' GROUP BY 1
    ), asked AS (
        SELECT trace_id, query, {CLUSTER} AS cluster, {KEPT} AS kept, CASE
               WHEN answer IN ('refused', 'empty') OR top_score < least THEN ['unanswered']
               WHEN ungrounded THEN ['ungrounded'] ELSE [] END AS kinds
        FROM t LEFT JOIN usual ON usual.retriever IS NOT DISTINCT FROM t.retriever LEFT JOIN verdicts USING (id)
    ), drawn AS (
        SELECT *, count(*) OVER kind AS n, row_number() OVER (kind ORDER BY hash(trace_id)) AS place
        FROM asked WINDOW kind AS (PARTITION BY kinds)
    )
    SELECT trace_id, query, cluster, kinds, kept * least(1, {_READ} / n) FROM drawn
    WHERE place <= {_READ} ORDER BY trace_id"""
"""A context's score is unusually low below the lower fence of the box plot (1.5 quartile ranges) of its retriever."""


class _Asked(NamedTuple):
    """A question of the sample, with the probability that it is in it."""

    trace_id: str
    query: str
    cluster: int
    fails: Sequence[GapKind]
    pi: float


@dataclass(frozen=True, slots=True)
class NearestDocument:
    """The document that these questions find first, and the share of its answers that drew on it."""

    id: str
    used_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentGap:
    """Questions that mean about the same, and fail in one way."""

    kind: GapKind
    """`unanswered`: declined, left empty, or without a context of usual score; `ungrounded`: without support."""
    question: str | None
    """The most central one that enough users asked."""
    terms: Sequence[str]
    users: int
    share: Uncertain
    """Of all questions."""
    failing: Uncertain
    """The share of these questions that fails in this way."""
    nearest: NearestDocument | None
    trace_ids: Sequence[str]
    """Failed ones."""
    text: str
    """The gap in a sentence."""
    issue: str
    """The gap as Markdown, for whoever writes documents."""


@dataclass(frozen=True, slots=True)
class ContentGaps:
    """The gaps of a range, the unanswered ones first, and the collection of documents."""

    gaps: Sequence[ContentGap]
    questions: int
    hidden: int
    """Groups of too few users: their words are not shown."""
    collection: Collection


class _Group(NamedTuple):
    """A cluster of failed questions, with every question of the sample that belongs to it."""

    kind: GapKind
    topic: Topic
    members: Sequence[_Asked]

    @property
    def failed(self) -> list[bool]:
        return [self.kind in one.fails for one in self.members]

    @property
    def users(self) -> int:
        return len({one.cluster for one in self.members})


def gaps(store: Store, query: Query, lead: str, least_users: int = LEAST_USERS) -> ContentGaps:
    """Answer `GET gaps`; a group that fewer users asked is only counted."""
    scored = sample_of(store, lead, query.window.parameters, query.filters)
    sql = _ROWS.format(scored=scored.sql, filters=query.filters.sql)
    asked = [_Asked(*row) for row in store.read(sql, {**query.parameters, **scored.parameters}).rows]
    found = [group for kind in get_args(GapKind) for group in _groups(asked, kind, least_users)]
    shown = [group for group in found if group.users >= least_users]
    firsts = first_documents(store, query, [[one.trace_id for one in group.members] for group in shown])
    used = {row.id: row.used_share for row in documents(store, query, lead=lead, limit=1000).documents} if shown else {}
    nearest = [first and NearestDocument(first, used.get(first)) for first in firsts]
    return ContentGaps(
        [_gap(group, asked, document) for group, document in zip(shown, nearest, strict=True)],
        round(sum(1 / one.pi for one in asked)),
        len(found) - len(shown),
        collection(store, query),
    )


def _groups(asked: Sequence[_Asked], kind: GapKind, least_users: int) -> list[_Group]:
    """Return the clusters of the questions that failed in a way, which surely fail so more often than others."""
    failed = [one for one in asked if kind in one.fails]
    if len(failed) < SMALLEST:
        return []
    texts, users = [one.query for one in failed], [str(one.cluster) for one in failed]
    topics = fit(texts, users, least_users=least_users, least_questions=SMALLEST)
    members: dict[int, list[_Asked]] = defaultdict(list)
    for one, topic in zip(asked, assign_all(topics, [one.query for one in asked]), strict=True):
        if topic:
            members[topic.id].append(one)
    groups = [_Group(kind, topic, members[topic.id]) for topic in topics.topics]
    overall = _share(asked, [kind in one.fails for one in asked]).value or 0.0
    return [group for group in groups if (_share(group.members, group.failed).lo or 0.0) > overall]


def _share(asked: Sequence[_Asked], holds: Sequence[bool]) -> Uncertain:
    """Return a share of the requests that a sample stands for, with users as clusters."""
    estimate = hajek(holds, [one.pi for one in asked], clusters=[one.cluster for one in asked])
    return Uncertain(value=estimate.estimate, lo=estimate.lo, hi=estimate.hi) if estimate else Uncertain()


def _gap(group: _Group, asked: Sequence[_Asked], nearest: NearestDocument | None) -> ContentGap:
    inside, topic = {one.trace_id for one in group.members}, group.topic
    share, failing = _share(asked, [one.trace_id in inside for one in asked]), _share(group.members, group.failed)
    name = f"`{' '.join(topic.question.split()).replace('`', chr(39))}`" if topic.question else ", ".join(topic.terms)
    document = "" if nearest is None else f"; nearest document {nearest.id}{_used(nearest.used_share)}"
    text = f"{_percent(share)} of questions ask {name or 'in many words'}; {_percent(failing)} {group.kind}{document}"
    failed = [one.trace_id for one, fails in zip(group.members, group.failed, strict=True) if fails]
    return ContentGap(
        kind=group.kind,
        question=topic.question,
        terms=topic.terms,
        users=group.users,
        share=share,
        failing=failing,
        nearest=nearest,
        trace_ids=failed,
        text=text,
        issue=f"### Missing content: {', '.join(topic.terms[:3]) or group.kind}\n\n{text}.\n\n"
        f"Asked by {group.users} users. Traces: {', '.join(failed[:5])}\n",
    )


def _percent(share: Uncertain) -> str:
    return f"{100 * (share.value or 0.0):.2g} %"


def _used(share: float | None) -> str:
    return "" if share is None else f" ({100 * share:.2g} % used)" if share else " (never used)"
