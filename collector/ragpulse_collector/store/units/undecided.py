"""The rows of traces that the sampler has not decided yet: no tree of spans, no cost, no feedback.

What has a text and embeds none is taken for a request until its decision.
"""

from __future__ import annotations

from ragpulse_collector.store.units.row import OF_FIRST, OF_UNIT, WORK, shown, together

LOW = """coalesce((SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = 'low_water'), TIMESTAMP '1970-01-01')"""
"""The low-water mark: all spans received before it are decided."""
# For the whole view. Without undecided traces nothing is read: a bound of NULL would read everything.
_FIRST = f"""coalesce((SELECT min(least(start_time, received_at)) FROM raw.spans WHERE received_at >= {LOW}),
                   TIMESTAMP '9999-01-01')"""

_WAITING = f"""
            SELECT trace_id, span_id, parent_span_id, start_time, duration_us, kind, status, model, top_score,
                   response_id, input_tokens, output_tokens, cached_tokens, ttft_ms, upstream_pi, control_flow,
                   has_text, {", ".join((*OF_FIRST, *OF_UNIT))},
                   ((kind <> 'rag')::BIGINT << 61) + ((parent_span_id IS NOT NULL)::BIGINT << 60)
                       + epoch_us(start_time) AS place
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

_ROWS = f"""
    WITH shown AS (
        SELECT s.trace_id, min(s.start_time) AS start_time,
               CASE WHEN min(place) < 3::BIGINT << 60 THEN arg_min(s.duration_us, place) / 1000.0 END AS latency_ms,
               arg_min(s.ttft_ms, place) AS ttft_ms, {together("arg_min_null({}, place)")},
               arg_min(s.model, s.start_time) FILTER (s.kind = 'llm') AS model,
               list({{{{'span': s.span_id, 'parent': s.parent_span_id, 'response': s.response_id,
                      'input': s.input_tokens, 'output': s.output_tokens, 'cached': s.cached_tokens}}}})
                   FILTER (s.kind = 'llm' AND coalesce(s.input_tokens, s.output_tokens) IS NOT NULL) AS calls,
               arg_min(s.status = 'error', place) AS error, max(s.top_score) AS top_score,
               greatest({WORK}, bool_or(s.has_text)::INTEGER) AS work,
               arg_min(s.span_id, place) AS unit_span_id, arg_min(s.start_time, place) AS unit_time
        FROM ({_WAITING}) s
        ANTI JOIN (
            SELECT trace_id FROM raw.trace_facts WHERE start_time >= {{first}} - INTERVAL 1 DAY
            UNION ALL
            SELECT trace_id FROM raw.spans WHERE received_at >= {LOW} AND start_time < {{since}}) f
          ON f.trace_id = s.trace_id
        GROUP BY s.trace_id),
    outermost AS (SELECT * REPLACE ({_OUTERMOST} AS calls) FROM shown),
    priced AS (SELECT * EXCLUDE (calls), {_COUNTED} AS counted FROM outermost)
    SELECT x.trace_id, x.start_time, x.latency_ms, x.ttft_ms, x.model, x.error, x.top_score, x.unit_span_id,
           {shown("x", "c.response")},
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.input)) AS BIGINT) AS input_tokens,
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.output)) AS BIGINT) AS output_tokens,
           TRY_CAST(list_sum(list_transform(counted, lambda c: c.cached)) AS BIGINT) AS cached_tokens,
           NULL::DOUBLE AS cost_usd, 'not decided yet' AS cost_unknown_reason,
           c.query, c.response,
           CASE WHEN x.work IN (1, 3) THEN NULL ELSE 0 END::INTEGER AS n_units,
           0::INTEGER AS late_spans, NULL::DOUBLE AS feedback,
           0::INTEGER AS misdated_spans, NULL::MAP(VARCHAR, DOUBLE) AS feedbacks,
           NULL::VARCHAR[] AS feedbacks_off_scale, NULL::VARCHAR AS topic, NULL::FLOAT AS question_distance,
           CASE WHEN regexp_full_match(c.response, '\\s*') THEN 'empty' END AS answer,
           false AS decided
    FROM priced x
    LEFT JOIN (SELECT * FROM raw.contents WHERE start_time >= {{first}}) c
      ON c.trace_id = x.trace_id AND c.span_id = x.unit_span_id AND c.start_time = x.unit_time"""


def undecided(since: str, first: str = _FIRST) -> str:
    """Return the rows of undecided traces that begin at `since` or later (SQL); none begins before `first`.

    Each is shown by its first rag span, else the span without a parent, else the earliest, whose latency is not that of
    the trace. Without a sampler millions are undecided: of those before `since` only the id is read.
    """
    return _ROWS.format(since=since, first=first)
