"""Tables (schema `raw`, append-only, time-ordered, no index) and the stable views users query.

Ids are UUID / UBIGINT in the tables and lower-case hex text in the views; instants are UTC.
Views may gain columns, never lose or rename one: the file is an API.
"""

from __future__ import annotations

SCHEMA_VERSION = 1

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
        contexts_state VARCHAR, dropped_attributes INTEGER, has_text BOOLEAN,
        attributes VARCHAR, resource VARCHAR, events VARCHAR, mapped_from VARCHAR""",
    "contents": "trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, query VARCHAR, response VARCHAR",
    "contexts": """
        trace_id UUID, span_id UBIGINT, start_time TIMESTAMP, rank INTEGER, id VARCHAR, score DOUBLE, text VARCHAR,
        metadata VARCHAR, hash VARCHAR""",
    "trace_facts": """
        trace_id UUID, revision INTEGER, decided_at TIMESTAMP, unit_span_id UBIGINT, start_time TIMESTAMP,
        latency_ms DOUBLE, ttft_ms DOUBLE, service VARCHAR, environment VARCHAR, name VARCHAR, session_id VARCHAR,
        user_id VARCHAR, prompt_name VARCHAR, prompt_version VARCHAR, variant VARCHAR, model VARCHAR,
        input_tokens BIGINT, output_tokens BIGINT, cached_tokens BIGINT, cost_usd DOUBLE, cost_unknown_reason VARCHAR,
        error BOOLEAN, top_score DOUBLE, n_spans INTEGER, n_units INTEGER, late_spans INTEGER, upstream_pi DOUBLE,
        query VARCHAR, response VARCHAR, feedback DOUBLE""",
    "decisions": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, rule VARCHAR, policy VARCHAR,
        pi DOUBLE, u DOUBLE, sampled BOOLEAN, reason VARCHAR, decided_at TIMESTAMP""",
    "eval_jobs": """
        job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, run_id VARCHAR,
        source VARCHAR, u DOUBLE, created_at TIMESTAMP""",
    "scores": """
        score_key VARCHAR, job_id UUID, trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR,
        version VARCHAR, label_version VARCHAR, judge VARCHAR, source VARCHAR, status VARCHAR, score DOUBLE,
        normalized DOUBLE, passing BOOLEAN, label VARCHAR, explanation VARCHAR, parts VARCHAR, ci_lo DOUBLE,
        ci_hi DOUBLE, calls VARCHAR, cost_usd DOUBLE, elapsed_ms DOUBLE, attempt INTEGER, created_at TIMESTAMP,
        run_id VARCHAR""",
    "runs": """
        run_id VARCHAR, evaluator VARCHAR, version VARCHAR, judge VARCHAR, spec VARCHAR, status VARCHAR,
        total BIGINT, max_usd DOUBLE, error VARCHAR, at TIMESTAMP""",
    "run_items": "run_id VARCHAR, score_key VARCHAR, trace_id UUID, span_id UBIGINT, u DOUBLE, job_id UUID",
    "judge_calls": "key VARCHAR, judge VARCHAR, reply VARCHAR, created_at TIMESTAMP",
    "ledger": """
        entry_id UUID, day DATE, evaluator VARCHAR, job_id UUID, run_id VARCHAR, kind VARCHAR, usd DOUBLE,
        at TIMESTAMP""",
    "labels": """
        trace_id UUID, span_id UBIGINT, request_time TIMESTAMP, evaluator VARCHAR, score DOUBLE, passing BOOLEAN,
        comment VARCHAR, annotator VARCHAR, label_pi DOUBLE, created_at TIMESTAMP""",
    "rules": "name VARCHAR, policy VARCHAR, rule VARCHAR, source VARCHAR, deleted BOOLEAN, at TIMESTAMP",
    "monitor_states": """
        monitor VARCHAR, "group" VARCHAR, state VARCHAR, value DOUBLE, lo DOUBLE, hi DOUBLE, text VARCHAR,
        delivery VARCHAR, statistic VARCHAR, at TIMESTAMP""",
    "audit": "at TIMESTAMP, actor VARCHAR, action VARCHAR, detail VARCHAR",
}

VIEWS: dict[str, str] = {
    "spans": """
        SELECT {trace}, {span}, CASE WHEN s.parent_span_id IS NULL THEN NULL
               ELSE printf('%016x', s.parent_span_id) END AS parent_span_id,
               s.start_time, s.duration_us / 1000.0 AS latency_ms, s.name, s.kind, s.service, s.status, s.error_type,
               c.query, c.response, s.model, s.provider, s.input_tokens, s.output_tokens, s.cached_tokens,
               s.reasoning_tokens, s.cost_usd, s.session_id, s.user_id, s.prompt_name, s.prompt_version,
               s.attributes::JSON AS attributes, s.mapped_from::JSON AS mapped_from, s.environment, s.service_version,
               s.status_message, s.variant, s.ttft_ms, s.cost_source, s.cost_unknown_reason, s.contexts_state,
               s.tags, s.metadata, s.resource, s.events, s.received_at
        FROM raw.spans s LEFT JOIN raw.contents c
          ON s.has_text AND c.trace_id = s.trace_id AND c.span_id = s.span_id AND c.start_time = s.start_time""",
}
