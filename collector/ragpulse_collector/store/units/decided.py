"""The units of the traces that the sampler decides, and the rows of these traces.

    due_spans ─▶ span_tree (spans with their parent) ─▶ root ─▶ unit (the roots that are requests) ─▶ fact

Each step is a temporary table of the writer's connection.
"""

from __future__ import annotations

from ragpulse_collector.records import UNSAID
from ragpulse_collector.store.units.numbers import U_SQL
from ragpulse_collector.store.units.row import ASKS, WORK, shown, together

MAX_DEDUPLICATED_SPANS = 10_000
"""In a larger trace every usage counts, repeated or not, and `cost_unknown_reason` states it: decisions of other traces
wait for the check."""

BEGUN = "least(start_time, received_at)"
"""The start of a span, at most its time of receipt: the clock of its sender may be ahead."""

MISDATED_US = 86_400 * 10**6
"""A span that starts more than this (a day) from its unit has a wrong clock: it is only counted.

So has a span that starts this long after its receipt, and one that starts this long before it while other spans of its
trace do not: a trace that is old as a whole was sent late, or imported.
"""

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

ROOT = f"""
    CREATE OR REPLACE TEMP TABLE root AS
    WITH marked AS (
        SELECT p.trace_id, p.span_id, p.clocked AS start_time, p.duration_us, p.ttft_ms, p.status, p.kind
        FROM span_tree p ANTI JOIN inside i ON i.trace_id = p.trace_id AND i.span_id = p.span_id
        WHERE p.kind = 'rag' OR (p.local_root AND p.kind <> 'evaluator')),
    whole AS (
        SELECT trace_id, bool_or(kind = 'rag') AS any_rag, {WORK} AS work
        FROM span_tree GROUP BY trace_id)
    SELECT m.*, w.work FROM marked m JOIN whole w ON w.trace_id = m.trace_id
    WHERE (m.kind = 'rag') = w.any_rag"""
"""The outermost rag spans, else the local roots; never an evaluator's span."""

_QUERY, _RESPONSE = (f"nullif(coalesce(o.{text}, b.{text}), '{UNSAID}')" for text in ("query", "response"))
UNIT = f"""
    CREATE OR REPLACE TEMP TABLE unit AS
    WITH asking AS (
        FROM root WHERE {ASKS}
        UNION ALL
        SELECT r.* FROM root r JOIN own o ON o.trace_id = r.trace_id AND o.span_id = r.span_id
        LEFT JOIN below b ON b.trace_id = r.trace_id AND b.span_id = r.span_id
        WHERE (r.{ASKS}) = false AND (coalesce(b.asks, false) OR (
            {_QUERY} IS NOT NULL AND r.kind NOT IN ('embedding', 'guardrail') AND (r.work IN (0, 3)
                OR r.status = 'error' OR regexp_matches({_QUERY}, '[?？؟]\\s*$')
                OR regexp_matches({_RESPONSE}, '^\\s*([^\\s\\[\\x7b\\pL].*)?\\pL', 's'))))),
    whole AS (
        SELECT trace_id, count(*) AS n_units, arg_min(span_id, (start_time, span_id)) AS first_span_id
        FROM asking GROUP BY trace_id)
    SELECT m.* EXCLUDE (kind, work), m.span_id = w.first_span_id AS is_first, w.n_units, {U_SQL} AS u
    FROM asking m JOIN whole w ON w.trace_id = m.trace_id"""
"""The roots that are requests: by their kind, by that of a span below, or by their question.

Where texts are embedded and nothing is searched or asked, a text is what was indexed, unless it ends with a question
mark, an answer came of it (with letters; JSON is none) or the root failed. The texts of embeddings and guardrails are
no questions.
"""


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


_ANSWER = """
           CASE WHEN t.response IS NULL AND w.response_missing_reason IN ('refused_by_provider', 'filtered')
                THEN 'refused'
                WHEN regexp_full_match(t.response, '\\s*') THEN 'empty'
                WHEN r.refused THEN 'refused' WHEN r.refused = false THEN 'answered' END"""
"""Whether a request was answered: `answered`, `refused`, `empty`, NULL if that is unknown."""


