"""The tables of the store (schema `raw`: append-only, ordered by time, no index).

Ids are UUID / UBIGINT here and lower-case hex text in the views (views.py); instants are UTC. Only the `latest` flags
of `trace_facts` and `decisions` and the topics and distances of `trace_facts` are ever updated, so that a view needs no
window over their history, and no join.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SCHEMA_VERSION = 15
REQUESTS_SINCE = "requests_since"
"""The key of `raw.meta` with the time of the upgrade since which roots that are no requests are not counted."""

VIEW_NAMES = ("traces", "spans", "contexts", "scores", "decisions", "sessions", "quality_daily", "judge_spans")
"""The keys of `views.VIEWS`. A reader process checks queries against them without loading the views' SQL."""

TABLES: dict[str, str] = {
    "meta": "key VARCHAR, value VARCHAR",
    "spans": """
        trace_id UUID, span_id UBIGINT, parent_span_id UBIGINT, start_time TIMESTAMP, received_at TIMESTAMP,
        duration_us BIGINT, name VARCHAR, kind VARCHAR, service VARCHAR, service_version VARCHAR, environment VARCHAR,
        status VARCHAR, status_message VARCHAR, error_type VARCHAR, model VARCHAR, provider VARCHAR,
        response_id VARCHAR, input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT,
        cache_write_tokens BIGINT, reasoning_tokens BIGINT, cost_usd DOUBLE, cost_source VARCHAR,
        cost_unknown_reason VARCHAR, ttft_ms DOUBLE, session_id VARCHAR, user_id VARCHAR, prompt_name VARCHAR,
        prompt_version VARCHAR, variant VARCHAR, tags VARCHAR, metadata VARCHAR, upstream_pi DOUBLE,
        contexts_state VARCHAR, n_contexts INTEGER, top_score DOUBLE, dropped_attributes INTEGER, has_text BOOLEAN,
        attributes VARCHAR, resource VARCHAR, events VARCHAR, mapped_from VARCHAR, links VARCHAR,
        finish_reason VARCHAR, agent VARCHAR, data_source VARCHAR, top_k INTEGER, response_missing_reason VARCHAR,
        control_flow VARCHAR, index_version VARCHAR""",
    # `query_from`, `response_from`: the span below that gave the text of a unit without one.
    "contents": """
        trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, query VARCHAR, response VARCHAR, query_from UBIGINT,
        response_from UBIGINT""",
    "contexts": """
        trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, rank INTEGER, id VARCHAR, score DOUBLE, text VARCHAR,
        metadata VARCHAR, hash VARCHAR""",
    # Texts of log events as they arrived; `record` is JSON of query, response, contexts.
    "content_events": """
        trace_id UUID, span_id UBIGINT, time TIMESTAMP, received_at TIMESTAMP, joined BOOLEAN, record VARCHAR""",
    # Scores that arrived over OTLP or the API; the decision's transaction copies them to `scores` under their unit.
    # A score without a trace id waits for the span with its response id. `binding` is JSON. `scope`: `trace` or
    # `session` (of `session_id`), else a span; `identifier`: which of several judges with one name.
    "feedback": """
        feedback_id UUID, trace_id UUID, span_id UBIGINT, time TIMESTAMP, received_at TIMESTAMP, name VARCHAR,
        score DOUBLE, label VARCHAR, explanation VARCHAR, source VARCHAR, response_id VARCHAR, binding VARCHAR,
        scope VARCHAR, identifier VARCHAR, session_id VARCHAR""",
    # `answer`: answered, refused or empty. `feedbacks` leaves out values outside the scale of their name. `topic`: the
    # name of one of `topics`, or `other`. `question_distance`: 1 - cosine of the question and the nearest centre.
    # `n_units`: its requests; 0 for what is stored and not counted. Before version 13 every root was one.
    "trace_facts": """
        trace_id UUID, revision INTEGER, latest BOOLEAN, decided_at TIMESTAMP, unit_span_id UBIGINT,
        start_time TIMESTAMP, latency_ms DOUBLE, ttft_ms DOUBLE, service VARCHAR, environment VARCHAR, name VARCHAR,
        session_id VARCHAR, user_id VARCHAR, prompt_name VARCHAR, prompt_version VARCHAR, variant VARCHAR,
        model VARCHAR, input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT, cost_usd DOUBLE,
        cost_unknown_reason VARCHAR, error BOOLEAN, top_score DOUBLE, n_spans INTEGER, n_units INTEGER,
        late_spans INTEGER, upstream_pi DOUBLE, query VARCHAR, response VARCHAR, feedback DOUBLE,
        retriever VARCHAR, misdated_spans INTEGER, spans_from TIMESTAMP, tags VARCHAR[],
        metadata MAP(VARCHAR, VARCHAR), release VARCHAR, finish_reason VARCHAR, agent VARCHAR, data_source VARCHAR,
        top_k INTEGER, response_missing_reason VARCHAR, control_flow VARCHAR, feedbacks MAP(VARCHAR, DOUBLE),
        feedbacks_off_scale VARCHAR[], answer VARCHAR, topic VARCHAR, question_distance FLOAT,
        index_version VARCHAR""",
    "decisions": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, rule VARCHAR, policy VARCHAR,
        pi DOUBLE, u DOUBLE, sampled BOOLEAN, reason VARCHAR, decided_at TIMESTAMP, revision INTEGER,
        latest BOOLEAN""",
    "eval_jobs": """
        job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, run_id VARCHAR,
        source VARCHAR, u DOUBLE, created_at TIMESTAMP, rule VARCHAR""",
    "scores": """
        score_key VARCHAR, job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR,
        version VARCHAR, label_version VARCHAR, judge VARCHAR, source VARCHAR, status VARCHAR, score DOUBLE,
        normalized DOUBLE, passing BOOLEAN, label VARCHAR, explanation VARCHAR, parts VARCHAR, ci_lo DOUBLE,
        ci_hi DOUBLE, calls VARCHAR, cost_usd DOUBLE, elapsed_ms DOUBLE, attempt INTEGER, created_at TIMESTAMP,
        run_id VARCHAR, scope VARCHAR, identifier VARCHAR, session_id VARCHAR""",
    # `kind`: `check`, or null for a replay. `result`: the report of a check that is no estimate over traces (JSON).
    # `in_use`: null in the rows of versions before 12, whose replays were all in use.
    "runs": """
        run_id VARCHAR, evaluator VARCHAR, version VARCHAR, judge VARCHAR, spec VARCHAR, status VARCHAR,
        total BIGINT, max_usd DOUBLE, error VARCHAR, created_at TIMESTAMP, in_use BOOLEAN, kind VARCHAR,
        result VARCHAR""",
    # `reused`: the score was stored before, by another run or an online evaluation.
    "run_items": """
        run_id VARCHAR, score_key VARCHAR, trace_id UUID, span_id UBIGINT, u DOUBLE, job_id UUID, reused BOOLEAN""",
    "judge_calls": "key VARCHAR, judge VARCHAR, reply VARCHAR, created_at TIMESTAMP",
    "ledger": """
        entry_id UUID, day DATE, evaluator VARCHAR, job_id UUID, run_id VARCHAR, kind VARCHAR, usd DOUBLE,
        created_at TIMESTAMP, rule VARCHAR""",
    "labels": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, score DOUBLE, passing BOOLEAN,
        comment VARCHAR, annotator VARCHAR, label_pi DOUBLE, created_at TIMESTAMP""",
    "rules": "name VARCHAR, policy VARCHAR, rule VARCHAR, source VARCHAR, deleted BOOLEAN, created_at TIMESTAMP",
    "monitor_states": """
        monitor VARCHAR, "group" VARCHAR, state VARCHAR, value DOUBLE, lo DOUBLE, hi DOUBLE, text VARCHAR,
        delivery VARCHAR, statistic VARCHAR, created_at TIMESTAMP, event_id UUID""",
    "monitors": "name VARCHAR, definition VARCHAR, mute_until TIMESTAMP, deleted BOOLEAN, created_at TIMESTAMP",
    "alert_messages": """
        event_id UUID, destination VARCHAR, state VARCHAR, attempt INTEGER, error VARCHAR, message VARCHAR,
        due_at TIMESTAMP, created_at TIMESTAMP""",
    # The latest row of a question counts; a deleted row without a question ends everything before it.
    "datasets": "name VARCHAR, query VARCHAR, item VARCHAR, deleted BOOLEAN, created_at TIMESTAMP",
    # Digests of the traces, response ids and sessions of people who were forgotten: feedback about them is not stored.
    "forgotten": "digest VARCHAR, created_at TIMESTAMP",
    # `other`: its questions without a topic. `assigned_from`: traces of this time and later have topics of this fit.
    "topic_fits": """
        fit_id INTEGER, fitted_at TIMESTAMP, questions INTEGER, other INTEGER, last_id INTEGER, embedder VARCHAR,
        least_users INTEGER, assigned_from TIMESTAMP""",
    # `fit_id`: the last fit that found it; `share_before`: its share in the fit before that, if it was there.
    # `question_users`, `term_users`: how many users asked, used it.
    "topics": """
        topic_id INTEGER, fit_id INTEGER, first_fit INTEGER, name VARCHAR, named_by VARCHAR, question VARCHAR,
        question_users INTEGER, terms VARCHAR[], term_users INTEGER[], size INTEGER, share_before DOUBLE,
        centre FLOAT[]""",
    "audit": "created_at TIMESTAMP, actor VARCHAR, action VARCHAR, detail VARCHAR",
}

