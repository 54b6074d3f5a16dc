"""The stable views and macros for users' queries. Columns may be added, never renamed or removed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ragpulse_collector.store.estimates import CLUSTER, IDENTIFIED, MACROS, WEIGHT, hajek


def hex_trace(column: str) -> str:
    """Return the SQL that shows a UUID column as a trace id."""
    return f"lower(hex({column}::BLOB))"


def hex_span(column: str) -> str:
    """Return the SQL that shows a UBIGINT column as a span id."""
    return f"printf('%016x', {column})"


def tag_list(column: str) -> str:
    """Return SQL for the tags that a span has as JSON."""
    return f"TRY_CAST(TRY_CAST({column} AS JSON) AS VARCHAR[])"


def metadata_map(column: str) -> str:
    """Return SQL for the metadata that a span has as JSON; values that are not text are their JSON."""
    return f"TRY_CAST(TRY_CAST({column} AS JSON) AS MAP(VARCHAR, VARCHAR))"


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
           s.top_k, s.response_missing_reason, s.control_flow
    FROM raw.spans s LEFT JOIN raw.contents c
      ON c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time"""


def spans_of(trace: str) -> str:
    """Return the condition for a trace's spans where no time is known.

    Their times are found by the id first, so that all the columns of rows at other times are passed over.
    """
    return f"s.trace_id = {trace} AND s.start_time IN (SELECT start_time FROM raw.spans WHERE trace_id = {trace})"


def feedback_of(
    opinions: str, accepted: str = "$accepted", scales: str = "map($scaled::VARCHAR[], $ranges::DOUBLE[][])"
) -> str:
    """Return SQL for the feedback of each trace: by name, and the newest of the names that are acceptance.

    `opinions` is a relation of trace_id, name, score and received_at: the newest score of each name. `scales` is a map
    of names to their lowest and highest values. Acceptance is 0 to 1; some clients send -1 for a thumb down.
    """
    scaled = f"""
        SELECT *, list_contains({accepted}::VARCHAR[], name) AS accepted,
               coalesce({scales}[name], CASE WHEN accepted THEN [-1.0, 1.0] END) AS scale,
               coalesce(score BETWEEN scale[1] AND scale[2], true) AS fits FROM {opinions}"""
    return f"""
        SELECT trace_id, map_from_entries(list((name, score) ORDER BY name) FILTER (fits)) AS feedbacks,
               list(name ORDER BY name) FILTER (NOT fits) AS feedbacks_off_scale,
               arg_max(score, received_at) FILTER (accepted AND fits) AS feedback
        FROM ({scaled}) GROUP BY trace_id"""


def answer_of(response: str, reason: str, refused: str) -> str:
    """Return SQL that says whether a request was answered: `answered`, `refused`, `empty`, NULL if that is unknown."""
    return f"""CASE WHEN {response} IS NULL AND {reason} IN ('refused_by_provider', 'filtered') THEN 'refused'
                    WHEN {response} IS NULL THEN NULL WHEN regexp_full_match({response}, '\\s*') THEN 'empty'
                    WHEN {refused} THEN 'refused' ELSE 'answered' END"""


FACT_COLUMNS = (
    "start_time", "latency_ms", "ttft_ms", "service", "environment", "name", "query", "response", "session_id",
    "user_id", "prompt_name", "prompt_version", "variant", "model", "input_tokens", "output_tokens", "cached_tokens",
    "cost_usd", "cost_unknown_reason", "error", "top_score", "n_spans", "n_units", "upstream_pi", "late_spans",
    "feedback", "retriever", "misdated_spans", "tags", "metadata", "release", "finish_reason", "agent", "data_source",
    "top_k", "response_missing_reason", "control_flow", "feedbacks", "feedbacks_off_scale", "answer", "topic",
)  # fmt: skip
"""What the `traces` view takes from `raw.trace_facts` beside the ids."""

LOW = """coalesce((SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = 'low_water'), TIMESTAMP '1970-01-01')"""
"""The low-water mark: all spans received before it are decided."""
# For the whole view. Without undecided traces nothing is read: a bound of NULL would read everything.
_FIRST = f"""coalesce((SELECT min(least(start_time, received_at)) FROM raw.spans WHERE received_at >= {LOW}),
                   TIMESTAMP '9999-01-01')"""

