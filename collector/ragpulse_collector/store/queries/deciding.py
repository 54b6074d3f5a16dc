"""The decision as SQL over sets: the units of the traces that are due, their facts, their probabilities.

    due (decisions.py) ─▶ due_spans ─▶ span_tree (spans with their parent) ─▶ unit ─▶ fact
    fact × rules ─▶ drawn ─▶ raw.decisions, raw.eval_jobs;  fact ─▶ raw.trace_facts

Each step is a temporary table of the writer's connection, with the traces that are due.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.queries.decisions import BEGUN, MAX_DEDUPLICATED_SPANS, U_SQL
from ragpulse_collector.store.views import (
    FACT_COLUMNS,
    OF_UNIT,
    answer_of,
    feedback_of,
    hex_trace,
    metadata_map,
    tag_list,
)

MISDATED_US = 86_400 * 10**6
"""A span that starts more than this (a day) from its unit has a wrong clock: it is only counted.

So has a span that starts this long after its receipt, and one that starts this long before it while other spans of its
trace do not: a trace that is old as a whole was sent late, or imported.
"""

_PLACED_COLUMNS = ", ".join(
    f"s.{name}"
    for name in (
        "trace_id", "span_id", "parent_span_id", "start_time", "received_at", "duration_us", "name", "kind", "service",
        "environment", "status", "model", "response_id", "input_tokens", "output_tokens", "cached_tokens", "cost_usd",
        "cost_unknown_reason", "ttft_ms", "session_id", "user_id", "prompt_name", "prompt_version", "variant",
        "upstream_pi", "top_score", "tags", "metadata", "service_version", "finish_reason", "agent", "data_source",
        "top_k", "response_missing_reason", "control_flow",
    )
)  # fmt: skip

DUE_SPANS = f"""
    CREATE OR REPLACE TEMP TABLE due_spans AS
    SELECT {_PLACED_COLUMNS}, d.revision, d.known_spans, d.known_late,
           coalesce(s.input_tokens, s.output_tokens, s.cost_usd) IS NOT NULL AS has_usage
    FROM raw.spans s JOIN (
        SELECT unnest($traces::UUID[]) AS trace_id, unnest($revisions::INTEGER[]) AS revision,
               unnest($known_spans::INTEGER[]) AS known_spans, unnest($known_late::INTEGER[]) AS known_late) d
      ON d.trace_id = s.trace_id
    WHERE s.received_at BETWEEN $since AND $until AND s.start_time >= $lo"""
"""The spans of the traces that are decided, as they were received until `$until`."""

COUNT_DOUBLES = "SELECT count(*) - count(DISTINCT (trace_id, span_id)) FROM due_spans"

_KEPT_ONCE = {"spans": "", "contents": "", "contexts": ", rank"}

REMOVE_DOUBLES = [
    f"""
    DELETE FROM raw.{table} WHERE start_time >= $lo AND rowid IN (
        SELECT rowid FROM raw.{table} WHERE start_time >= $lo AND trace_id IN (
            SELECT trace_id FROM due_spans GROUP BY trace_id, span_id HAVING count(*) > 1)
        QUALIFY row_number() OVER (PARTITION BY trace_id, span_id{also} ORDER BY rowid) > 1)"""
    for table, also in _KEPT_ONCE.items()
]
"""Of a span that is stored twice only the first copy stays, with its texts and contexts."""

_AHEAD = "epoch_us(start_time) - epoch_us(received_at)"
PLACED = f"""
    CREATE OR REPLACE TEMP TABLE span_tree AS
    WITH near AS (
        SELECT trace_id, min(start_time) FILTER (abs({_AHEAD}) <= {MISDATED_US}) AS near FROM due_spans
        WHERE trace_id IN (SELECT trace_id FROM due_spans WHERE abs({_AHEAD}) > {MISDATED_US}) GROUP BY trace_id)
    SELECT m.*, CASE WHEN abs(epoch_us(m.start_time) - epoch_us(m.received_at)) <= {MISDATED_US} THEN m.start_time
                     ELSE coalesce(n.near, least(m.start_time, m.received_at)) END AS clocked,
           p.span_id IS NULL AS local_root,
           CASE WHEN p.span_id IS NOT NULL AND m.kind = 'rag' THEN m.parent_span_id END AS climb_from
    FROM due_spans m LEFT JOIN due_spans p
      ON p.trace_id = m.trace_id AND p.span_id = m.parent_span_id AND p.span_id <> m.span_id
    LEFT JOIN near n ON n.trace_id = m.trace_id"""

INSIDE = """
    CREATE OR REPLACE TEMP TABLE inside AS
    WITH RECURSIVE doubtful AS (
        SELECT trace_id, span_id, CASE WHEN NOT local_root THEN parent_span_id END AS parent, kind FROM span_tree
        WHERE trace_id IN (SELECT trace_id FROM span_tree WHERE climb_from IS NOT NULL)),
    within AS (
        SELECT trace_id, span_id FROM doubtful WHERE kind IN ('rag', 'evaluator')
        UNION
        SELECT d.trace_id, d.span_id FROM within w JOIN doubtful d ON d.trace_id = w.trace_id AND d.parent = w.span_id)
    SELECT d.trace_id, d.span_id FROM doubtful d JOIN within w ON w.trace_id = d.trace_id AND w.span_id = d.parent
    WHERE d.kind = 'rag'"""
"""Rag spans below another rag span or an evaluator's span; the walk visits each span once."""

