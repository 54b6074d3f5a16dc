"""Content gaps: groups of questions that are declined, left empty or answered without support, to write documents for.

A group is a gap where it surely fails more often than the other questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from ragpulse_collector.analysis.answers import uncertain
from ragpulse_collector.analysis.gaps.collection import Collection, collection, first_documents
from ragpulse_collector.analysis.gaps.groups import GapKind, Groups, SampledQuestion, share_of
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.topics import USUAL
from ragpulse_collector.analysis.why.documents import documents
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, KEPT
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.queries.traces import of_range
from ragpulse_collector.store.topics import SAME
from ragpulse_collector.store.views import UNCLEAR
from ragpulse_collector.topics.fitting import LEAST_USERS, central
from ragpulse_collector.topics.terms import terms_by_topic
from ragpulse_collector.topics.vectors import static_vectors
from ragpulse_evaluators.statistics import Uncertain

__all__ = ["ContentGap", "ContentGaps", "NearestDocument", "gaps"]

_READ = 3_000
"""Questions of each kind, failed or not, that are read: a random sample where there are more."""
_ROWS = f"""
    WITH t AS (
        SELECT *, trace_id::UUID AS id {{inside}} AND query IS NOT NULL
    ), verdicts AS (
        SELECT trace_id AS id, bool_or(passing = false) AS ungrounded, bool_or({UNCLEAR}) AS unclear
        FROM ({{scored}}) WHERE status = 'ok' GROUP BY 1
    ), requests AS (
        SELECT trace_id, query, topic, {CLUSTER} AS cluster, {SAME} AS question, {KEPT} AS kept,
               epoch(start_time) AS seconds, CASE
               WHEN answer IN ('refused', 'empty') OR (answer IS NULL AND top_score < low) THEN ['unanswered']
               WHEN ungrounded THEN ['ungrounded'] WHEN unclear THEN ['unclear'] ELSE [] END AS kinds
        FROM t LEFT JOIN ({USUAL}) u ON u.retriever IS NOT DISTINCT FROM t.retriever LEFT JOIN verdicts USING (id)
    ), asked AS (
        SELECT * REPLACE (least(1, min(kept) OVER again * count(*) OVER again) AS kept) FROM requests
        WINDOW again AS (PARTITION BY cluster, question, kinds)
        QUALIFY row_number() OVER (again ORDER BY seconds DESC, trace_id) = 1
    ), drawn AS (
        SELECT *, count(*) OVER kind AS n, row_number() OVER (kind ORDER BY hash(trace_id)) AS place
        FROM asked WINDOW kind AS (PARTITION BY kinds)
    )
    SELECT trace_id, query, topic, cluster, kinds, kept * least(1, {_READ} / n), seconds FROM drawn
    WHERE place <= {_READ} ORDER BY trace_id"""


@dataclass(frozen=True, slots=True)
class NearestDocument:
    """The document that these questions find first, and the share of its answers that drew on it."""

    id: str
    used_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentGap:
    """Questions that mean about the same, and fail in one way."""

    kind: GapKind
    """`unanswered`: declined, empty, or neither is known and no context scores as usual; `ungrounded`: unsupported."""
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
class _Found:
    """A group that fails, and the texts that may be shown of it."""

    kind: GapKind
    members: Sequence[SampledQuestion]
    question: str | None
    terms: Sequence[str]


def gaps(store: Store, query: Query, lead: str, least_users: int = LEAST_USERS) -> ContentGaps:
    """Answer `GET gaps`; a group that failed fewer users is left out."""
    scored = sample_of(store, lead, query.window.parameters, query.filters)
    sql = _ROWS.format(scored=scored.sql, inside=of_range(query.filters))
    asked = [SampledQuestion(*row) for row in store.read(sql, {**query.parameters, **scored.parameters}).rows]
    found = _found(asked, least_users) if any({*one.fails} & {*get_args(GapKind)} for one in asked) else []
    firsts = first_documents(store, query, [[one.trace_id for one in group.members] for group in found])
    used = {row.id: row.used_share for row in documents(store, query, lead=lead, limit=1000).documents} if found else {}
    nearest = [None if first is None else NearestDocument(first, used.get(first)) for first in firsts]
    return ContentGaps(
        [_gap(group, asked, first) for group, first in zip(found, nearest, strict=True)],
        round(sum(1 / one.pi for one in asked)),
        collection(store, query),
    )


def _found(asked: Sequence[SampledQuestion], least_users: int) -> list[_Found]:
    """Return the groups that surely fail, of each kind the surest first."""
    vectors = static_vectors([one.query for one in asked])
    tried = Groups(asked, vectors, least_users)
    found = [(kind, rows) for kind in get_args(GapKind) for rows in tried.failing(kind)]
    rest = set(range(len(asked))).difference(*(rows for _, rows in found))
    said = [[(asked[row].query, str(asked[row].cluster)) for row in rows] for rows in (*(r for _, r in found), rest)]
    terms = terms_by_topic([group for group in said if group], least_users)
    result = []
    for (kind, rows), own, words in zip(found, said, terms, strict=False):
        closeness = vectors[rows] @ vectors[rows].mean(axis=0)
        nearest = dict(zip((text for text, _ in own), closeness.tolist(), strict=True))
        question, _ = central(own, nearest, least_users)
        result.append(_Found(kind, [asked[row] for row in rows], question, list(words)))
    return result


def _gap(group: _Found, asked: Sequence[SampledQuestion], nearest: NearestDocument | None) -> ContentGap:
    inside, failing = {one.trace_id for one in group.members}, [group.kind in one.fails for one in group.members]
    failed = [one for one, fails in zip(group.members, failing, strict=True) if fails]
    share = uncertain(share_of(asked, [one.trace_id in inside for one in asked]))
    rate = uncertain(share_of(group.members, failing))
    question, terms, users = group.question, ", ".join(group.terms), len({one.cluster for one in failed})
    name = f"`{' '.join(question.split()).replace('`', chr(39))}`" if question else terms or "in many words"
    document = "" if nearest is None else f"; nearest document {nearest.id}"
    if nearest is not None and nearest.used_share is not None:
        document += f" ({_percent(nearest.used_share)} used)" if nearest.used_share else " (never used)"
    asks, fails = _percent(share.value or 0.0), _percent(rate.value or 0.0)
    text = f"{asks} of questions ask {name}; {fails} {group.kind}{document}"
    traces = [one.trace_id for one in failed]
    return ContentGap(
        kind=group.kind,
        question=question,
        terms=group.terms,
        users=users,
        share=share,
        failing=rate,
        nearest=nearest,
        trace_ids=traces,
        text=text,
        issue=f"### Missing content: {terms or group.kind}\n\n{text}.\n\n"
        f"It failed {users} users. Traces: {', '.join(traces[:5])}\n",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.{0 if share >= 0.1 else 1}f} %" if share >= 0.001 or not share else "< 0.1 %"