OF_FIRST = (
    "ttft_ms", "service", "environment", "name", "session_id", "user_id", "prompt_name", "prompt_version", "variant",
    "tags", "metadata", "service_version", "agent", "data_source", "top_k",
)  # fmt: skip
"""The columns that an undecided trace takes from the first span with a value."""
OF_UNIT = ("finish_reason", "response_missing_reason")
"""The columns that a trace takes from its unit, else from its last model call."""


def of_unit(name: str) -> str:
    """Return SQL for one of `OF_UNIT` in an undecided trace."""
    return f"coalesce(arg_min_null(s.{name}, s.sort_key), arg_max_null(s.{name}, s.start_time) FILTER (s.kind = 'llm'))"


_WAITING = f"""
            SELECT trace_id, span_id, parent_span_id, start_time, duration_us, kind, status, model, top_score,
                   response_id, input_tokens, output_tokens, cached_tokens, upstream_pi, finish_reason,
                   response_missing_reason, control_flow, {", ".join(OF_FIRST)},
                   ((kind <> 'rag')::BIGINT << 61) + ((parent_span_id IS NOT NULL)::BIGINT << 60)
                       + epoch_us(start_time) AS sort_key
            FROM raw.spans WHERE received_at >= {LOW} AND start_time >= {{since}}"""

_MOST_CALLS = 1_000
_OUTERMOST = f"""
    CASE WHEN len(calls) BETWEEN 2 AND {_MOST_CALLS} THEN list_filter(calls, lambda c:
        NOT coalesce(list_contains(list_transform(
            list_filter(calls, lambda o: coalesce(o.response = c.response, true)), lambda o: o.span), c.parent), false))
    ELSE calls END"""
_COUNTED = f"""
    CASE WHEN len(calls) BETWEEN 2 AND {_MOST_CALLS} THEN list_filter(calls, lambda c, i:
        list_position(list_transform(calls, lambda o: coalesce(o.response, o.span::VARCHAR)),
                      coalesce(c.response, c.span::VARCHAR)) = i)
    ELSE calls END"""
"""`conventions.dedupe.token_spans` for model calls and their direct parents: the outermost, then each response id once.
A trace of very many is not checked. Embeddings and the sums of agents count once the trace is decided: with them the
list of traces takes a tenth longer."""

# Traces that the sampler has not decided yet and that begin at `since` or later. Each is shown by its first rag span,
# else the span without a parent, else the earliest. Without a sampler millions are undecided: of those before `since`
# only the id is read. No undecided trace begins before `first`.
_UNDECIDED = f"""
    WITH shown AS (
        SELECT s.trace_id, min(s.start_time) AS start_time, arg_min(s.duration_us, s.sort_key) / 1000.0 AS latency_ms,
               {", ".join(f"arg_min(s.{name}, s.sort_key) AS {name}" for name in OF_FIRST)},
               arg_min(s.model, s.start_time) FILTER (s.kind = 'llm') AS model,
               arg_min(s.name, s.start_time) FILTER (s.kind = 'retriever') AS retriever,
               {", ".join(f"{of_unit(name)} AS {name}" for name in OF_UNIT)},
               arg_min_null(s.control_flow, s.sort_key) AS control_flow,
               list({{{{'span': s.span_id, 'parent': s.parent_span_id, 'response': s.response_id,
                      'input': s.input_tokens, 'output': s.output_tokens, 'cached': s.cached_tokens}}}})
                   FILTER (s.kind = 'llm' AND coalesce(s.input_tokens, s.output_tokens) IS NOT NULL) AS calls,
               arg_min(s.status = 'error', s.sort_key) AS error, max(s.top_score) AS top_score,
               count(*)::INTEGER AS n_spans, min(s.upstream_pi) AS upstream_pi,
               arg_min(s.span_id, s.sort_key) AS unit_span_id, arg_min(s.start_time, s.sort_key) AS unit_time
        FROM ({_WAITING}) s
        ANTI JOIN (
            SELECT trace_id FROM raw.trace_facts WHERE start_time >= {{first}} - INTERVAL 1 DAY
            UNION ALL
            SELECT trace_id FROM raw.spans WHERE received_at >= {LOW} AND start_time < {{since}}) f
          ON f.trace_id = s.trace_id
        GROUP BY s.trace_id),
    outermost AS (SELECT * REPLACE ({_OUTERMOST} AS calls) FROM shown),
    priced AS (SELECT * EXCLUDE (calls), {_COUNTED} AS counted FROM outermost)
    SELECT x.* EXCLUDE (unit_time, counted, service_version, tags, metadata, response_missing_reason),
           {tag_list("x.tags")} AS tags, {metadata_map("x.metadata")} AS metadata, x.service_version AS release,
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.input)) AS BIGINT) AS input_tokens,
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.output)) AS BIGINT) AS output_tokens,
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.cached)) AS BIGINT) AS cached_tokens,
           NULL::DOUBLE AS cost_usd, 'not decided yet' AS cost_unknown_reason,
           c.query, c.response, NULL::INTEGER AS n_units, 0::INTEGER AS late_spans, NULL::DOUBLE AS feedback,
           0::INTEGER AS misdated_spans, NULL::MAP(VARCHAR, DOUBLE) AS feedbacks,
           NULL::VARCHAR[] AS feedbacks_off_scale, NULL::VARCHAR AS topic,
           CASE WHEN regexp_full_match(c.response, '\\s*') THEN 'empty' END AS answer,
           CASE WHEN c.response IS NULL THEN x.response_missing_reason END AS response_missing_reason,
           false AS decided
    FROM priced x
    LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= {{first}}) c
      ON c.trace_id = x.trace_id AND c.span_id = x.unit_span_id AND c.start_time = x.unit_time"""

