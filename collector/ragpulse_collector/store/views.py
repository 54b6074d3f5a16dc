"""The stable views and macros for users' queries. Columns may be added, never renamed or removed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from ragpulse_collector.store.estimates import CLUSTER, ESTIMATED, IDENTIFIED, MACROS, WEIGHT, hajek
from ragpulse_collector.store.units.row import REQUEST
from ragpulse_collector.store.units.undecided import undecided


def hex_trace(column: str) -> str:
    """Return the SQL that shows a UUID column as a trace id."""
    return f"lower(hex({column}::BLOB))"


def hex_span(column: str) -> str:
    """Return the SQL that shows a UBIGINT column as a span id."""
    return f"printf('%016x', {column})"


_SPANS = f"""
    SELECT {hex_trace("s.trace_id")} AS trace_id, {hex_span("s.span_id")} AS span_id,
           {hex_span("s.parent_span_id")} AS parent_span_id, s.start_time, s.duration_us / 1000.0 AS latency_ms,
           s.name, s.kind, s.service, s.status, s.error_type, c.query, c.response, s.model, s.provider,
           s.input_tokens, s.output_tokens, s.cached_tokens, s.reasoning_tokens, s.cost_usd, s.session_id, s.user_id,
           s.prompt_name, s.prompt_version, s.attributes::JSON AS attributes,
           CASE WHEN c.query_from IS NULL AND c.response_from IS NULL THEN s.mapped_from::JSON
                ELSE json_merge_patch(s.mapped_from, json_object(
                    'query', coalesce('span ' || {hex_span("c.query_from")}, s.mapped_from ->> 'query'),
                    'response', coalesce('span ' || {hex_span("c.response_from")}, s.mapped_from ->> 'response')))::JSON
                END AS mapped_from,
           s.environment, s.service_version, s.status_message, s.variant, s.ttft_ms, s.cost_source,
           s.cost_unknown_reason, s.contexts_state, s.cache_write_tokens, s.response_id, s.tags, s.metadata,
           s.resource, s.events, s.links, s.upstream_pi, s.received_at, s.finish_reason, s.agent, s.data_source,
           s.top_k, s.response_missing_reason, s.control_flow, s.index_version
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time"""


def spans_of(trace: str) -> str:
    """Return the condition for a trace's spans where no time is known.

    Their times are found by the id first, so that all the columns of rows at other times are passed over.
    """
    return f"s.trace_id = {trace} AND s.start_time IN (SELECT start_time FROM raw.spans WHERE trace_id = {trace})"


FACT_COLUMNS = (
    "start_time", "latency_ms", "ttft_ms", "service", "environment", "name", "query", "response", "session_id",
    "user_id", "prompt_name", "prompt_version", "variant", "model", "input_tokens", "output_tokens", "cached_tokens",
    "cost_usd", "cost_unknown_reason", "error", "top_score", "n_spans", "n_units", "upstream_pi", "late_spans",
    "feedback", "retriever", "misdated_spans", "tags", "metadata", "release", "finish_reason", "agent", "data_source",
    "top_k", "response_missing_reason", "control_flow", "feedbacks", "feedbacks_off_scale", "answer", "topic",
    "question_distance", "index_version",
)  # fmt: skip
"""What the `traces` view takes from `raw.trace_facts` beside the ids."""

_DECIDED = f"""
    SELECT {hex_trace("trace_id")} AS trace_id, {", ".join(FACT_COLUMNS)},
           {hex_span("unit_span_id")} AS unit_span_id, true AS decided"""
DECIDED = f"{_DECIDED} FROM raw.trace_facts WHERE latest"
"""The traces that the sampler has decided; ends in its conditions."""
_SHOWN = f"SELECT * REPLACE ({hex_trace('trace_id')} AS trace_id, {hex_span('unit_span_id')} AS unit_span_id) FROM"
UNDECIDED_SINCE = f"{_SHOWN} undecided_since($since)"
"""The undecided traces that begin at `$since` or later."""

# The CTE is inside its branch: around the union it would prevent that the scan of the facts uses conditions on time.
_UNDECIDED = f"""UNION ALL BY NAME {_SHOWN} ({undecided("TIMESTAMP '1970-01-01'")})"""
_TRACES = f"{DECIDED} {_UNDECIDED}"


def traces_of(facts: str, more: Iterable[str]) -> str:
    """Return the view `traces` over other rows of facts, with more columns of theirs."""
    return f"{decided_of(facts, more)} {_UNDECIDED}"


def decided_of(facts: str, more: Iterable[str]) -> str:
    """Return `DECIDED` over other rows of facts, with more columns of theirs."""
    return f"{''.join((_DECIDED, *(f', {column}' for column in more)))} FROM {facts} WHERE latest"


SOURCE_KEYS = (
    "source", "url", "file_name", "filename", "file_path", "path", "uri", "link", "x-amz-bedrock-kb-source-uri",
)  # fmt: skip
"""Those of the SDK, whose import would delay the start."""
_PATHS = ", ".join(f"""'$."{key}"'""" for key in SOURCE_KEYS)
SOURCE = f"list_filter(json_extract_string(metadata, [{_PATHS}]), lambda name: name IS NOT NULL AND name[1] <> '{{')[1]"
"""The document that a context was cut from, as its metadata name it: several passages share it."""
_CONTEXTS = f"""
    SELECT {hex_trace("trace_id")} AS trace_id, {hex_span("span_id")} AS span_id, rank, id, score, text, metadata,
           hash, start_time, {SOURCE} AS source FROM raw.contexts"""

_EXPLORATORY = "(SELECT run_id FROM raw.runs GROUP BY run_id HAVING NOT coalesce(arg_max(in_use, created_at), true))"
_COUNTS = f"""(run_id IS NULL OR run_id NOT IN {_EXPLORATORY} OR score_key IN (
    SELECT score_key FROM raw.run_items
    WHERE run_id IS NULL OR (reused AND run_id NOT IN {_EXPLORATORY})))"""
COUNTED = f"(SELECT * FROM raw.scores WHERE {_COUNTS})"
"""The scores that lists, sessions, charts, alerts and figures read: not those that only exploratory replays have."""
SERIES = "CASE WHEN source = 'human' THEN 'feedback:' || evaluator ELSE evaluator END"
"""The column of a list: a person's and an evaluator's scores under one name are two."""
UNCLEAR = "(passing IS NULL AND label IS NOT DISTINCT FROM 'unclear')"
"""Scored, and the evaluator could not decide between pass and fail. Never NULL: it is negated."""
IN_LISTS = "scope IS DISTINCT FROM 'session'"
"""The condition that a score is about a trace, not about its session."""

_SCORES = f"""
    SELECT {hex_trace("s.trace_id")} AS trace_id, {hex_span("s.span_id")} AS span_id, s.request_time, s.evaluator,
           s.version, s.judge, s.source, s.status, s.score, s.normalized, s.passing, s.label, s.explanation, d.pi,
           l.label_pi, d.reason, s.cost_usd, s.created_at, s.run_id, d.sampled, d.u, s.label_version, s.parts, s.ci_lo,
           s.ci_hi, s.elapsed_ms, s.attempt, s.score_key, s.scope, s.identifier, s.session_id, s.exploratory
    FROM (SELECT *, NOT {_COUNTS} AS exploratory FROM raw.scores) s
    LEFT JOIN (SELECT * FROM raw.decisions WHERE latest) d
      ON d.trace_id = s.trace_id AND d.span_id = s.span_id AND d.evaluator = s.evaluator
         AND d.request_time = s.request_time
    LEFT JOIN (SELECT trace_id, span_id, evaluator, max(label_pi) AS label_pi FROM raw.labels GROUP BY ALL) l
      ON l.trace_id = s.trace_id AND l.span_id = s.span_id AND l.evaluator = s.evaluator"""

_DECISIONS = f"""
    SELECT {hex_trace("trace_id")} AS trace_id, {hex_span("span_id")} AS span_id, evaluator, rule, policy, pi, sampled,
           reason, decided_at, request_time, u, revision, latest FROM raw.decisions"""

SESSION_FIGURES = f"""
    min(start_time) AS start_time, max(start_time + to_microseconds((latency_ms * 1000)::BIGINT)) AS end_time,
    round(sum({WEIGHT}))::BIGINT AS n_turns, arg_min(user_id, (start_time, trace_id)) AS user_id,
    arg_min(service, (start_time, trace_id)) AS service,
    CASE WHEN NOT bool_or(cost_usd IS NULL AND cost_unknown_reason IS DISTINCT FROM 'no call with usage')
         THEN sum(cost_usd * {WEIGHT}) END AS cost_usd,
    TRY_CAST(round(sum(input_tokens * {WEIGHT})) AS BIGINT) AS input_tokens,
    TRY_CAST(round(sum(output_tokens * {WEIGHT})) AS BIGINT) AS output_tokens,
    bool_or(error) AS error, {ESTIMATED} AS estimated"""
"""The figures of a session over its turns, those that an upstream sampler dropped included: see WEIGHT.

