"""What cases are built of: spans, texts, retrieved documents, earlier turns; texts below a unit that has none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ragpulse_collector.instants import EPOCH
from ragpulse_collector.records import UNSAID
from ragpulse_collector.store.estimates import CLUSTER, ENOUGH_USERS, FINER, WEIGHT
from ragpulse_collector.store.protocol import Rows, Store, Within
from ragpulse_collector.store.queries.traces import Filter, facts_of, with_columns
from ragpulse_collector.store.views import SOURCE


class TraceRange(NamedTuple):
    """Some traces (ids as hex text), and the range that their spans start in."""

    ids: list[str]
    first: datetime
    last: datetime


OWN_TEXTS = """
    CREATE OR REPLACE TEMP TABLE own AS
    SELECT x.trace_id, x.span_id, any_value(c.query) FILTER (c.query_from IS NULL) AS query,
           any_value(c.response) FILTER (c.response_from IS NULL) AS response
    FROM root x LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= $lo) c
      ON c.trace_id = x.trace_id AND c.span_id = x.span_id
    GROUP BY x.trace_id, x.span_id"""
"""The texts of each root's own span."""

_SILENT = f"(coalesce(o.query, '{UNSAID}') = '{UNSAID}' OR coalesce(o.response, '{UNSAID}') = '{UNSAID}')"
COUNT_SILENT = f"SELECT count(*) FROM own o WHERE {_SILENT}"

NOTHING_BELOW = """
    CREATE OR REPLACE TEMP TABLE below AS
    SELECT trace_id, span_id, query, span_id AS query_from, response, span_id AS response_from, false AS failed,
           false AS asks
    FROM own WHERE false"""

BELOW = f"""
    CREATE OR REPLACE TEMP TABLE below AS
    WITH RECURSIVE walk AS (
        SELECT o.trace_id, o.span_id AS unit, p.span_id, p.kind, p.status = 'error' AS failed, false AS in_call,
               false AS lost
        FROM own o JOIN span_tree p ON p.trace_id = o.trace_id AND p.span_id = o.span_id
        WHERE {_SILENT}
        UNION
        SELECT w.trace_id, w.unit, p.span_id, p.kind, p.status = 'error', w.in_call OR w.kind = 'llm',
               w.lost OR w.failed
        FROM walk w JOIN span_tree p ON p.trace_id = w.trace_id AND p.parent_span_id = w.span_id
        WHERE p.kind NOT IN ('evaluator', 'guardrail')),
    texts_below AS (
        SELECT w.trace_id, w.unit, w.span_id, w.kind, w.in_call, (p.start_time, w.span_id) AS sort_key,
               any_value(p.status) = 'error' AS failed, any_value(c.query) AS query,
               any_value(c.response) FILTER (w.lost IS NOT TRUE) AS response
        FROM walk w JOIN span_tree p ON p.trace_id = w.trace_id AND p.span_id = w.span_id
        LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= $lo AND coalesce(query_from, response_from) IS NULL) c
          ON c.trace_id = w.trace_id AND c.span_id = w.span_id
        WHERE w.span_id <> w.unit AND w.kind IN ('retriever', 'llm', 'rag', 'chain', 'agent') GROUP BY ALL),
    chosen AS (
        SELECT trace_id, unit,
               arg_min({{text: query, span: span_id}}, (kind <> 'retriever', kind <> 'llm', sort_key))
                   FILTER (query IS NOT NULL) AS question,
               arg_max({{text: response, span: span_id, failed: failed}}, sort_key)
                   FILTER (kind = 'llm' AND NOT in_call) AS answer,
               arg_min({{text: response, span: span_id}}, sort_key)
                   FILTER (kind NOT IN ('retriever', 'llm') AND response IS NOT NULL) AS output,
               bool_or(kind <> 'chain') AS asks
        FROM texts_below GROUP BY trace_id, unit),
    found AS (
        SELECT o.*, c.asks, CASE WHEN coalesce(o.query, '{UNSAID}') = '{UNSAID}' THEN c.question END AS question,
               o.response IS NULL AND coalesce(c.answer.failed, false) AS failed,
               CASE WHEN o.response IS NULL AND failed IS NOT TRUE AND c.answer.text IS NULL THEN c.output
                    WHEN coalesce(o.response, '{UNSAID}') = '{UNSAID}' AND NOT coalesce(c.answer.failed, false)
                         AND c.answer.text IS NOT NULL
                    THEN {{text: c.answer.text, span: c.answer.span}} END AS answer
        FROM own o JOIN chosen c ON c.trace_id = o.trace_id AND c.unit = o.span_id)
    SELECT trace_id, span_id, question.text AS query, question.span AS query_from, answer.text AS response,
           answer.span AS response_from, failed, asks
    FROM found"""
