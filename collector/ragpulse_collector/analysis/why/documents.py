"""Rates the retrieved documents by the quality of the answers that had them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS, SQUARED_ERROR
from ragpulse_collector.store.queries.documents import NamedDocument, documents_of, named_documents
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_evaluators.statistics import Moments

_HUB_SHARE, _HUB_QUERIES = 0.2, 20
"""A document in this share of requests and questions is a hub, from this number of questions on."""


DocumentSort = Literal["worst", "best", "retrieved", "unused"]
_SORTS: Mapping[DocumentSort, str] = {
    "worst": "shrunk ASC NULLS LAST, z ASC NULLS LAST",
    "best": "shrunk DESC NULLS LAST, z DESC NULLS LAST",
    "retrieved": "retrieved DESC",
    "unused": "used_share ASC NULLS LAST",
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
) -> RatedDocuments:
    """Answer `GET documents`; `evaluator` is by default the one that leads.

    `used_share` needs `context_utilization`. Every document of the range is counted and ordered in SQL; intervals,
    questions and texts are read only for the listed ones.
    """
    within = query.window.parameters
    evaluator = evaluator or first_of(store, query.window, (lead, *FAITHFUL)) or "groundedness"
    scored = sample_of(store, evaluator, within, query.filters)
    used = sample_of(store, "context_utilization", within, query.filters, prefix="used_")
    sql = _QUERY.format(scored=scored.sql, used=used.sql, retrievals=documents_of(query.filters), order=_SORTS[sort])
    parameters = {**scored.parameters, **used.parameters, "limit": min(1000, limit)}
    rows = [_Rated(*row) for row in store.read(sql, parameters).rows]
    names = named_documents(store, [row.doc for row in rows], within)
    return RatedDocuments(
        evaluator=evaluator,
        documents=[_document(row, names[row.doc]) for row in rows],
        never_used=rows[0].never_used if rows else 0,
        total=rows[0].total if rows else 0,
    )


_QUERY = f"""
WITH retrievals AS MATERIALIZED ({{retrievals}}
), pairs AS MATERIALIZED (
    SELECT trace, doc, any_value(weight) AS weight FROM retrievals GROUP BY trace, doc
), scored AS MATERIALIZED (
    SELECT hash(trace_id) AS trace, normalized AS y, pi, cluster, identified FROM ({{scored}})
    WHERE status = 'ok' AND pi > 0 AND normalized IS NOT NULL
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
), sums AS (
    SELECT doc, sum(c_w) AS w, sum(c_wy) AS wy, sum(c_ww) AS ww, sum(c_w * c_w) AS cluster_ww,
           sum(c_w * c_wy) AS cluster_ws, sum(c_wy * c_wy) AS cluster_ss
    FROM (SELECT doc, sum(1 / pi) AS c_w, sum(y / pi) AS c_wy, sum(1 / pi / pi) AS c_ww
          FROM pairs JOIN scored USING (trace) GROUP BY doc, cluster) GROUP BY doc
), rated AS MATERIALIZED (
    SELECT doc, w, wy / w AS mean, prior,
           greatest({SQUARED_ERROR}, greatest(0.01, prior * (1 - prior)) * ww / (w * w)) AS error
    FROM sums, (SELECT prior FROM whole)
), spread AS (
    SELECT CASE WHEN count(*) > 1 THEN greatest(0.0, sum(w * ((mean - prior) ** 2 - error)) / sum(w)) ELSE 0.0 END
           AS between
    FROM rated
), ranked AS (
    SELECT doc, retrieved, n_used / n_use AS used_share,
           prior + (mean - prior) * CASE WHEN between > 0 THEN between / (between + error) ELSE 0.0 END AS shrunk,
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
    SELECT doc, [{MOMENTS}] AS moments, max(known) AS identified
    FROM (SELECT doc, cluster, max(identified) AS known, {CLUSTER_SUMS.format(y="y")}
          FROM pairs SEMI JOIN listed USING (doc) JOIN scored USING (trace) GROUP BY doc, cluster) GROUP BY doc
)
SELECT listed.* EXCLUDE (z), history.queries, history.last_seen, moments, identified, whole.wy AS whole_wy,
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
    never_used: int
    total: int
    queries: int
    last_seen: datetime
    moments: Sequence[float] | None
    identified: int | None
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


def _document(row: _Rated, name: NamedDocument) -> RatedDocument:
    moments = Moments.of(row.moments) if row.moments else None
    rest_weight = (row.whole_w or 0.0) - moments.w if moments else 0.0
    return RatedDocument(
        **name._asdict(),
        retrieved=row.retrieved,
        queries=row.queries,
        used_share=row.used_share,
        shrunk=row.shrunk,
        quality=Figures.of(moments.estimate() if moments else None, identified=row.identified or 0),
        quality_without=((row.whole_wy or 0.0) - moments.wy) / rest_weight if moments and rest_weight > 1e-9 else None,
        hub=row.hub,
        last_seen=row.last_seen,
    )