UNIT = f"""
    CREATE OR REPLACE TEMP TABLE unit AS
    WITH marked AS (
        SELECT p.trace_id, p.span_id, p.clocked AS start_time, p.duration_us, p.ttft_ms, p.name, p.service,
               p.environment, p.status, p.session_id, p.user_id, p.prompt_name, p.prompt_version, p.variant, p.tags,
               p.metadata, p.service_version, p.agent, p.data_source, p.top_k, p.finish_reason,
               p.response_missing_reason, p.control_flow, p.kind = 'rag' AS is_rag
        FROM span_tree p ANTI JOIN inside i ON i.trace_id = p.trace_id AND i.span_id = p.span_id
        WHERE p.kind = 'rag' OR (p.local_root AND p.kind <> 'evaluator')),
    whole AS (
        SELECT trace_id, bool_or(is_rag) AS any_rag, count(*) FILTER (is_rag) AS n_rag, count(*) AS n_all,
               arg_min(span_id, (NOT is_rag, start_time, span_id)) AS first_span_id
        FROM marked GROUP BY trace_id)
    SELECT m.*, m.span_id = w.first_span_id AS is_first, CASE WHEN w.any_rag THEN w.n_rag ELSE w.n_all END AS n_units,
           {U_SQL} AS u
    FROM marked m JOIN whole w ON w.trace_id = m.trace_id WHERE m.is_rag = w.any_rag"""
"""The outermost rag spans, else the local roots; never an evaluator's span."""

UNCOUNTED = """
    CREATE OR REPLACE TEMP TABLE uncounted AS
    SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
           unnest($silent::BOOLEAN[]) AS silent"""
"""The spans whose usage repeats another's, and model calls without usage (`silent`)."""


def _may_score(service: str, environment: str) -> str:
    """Return whether the sender of the score `b` may write to a request of this service and environment."""
    own = {name: f"json_extract(b.binding, '$.{name}')::VARCHAR[]" for name in ("services", "environments")}
    allowed = (f"(len({own[name]}) = 0 OR coalesce(list_contains({own[name]}, {value}), false))"
               for name, value in (("services", service), ("environments", environment)))  # fmt: skip
    return f"(b.binding IS NULL OR ({' AND '.join(allowed)}))"


_MISSING_REASON = "coalesce(x.response_missing_reason, w.response_missing_reason)"
RESPONSES = """
    SELECT x.trace_id, left(coalesce(o.response, b.response), 4000) AS response
    FROM unit x JOIN own o ON o.trace_id = x.trace_id AND o.span_id = x.span_id
    LEFT JOIN below b ON b.trace_id = x.trace_id AND b.span_id = x.span_id
    WHERE x.is_first AND coalesce(o.response, b.response) IS NOT NULL"""
