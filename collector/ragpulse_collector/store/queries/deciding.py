"""The decision as SQL over sets: the spans of the traces that are due, the probabilities of their units.

    due (decisions.py) ─▶ due_spans ─▶ span_tree, unit, fact (store/units/decided.py)
    fact × rules ─▶ drawn ─▶ raw.decisions, raw.eval_jobs;  fact ─▶ raw.trace_facts

Each step is a temporary table of the writer's connection, with the traces that are due.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.units.decided import may_score
from ragpulse_collector.store.units.numbers import U_SQL
from ragpulse_collector.store.units.row import OF_FIRST, OF_UNIT
from ragpulse_collector.store.views import FACT_COLUMNS, hex_trace

_PLACED_COLUMNS = ", ".join(
    f"s.{name}"
    for name in (
        "trace_id", "span_id", "parent_span_id", "start_time", "received_at", "duration_us", "kind", "status", "model",
        "response_id", "input_tokens", "output_tokens", "cached_tokens", "cost_usd", "cost_unknown_reason", "ttft_ms",
        "upstream_pi", "top_score", "control_flow", *OF_FIRST, *OF_UNIT,
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

UNCOUNTED = """
    CREATE OR REPLACE TEMP TABLE uncounted AS
    SELECT unnest($traces::UUID[]) AS trace_id, unnest($spans::UBIGINT[]) AS span_id,
           unnest($silent::BOOLEAN[]) AS silent"""
"""The spans whose usage repeats another's, and model calls without usage (`silent`)."""

REFUSED = """
    CREATE OR REPLACE TEMP TABLE refusal AS
    SELECT unnest($responses::UBIGINT[]) AS response, unnest($refused::BOOLEAN[]) AS refused"""
"""Whether each response, by its hash, declines to answer."""

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
    WHERE {may_score("f.service", "f.environment")}
      AND {may_score("coalesce(x.service, f.service)", "coalesce(x.environment, f.environment)")}
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
    """Return the statement that looks up scores, and labels (`given`), of the first unit of each trace in `fact`.

    A score counts only if its evaluator runs on all units: the existence of a sampled score would depend on u.
    """
    fields = ", ".join(
        f"{literal(name)}: arg_max(coalesce(s.normalized, s.score), s.created_at)"
        f" FILTER (s.evaluator = {literal(name)})"
        for name in names
    )
    labels = ", ".join(
        f"{literal(name)}: arg_max(s.label, s.created_at) FILTER (s.evaluator = {literal(name)})" for name in names
    )
    return f"""
        CREATE OR REPLACE TEMP TABLE seen AS
        SELECT s.trace_id AS trace_uuid, {{{fields}}} AS score, {{{labels}}} AS given
        FROM raw.scores s JOIN fact f ON f.trace_uuid = s.trace_id AND f.unit_span_id = s.span_id
        JOIN raw.decisions d ON d.trace_id = s.trace_id AND d.span_id = s.span_id
         AND split_part(d.evaluator, '@', 1) = s.evaluator
        WHERE s.request_time >= $lo AND d.request_time >= $lo AND s.source = 'online' AND s.status = 'ok'
          AND s.evaluator IN ({", ".join(map(literal, names))})
          AND d.latest AND d.sampled AND d.pi >= coalesce(f.upstream_pi, 1) * (1 - 1e-9)
        GROUP BY s.trace_id"""
