"""What retrievers returned: the contexts of traces, the documents of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.queries.traces import Filter, facts_of, of_traces

__all__ = ["CONTEXTS", "contexts", "documents_of", "named_documents", "retrievals", "shared_documents"]

CONTEXTS = """
    SELECT * FROM raw.contexts WHERE start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY"""
"""One row per context of the requests in the range: a trace lasts at most a day."""


def contexts(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, span_id, id, score, text, metadata) in rank order: the contexts of the traces of `scope`."""
    return store.read(
        f"SELECT number, span_id, id, score, text, metadata {of_traces('contexts')} ORDER BY number, span_id, rank",
        scope,
    )


_NAME = "coalesce(id, hash[1:16])"


def documents_of(keep: Filter) -> str:
    """One row per request of the range that passes the filter and context that its answer could use.

    Columns: trace and doc (hashes to join by; a document is its id, else the start of its text's hash), start_time,
    span_id, rank, has_text, query (a hash). The result of a reranker replaces what the reranker was given. Texts are
    left out: `named_documents` reads those of a few.
    """
    return f"""
        WITH t AS MATERIALIZED (
            SELECT trace_id, hash(trace_id) AS trace, hash(query) AS query
            FROM ({facts_of(keep, ("start_time", "query"))}) WHERE start_time >= $first AND start_time < $last
        ), reranked AS (
            SELECT trace_id, span_id FROM raw.spans WHERE kind = 'reranker' AND contexts_state IS NOT NULL
            AND start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY
        )
        SELECT t.trace, t.query, hash({_NAME}) AS doc, c.start_time, c.span_id, c.rank, c.text IS NOT NULL AS has_text
        FROM ({CONTEXTS}) c JOIN t ON t.trace_id = c.trace_id
        WHERE (c.trace_id NOT IN (SELECT trace_id FROM reranked)
               OR (c.trace_id, c.span_id) IN (SELECT (trace_id, span_id) FROM reranked)) AND {_NAME} IS NOT NULL"""


def named_documents(store: Store, docs: Sequence[int], within: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
    """The id, the text's hash and the start of the text of documents, by their hash."""
    rows = store.read(
        f"SELECT hash({_NAME}) AS doc, any_value({_NAME}) AS id, any_value(hash) AS hash, any_value(text)[:500] AS text"
        f" FROM ({CONTEXTS}) WHERE doc IN (SELECT unnest($docs::UBIGINT[])) GROUP BY doc",
        {**within, "docs": list(docs)},
    ).dicts()
    return {row.pop("doc"): row for row in rows}


def retrievals(store: Store, trace_ids: Sequence[str], within: Mapping[str, Any]) -> Rows:
    """Rows of (place, name, n_contexts): each retriever that these requests asked, and how much it found.

    `place` is the request's place in `trace_ids`.
    """
    return store.read(
        f"WITH asked AS ({_ASKED}) SELECT DISTINCT place, name, n_contexts FROM raw.spans s"
        " JOIN asked ON asked.trace_id = s.trace_id WHERE kind = 'retriever' AND start_time >= $first"
        " AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY",
        {**within, "ids": list(trace_ids)},
    )


_ASKED = "SELECT unnest($ids::UUID[]) AS trace_id, generate_subscripts($ids, 1) - 1 AS place"


def shared_documents(
    store: Store, trace_ids: Sequence[str], chosen: Sequence[int], within: Mapping[str, Any], *, least: int
) -> Rows:
    """Rows of (doc, place): the documents that at least so many of the chosen requests share, with all their requests.

    `place` and `chosen` are places in `trace_ids`.
    """
    return store.read(
        f"WITH asked AS ({_ASKED}), c AS (SELECT DISTINCT place, coalesce(id, hash[1:12]) AS doc FROM ({CONTEXTS}) x"
        "   JOIN asked ON asked.trace_id = x.trace_id WHERE doc IS NOT NULL),"
        " often AS (SELECT doc FROM c WHERE place IN (SELECT unnest($chosen::BIGINT[]))"
        "   GROUP BY doc HAVING count(*) >= $least ORDER BY count(*) DESC, doc LIMIT 100)"
        " SELECT doc, place FROM c WHERE doc IN (SELECT doc FROM often)",
        {**within, "ids": list(trace_ids), "chosen": list(chosen), "least": least},
    )