"""The texts of spans below a root whose own span has none: an HTTP request, a workflow, a wrapped function.

The query is that of the first retriever, else of the first model call. The response is that of the last model call in
no other; if that failed, so did the unit. Without model calls it is that of a chain or an agent below. What is below a
span that failed is no response of a span above it: the question that a chain passed on, an answer that was never given.
"""

REFRESH_TEXTS = """
    UPDATE raw.contents SET
        query = CASE WHEN b.query_from IS NULL AND contents.query_from IS NULL THEN contents.query ELSE b.query END,
        query_from = b.query_from,
        response = CASE WHEN b.response_from IS NULL AND contents.response_from IS NULL THEN contents.response
                        ELSE b.response END,
        response_from = b.response_from
    FROM below b
    WHERE contents.start_time >= $lo AND contents.trace_id = b.trace_id AND contents.span_id = b.span_id
      AND (b.query_from, b.response_from) IS DISTINCT FROM (contents.query_from, contents.response_from)"""

ADD_TEXTS = """
    INSERT INTO raw.contents BY NAME
    SELECT b.trace_id, b.span_id, x.start_time, b.query, b.response, b.query_from, b.response_from
    FROM below b JOIN span_tree x ON x.trace_id = b.trace_id AND x.span_id = b.span_id
    WHERE coalesce(b.query, b.response) IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM raw.contents c WHERE c.start_time >= $lo AND c.trace_id = b.trace_id AND c.span_id = b.span_id)"""
"""The trace list, evaluation cases and the API then show them as the unit's; `mapped_from` names the span."""


CONTEXTS = """
    SELECT * FROM raw.contexts WHERE start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY"""
"""One row per context of the requests in the range: a trace lasts at most a day."""


def contexts(store: Store, among: TraceRange) -> Rows:
    """Rows of (number, span_id, id, score, text, metadata) in rank order: the contexts of the traces in a range."""
    return store.read(
        f"SELECT number, span_id, id, score, text, metadata {of_traces('contexts')} ORDER BY number, span_id, rank",
        among._asdict(),
    )


DOCUMENT = "coalesce(id, hash[1:16])"


def documents_of(filter: Filter) -> str:
    """One row per request of the range that passes the filter and context that its answer could use.

    Columns: trace and doc (hashes to join by; a document is its id, else the start of its text's hash), start_time,
    span_id, rank, has_text, query (a hash, NULL without a question), weight (WEIGHT of the request). The result of a
    reranker replaces what the reranker was given. Texts are left out: `named_documents` reads those of a few.
    """
    return f"""
        WITH t AS MATERIALIZED (
            SELECT trace_id, hash(trace_id) AS trace, CASE WHEN query IS NOT NULL THEN hash(query) END AS query,
                   {WEIGHT} AS weight
            FROM ({facts_of(filter, ("start_time", "query", "upstream_pi"))})
            WHERE start_time >= $first AND start_time < $last
        ), reranked AS (
            SELECT trace_id, span_id FROM raw.spans WHERE kind = 'reranker' AND contexts_state IS NOT NULL
            AND start_time >= $first AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY
        )
        SELECT t.trace, t.query, t.weight, hash({DOCUMENT}) AS doc, c.start_time, c.span_id, c.rank,
               c.text IS NOT NULL AS has_text
        FROM ({CONTEXTS}) c JOIN t ON t.trace_id = c.trace_id
        WHERE (c.trace_id NOT IN (SELECT trace_id FROM reranked)
               OR (c.trace_id, c.span_id) IN (SELECT (trace_id, span_id) FROM reranked)) AND {DOCUMENT} IS NOT NULL"""