Its cost is unknown if that of a turn is.
"""

_SESSIONS = f"""
    SELECT session_id, {SESSION_FIGURES} FROM traces WHERE session_id IS NOT NULL AND {REQUEST} GROUP BY session_id"""

# Derived, not stored: a judge's calls are part of its verdict, so they are in no traffic, are never sampled, and are
# deleted with the verdict. A call has no time of its own within the evaluation.
_JUDGE_SPANS = f"""
    WITH evaluations AS (
        SELECT *, substr(md5(concat_ws('/', score_key, attempt, created_at)), 1, 16) AS own_id,
               created_at - to_microseconds(coalesce(elapsed_ms * 1000, 0)::BIGINT) AS start_time,
               from_json(calls, '[{{"prompt": "VARCHAR", "completion": "VARCHAR", "model": "VARCHAR",
                   "elapsed_s": "DOUBLE", "input_tokens": "BIGINT", "output_tokens": "BIGINT", "cost_usd": "DOUBLE",
                   "cached": "BOOLEAN"}}]') AS judge_calls
        FROM raw.scores WHERE calls IS NOT NULL AND source IN ('online', 'replay'))
    SELECT {hex_trace("trace_id")} AS trace_id, own_id AS span_id, {hex_span("span_id")} AS parent_span_id, start_time,
           elapsed_ms AS latency_ms, 'evaluate ' || evaluator AS name, 'evaluator' AS kind, 'ragpulse' AS service,
           CASE WHEN status = 'error' THEN 'error' ELSE 'ok' END AS status, NULL::VARCHAR AS query,
           explanation AS response, judge AS model, NULL::BIGINT AS input_tokens, NULL::BIGINT AS output_tokens,
           cost_usd, NULL::BOOLEAN AS cached, request_time, json_object('gen_ai.operation.name', 'evaluate',
               'gen_ai.evaluation.name', evaluator, 'gen_ai.evaluation.score.value', score,
               'gen_ai.evaluation.score.label', label, 'ragpulse.evaluator.version', version, 'run_id', run_id
           ) AS attributes
    FROM evaluations
    UNION ALL BY NAME
    SELECT trace_id, substr(md5(own_id || number), 1, 16) AS span_id, own_id AS parent_span_id, start_time,
           call.elapsed_s * 1000 AS latency_ms, 'chat ' || call.model AS name, 'llm' AS kind, 'ragpulse' AS service,
           'ok' AS status, call.prompt AS query, call.completion AS response, call.model AS model, call.input_tokens,
           call.output_tokens, call.cost_usd, call.cached, request_time,
           json_object('gen_ai.operation.name', 'chat', 'gen_ai.request.model', call.model) AS attributes
    FROM (SELECT {hex_trace("trace_id")} AS trace_id, own_id, start_time, request_time, unnest(judge_calls) AS call,
                 generate_subscripts(judge_calls, 1) AS number FROM evaluations)"""

_MEASURED = f"""
    SELECT {{keys}}, s.normalized AS y, d.pi, coalesce(f.cluster, hash(s.trace_id)) AS cluster, f.identified
    FROM raw.scores s JOIN raw.decisions d
      ON d.trace_id = s.trace_id AND d.span_id = s.span_id AND d.evaluator = s.evaluator
         AND d.request_time = s.request_time
    LEFT JOIN (SELECT trace_id, {CLUSTER} AS cluster, {IDENTIFIED} AS identified FROM raw.trace_facts WHERE latest) f
      ON f.trace_id = s.trace_id
    WHERE s.source = 'online' AND s.status = 'ok' AND s.normalized IS NOT NULL
      AND d.latest AND d.sampled AND d.pi > 0 AND d.reason IS DISTINCT FROM 'test_run' {{filters}}"""
"""Scores that enter an estimate: online, measured, and sampled (forced ones only if they were drawn as well)."""

_QUALITY_DAILY = hajek(
    _MEASURED.format(
        keys="s.request_time::DATE AS day, s.evaluator, coalesce(s.version, '') AS version,"
        " coalesce(s.judge, '') AS judge",
        filters="",
    ),
    keys="day, evaluator, version, judge",
)

_QUALITY = hajek(
    _MEASURED.format(
        keys="coalesce(s.version, '') AS version, coalesce(s.judge, '') AS judge",
        filters="""AND s.evaluator = evaluator_name
            AND s.request_time >= t_from::TIMESTAMP AND s.request_time < t_to::TIMESTAMP
            AND d.request_time >= t_from::TIMESTAMP AND d.request_time < t_to::TIMESTAMP""",
    ),
    keys="version, judge",
)

VIEWS: dict[str, str] = {
    "traces": _TRACES,
    "spans": _SPANS,
    "contexts": _CONTEXTS,
    "scores": _SCORES,
    "decisions": _DECISIONS,
    "sessions": _SESSIONS,
    "quality_daily": _QUALITY_DAILY,
    "judge_spans": _JUDGE_SPANS,
}

TABLE_MACROS: dict[str, str] = {
    "quality(evaluator_name, t_from, t_to)": _QUALITY,
    "undecided_since(t_from)": undecided("t_from::TIMESTAMP", "t_from::TIMESTAMP"),
    "trace(hex)": f"""{_SPANS} WHERE {spans_of("hex::UUID")}
        QUALIFY row_number() OVER (PARTITION BY s.span_id ORDER BY s.received_at) = 1 ORDER BY s.start_time""",
}


def create_views(execute: Callable[[str], Any]) -> None:
    """Create or replace every macro and view."""
    for signature, body in MACROS.items():
        execute(f"CREATE OR REPLACE MACRO {signature} AS {body}")
    for name, body in VIEWS.items():
        execute(f"CREATE OR REPLACE VIEW {name} AS {body}")
    for signature, body in TABLE_MACROS.items():
        execute(f"CREATE OR REPLACE MACRO {signature} AS TABLE {body}")


def views_digest() -> str:
    """Return the identity of all views and macros together."""
    text = repr((MACROS, VIEWS, TABLE_MACROS))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
