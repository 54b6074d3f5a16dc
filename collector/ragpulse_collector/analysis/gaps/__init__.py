"""Content gaps: groups of questions that are declined, left empty or answered without support, to write documents for.

Questions are grouped by their topics; those without one by the same clusters. A group is a gap where it surely fails
more often than all questions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from ragpulse_collector.analysis.answers import Uncertain
from ragpulse_collector.analysis.gaps.collection import Collection, collection, first_documents
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.topics import USUAL
from ragpulse_collector.analysis.why.documents import documents
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, KEPT
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.topics import stored_topics
from ragpulse_collector.topics import LEAST_USERS, SMALL_GROUPS, SMALLEST, Topic, assign_all, fit
from ragpulse_evaluators.statistics import hajek

__all__ = ["ContentGap", "ContentGaps", "NearestDocument", "gaps"]

_LISTED = 10
"""Gaps of a kind that are listed."""
GapKind = Literal["unanswered", "ungrounded"]
_READ = 3_000
"""Questions of each kind, failed or not, that are read: a random sample where there are more."""
_ROWS = f"""
    WITH t AS (
        SELECT *, trace_id::UUID AS id FROM traces
        WHERE start_time >= $first AND start_time < $last AND query IS NOT NULL AND {{filters}}
    ), verdicts AS (
        SELECT trace_id AS id, bool_or(passing = false) AS ungrounded FROM ({{scored}}) WHERE status = 'ok' GROUP BY 1
    ), asked AS (
        SELECT trace_id, query, topic, {CLUSTER} AS cluster, {KEPT} AS kept, CASE
               WHEN answer IN ('refused', 'empty') OR top_score < low THEN ['unanswered']
               WHEN ungrounded THEN ['ungrounded'] ELSE [] END AS kinds
        FROM t LEFT JOIN ({USUAL}) u ON u.retriever IS NOT DISTINCT FROM t.retriever LEFT JOIN verdicts USING (id)
    ), drawn AS (
        SELECT *, count(*) OVER kind AS n, row_number() OVER (kind ORDER BY hash(trace_id)) AS place
        FROM asked WINDOW kind AS (PARTITION BY kinds)
    )
    SELECT trace_id, query, topic, cluster, kinds, kept * least(1, {_READ} / n) FROM drawn
    WHERE place <= {_READ} ORDER BY trace_id"""


class _Asked(NamedTuple):
    """A question of the sample, with the probability that it is in it."""

    trace_id: str
    query: str
    topic: str | None
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
    """Whom it failed."""
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
    collection: Collection


@dataclass(frozen=True, slots=True)
class _Group:
    """Questions of one topic, and the texts that may be shown of them."""

    members: Sequence[_Asked]
    question: str | None
    terms: Sequence[str]

    def users(self, kind: GapKind) -> int:
        return len({one.cluster for one in self.members if kind in one.fails})

    def failed(self, kind: GapKind) -> float:
        return sum(1 / one.pi for one in self.members if kind in one.fails)

    def failing(self, kind: GapKind) -> list[bool]:
        return [kind in one.fails for one in self.members]


def gaps(store: Store, query: Query, lead: str, least_users: int = LEAST_USERS) -> ContentGaps:
    """Answer `GET gaps`; a group that failed fewer users is left out."""
    scored = sample_of(store, lead, query.window.parameters, query.filters)
    sql = _ROWS.format(scored=scored.sql, filters=query.filters.sql)
    asked = [_Asked(*row) for row in store.read(sql, {**query.parameters, **scored.parameters}).rows]
    groups = _groups(store, asked, least_users)
    found = [pair for kind in get_args(GapKind) for pair in _failing(kind, groups, asked, least_users)]
    firsts = first_documents(store, query, [[one.trace_id for one in group.members] for _, group in found])
    used = {row.id: row.used_share for row in documents(store, query, lead=lead, limit=1000).documents} if found else {}
    nearest = [None if first is None else NearestDocument(first, used.get(first)) for first in firsts]
    return ContentGaps(
        [_gap(kind, group, asked, first) for (kind, group), first in zip(found, nearest, strict=True)],
        round(sum(1 / one.pi for one in asked)),
        collection(store, query),
    )


def _groups(store: Store, asked: Sequence[_Asked], least_users: int) -> list[_Group]:
    """Return the topics of the last fits, and clusters of the questions that have none."""
    stored = {topic.name: topic for topic in stored_topics(store.read)}
    members: dict[str | Topic | None, list[_Asked]] = defaultdict(list)
    rest = [one for one in asked if one.topic not in stored]
    if any(one.fails for one in rest) and len(rest) >= SMALLEST:
        texts, users = [one.query for one in rest], [str(one.cluster) for one in rest]
        some = slice(SMALL_GROUPS)  # of random questions: more take seconds
        topics = fit(texts[some], users[some], least_users=least_users, least_questions=SMALLEST)
        for one, assigned in zip(rest, assign_all(topics, texts), strict=True):
            members[assigned.topic].append(one)
    for one in asked:
        members[one.topic if one.topic in stored else None].append(one)
    known = {topic: stored[topic] if isinstance(topic, str) else topic for topic in members}
    return [_Group(members[key], topic.question, topic.terms) for key, topic in known.items() if topic]


def _failing(
    kind: GapKind, groups: Sequence[_Group], asked: Sequence[_Asked], least_users: int
) -> list[tuple[GapKind, _Group]]:
    """Return the groups that surely fail more often than all, over all groups and both kinds; the most failed first."""
    overall = _share(asked, [kind in one.fails for one in asked]).value or 0.0
    tested = [group for group in groups if sum(group.failing(kind)) >= SMALLEST and group.users(kind) >= least_users]
    confidence = 1 - 0.05 / (2 * len(groups) or 1)
    sure = [group for group in tested if (_share(group.members, group.failing(kind), confidence).lo or 0.0) > overall]
    return [(kind, group) for group in sorted(sure, key=lambda group: -group.failed(kind))[:_LISTED]]


def _share(asked: Sequence[_Asked], holds: Sequence[bool], confidence: float = 0.95) -> Uncertain:
    """Return a share of the requests that a sample stands for, with users as clusters."""
    pi, users = [one.pi for one in asked], [one.cluster for one in asked]
    estimate = hajek(holds, pi, clusters=users, confidence=confidence)
    return Uncertain(value=estimate.estimate, lo=estimate.lo, hi=estimate.hi) if estimate else Uncertain()


def _gap(kind: GapKind, group: _Group, asked: Sequence[_Asked], nearest: NearestDocument | None) -> ContentGap:
    inside, failing = {one.trace_id for one in group.members}, group.failing(kind)
    share, failed = _share(asked, [one.trace_id in inside for one in asked]), _share(group.members, failing)
    question, terms = group.question, ", ".join(group.terms)
    name = f"`{' '.join(question.split()).replace('`', chr(39))}`" if question else terms or "in many words"
    document = "" if nearest is None else f"; nearest document {nearest.id}{_used(nearest.used_share)}"
    text = f"{_percent(share.value or 0.0)} of questions ask {name}; {_percent(failed.value or 0.0)} {kind}{document}"
    traces = [one.trace_id for one, fails in zip(group.members, failing, strict=True) if fails]
    return ContentGap(
        kind=kind,
        question=question,
        terms=group.terms,
        users=group.users(kind),
        share=share,
        failing=failed,
        nearest=nearest,
        trace_ids=traces,
        text=text,
        issue=f"### Missing content: {terms or kind}\n\n{text}.\n\n"
        f"It failed {group.users(kind)} users. Traces: {', '.join(traces[:5])}\n",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %" if share >= 0.001 or not share else "< 0.1 %"


def _used(share: float | None) -> str:
    return "" if share is None else f" ({_percent(share)} used)" if share else " (never used)"