DECIDED = f"""
    SELECT {hex_trace("trace_id")} AS trace_id, {", ".join(FACT_COLUMNS)},
           {hex_span("unit_span_id")} AS unit_span_id, true AS decided
    FROM raw.trace_facts WHERE latest"""
"""The traces that the sampler has decided; ends in its conditions."""
_SHOWN = f"SELECT * REPLACE ({hex_trace('trace_id')} AS trace_id, {hex_span('unit_span_id')} AS unit_span_id) FROM"
UNDECIDED_SINCE = f"{_SHOWN} undecided_since($since)"
"""The undecided traces that begin at `$since` or later."""

# The CTE is inside its branch: around the union it would prevent that the scan of the facts uses conditions on time.
_TRACES = f"""{DECIDED}
    UNION ALL BY NAME {_SHOWN} ({_UNDECIDED.format(since="TIMESTAMP '1970-01-01'", first=_FIRST)})"""

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

_SCORES = f"""
    SELECT {hex_trace("s.trace_id")} AS trace_id, {hex_span("s.span_id")} AS span_id, s.request_time, s.evaluator,
           s.version, s.judge, s.source, s.status, s.score, s.normalized, s.passing, s.label, s.explanation, d.pi,
           l.label_pi, d.reason, s.cost_usd, s.created_at, s.run_id, d.sampled, d.u, s.label_version, s.parts, s.ci_lo,
           s.ci_hi, s.elapsed_ms, s.attempt, s.score_key, s.scope, s.identifier, s.session_id
    FROM raw.scores s
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
    CASE WHEN NOT bool_or(cost_usd IS NULL AND cost_unknown_reason <> 'no call with usage')
         THEN sum(cost_usd * {WEIGHT}) END AS cost_usd,
    TRY_CAST(round(sum(input_tokens * {WEIGHT})) AS BIGINT) AS input_tokens,
    TRY_CAST(round(sum(output_tokens * {WEIGHT})) AS BIGINT) AS output_tokens,
    bool_or(error) AS error"""
"""The figures of a session over its turns, those that an upstream sampler dropped included: see WEIGHT.

Its cost is unknown if that of a turn is.
"""

_SESSIONS = f"SELECT session_id, {SESSION_FIGURES} FROM traces WHERE session_id IS NOT NULL GROUP BY session_id"

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
    "undecided_since(t_from)": _UNDECIDED.format(since="t_from::TIMESTAMP", first="t_from::TIMESTAMP"),
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