"""The beginning of each trace's response, which shows whether it declines to answer."""

TOPICS = """
    CREATE OR REPLACE TEMP TABLE question_topic AS
    SELECT a.question, CASE WHEN a.topic_id = 0 THEN 'other' ELSE t.name END AS topic
    FROM (SELECT unnest($questions::UBIGINT[]) AS question, unnest($topics::INTEGER[]) AS topic_id) a
    LEFT JOIN raw.topics t USING (topic_id)"""
"""The topic of each question, by its hash, under the name it has now."""

REFUSED = "CREATE OR REPLACE TEMP TABLE refused AS SELECT unnest($traces::UUID[]) AS trace_id"

FACT = f"""
    CREATE OR REPLACE TEMP TABLE fact AS
    WITH usage AS (
        SELECT p.trace_id, TRY_CAST(sum(input_tokens) AS BIGINT) AS input_tokens,
               TRY_CAST(sum(output_tokens) AS BIGINT) AS output_tokens,
               TRY_CAST(sum(cached_tokens) AS BIGINT) AS cached_tokens, count(*) AS calls, count(cost_usd) AS priced,
               sum(cost_usd) AS cost_usd, min(cost_unknown_reason) FILTER (cost_usd IS NULL) AS reason
        FROM span_tree p LEFT JOIN uncounted c ON c.trace_id = p.trace_id AND c.span_id = p.span_id
        WHERE coalesce(c.silent, has_usage) GROUP BY p.trace_id),
    dated AS (
        SELECT p.*, x.start_time IS NOT NULL
                    AND abs(epoch_us(p.clocked) - epoch_us(x.start_time)) > {MISDATED_US} AS away,
               away OR p.clocked <> p.start_time AS misdated,
               CASE WHEN away THEN x.start_time ELSE p.clocked END AS begun
        FROM span_tree p LEFT JOIN unit x ON x.trace_id = p.trace_id AND x.is_first),
    whole AS (
        SELECT trace_id, any_value(revision) AS revision, any_value(known_spans) AS known_spans,
               any_value(known_late) AS known_late,
               min(begun) AS start_time, min({BEGUN}) AS spans_from, count(*) AS n_spans,
               count_if(misdated) AS misdated_spans, min(upstream_pi) AS upstream_pi,
               arg_min(session_id, start_time) AS session_id, arg_min(user_id, start_time) AS user_id,
               arg_min(prompt_name, start_time) AS prompt_name, arg_min(prompt_version, start_time) AS prompt_version,
               arg_min(variant, start_time) AS variant, arg_min(environment, start_time) AS environment,
               arg_min(tags, start_time) AS tags, arg_min(metadata, start_time) AS metadata,
               arg_min(service_version, start_time) AS service_version, arg_min(agent, start_time) AS agent,
               arg_min(data_source, start_time) AS data_source, arg_min(top_k, start_time) AS top_k,
               {", ".join(f"arg_max_null({name}, start_time) FILTER (kind = 'llm') AS {name}" for name in OF_UNIT)},
               coalesce(arg_min(model, start_time) FILTER (kind = 'llm'),
                        arg_min(model, start_time) FILTER (kind NOT IN ('embedding', 'reranker'))) AS model,
               coalesce(max(top_score) FILTER (kind = 'reranker'), max(top_score)) AS top_score,
               min(TRY(begun + to_microseconds((ttft_ms * 1000)::BIGINT))) FILTER (kind = 'llm') AS first_token,
               arg_min(name, start_time) FILTER (kind = 'retriever') AS retriever,
               arg_min(name, start_time) AS name, arg_min(service, start_time) AS service,
               max(begun + to_microseconds(duration_us)) AS end_time
        FROM dated GROUP BY trace_id),
    texts AS (
        SELECT o.trace_id, o.span_id, coalesce(o.query, b.query) AS query, coalesce(o.response, b.response) AS response,
               coalesce(b.failed, false) AS failed
        FROM own o LEFT JOIN below b ON b.trace_id = o.trace_id AND b.span_id = o.span_id),
    opinions AS (
        SELECT b.trace_id, b.name, arg_max(b.score, b.received_at) AS score, max(b.received_at) AS received_at
        FROM raw.feedback b JOIN whole w ON w.trace_id = b.trace_id
        LEFT JOIN unit x ON x.trace_id = b.trace_id AND x.is_first
        WHERE b.source = 'human' AND b.score IS NOT NULL AND b.scope IS DISTINCT FROM 'session'
          AND {_may_score("coalesce(x.service, w.service)", "coalesce(x.environment, w.environment)")}
        GROUP BY b.trace_id, b.name),
    opinion AS ({feedback_of("opinions")}),
    failed AS (
        SELECT x.trace_id, bool_or(x.status = 'error' OR t.failed) AS error
        FROM unit x JOIN texts t ON t.trace_id = x.trace_id AND t.span_id = x.span_id GROUP BY x.trace_id)
    SELECT w.trace_id AS trace_uuid, {hex_trace("w.trace_id")} AS trace_id,
           coalesce(w.revision + 1, 0) AS revision, x.span_id AS unit_span_id,
           coalesce(x.start_time, w.start_time) AS start_time, w.spans_from,
           w.misdated_spans::INTEGER AS misdated_spans,
           coalesce(x.duration_us / 1000.0, epoch_us(w.end_time - w.start_time) / 1000.0) AS latency_ms,
           coalesce(x.ttft_ms, CASE WHEN w.first_token IS NOT NULL
                THEN greatest(0, epoch_us(w.first_token - coalesce(x.start_time, w.start_time))) / 1000.0 END)
               AS ttft_ms,
           coalesce(x.service, w.service) AS service, coalesce(x.environment, w.environment) AS environment,
           coalesce(x.name, w.name) AS name, coalesce(x.session_id, w.session_id) AS session_id,
           coalesce(x.user_id, w.user_id) AS user_id, coalesce(x.prompt_name, w.prompt_name) AS prompt_name,
           coalesce(x.prompt_version, w.prompt_version) AS prompt_version, coalesce(x.variant, w.variant) AS variant,
           w.model, g.input_tokens, g.output_tokens, g.cached_tokens,
           CASE WHEN g.priced = g.calls THEN g.cost_usd END AS cost_usd,
           nullif(concat_ws('; ',
               CASE WHEN g.calls IS NULL THEN 'no call with usage'
                    WHEN g.priced < g.calls THEN (g.calls - g.priced) || ' of ' || g.calls || ' calls: '
                         || coalesce(g.reason, 'unpriced') END,
               CASE WHEN w.n_spans > {MAX_DEDUPLICATED_SPANS} THEN 'more than {MAX_DEDUPLICATED_SPANS} spans: '
                    || 'usage that several spans state is counted for each' END), '') AS cost_unknown_reason,
           coalesce(f.error, false) AS error, w.top_score, w.n_spans::INTEGER AS n_spans,
           coalesce(x.n_units, 0)::INTEGER AS n_units,
           CASE WHEN w.revision IS NULL THEN 0
                ELSE w.known_late + greatest(0, w.n_spans - w.known_spans) END::INTEGER AS late_spans,
           w.upstream_pi, t.query, t.response, o.feedback, w.retriever,
           {tag_list("coalesce(x.tags, w.tags)")} AS tags,
           {metadata_map("coalesce(x.metadata, w.metadata)")} AS metadata,
           coalesce(x.service_version, w.service_version) AS release,
           coalesce(x.finish_reason, w.finish_reason) AS finish_reason, coalesce(x.agent, w.agent) AS agent,
           coalesce(x.data_source, w.data_source) AS data_source, coalesce(x.top_k, w.top_k) AS top_k,
           CASE WHEN t.response IS NULL THEN {_MISSING_REASON} END AS response_missing_reason, x.control_flow,
           o.feedbacks, o.feedbacks_off_scale,
           {answer_of("t.response", _MISSING_REASON, "r.trace_id IS NOT NULL")} AS answer, q.topic
    FROM whole w
    LEFT JOIN unit x ON x.trace_id = w.trace_id AND x.is_first
    LEFT JOIN usage g ON g.trace_id = w.trace_id
    LEFT JOIN texts t ON t.trace_id = x.trace_id AND t.span_id = x.span_id
    LEFT JOIN failed f ON f.trace_id = w.trace_id
    LEFT JOIN opinion o ON o.trace_id = w.trace_id
    LEFT JOIN refused r ON r.trace_id = w.trace_id
    LEFT JOIN question_topic q ON q.question = hash(t.query)"""

