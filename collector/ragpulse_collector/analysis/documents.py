"""Which documents help and which hurt: retrieval counts, use, and the quality of answers with and without each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.quality import point
from ragpulse_collector.analysis.selection import filter_of, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS
from ragpulse_collector.store.queries.documents import documents_of, named_documents
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Moments

__all__ = ["documents"]

_HUB_SHARE, _HUB_QUERIES = 0.2, 20
"""A document in this share of the requests and of the questions is a hub, once there are so many questions."""


def _ascending(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda one: (one[name] is None, one[name] or 0.0, -one["retrieved"])


def _descending(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda one: (one[name] is None, -(one[name] or 0.0), -one["retrieved"])


_SORTS = {
    "worst": _ascending("shrunk"),
    "best": _descending("shrunk"),
    "retrieved": _descending("retrieved"),
    "unused": _ascending("used_share"),
}


def documents(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET documents`: `evaluator` (default: the faithfulness at hand), `sort`, `limit`, filters.

    `quality` is Hajek's mean over the answers that had the document, `quality_without` over the others; `shrunk` pulls
    a document with few answers towards the mean of all (empirical Bayes). `never_used` counts documents retrieved of
    which no answer drew anything; `used_share` needs `context_utilization`.
    """
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    keep = filter_of(params)
    evaluator = str(params.get("evaluator") or first_of(store, window, FAITHFUL) or "groundedness")
    order = _SORTS.get(str(params.get("sort") or "retrieved"))
    if order is None:
        raise ValueError(f"sort: possible are {', '.join(_SORTS)}")
    scored = sample_of(store, evaluator, window.parameters, keep)
    used = sample_of(store, "context_utilization", window.parameters, keep, prefix="used_")
    sql = _QUERY.format(scored=scored.sql, used=used.sql, held=documents_of(keep), moments=MOMENTS, sums=_SUMS)
    rows = store.read(sql, {**scored.parameters, **used.parameters}).dicts()
    found = _estimated(rows)
    never = sum(row["n_use"] > 0 and row["n_used"] == 0 for row in rows)
    found.sort(key=order)
    limit = min(1000, max(1, int(params.get("limit") or 100)))
    names = named_documents(store, [one["doc"] for one in found[:limit]], window.parameters)
    listed = [names[one.pop("doc")] | one for one in found[:limit]]
    return {"evaluator": evaluator, "documents": listed, "never_used": never, "total": len(found)}


_SUMS = CLUSTER_SUMS.format(y="y")
_QUERY = """
WITH given AS MATERIALIZED ({held}
), held AS (
    SELECT trace, doc, max(start_time) AS seen, any_value(query) AS query FROM given GROUP BY trace, doc
), scored AS (
    SELECT hash(trace_id) AS trace, normalized AS y, pi, cluster, identified FROM ({scored})
    WHERE status = 'ok' AND pi > 0 AND normalized IS NOT NULL
), uses AS (
    SELECT hash(trace_id) AS trace, from_json(parts::JSON -> '$.used', '["BIGINT"]') AS places FROM ({used})
    WHERE status = 'ok' AND parts IS NOT NULL
), placed AS (
    SELECT trace, doc, min(place) AS place FROM (
        SELECT trace, doc, row_number() OVER (PARTITION BY trace ORDER BY start_time, span_id, rank) AS place
        FROM given WHERE has_text AND trace IN (SELECT trace FROM uses)) GROUP BY trace, doc
), whole AS (
    SELECT count(*) AS n, sum(y / pi) AS wy, sum(1 / pi) AS w FROM scored WHERE trace IN (SELECT trace FROM given)
), asked AS (
    SELECT count(DISTINCT query) AS queries, count(DISTINCT trace) AS traces FROM given
), q AS (
    SELECT h.doc, h.seen, h.query, p.place, s.y, coalesce(s.pi, 1.0) AS pi, s.cluster, s.identified, u.places
    FROM held h LEFT JOIN scored s ON s.trace = h.trace LEFT JOIN uses u ON u.trace = h.trace
    LEFT JOIN placed p ON p.trace = h.trace AND p.doc = h.doc
), sums AS (
    SELECT doc, [{moments}] AS moments, bool_or(c_identified) AS identified
    FROM (SELECT doc, cluster, bool_or(identified) AS c_identified, {sums} FROM q GROUP BY doc, cluster) GROUP BY doc
)
SELECT q.doc, count(*) AS retrieved, count(DISTINCT q.query) AS queries, max(q.seen) AS last_seen,
       count(q.places) FILTER (q.place IS NOT NULL) AS n_use,
       count(*) FILTER (list_contains(q.places, q.place)) AS n_used, any_value(sums.moments) AS moments,
       any_value(sums.identified) AS identified, any_value(whole.wy) AS whole_wy, any_value(whole.w) AS whole_w,
       any_value(asked.queries) AS all_queries, any_value(asked.traces) AS all_traces
FROM q JOIN sums USING (doc), whole, asked GROUP BY q.doc ORDER BY retrieved DESC, q.doc
"""
"""Everything about a document but its texts, which would be carried through every join; `place` is the context's among
those with a text, as evaluators see them."""


def _estimated(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    moments = [Moments.of(row["moments"]) for row in rows]
    prior = rows[0]["whole_wy"] / rows[0]["whole_w"] if rows and rows[0]["whole_w"] else None
    between = _between(moments, prior)
    return [_document(row, found, prior, between) for row, found in zip(rows, moments, strict=True)]


def _error(found: Moments, prior: float) -> float:
    """The squared error of a document's mean; at least that of a yes-or-no score, since few answers look too sure."""
    kish = found.w * found.w / found.ww
    return max(found.se**2, max(0.01, prior * (1.0 - prior)) / kish)


def _between(moments: Sequence[Moments | None], prior: float | None) -> float:
    """How much documents truly differ (variance), by the method of moments."""
    known = [one for one in moments if one is not None]
    if prior is None or len(known) < 2:
        return 0.0
    spread = sum((one.mean - prior) ** 2 - _error(one, prior) for one in known) / len(known)
    return max(0.0, spread)


def _document(row: Mapping[str, Any], found: Moments | None, prior: float | None, between: float) -> dict[str, Any]:
    queries = row["all_queries"]
    entry: dict[str, Any] = {key: row[key] for key in ("doc", "retrieved", "queries")}
    entry |= {
        "used_share": row["n_used"] / row["n_use"] if row["n_use"] else None,
        "quality": point(None if found is None else found.estimate(), identified=bool(row["identified"])),
        "quality_without": None,
        "shrunk": None,
        "hub": queries >= _HUB_QUERIES
        and row["queries"] >= _HUB_SHARE * queries
        and row["retrieved"] >= _HUB_SHARE * row["all_traces"],
        "last_seen": iso(row["last_seen"]),
    }
    if found is not None and prior is not None:
        rest = row["whole_w"] - found.w
        entry["quality_without"] = (row["whole_wy"] - found.wy) / rest if rest > 1e-9 else None
        error = _error(found, prior)
        entry["shrunk"] = prior + (found.mean - prior) * (between / (between + error) if between else 0.0)
    return entry
