"""Rates the retrieved documents by the quality of the answers that had them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.ages import changed_at
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS, SQUARED_ERROR
from ragpulse_collector.store.queries.documents import (
    CONTEXTS,
    DOCUMENT,
    NamedDocument,
    documents_of,
    named_documents,
)
from ragpulse_collector.store.queries.scores import Sample, sample_of
from ragpulse_evaluators.statistics import Moments

_CANDIDATES = 1_000
"""So many documents with the most damage are looked at for their age."""
_HUB_SHARE, _HUB_QUERIES = 0.2, 20
"""A document in this share of requests and questions is a hub, from this number of questions on."""


DocumentSort = Literal["worst", "best", "retrieved", "unused", "stale"]
_SORTS: Mapping[DocumentSort, str] = {
    "worst": "shrunk ASC NULLS LAST, z ASC NULLS LAST",
    "best": "shrunk DESC NULLS LAST, z DESC NULLS LAST",
    "retrieved": "retrieved DESC",
    "unused": "used_share ASC NULLS LAST",
    "stale": "damage DESC NULLS LAST",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedDocument:
    """A retrieved document and the quality of its answers."""

    id: str
    hash: str | None
    text: str | None
    source: str | None
    """The document that the passage was cut from, as its metadata name it."""
    retrieved: int
    queries: int
    used_share: float | None
    shrunk: float | None
    """The quality, pulled towards the mean of all documents where few answers had it (empirical Bayes)."""
    quality: Figures
    """Hajek's mean over the answers that had the document."""
    quality_without: float | None
    """The mean over the others."""
    hub: bool
    """Whether it is found for much of everything."""
    last_seen: datetime
    updated_at: datetime | None
    """When it was last changed, as its metadata say; null where that is unknown or lies in the future."""
    damage: float | None
    """The score that answers resting on it lack beside others of their topics, summed and shrunk; null if unknown."""
    rewritten: Rewritten | None
    """Where its text changed under its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A document whose text changed under one id: a new version of it."""

    at: datetime
    """When the new text was first retrieved; the old one never was after it."""
    before: Figures
    """The quality of the answers that had the old text ..."""
    after: Figures
    """... and of those that had the new one."""


@dataclass(frozen=True, slots=True)
class RatedDocuments:
    """Quality by retrieved document."""

    evaluator: str
    documents: Sequence[RatedDocument]
    never_used: int
    """Retrieved documents that no answer used."""
    total: int


def documents(
    store: Store,
    query: Query,
    *,
    evaluator: str | None = None,
    lead: str = "",
    sort: DocumentSort = "retrieved",
    limit: int = 100,
    updated_at: str | None = None,
) -> RatedDocuments:
    """Answer `GET documents`; `evaluator` is by default the one that leads, `updated_at` names a field of metadata.

    Stale ones are those of a known age that do damage, by the damage and by how many of them are younger. A time after
    the range is no age.

    `used_share` needs `context_utilization`. Every document of the range is counted and ordered in SQL; intervals,
    questions and texts are read only for the listed ones.
    """
    within = query.window.parameters
    evaluator = evaluator or first_of(store, query.window, (lead, *FAITHFUL)) or "groundedness"
    scored = sample_of(store, evaluator, within, query.filters, columns=("topic",))
    used = sample_of(store, "context_utilization", within, query.filters, prefix="used_")
    sql = _QUERY.format(scored=scored.sql, used=used.sql, retrievals=documents_of(query.filters), order=_SORTS[sort])
    limit = min(1000, limit)
    most = max(limit, _CANDIDATES) if sort == "stale" else limit
    parameters = {**scored.parameters, **used.parameters, "limit": most}
    rows = [_Rated(*row) for row in store.read(sql, parameters).rows]
    names = named_documents(store, [row.doc for row in rows], within)
    read = {doc: changed_at(name.metadata, query.window.last, updated_at) for doc, name in names.items()}
    ages = {doc: time for doc, time in read.items() if time is not None}
    listed = _stale(rows, ages)[:limit] if sort == "stale" else rows
    rewritten = _rewritten(store, scored, [row.doc for row in listed])
    return RatedDocuments(
        evaluator=evaluator,
        documents=[_document(row, names[row.doc], ages.get(row.doc), rewritten.get(row.doc)) for row in listed],
        never_used=rows[0].never_used if rows else 0,
        total=rows[0].total if rows else 0,
    )


def _stale(rows: Sequence[_Rated], ages: Mapping[int, datetime]) -> list[_Rated]:
    """Return the rows of a known age that do damage, the worst first."""
    aged = [row for row in rows if row.doc in ages and row.damage]
    times = sorted(ages[row.doc] for row in aged)
    older = {row.doc: 1.0 - bisect_left(times, ages[row.doc]) / len(times) for row in aged}
    return sorted(aged, key=lambda row: (-(row.damage or 0.0) * older[row.doc], row.doc))


