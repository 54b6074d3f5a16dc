"""What retrievers returned: the contexts of traces, the documents of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.queries.filters import Filter
from ragpulse_collector.store.queries.traces import facts_of, of_traces

__all__ = ["CONTEXTS", "contexts", "documents_of", "retrievals", "shared_documents"]

CONTEXTS = """
    SELECT * FROM raw.contexts WHERE start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY"""
"""One row per context of the requests in the range: a trace lasts at most a day."""


def contexts(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, span_id, id, score, text, metadata) in rank order: the contexts of the traces of `scope`."""
    return store.read(
        f"SELECT number, span_id, id, score, text, metadata {of_traces('contexts')} ORDER BY number, span_id, rank",
        scope,
    )


def documents_of(keep: Filter) -> str:
    """One row per request of the range that passes the filter and document that its answer could use.

    Columns: trace_id, doc (its id, else the start of its hash), place (among the contexts with text, as evaluators see
    them), hash, text, seen, query. The result of a reranker replaces what the reranker was given.
    """
    return f"""
        WITH t AS (
            FROM ({facts_of(keep, ("start_time", "query"))}) WHERE start_time >= $first AND start_time < $last
        ), reranked AS (
            SELECT trace_id, span_id FROM raw.spans WHERE kind = 'reranker' AND contexts_state IS NOT NULL
            AND start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY
        ), given AS (
            SELECT c.trace_id, t.query, c.start_time, coalesce(c.id, c.hash[1:16]) AS doc, c.hash, c.text,
                   CASE WHEN c.text IS NOT NULL THEN row_number() OVER (
                       PARTITION BY c.trace_id, c.text IS NULL ORDER BY c.start_time, c.span_id, c.rank) END AS place
            FROM ({CONTEXTS}) c JOIN t ON t.trace_id = c.trace_id
            WHERE c.trace_id NOT IN (SELECT trace_id FROM reranked)
                  OR (c.trace_id, c.span_id) IN (SELECT (trace_id, span_id) FROM reranked)
        )
        SELECT trace_id, doc, min(place) AS place, any_value(hash) AS hash, any_value(text) AS text,
               max(start_time) AS seen, any_value(query) AS query
        FROM given WHERE doc IS NOT NULL GROUP BY trace_id, doc"""


def retrievals(store: Store, trace_ids: Sequence[str], within: Mapping[str, Any]) -> Rows:
    """Rows of (trace_id, name, n_contexts): each retriever that these requests asked, and how much it found."""
    return store.read(
        "SELECT DISTINCT trace_id, name, n_contexts FROM raw.spans WHERE kind = 'retriever' AND start_time >= $first"
        " AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY AND trace_id IN (SELECT unnest($ids::UUID[]))",
        {**within, "ids": list(trace_ids)},
    )


def shared_documents(store: Store, trace_ids: Sequence[str], within: Mapping[str, Any], *, least: int) -> Rows:
    """Rows of (doc, trace_id): the documents that at least so many of these requests share, with all their requests."""
    return store.read(
        f"WITH c AS (SELECT DISTINCT trace_id, coalesce(id, hash[1:12]) AS doc FROM ({CONTEXTS})),"
        " often AS (SELECT doc FROM c WHERE trace_id IN (SELECT unnest($ids::UUID[])) AND doc IS NOT NULL"
        "   GROUP BY doc HAVING count(*) >= $least ORDER BY count(*) DESC LIMIT 100)"
        " SELECT doc, trace_id FROM c WHERE doc IN (SELECT doc FROM often)",
        {**within, "ids": list(trace_ids), "least": least},
    )