class NamedDocument(NamedTuple):
    """What a document is called: its id, the text's hash, the start of the text, what it was cut from; its facts."""

    id: str
    hash: str | None
    text: str | None
    source: str | None
    metadata: str | None
    """The newest, as JSON."""


def named_documents(store: Store, docs: Sequence[int], within: Within) -> dict[int, NamedDocument]:
    """Return the names of documents by their hash."""
    rows = store.read(
        f"SELECT hash({DOCUMENT}) AS doc, any_value({DOCUMENT}) AS id, any_value(hash) AS hash,"
        f" any_value(text)[:500] AS text, any_value({SOURCE}) AS source,"
        " arg_max(metadata, start_time) AS metadata"
        f" FROM ({CONTEXTS}) WHERE doc IN (SELECT unnest($docs::UBIGINT[])) GROUP BY doc",
        {**within, "docs": list(docs)},
    ).rows
    return {doc: NamedDocument(*row) for doc, *row in rows}


def retrievals(store: Store, trace_ids: Sequence[str], within: Within) -> Rows:
    """Rows of (number, name, n_contexts): each retriever that these requests asked, and how much it found in all.

    `number` is the request's index in `trace_ids`.
    """
    return store.read(
        f"WITH requests AS ({_REQUESTS}) SELECT number, name, sum(n_contexts)::BIGINT FROM raw.spans s"
        " JOIN requests ON requests.trace_id = s.trace_id WHERE kind = 'retriever' AND start_time >= $first"
        " AND start_time < $last::TIMESTAMP + INTERVAL 1 DAY GROUP BY number, name",
        {**within, "ids": list(trace_ids)},
    )


_REQUESTS = "SELECT unnest($ids::UUID[]) AS trace_id, generate_subscripts($ids, 1) - 1 AS number"


def shared_documents(
    store: Store, trace_ids: Sequence[str], chosen: Sequence[int], late: Sequence[int],
    within: Within, *, least: int,
) -> Rows:  # fmt: skip
    """Rows of (doc, number, n): the documents that at least `least` of the chosen requests share, with every request.

    `number`, `chosen` and `late` are indexes in `trace_ids`. At most 100 documents are returned, of `n` that at least
    `least` of all requests share: a test of the returned ones must know from how many they were chosen. With `late`
    100 more, which none of these requests has.
    """
    return store.read(
        f"WITH requests AS ({_REQUESTS}), c AS (SELECT DISTINCT number, coalesce(id, hash[1:12]) AS doc"
        f" FROM ({CONTEXTS}) x JOIN requests ON requests.trace_id = x.trace_id WHERE doc IS NOT NULL),"
        " picked AS (SELECT DISTINCT unnest($chosen::BIGINT[]) AS number),"
        " after AS (SELECT DISTINCT unnest($late::BIGINT[]) AS number),"
        " counted AS (SELECT doc, count(p.number) AS n_chosen, count(*) AS n, count(a.number) AS n_late"
        "   FROM c LEFT JOIN picked p ON p.number = c.number LEFT JOIN after a ON a.number = c.number"
        "   GROUP BY doc HAVING n >= $least),"
        " often AS (FROM (SELECT doc FROM counted WHERE n_chosen >= $least ORDER BY n_chosen DESC, doc LIMIT 100)"
        "   UNION ALL FROM (SELECT doc FROM counted WHERE n_late = 0 AND $vanished ORDER BY n DESC, doc LIMIT 100))"
        " SELECT doc, number, (SELECT count(*) FROM counted) FROM c WHERE doc IN (SELECT doc FROM often)",
        {**within, "ids": list(trace_ids), "chosen": list(chosen), "late": list(late), "vanished": bool(late),
         "least": least},
    )  # fmt: skip