def _rewritten(store: Store, scored: Sample, docs: Sequence[int]) -> dict[int, Rewritten]:
    """Return the documents whose text changed under one id, with the quality of their answers before and after."""
    sql = _REWRITTEN.format(scored=scored.sql)
    halves: dict[int, dict[bool, Figures]] = defaultdict(dict)
    times: dict[int, datetime] = {}
    for doc, at, late, sums in store.read(sql, {**scored.parameters, "docs": list(docs)}).rows:
        times[doc] = at
        if late is not None:
            halves[doc][late] = Figures.of_sums(Moments.of(sums))
    return {
        doc: Rewritten(at=at, before=halves[doc].get(False, Figures()), after=halves[doc].get(True, Figures()))
        for doc, at in times.items()
    }


_REWRITTEN = f"""
WITH found AS MATERIALIZED (
    SELECT hash({DOCUMENT}) AS doc, hash(trace_id) AS trace, start_time, hash AS text FROM ({CONTEXTS})
    WHERE id IS NOT NULL AND hash IS NOT NULL AND list_contains($docs::UBIGINT[], hash({DOCUMENT}))
), texts AS (
    SELECT doc, text, min(start_time) AS since, max(start_time) AS until FROM found GROUP BY ALL
), newest AS (
    SELECT doc, max(since) AS moment FROM texts GROUP BY doc HAVING count(*) > 1
), changed AS (
    SELECT doc, moment FROM newest
    WHERE NOT EXISTS (FROM texts WHERE texts.doc = newest.doc AND since < moment AND until >= moment)
), scored AS (
    SELECT hash(trace_id) AS trace, normalized AS y, pi, cluster, identified FROM ({{scored}})
    WHERE status = 'ok' AND pi > 0 AND normalized IS NOT NULL
), answers AS (
    SELECT DISTINCT doc, start_time >= moment AS late, trace FROM found JOIN changed USING (doc)
), summed AS (
    SELECT doc, late, max(identified) AS known, {CLUSTER_SUMS.format(y="y")}
    FROM answers JOIN scored USING (trace) GROUP BY doc, late, cluster
)
SELECT doc, any_value(moment), late, [{MOMENTS}, max(known)]
FROM changed LEFT JOIN summed USING (doc) GROUP BY doc, late
"""
"""A text that is still retrieved beside a newer one is another passage of the same id, not an older version."""