def may_score(service: str, environment: str) -> str:
    """Return whether the sender of the score `b` may write to a request of this service and environment."""
    own = {name: f"json_extract(b.binding, '$.{name}')::VARCHAR[]" for name in ("services", "environments")}
    allowed = (f"(len({own[name]}) = 0 OR coalesce(list_contains({own[name]}, {value}), false))"
               for name, value in (("services", service), ("environments", environment)))  # fmt: skip
    return f"(b.binding IS NULL OR ({' AND '.join(allowed)}))"


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
               CASE WHEN away THEN x.start_time ELSE p.clocked END AS begun, p.span_id = x.span_id AS is_unit,
               CASE WHEN is_unit THEN -1 ELSE epoch_us(p.start_time) END AS place
        FROM span_tree p LEFT JOIN unit x ON x.trace_id = p.trace_id AND x.is_first),
    whole AS (
        SELECT trace_id, any_value(revision) AS revision, any_value(known_spans) AS known_spans,
               any_value(known_late) AS known_late,
               min(begun) AS start_time, min({BEGUN}) AS spans_from, count(*) FILTER (misdated) AS misdated_spans,
               {together("any_value({}) FILTER (is_unit)")},
               coalesce(arg_min(model, start_time) FILTER (kind = 'llm'),
                        arg_min(model, start_time) FILTER (kind NOT IN ('embedding', 'reranker'))) AS model,
               coalesce(max(top_score) FILTER (kind = 'reranker'), max(top_score)) AS top_score,
               min(TRY(begun + to_microseconds((ttft_ms * 1000)::BIGINT))) FILTER (kind = 'llm') AS first_token,
               max(begun + to_microseconds(duration_us)) AS end_time, bool_or(local_root AND status = 'error') AS failed
        FROM dated GROUP BY trace_id),
    texts AS (
        SELECT o.trace_id, o.span_id, coalesce(b.query, o.query) AS query, coalesce(b.response, o.response) AS response,
               coalesce(b.failed, false) AS failed
        FROM own o LEFT JOIN below b ON b.trace_id = o.trace_id AND b.span_id = o.span_id),
    opinions AS (
        SELECT b.trace_id, b.name, arg_max(b.score, b.received_at) AS score, max(b.received_at) AS received_at
        FROM raw.feedback b JOIN whole w ON w.trace_id = b.trace_id
        WHERE b.source = 'human' AND b.score IS NOT NULL AND b.scope IS DISTINCT FROM 'session'
          AND {may_score("w.service", "w.environment")}
        GROUP BY b.trace_id, b.name),
    opinion AS ({feedback_of("opinions")}),
    failed AS (
        SELECT x.trace_id, bool_or(x.status = 'error' OR t.failed) AS error
        FROM unit x JOIN texts t ON t.trace_id = x.trace_id AND t.span_id = x.span_id GROUP BY x.trace_id)
    SELECT w.trace_id AS trace_uuid, replace(w.trace_id::VARCHAR, '-', '') AS trace_id,
           coalesce(w.revision + 1, 0) AS revision, x.span_id AS unit_span_id,
           coalesce(x.start_time, w.start_time) AS start_time, w.spans_from,
           w.misdated_spans::INTEGER AS misdated_spans,
           coalesce(x.duration_us / 1000.0, epoch_us(w.end_time - w.start_time) / 1000.0) AS latency_ms,
           coalesce(x.ttft_ms, CASE WHEN w.first_token IS NOT NULL
                THEN greatest(0, epoch_us(w.first_token - coalesce(x.start_time, w.start_time))) / 1000.0 END)
               AS ttft_ms,
           {shown("w", "t.response")}, w.model, g.input_tokens, g.output_tokens, g.cached_tokens,
           CASE WHEN g.priced = g.calls THEN g.cost_usd END AS cost_usd,
           nullif(concat_ws('; ',
               CASE WHEN g.calls IS NULL THEN 'no call with usage'
                    WHEN g.priced < g.calls THEN (g.calls - g.priced) || ' of ' || g.calls || ' calls: '
                         || coalesce(g.reason, 'unpriced') END,
               CASE WHEN w.n_spans > {MAX_DEDUPLICATED_SPANS} THEN 'more than {MAX_DEDUPLICATED_SPANS} spans: '
                    || 'usage that several spans state is counted for each' END), '') AS cost_unknown_reason,
           coalesce(f.error, w.failed) AS error, w.top_score,
           coalesce(x.n_units, 0)::INTEGER AS n_units,
           CASE WHEN w.revision IS NULL THEN 0
                ELSE w.known_late + greatest(0, w.n_spans - w.known_spans) END::INTEGER AS late_spans,
           t.query, t.response, o.feedback, o.feedbacks, o.feedbacks_off_scale,
           {_ANSWER} AS answer, q.topic, q.distance AS question_distance
    FROM whole w
    LEFT JOIN unit x ON x.trace_id = w.trace_id AND x.is_first
    LEFT JOIN usage g ON g.trace_id = w.trace_id
    LEFT JOIN texts t ON t.trace_id = x.trace_id AND t.span_id = x.span_id
    LEFT JOIN failed f ON f.trace_id = w.trace_id
    LEFT JOIN opinion o ON o.trace_id = w.trace_id
    LEFT JOIN refusal r ON r.response = hash(t.response)
    LEFT JOIN question_topic q ON q.question = hash(t.query)"""