_FACTS = ", ".join(FACT_COLUMNS)

RETIRE_FACTS = """
    UPDATE raw.trace_facts SET latest = false
    WHERE latest AND start_time >= $lo AND trace_id IN (SELECT trace_uuid FROM fact WHERE revision > 0)"""

ADD_FACTS = f"""
    INSERT INTO raw.trace_facts BY NAME
    SELECT trace_uuid AS trace_id, revision, true AS latest, $until::TIMESTAMP AS decided_at, unit_span_id, {_FACTS},
           spans_from
    FROM fact ORDER BY start_time"""


RULES_IN_FORCE = "rules_in_force"
"""The key of `raw.meta` with every set of rules that was in force, as JSON of `at` and `rules`."""
KNOWN_RULES = f"SELECT value FROM raw.meta WHERE key = '{RULES_IN_FORCE}' ORDER BY value"
ADD_RULES = f"INSERT INTO raw.meta (key, value) VALUES ('{RULES_IN_FORCE}', $value)"
FIRST_DECIDED = """
    CREATE OR REPLACE TEMP TABLE in_force AS
    SELECT f.trace_uuid, coalesce(count(r.at), 0) - 1 AS rule_set
    FROM fact f
    LEFT JOIN (SELECT trace_id, min(decided_at) AS at FROM raw.trace_facts
               WHERE start_time >= $lo AND revision = 0 AND trace_id IN (SELECT trace_uuid FROM fact)
               GROUP BY trace_id) k ON k.trace_id = f.trace_uuid
    LEFT JOIN (SELECT unnest($times::TIMESTAMP[]) AS at) r ON r.at <= coalesce(k.at, TIMESTAMP '9999-01-01')
    GROUP BY f.trace_uuid"""
