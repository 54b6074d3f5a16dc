"""The texts of units whose own span states none: an HTTP request, a workflow, a function around the calls.

    unit ─ OWN_TEXTS ─▶ own ─ BELOW ─▶ below ─▶ raw.contents (`query_from`, `response_from`), and the facts

Part of the decision: `unit` and `placed` are its temporary tables (see deciding.py). The texts are stored with the
unit's span, so that the trace list, evaluation cases, exports and the API read them as any other.
"""

OWN_TEXTS = """
    CREATE OR REPLACE TEMP TABLE own AS
    SELECT x.trace_id, x.span_id, any_value(c.query) FILTER (c.query_from IS NULL) AS query,
           any_value(c.response) FILTER (c.response_from IS NULL) AS response
    FROM unit x LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= $lo) c
      ON c.trace_id = x.trace_id AND c.span_id = x.span_id
    GROUP BY x.trace_id, x.span_id"""
"""The texts that each unit's own span states."""

COUNT_SILENT = "SELECT count(*) FROM own WHERE query IS NULL OR response IS NULL"

NOTHING_BELOW = """
    CREATE OR REPLACE TEMP TABLE below AS
    SELECT trace_id, span_id, query, span_id AS query_from, response, span_id AS response_from, false AS failed
    FROM own WHERE false"""

BELOW = """
    CREATE OR REPLACE TEMP TABLE below AS
    WITH RECURSIVE walk AS (
        SELECT o.trace_id, o.span_id AS unit, p.span_id, p.kind, false AS in_call
        FROM own o JOIN placed p ON p.trace_id = o.trace_id AND p.span_id = o.span_id
        WHERE o.query IS NULL OR o.response IS NULL
        UNION
        SELECT w.trace_id, w.unit, p.span_id, p.kind, w.in_call OR w.kind = 'llm'
        FROM walk w JOIN placed p ON p.trace_id = w.trace_id AND p.parent_span_id = w.span_id
        WHERE p.kind NOT IN ('evaluator', 'guardrail')),
    heard AS (
        SELECT w.trace_id, w.unit, w.span_id, w.kind, w.in_call, (p.start_time, w.span_id) AS place,
               any_value(p.status) = 'error' AS failed, any_value(c.query) AS query, any_value(c.response) AS response
        FROM walk w JOIN placed p ON p.trace_id = w.trace_id AND p.span_id = w.span_id
        LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= $lo AND coalesce(query_from, response_from) IS NULL) c
          ON c.trace_id = w.trace_id AND c.span_id = w.span_id
        WHERE w.span_id <> w.unit AND w.kind IN ('retriever', 'llm', 'rag', 'chain', 'agent') GROUP BY ALL),
    chosen AS (
        SELECT trace_id, unit,
               arg_min({text: query, span: span_id}, (kind <> 'retriever', kind <> 'llm', place))
                   FILTER (query IS NOT NULL) AS asked,
               arg_max({text: response, span: span_id, failed: failed}, place) FILTER (kind = 'llm' AND NOT in_call)
                   AS answered,
               arg_min({text: response, span: span_id}, place)
                   FILTER (kind NOT IN ('retriever', 'llm') AND response IS NOT NULL) AS returned
        FROM heard GROUP BY trace_id, unit)
    SELECT o.trace_id, o.span_id, CASE WHEN o.query IS NULL THEN c.asked.text END AS query,
           CASE WHEN o.query IS NULL THEN c.asked.span END AS query_from,
           CASE WHEN o.response IS NULL AND NOT coalesce(c.answered.failed, false)
                THEN coalesce(c.answered.text, c.returned.text) END AS response,
           CASE WHEN o.response IS NOT NULL OR coalesce(c.answered.failed, false) THEN NULL
                WHEN c.answered.text IS NOT NULL THEN c.answered.span ELSE c.returned.span END AS response_from,
           o.response IS NULL AND coalesce(c.answered.failed, false) AS failed
    FROM own o JOIN chosen c ON c.trace_id = o.trace_id AND c.unit = o.span_id"""
"""What the spans below say for units whose own span does not: an HTTP request, a workflow, a wrapped function.

The query is that of the first retriever, else of the first model call; the response that of the last model call that
lies in no other; where it failed, so did the unit. Without model calls a chain or an agent below speaks.
"""

REFRESH_TEXTS = """
    UPDATE raw.contents SET
        query = CASE WHEN contents.query_from IS NULL AND contents.query IS NOT NULL THEN contents.query
                     ELSE b.query END,
        query_from = b.query_from,
        response = CASE WHEN contents.response_from IS NULL AND contents.response IS NOT NULL THEN contents.response
                        ELSE b.response END,
        response_from = b.response_from
    FROM below b
    WHERE contents.start_time >= $lo AND contents.trace_id = b.trace_id AND contents.span_id = b.span_id
      AND (b.query_from, b.response_from) IS DISTINCT FROM (contents.query_from, contents.response_from)"""

ADD_TEXTS = """
    INSERT INTO raw.contents BY NAME
    SELECT b.trace_id, b.span_id, x.start_time, b.query, b.response, b.query_from, b.response_from
    FROM below b JOIN placed x ON x.trace_id = b.trace_id AND x.span_id = b.span_id
    WHERE coalesce(b.query, b.response) IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM raw.contents c WHERE c.start_time >= $lo AND c.trace_id = b.trace_id AND c.span_id = b.span_id)"""
"""From here on the trace list, evaluation cases and the API show them as the unit's; `mapped_from` names the span."""