_IN_RANGE = Filter("start_time >= $first AND start_time < $last")


def asked_again(
    store: Store, trace_ids: Sequence[str], docs: Sequence[str], late: Sequence[int], within: Within
) -> Rows:
    """Rows of (doc, number): the requests with a question for which most that are not late had the document."""
    return store.read(
        f"WITH requests AS ({_REQUESTS}), after AS (SELECT DISTINCT unnest($late::BIGINT[]) AS number),"
        " asked AS (SELECT r.number, f.query, r.number IN (SELECT number FROM after) AS late FROM requests r"
        f"   JOIN ({facts_of(_IN_RANGE, ('query',))}) f ON f.trace_id = r.trace_id WHERE f.query IS NOT NULL),"
        " asks AS (SELECT query, count(*) AS n FROM asked WHERE NOT late GROUP BY query),"
        " had AS (SELECT DISTINCT r.number, coalesce(id, hash[1:12]) AS doc"
        f"   FROM ({CONTEXTS}) x JOIN requests r ON r.trace_id = x.trace_id WHERE list_contains($docs, doc)),"
        " questions AS (SELECT doc, query FROM had JOIN asked USING (number) JOIN asks USING (query)"
        "   GROUP BY doc, query HAVING 2 * count(*) > any_value(n))"
        " SELECT doc, number FROM questions JOIN asked USING (query)",
        {**within, "ids": list(trace_ids), "docs": list(docs), "late": list(late)},
    )


def of_traces(table: str) -> str:
    """FROM and WHERE for the rows of `raw.<table>` that belong to the traces `$ids` and start in `$first` .. `$last`.

    `number` is the index of the trace in `$ids`, which is shorter than the id.
    """
    return (
        f"FROM raw.{table} JOIN (SELECT unnest($ids::UUID[]) AS trace_id, unnest(range(len($ids))) AS number)"
        " USING (trace_id) WHERE start_time BETWEEN $first AND $last"
    )


def span_counts(store: Store, among: TraceRange) -> Rows:
    """Rows of (number, n_spans): how many spans each trace had when it was decided."""
    return store.read(f"SELECT number, n_spans {of_traces('trace_facts')} AND latest", among._asdict())


def spans(store: Store, among: TraceRange) -> Rows:
    """One row per span: its ids and its figures."""
    return store.read(
        "SELECT number, span_id, parent_span_id, start_time, kind, response_id, contexts_state IS NOT NULL,"
        f" duration_us, input_tokens, output_tokens, cost_usd, metadata {of_traces('spans')}",
        among._asdict(),
    )


def texts(store: Store, among: TraceRange) -> Rows:
    """Rows of (number, span_id, query, response) of the spans that have texts."""
    return store.read(
        f"SELECT number, span_id, any_value(query), any_value(response) {of_traces('contents')} GROUP BY ALL",
        among._asdict(),
    )


_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "mcp.tool.name", "traceloop.entity.name")
"""Attributes of the name of a tool, in this order; else it is the name of its span."""