"""The set of rules, in order of their times, that was in force when each trace was decided first."""
RULE_SETS = "SELECT DISTINCT rule_set FROM in_force"


def decided_under(rule_set: int) -> str:
    """Return the condition that a unit's trace was decided first under this set of rules."""
    return f"x.trace_id IN (SELECT trace_uuid FROM in_force WHERE greatest(rule_set, 0) = {rule_set})"


NOTHING_DRAWN = """
    CREATE OR REPLACE TEMP TABLE drawn AS
    SELECT trace_id, span_id, start_time AS request_time, '' AS evaluator, '' AS rule, '' AS policy, 0 AS revision,
           0.0::DOUBLE AS pi, u, false AS sampled, '' AS reason FROM unit WHERE false"""


ORPHANED = """
    INSERT INTO drawn
    SELECT d.trace_id, d.span_id, d.request_time, d.evaluator, d.rule, d.policy, f.revision, 0.0, d.u, false, 'late'
    FROM raw.decisions d JOIN fact f ON f.trace_uuid = d.trace_id AND f.revision > 0
    ANTI JOIN unit x ON x.trace_id = d.trace_id AND x.span_id = d.span_id
    WHERE d.latest AND d.request_time >= $lo AND d.reason <> 'late'"""
"""Units of an earlier revision that no longer are units, because their parent came late: no estimate counts them."""

RETIRE_DECISIONS = """
    UPDATE raw.decisions SET latest = false
    WHERE latest AND request_time >= $lo
      AND (trace_id, span_id, evaluator) IN (SELECT (trace_id, span_id, evaluator) FROM drawn WHERE revision > 0)"""