LONG_TEXTS = {"spans": ("attributes",), "contents": ("query", "response"), "contexts": ("text",)}
"""Columns that a file compresses with zstd: 60 % fewer bytes for a span with real texts, and cheaper checkpoints.

Attributes are long because many instrumentations write whole prompts into them."""


def file_columns(table: str, columns: Mapping[str, str]) -> str:
    """Return the declarations of columns (name → type) in a file: long texts are compressed."""
    long = LONG_TEXTS.get(table, ())
    declared = (f'"{name}" {kind}{" USING COMPRESSION zstd" * (name in long)}' for name, kind in columns.items())
    return ", ".join(declared)


TIME_COLUMNS: dict[str, str] = {
    "spans": "start_time",
    "contents": "start_time",
    "contexts": "start_time",
    "content_events": "time",
    "feedback": "time",
    "trace_facts": "start_time",
    "decisions": "request_time",
    "eval_jobs": "request_time",
    "scores": "request_time",
    "labels": "request_time",
    "judge_calls": "created_at",
    "alert_messages": "created_at",
}
"""The column of each table that retention compares; the other tables are never pruned."""


def column_types(table: str) -> dict[str, str]:
    """Return the type of each column of a table, in order."""
    declared = (part.split(maxsplit=1) for part in re.split(r",(?![^(]*\))", TABLES[table]))
    return {name.strip('"'): kind.strip() for name, kind in declared}