def steps(store: Store, among: TraceRange) -> Rows:
    """Rows of (number, span_id, kind, name, error) of calls of tools and models, and of agents; None for no error."""
    named = ", ".join(f"json_extract_string(attributes, '$.\"{key}\"')" for key in _TOOL_NAMES)
    return store.read(
        "SELECT number, span_id, kind, CASE kind WHEN 'llm' THEN coalesce(model, name)"
        f" WHEN 'tool' THEN coalesce({named}, replace(name, 'execute_tool ', '')) ELSE coalesce(agent, name) END,"
        " CASE WHEN status = 'error' THEN coalesce(nullif(status_message, ''), error_type, 'error') END"
        f" {of_traces('spans')} AND kind IN ('tool', 'llm', 'agent')",
        among._asdict(),
    )


def span_attributes(store: Store, among: TraceRange, span_ids: Sequence[int]) -> Rows:
    """Rows of (number, span_id, attributes) of these spans, oldest first."""
    return store.read(
        f"SELECT number, span_id, attributes {of_traces('spans')} AND attributes IS NOT NULL"
        " AND span_id IN (SELECT unnest($spans::UBIGINT[])) ORDER BY start_time",
        {**among._asdict(), "spans": span_ids},
    )


MAX_TURNS = 20
_SESSION_REACH = timedelta(days=1)


def turns_before(store: Store, among: TraceRange) -> Rows:
    """Rows of (number, query, response): the decided turns of the same session before each trace, oldest first.

    Turns that began at the same time are in the order of their ids. At most the last twenty are returned, of the day
    before the first of the traces.
    """
    own_turns = (
        f"SELECT number, session_id, start_time, trace_id {of_traces('trace_facts')} AND latest"
        " AND session_id IS NOT NULL"
    )
    if not store.read(f"{own_turns} LIMIT 1", among._asdict()).rows:
        return Rows((), [])
    return store.read(
        f"WITH own AS ({own_turns}), earlier AS ("
        "   SELECT own.number, t.start_time, t.trace_id, t.query, t.response FROM raw.trace_facts t"
        "   JOIN own ON own.session_id = t.session_id"
        "    AND (t.start_time, t.trace_id) < (own.start_time, own.trace_id)"
        "   WHERE t.latest AND t.start_time BETWEEN $reach AND $last"
        "   QUALIFY row_number() OVER (PARTITION BY own.number ORDER BY t.start_time DESC, t.trace_id DESC)"
        f"   <= {MAX_TURNS})"
        " SELECT number, query, response FROM earlier ORDER BY number, start_time, trace_id",
        {**among._asdict(), "reach": max(among.first, EPOCH + _SESSION_REACH) - _SESSION_REACH},
    )


_STEPS = """
    own AS (
        SELECT s.trace_id AS id, span_id, any_value(parent_span_id) AS parent, any_value(name) AS name,
               any_value(kind) AS kind, any_value(duration_us) / 1000.0 AS ms
        FROM raw.spans s JOIN asked ON asked.id = s.trace_id AND s.start_time >= asked.start_time
        WHERE s.start_time >= $first AND s.start_time < $last::TIMESTAMP + INTERVAL 1 DAY GROUP BY ALL
    ), below AS (SELECT id, parent AS span_id, sum(ms) AS ms FROM own GROUP BY ALL
    ), steps AS (
        SELECT id, concat_ws(' ', name, '(' || kind || ')') AS name, o.ms - coalesce(b.ms, 0) AS x
        FROM own o LEFT JOIN below b USING (id, span_id)
    ), parts AS (
        FROM steps UNION ALL SELECT id, '', latency_ms FROM asked
        UNION ALL SELECT id, 'outside the recorded steps', any_value(latency_ms) - coalesce(sum(x), 0)
                  FROM asked LEFT JOIN steps USING (id) GROUP BY id)"""
_ERRORS = """
    parts AS (
        SELECT id, '' AS name, 1 AS x FROM asked WHERE error
        UNION ALL SELECT id, coalesce(arg_max(coalesce(error_type, status_message[1:60]), s.start_time), 'unknown'), 1
                  FROM asked LEFT JOIN raw.spans s ON s.trace_id = asked.id AND s.status = 'error'
                   AND s.start_time >= $first AND s.start_time < $last::TIMESTAMP + INTERVAL 1 DAY
                  WHERE asked.error GROUP BY id)"""