ADD_DECISIONS = """
    INSERT INTO raw.decisions BY NAME
    SELECT *, $at::TIMESTAMP AS decided_at, true AS latest FROM drawn ORDER BY request_time"""

_JOBS = """
    INSERT INTO raw.eval_jobs BY NAME
    SELECT md5(d.trace_id::VARCHAR || d.span_id || d.evaluator)::UUID AS job_id,
           d.trace_id, d.span_id, d.request_time, d.evaluator, 'online' AS source, d.u, $at::TIMESTAMP AS created_at,
           d.rule
    FROM drawn d WHERE d.sampled"""

ADD_JOBS = f"{_JOBS} ORDER BY d.request_time"

ADD_NEW_JOBS = f"""{_JOBS} AND (d.revision = 0 OR NOT EXISTS (
        SELECT 1 FROM raw.eval_jobs j WHERE j.source = 'online' AND j.trace_id = d.trace_id
           AND j.span_id = d.span_id AND j.evaluator = d.evaluator AND j.request_time >= $lo))
    ORDER BY d.request_time"""
"""For traces that were decided before: a unit with a job gets no second one."""

SETTLE_FEEDBACK = f"""
    INSERT INTO raw.scores BY NAME
    SELECT replace(b.feedback_id::VARCHAR, '-', '') AS score_key, b.feedback_id AS job_id, b.trace_id,
           coalesce(b.span_id, f.unit_span_id) AS span_id,
           coalesce(x.clocked, f.start_time) AS request_time, b.name AS evaluator, b.source, 'ok' AS status,
           b.score, CASE WHEN b.score BETWEEN 0 AND 1 THEN b.score END AS normalized, b.label, b.explanation,
           b.received_at AS created_at, b.scope, b.identifier,
           CASE WHEN b.scope = 'session' THEN coalesce(b.session_id, f.session_id) END AS session_id
    FROM raw.feedback b JOIN fact f ON f.trace_uuid = b.trace_id
    LEFT JOIN span_tree x ON x.trace_id = b.trace_id AND x.span_id = coalesce(b.span_id, f.unit_span_id)
    WHERE {_may_score("f.service", "f.environment")}
      AND {_may_score("coalesce(x.service, f.service)", "coalesce(x.environment, f.environment)")}
      AND NOT EXISTS (SELECT 1 FROM raw.scores s WHERE s.trace_id = b.trace_id AND s.job_id = b.feedback_id
                        AND s.source <> 'online')"""

SCORES_SINCE = """
    SELECT trace_id, request_time, created_at FROM raw.scores
    WHERE created_at >= $since AND source = 'online' AND status = 'ok' AND list_contains($names::VARCHAR[], evaluator)
    ORDER BY created_at LIMIT $most"""
"""Scores of these evaluators that were stored since then, the oldest `$most` of them."""

FACT_OF_SCORED = f"""
    CREATE OR REPLACE TEMP TABLE fact AS
    SELECT f.trace_id AS trace_uuid, {hex_trace("f.trace_id")} AS trace_id, f.revision, f.unit_span_id,
           {", ".join(f"f.{column}" for column in FACT_COLUMNS)}
    FROM raw.trace_facts f
    WHERE f.latest AND f.start_time >= $lo AND f.trace_id IN (SELECT trace_id FROM ({SCORES_SINCE}))"""

UNIT_OF_SCORED = """
    CREATE OR REPLACE TEMP TABLE unit AS
    SELECT DISTINCT trace_id, span_id, request_time AS start_time, u FROM raw.decisions
    WHERE latest AND request_time >= $lo AND u IS NOT NULL AND list_contains($evaluators::VARCHAR[], evaluator)
      AND trace_id IN (SELECT trace_uuid FROM fact)"""

RAISED = """
    CREATE OR REPLACE TEMP TABLE drawn AS
    SELECT n.* REPLACE (d.revision + 1 AS revision) FROM drawn n
    JOIN fact f ON f.trace_uuid = n.trace_id
    JOIN raw.decisions d ON d.trace_id = n.trace_id AND d.span_id = n.span_id AND d.evaluator = n.evaluator
    WHERE d.latest AND d.request_time >= $lo AND n.pi > d.pi * (1 + 1e-9)
      AND list_contains($evaluators::VARCHAR[], n.evaluator) AND list_contains($policies::VARCHAR[], d.policy)
      AND (d.sampled OR d.u * coalesce(f.upstream_pi, 1) >= d.pi)"""