_QUERY = f"""
WITH retrievals AS MATERIALIZED ({{retrievals}}
), pairs AS MATERIALIZED (
    SELECT trace, doc, any_value(weight) AS weight FROM retrievals GROUP BY trace, doc
), scored AS MATERIALIZED (
    SELECT hash(trace_id) AS trace, normalized AS y, pi, cluster, identified, coalesce(topic, '') AS topic
    FROM ({{scored}}) WHERE status = 'ok' AND pi > 0 AND normalized IS NOT NULL
), uses AS MATERIALIZED (
    SELECT hash(trace_id) AS trace, flatten(list(from_json(parts::JSON -> '$.used', '["BIGINT"]'))) AS used_ranks
    FROM ({{used}}) WHERE status = 'ok' AND parts IS NOT NULL GROUP BY trace
), ranks AS (
    SELECT trace, doc, min(text_rank) AS text_rank, any_value(weight) AS weight FROM (
        SELECT trace, doc, weight,
               row_number() OVER (PARTITION BY trace ORDER BY start_time, span_id, rank) AS text_rank
        FROM retrievals WHERE has_text AND trace IN (SELECT trace FROM uses)) GROUP BY trace, doc
), used AS (
    SELECT doc, sum(weight) AS n_use, coalesce(sum(weight) FILTER (list_contains(used_ranks, text_rank)), 0) AS n_used
    FROM ranks JOIN uses USING (trace) GROUP BY doc
), whole AS (
    SELECT sum(y / pi) AS wy, sum(1 / pi) AS w, sum(y / pi) / sum(1 / pi) AS prior
    FROM scored WHERE trace IN (SELECT trace FROM retrievals)
), usual AS (
    SELECT topic, sum(y / pi) / sum(1 / pi) AS usual FROM scored WHERE trace IN (SELECT trace FROM retrievals)
    GROUP BY topic
), sums AS (
    SELECT doc, sum(c_lost) AS lost, sum(c_w) AS w, sum(c_wy) AS wy, sum(c_ww) AS ww, sum(c_w * c_w) AS cluster_ww,
           sum(c_w * c_wy) AS cluster_ws, sum(c_wy * c_wy) AS cluster_ss
    FROM (SELECT doc, sum(1 / pi) AS c_w, sum(y / pi) AS c_wy, sum(1 / pi / pi) AS c_ww,
                 sum((usual - y) / pi) AS c_lost
          FROM pairs JOIN scored USING (trace) JOIN usual USING (topic) GROUP BY doc, cluster) GROUP BY doc
), rated AS MATERIALIZED (
    SELECT doc, w, wy / w AS mean, prior, lost / w AS lost,
           greatest({SQUARED_ERROR}, greatest(0.01, prior * (1 - prior)) * ww / (w * w)) AS error
    FROM sums, (SELECT prior FROM whole)
), spread AS (
    SELECT CASE WHEN count(*) > 1 THEN greatest(0.0, sum(w * ((mean - prior) ** 2 - error)) / sum(w)) ELSE 0.0 END
           AS between
    FROM rated
), ranked AS (
    SELECT doc, retrieved, n_used / n_use AS used_share,
           CASE WHEN between > 0 THEN between / (between + error) ELSE 0.0 END AS kept,
           prior + (mean - prior) * kept AS shrunk,
           retrieved * coalesce(n_used / n_use, 1.0) * greatest(0.0, lost) * kept AS damage,
           (mean - prior) / sqrt(error) AS z,
           count(*) FILTER (n_used = 0) OVER () AS never_used, count(*) OVER () AS total
    FROM (SELECT doc, round(sum(weight))::BIGINT AS retrieved FROM pairs GROUP BY doc) LEFT JOIN used USING (doc)
         LEFT JOIN rated USING (doc), spread
), listed AS MATERIALIZED (
    SELECT * FROM ranked ORDER BY {{order}}, retrieved DESC, doc LIMIT $limit
), totals AS (
    SELECT (SELECT count(DISTINCT query) FROM retrievals) AS queries, sum(weight) AS traces
    FROM (SELECT any_value(weight) AS weight FROM pairs GROUP BY trace)
), history AS (
    SELECT doc, count(DISTINCT query) AS queries, max(start_time) AS last_seen
    FROM retrievals SEMI JOIN listed USING (doc) GROUP BY doc
), summed AS (
    SELECT doc, [{MOMENTS}, max(known)] AS moments
    FROM (SELECT doc, cluster, max(identified) AS known, {CLUSTER_SUMS.format(y="y")}
          FROM pairs SEMI JOIN listed USING (doc) JOIN scored USING (trace) GROUP BY doc, cluster) GROUP BY doc
)
SELECT listed.* EXCLUDE (z, kept), history.queries, history.last_seen, moments, whole.wy AS whole_wy,
       whole.w AS whole_w, totals.queries AS all_queries, totals.traces AS all_traces
FROM listed JOIN history USING (doc) LEFT JOIN summed USING (doc), whole, totals ORDER BY {{order}}, retrieved DESC, doc
"""
"""The documents to list. `text_rank` is the rank of a context among those with a text, as for evaluators. `error` is
the squared error of a document's mean, at least that of a yes-or-no score; `between` is the variance between documents,
by the method of moments, weighted by their answers: unweighted it is 0 in half of the stores with many rare documents.
Where it is 0 and all are alike after shrinkage, `z` decides: how many standard errors a document lies off."""


class _Rated(NamedTuple):
    """A row of the query."""

    doc: int
    retrieved: int
    used_share: float | None
    shrunk: float | None
    damage: float | None
    never_used: int
    total: int
    queries: int
    last_seen: datetime
    moments: Sequence[float] | None
    whole_wy: float | None
    whole_w: float | None
    all_queries: int
    all_traces: float

    @property
    def hub(self) -> bool:
        """Whether the document is found for a large share of the requests and of the questions."""
        return (
            self.all_queries >= _HUB_QUERIES
            and self.queries >= _HUB_SHARE * self.all_queries
            and self.retrieved >= _HUB_SHARE * self.all_traces
        )


def _document(
    row: _Rated, name: NamedDocument, updated_at: datetime | None, rewritten: Rewritten | None
) -> RatedDocument:
    moments = Moments.of(row.moments) if row.moments else None
    rest_weight = (row.whole_w or 0.0) - moments.w if moments else 0.0
    return RatedDocument(
        id=name.id,
        hash=name.hash,
        text=name.text,
        source=name.source,
        retrieved=row.retrieved,
        queries=row.queries,
        used_share=row.used_share,
        shrunk=row.shrunk,
        quality=Figures.of_sums(moments),
        quality_without=((row.whole_wy or 0.0) - moments.wy) / rest_weight if moments and rest_weight > 1e-9 else None,
        hub=row.hub,
        last_seen=row.last_seen,
        updated_at=updated_at,
        damage=row.damage,
        rewritten=rewritten,
    )