_SLOWEST = "QUALIFY latency_ms >= quantile_cont(latency_ms, 0.9) OVER (PARTITION BY start_time >= $at)"
_KINDS = {
    "steps": (_STEPS, "AND latency_ms IS NOT NULL USING SAMPLE reservoir(20000 ROWS) REPEATABLE (1)"),
    "steps of the slowest tenth": (_STEPS, f"AND latency_ms IS NOT NULL {_SLOWEST}"),
    "error types": (_ERRORS, ""),
}
"""What requests are divided into, and which of them are read. A step's time is its own: without those below it, so that
the steps of a request add up to its latency, also where they overlap."""
_MEANS = """
    WITH asked AS MATERIALIZED (
        SELECT trace_id::UUID AS id, start_time, latency_ms, coalesce(error, false) AS error, {cluster} AS cluster,
               {weight} AS w, start_time >= $at AS late
        FROM {requests} WHERE start_time >= $first AND start_time < $last AND {filter} {choice}
    ), users AS (SELECT late, cluster, sum(w) AS n FROM asked GROUP BY ALL
    ), sides AS (SELECT late, sum(n) AS n, sum(n * n) AS nn FROM users GROUP BY ALL
    ), {parts}, sums AS (
        SELECT name, late, cluster, sum(w * x) AS s FROM parts JOIN asked USING (id) GROUP BY ALL
    ), figures AS (
        SELECT name, late, sum(s) / any_value(sides.n) AS mean, sum(s * s) AS ss, sum(s * users.n) AS sn,
               any_value(nn) AS nn, any_value(sides.n) AS n
        FROM sums JOIN users USING (late, cluster) JOIN sides USING (late) GROUP BY name, late)
    SELECT name, late, mean, greatest(0, ss - 2 * mean * sn + mean * mean * nn) / (n * n), n * n / nn FROM figures
    QUALIFY row_number() OVER (PARTITION BY late ORDER BY abs(mean) DESC) <= 1000"""


class PartMean(NamedTuple):
    """The mean that a step or a type of error has over all requests of a time; an empty name is the whole."""

    name: str
    late: bool
    """Whether the requests began at the moment or later."""
    mean: float
    error: float
    """The square of its standard error; requests of one user are dependent."""
    users: float = ENOUGH_USERS
    """The effective number of those who asked then."""


def means_of_parts(store: Store, kind: str, within: Within, filter: Filter) -> list[PartMean]:
    """Return the means before and after `$at` of what the requests are divided into (`_KINDS`).

    One user alone would have no error: of a small team requests of a session are dependent, at last none.
    """
    parts, choice = _KINDS[kind]
    found: list[PartMean] = []
    requests = with_columns("traces", (), filter)
    for cluster in (CLUSTER, *FINER):
        if not found or min(one.users for one in found) < ENOUGH_USERS:
            sql = _MEANS.format(
                cluster=cluster, weight=WEIGHT, requests=requests, filter=filter.on_columns, choice=choice, parts=parts
            )
            found = store.read(sql, {**within, **filter.parameters}).tuples(PartMean)
    return found


def documents_before(store: Store, first: datetime, *, least: int, limit: int) -> Sequence[tuple[str, int, datetime]]:
    """Return the documents that no request of `first` or later retrieved: id, requests, last time; most requests first.

    A document of fewer than `least` requests is left out.
    """
    return store.read(
        "SELECT coalesce(id, hash[1:16]) AS name, count(DISTINCT trace_id) AS n, max(start_time) FROM raw.contexts"
        " WHERE name IS NOT NULL GROUP BY name HAVING n >= $least AND max(start_time) < $first"
        " ORDER BY n DESC, name LIMIT $limit",
        {"first": first, "least": least, "limit": limit},
    ).rows