"""Decisions of the rules in force with a higher pi by the scores, without those that a cap dropped after the draw."""


SESSIONS_SEEN = "SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = 'sessions_seen'"

DELETE_SESSIONS_SEEN = "DELETE FROM raw.meta WHERE key = 'sessions_seen'"

ADD_SESSIONS_SEEN = "INSERT INTO raw.meta (key, value) VALUES ('sessions_seen', $seen::TIMESTAMP::VARCHAR)"

QUIET_SESSIONS = """
    SELECT arg_max(trace_id, (start_time, trace_id)) AS last_trace FROM raw.trace_facts
    WHERE latest AND session_id IS NOT NULL AND unit_span_id IS NOT NULL AND start_time >= $since GROUP BY session_id
    HAVING max(start_time + to_microseconds((latency_ms * 1000)::BIGINT)) <= $quiet AND last_trace NOT IN (
        SELECT trace_id FROM raw.decisions
        WHERE latest AND request_time >= $since AND list_contains($evaluators::VARCHAR[], evaluator))"""
"""The last turn of each session that ended before `$quiet`, unless one of the evaluators has a decision about it."""

FACT_OF_SESSIONS = f"""
    CREATE OR REPLACE TEMP TABLE fact AS
    SELECT f.trace_id AS trace_uuid, {hex_trace("f.trace_id")} AS trace_id, 0 AS revision, f.unit_span_id,
           {", ".join(f"f.{column}" for column in FACT_COLUMNS)}
    FROM raw.trace_facts f
    WHERE f.latest AND f.start_time >= $since AND f.trace_id IN ({QUIET_SESSIONS} LIMIT $most)"""

UNIT_OF_SESSIONS = f"""
    CREATE OR REPLACE TEMP TABLE unit AS
    SELECT m.*, {U_SQL} AS u FROM (SELECT trace_uuid AS trace_id, unit_span_id AS span_id, start_time FROM fact) m"""

RETIRE_SESSIONS = """
    UPDATE raw.decisions SET latest = false
    WHERE latest AND request_time >= $lo AND (rule, evaluator) IN (SELECT (rule, evaluator) FROM drawn)
      AND trace_id IN (
        SELECT t.trace_id FROM raw.trace_facts t JOIN fact f ON f.session_id = t.session_id
        WHERE t.latest AND t.start_time >= $lo AND t.trace_id <> f.trace_uuid)"""
"""Decisions of the same rule at an earlier end of a session that continued."""


def scores_seen(names: Sequence[str]) -> str:
    """Return the statement that looks up the scores of the first unit of each trace in `fact`.

    A score counts only if its evaluator runs on all units: the existence of a sampled score would depend on u.
    """
    fields = ", ".join(
        f"{literal(name)}: arg_max(coalesce(s.normalized, s.score), s.created_at)"
        f" FILTER (s.evaluator = {literal(name)})"
        for name in names
    )
    return f"""
        CREATE OR REPLACE TEMP TABLE seen AS
        SELECT s.trace_id AS trace_uuid, {{{fields}}} AS score
        FROM raw.scores s JOIN fact f ON f.trace_uuid = s.trace_id AND f.unit_span_id = s.span_id
        JOIN raw.decisions d ON d.trace_id = s.trace_id AND d.span_id = s.span_id
         AND split_part(d.evaluator, '@', 1) = s.evaluator
        WHERE s.request_time >= $lo AND d.request_time >= $lo AND s.source = 'online' AND s.status = 'ok'
          AND s.evaluator IN ({", ".join(map(literal, names))})
          AND d.latest AND d.sampled AND d.pi >= coalesce(f.upstream_pi, 1) * (1 - 1e-9)
        GROUP BY s.trace_id"""
