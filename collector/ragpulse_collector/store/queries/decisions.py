"""The sampler's decisions: traces due for one, the latest of each unit and evaluator, forced ones; stored rules.

Everything received before the low-water mark is decided. A clock that was ahead may leave the mark or times of receipt
in the future, which would hide all later traces. Such times become the present once the clock is right again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from ragpulse_collector.instants import EPOCH
from ragpulse_collector.records import MODEL_KINDS
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.protocol import Read, Transaction
from ragpulse_collector.store.queries.jobs import given_up
from ragpulse_collector.store.units.decided import BEGUN, MAX_DEDUPLICATED_SPANS
from ragpulse_collector.store.views import COUNTED

_log = logging.getLogger("ragpulse.collector")
_TOLERANCE = timedelta(minutes=10)
"""Times of receipt may be this far ahead: the clocks of collectors that share a lake may differ."""
_MARGIN = timedelta(hours=1)
"""A trace received this long before the last decision with a right time is decided."""
_STAMPED = (
    ("spans", "received_at"),
    ("feedback", "received_at"),
    ("content_events", "received_at"),
    ("trace_facts", "decided_at"),
    ("eval_jobs", "created_at"),
)
"""Columns with times of the store's own clock, which determine what is due."""


def latest_score(evaluator: str) -> str:
    """Return SQL for the latest online score of an evaluator, read from a row of `traces`."""
    return f"""(
    SELECT arg_max(x.value, x.at) FROM (
        SELECT trace_id AS of_trace, evaluator, coalesce(normalized, score) AS value, created_at AS at FROM raw.scores
        WHERE source = 'online' AND status = 'ok') x
    WHERE x.of_trace = trace_id::UUID AND x.evaluator = {literal(evaluator)})"""


BARE_NAME = "CASE WHEN contains(evaluator, '@') THEN split_part(evaluator, '@', 1) ELSE evaluator END"
"""The name of an evaluator without its version: few have one, and splitting all names costs as much as the scan."""
TEST_ENVIRONMENT = "regress"
"""The `environment` of test runs, like those of `ragpulse regress`: they enter live quality only on request."""
NOT_DRAWN = f"""
    SELECT hash(trace_id, span_id) AS unit, {BARE_NAME} AS evaluator FROM raw.decisions
    WHERE latest AND NOT sampled AND pi > 0 AND coalesce(u >= pi, true)
      AND {BARE_NAME} IN (SELECT unnest($names::VARCHAR[])) AND request_time >= $first AND request_time < $last"""
"""The units that evaluators (`$names`) might have evaluated, and were not drawn for them: others stand for them.

What was drawn and then dropped by a budget is a missing verdict instead.
"""
LIVE = "reason IS DISTINCT FROM 'test_run'"
"""The condition that a decision is not about a test run."""
DECISIONS = f"SELECT * FROM raw.decisions WHERE latest AND {LIVE} AND request_time >= $first AND request_time < $last"
"""One row per unit and evaluator that the sampler decided about, for the live requests of the range."""
DECIDED_UNITS = f"SELECT * FROM ({DECISIONS}) WHERE reason <> 'late'"
"""The decisions about units that arrived in time: those that coverage counts."""
ELIGIBLE = f"""
    SELECT trace_id, span_id, any_value(request_time) AS request_time, max(pi) AS pi, bool_or(sampled) AS sampled,
           bool_or(reason = 'budget') AS capped, any_value(u) AS u
    FROM ({DECIDED_UNITS}) WHERE pi > 0 AND split_part(evaluator, '@', 1) = $evaluator GROUP BY trace_id, span_id"""
"""One row per unit that a rule of `$evaluator` could sample, over all its versions."""
COVERED = f"""
    SELECT trace_id, span_id, max(pi) AS pi FROM ({DECISIONS})
    WHERE split_part(evaluator, '@', 1) = $check GROUP BY trace_id, span_id"""
"""One row per unit that the sampler decided about for `$check`."""


def without_verdict(evaluator: str | None) -> str:
    """The decisions of `$evaluator` or of all (None) that selected a unit without a verdict of any status.

    Sampled ones are pending. A budget dropped the others; some of those were never selected.
    """
    decisions_of = "" if evaluator is None else f"{BARE_NAME} = $evaluator AND "
    scores_of = "" if evaluator is None else "evaluator = $evaluator AND "
    return f"""
        SELECT d.* FROM (
            SELECT * REPLACE ({BARE_NAME} AS evaluator), hash(trace_id, span_id, {BARE_NAME}) AS unit
            FROM ({DECISIONS}) WHERE {decisions_of}(sampled OR reason = 'budget') AND pi > 0) d
        ANTI JOIN (
            SELECT hash(trace_id, span_id, evaluator) AS unit FROM {COUNTED}
            WHERE {scores_of}request_time >= $first AND request_time < $last AND source IN ('online', 'replay')) s
          ON s.unit = d.unit"""


_UNIT = """
    SELECT coalesce($span::UBIGINT, (SELECT unit_span_id FROM raw.trace_facts
                                     WHERE latest AND trace_id = $trace::UUID LIMIT 1)) AS span_id"""

_START = "SELECT min(start_time) FROM raw.spans WHERE trace_id = $trace::UUID AND span_id = $span"

_KNOWN = """
    SELECT rule, policy, pi, sampled, revision FROM raw.decisions
    WHERE latest AND trace_id = $trace::UUID AND span_id = $span AND evaluator = $evaluator"""

_RETIRE = """
    UPDATE raw.decisions SET latest = false
    WHERE latest AND trace_id = $trace::UUID AND span_id = $span AND evaluator = $evaluator"""

_DECIDE = """
    INSERT INTO raw.decisions BY NAME
    SELECT $trace::UUID AS trace_id, $span::UBIGINT AS span_id, $start::TIMESTAMP AS request_time,
           $evaluator AS evaluator, $rule AS rule, $policy AS policy, $pi::DOUBLE AS pi, $u::DOUBLE AS u,
           $sampled AS sampled, 'forced' AS reason, $at::TIMESTAMP AS decided_at, $revision::INTEGER AS revision,
           true AS latest"""

_JOB = f"""
    INSERT INTO raw.eval_jobs BY NAME
    SELECT uuid() AS job_id, $trace::UUID AS trace_id, $span::UBIGINT AS span_id, $start::TIMESTAMP AS request_time,
           $evaluator AS evaluator, 'online' AS source, $u::DOUBLE AS u, $at::TIMESTAMP AS created_at
    WHERE NOT EXISTS (SELECT 1 FROM raw.eval_jobs j WHERE source = 'online' AND trace_id = $trace::UUID
                        AND span_id = $span AND evaluator = $evaluator
                        AND NOT EXISTS (SELECT 1 FROM raw.scores s WHERE s.job_id = j.job_id AND {given_up("s")}))"""
"""One job at a time; a job that was given up does not count."""


def force(
    transaction: Transaction, trace_id: str, span_id: str | None, evaluators: Sequence[str], *, u: float | None
) -> int:
    """Queue the evaluators for a unit, whatever the outcome of the draw; returns the number of new jobs.

    The inclusion probability and the outcome of the draw stay: a forced score enters estimates only if it was drawn as
    well. `span_id` None means the trace's first unit; raises NotFound if there is no such unit.
    """
    asked = {"trace": trace_id, "span": None if span_id is None else int(span_id, 16)}
    span = transaction.execute(_UNIT, asked).value
    start = None if span is None else transaction.execute(_START, {"trace": trace_id, "span": span}).value
    if start is None:
        raise NotFound(f"no unit {span_id or ''} in trace {trace_id}")
    return sum(_force_one(transaction, trace_id, span, name, start, u) for name in dict.fromkeys(evaluators))


def _force_one(
    transaction: Transaction, trace_id: str, span: int, evaluator: str, start: datetime, u: float | None
) -> int:
    unit = {"trace": trace_id, "span": span, "evaluator": evaluator}
    rows = transaction.execute(_KNOWN, unit).rows
    rule, policy, pi, sampled, revision = rows[0] if rows else (None, None, 0.0, False, 0)
    transaction.execute(_RETIRE, unit)
    parameters = unit | {"start": start, "u": u, "at": transaction.at}
    drawn = {"rule": rule, "policy": policy, "pi": pi, "sampled": sampled, "revision": revision}
    transaction.execute(_DECIDE, parameters | drawn)
    return int(transaction.execute(_JOB, parameters).value)


def stored_rules(read: Read) -> dict[str, str | None]:
    """Return the latest form (JSON) of each rule that was made over the API, None where it was deleted; by name."""
    latest = "CASE WHEN arg_max(deleted, created_at) THEN NULL ELSE arg_max(rule, created_at) END"
    return dict(read(f"SELECT name, {latest} FROM raw.rules GROUP BY 1 ORDER BY 1").rows)


def add_rule(tx: Transaction, name: str, policy: str, text: str, *, action: str, actor: str) -> None:
    """Append the new form of a rule, and the audit's line about it."""
    columns = ("name", "policy", "rule", "source", "deleted", "created_at")
    tx.append("rules", columns, [(name, policy, text, "api", action == "delete", tx.at)])
    tx.append("audit", ("created_at", "actor", "action", "detail"), [(tx.at, actor, f"rule {action}", text)])


NEWS = """
    SELECT 1 FROM raw.spans WHERE received_at >= $low
    UNION ALL SELECT 1 FROM raw.feedback WHERE received_at >= $low
    UNION ALL SELECT 1 FROM raw.content_events WHERE received_at >= $low LIMIT 1"""

_WAITING = f"""
    CREATE OR REPLACE TEMP TABLE waiting AS
    WITH seen AS (
        SELECT trace_id, min(received_at) AS first_at, max(received_at) AS last_at,
               min(received_at) FILTER (parent_span_id IS NULL) AS root_at, min({BEGUN}) AS lo, count(*) AS spans,
               max(service) AS sender
        FROM raw.spans WHERE received_at >= $low GROUP BY trace_id),
    feedback AS (
        SELECT trace_id, min(received_at) AS first_at, max(received_at) AS last_at, min(time) AS time FROM (
            SELECT trace_id, received_at, TIMESTAMP '1970-01-01' AS time FROM raw.feedback
            WHERE received_at >= $low AND trace_id IS NOT NULL
            UNION ALL SELECT trace_id, received_at, time FROM raw.content_events WHERE received_at >= $low)
        GROUP BY trace_id),
    touched AS (
        SELECT coalesce(s.trace_id, t.trace_id) AS trace_id, least(s.first_at, t.first_at) AS first_at,
               s.last_at AS span_at, t.last_at AS feedback_at, s.root_at, s.lo, s.spans,
               s.sender, least(s.lo, t.time) AS earliest
        FROM seen s FULL JOIN feedback t ON t.trace_id = s.trace_id),
    known AS (
        SELECT f.trace_id, f.revision, f.decided_at, coalesce(f.spans_from, f.start_time) AS start_time, f.n_spans,
               f.late_spans FROM raw.trace_facts f
        WHERE f.latest AND f.trace_id IN (SELECT trace_id FROM touched)
          AND f.start_time >= (SELECT min(earliest) FROM touched) - INTERVAL 1 DAY)
    SELECT t.*, k.revision, k.decided_at, k.start_time AS known_start, coalesce(k.n_spans, 0) AS known_spans,
           coalesce(k.late_spans, 0) AS known_late,
           CASE WHEN k.trace_id IS NULL THEN t.span_at IS NOT NULL
                     AND coalesce(t.root_at <= $settled OR t.span_at <= $quiet, t.span_at <= $quiet)
                ELSE coalesce(t.span_at > k.decided_at AND t.span_at <= $settled, false)
                     OR coalesce(t.feedback_at > k.decided_at, false) END AS due,
           CASE WHEN k.trace_id IS NULL THEN t.span_at IS NOT NULL OR t.feedback_at > $quiet
                ELSE greatest(t.span_at, t.feedback_at) > k.decided_at END AS pending
    FROM touched t LEFT JOIN known k ON k.trace_id = t.trace_id"""
"""Traces with news since `low`: undecided ones that have settled or are quiet, and decided ones with later news.

Decided traces are read from a day before the earliest news on; feedback may be about a trace of any age.
"""

_SUMMARY = """
    SELECT count(*) FILTER (due) AS traces, min(first_at) FILTER (pending AND NOT due) AS pending,
           coalesce(bool_or(due AND revision IS NOT NULL), false) AS late,
           least(min(lo) FILTER (due), min(known_start) FILTER (due)) AS lo,
           (SELECT count(*) > 0 FROM raw.feedback) AS feedback,
           coalesce(sum(coalesce(spans, 0) + known_spans) FILTER (due), 0)::BIGINT AS spans FROM waiting"""

_LIMIT_DUE = """
    UPDATE waiting SET due = false WHERE due AND trace_id NOT IN (
        SELECT trace_id FROM (
            SELECT trace_id, row_number() OVER oldest AS number,
                   sum(coalesce(spans, 0) + known_spans) OVER oldest AS spans
            FROM (SELECT *, row_number() OVER (PARTITION BY sender ORDER BY first_at, trace_id) AS turn
                  FROM waiting WHERE due)
            WINDOW oldest AS (ORDER BY turn, first_at, trace_id))
        WHERE number = 1 OR (number <= $most AND spans <= $most_spans))"""
"""Services take turns, the oldest traces of each first: those of one that floods do not delay the others."""

_DUE = "SELECT trace_id::VARCHAR, revision, known_spans, known_late FROM waiting WHERE due"

_LOW_WATER = "SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = 'low_water'"

_ADD_LOW_WATER = "INSERT INTO raw.meta (key, value) VALUES ('low_water', '1970-01-01')"

SET_LOW_WATER = "UPDATE raw.meta SET value = $low WHERE key = 'low_water'"

_LAST_DECIDED = """
    SELECT coalesce(max(decided_at), TIMESTAMP '1970-01-02') FROM raw.trace_facts WHERE decided_at <= $present"""
"""The time of the last decision that is not in the future."""

_FIRST_UNDECIDED = """
    SELECT min(s.received_at) FROM raw.spans s
    ANTI JOIN (SELECT trace_id FROM raw.trace_facts WHERE latest) f ON f.trace_id = s.trace_id
    WHERE s.received_at >= $since"""


DOUBTFUL_USAGE = f"""
    WITH span AS MATERIALIZED (
        SELECT trace_id, span_id, parent_span_id, start_time, kind, response_id,
               coalesce(input_tokens, output_tokens, cost_usd) IS NOT NULL AS has_usage,
               kind = 'llm' AND NOT has_usage AND status <> 'error' AS silent
        FROM raw.spans WHERE received_at BETWEEN $since AND $until AND start_time >= $lo
          AND trace_id IN (SELECT unnest($traces::UUID[]))),
    doubtful AS (
        SELECT trace_id FROM span
        WHERE silent OR (has_usage AND kind NOT IN {MODEL_KINDS})
        UNION
        SELECT s.trace_id FROM span s JOIN span p ON p.trace_id = s.trace_id AND p.span_id = s.parent_span_id
        WHERE p.has_usage AND p.span_id <> s.span_id
        UNION
        SELECT trace_id FROM span WHERE has_usage AND response_id IS NOT NULL
        GROUP BY trace_id, response_id HAVING count(*) > 1)
    SELECT replace(trace_id::VARCHAR, '-', '') AS trace_id, printf('%016x', span_id) AS span_id,
           printf('%016x', parent_span_id) AS parent_span_id, start_time, kind, response_id, has_usage, silent
    FROM span WHERE trace_id IN (SELECT trace_id FROM doubtful)
      AND trace_id NOT IN (SELECT trace_id FROM span GROUP BY trace_id HAVING count(*) > {MAX_DEDUPLICATED_SPANS})
    ORDER BY trace_id"""
"""Spans of traces in which tokens might be counted twice, or a model call (not one that failed) states no usage; all
others count every span that states usage. Read before the decision's transaction, which it would hold up."""


QUESTIONS = """
    SELECT hash(query), any_value(left(query, 2000)) FROM raw.contents
    WHERE start_time >= $lo AND trace_id IN (SELECT unnest($traces::UUID[])) AND query IS NOT NULL
    GROUP BY hash(query)"""
"""What the traces that are due were asked, the beginning of it, by its hash."""
RESPONSES = QUESTIONS.replace("query", "response").replace("2000", "4000")
"""What they answered: as much as shows whether it declines to answer."""


class DoubtfulSpan(NamedTuple):
    """A row of `DOUBTFUL_USAGE`."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    start_time: datetime
    kind: str
    response_id: str | None
    has_usage: bool
    silent: bool


class DueTraces(NamedTuple):
    """Trace ids; the last revision of each, and its numbers of spans and late spans."""

    traces: tuple[str, ...] = ()
    revisions: tuple[int | None, ...] = ()
    known_spans: tuple[int, ...] = ()
    known_late: tuple[int, ...] = ()


_NO_TRACES = DueTraces()


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The traces of one decision, as they were received until a time."""

    until: datetime
    """Spans received later belong to a later decision."""
    next_low: datetime
    """The low-water mark once these are decided."""
    more: bool = False
    """Further traces are due."""
    late: bool = False
    """Some are decided already."""
    feedback: bool = False
    """The store has feedback."""
    since: datetime = EPOCH
    """The earliest receipt of a span."""
    lo: datetime | None = None
    """The earliest start of a span."""
    columns: DueTraces = _NO_TRACES

    @property
    def traces(self) -> tuple[str, ...]:
        """Their ids."""
        return self.columns.traces

    def bounds(self) -> dict[str, datetime | None]:
        """Return the parameters of statements that read these spans."""
        return {"since": self.since, "until": self.until, "lo": self.lo}


def find_due(
    transaction: Transaction, low: datetime | None, now: datetime, *,
    settle: timedelta, quiet: timedelta, most: int, most_spans: int,
) -> Due:  # fmt: skip
    """Return traces that are due at `now`: at most `most`, and `most_spans` spans unless it is one trace.

    Services take turns, the oldest traces of each first. `low` is the low-water mark; None reads the stored one.
    """
    until, run = transaction.at, transaction.execute
    low = _recovered(transaction, _stored_low(transaction) if low is None else low, max(now, until))
    run(_WAITING, {"low": low, "settled": now - settle, "quiet": now - quiet})
    traces, *summary, spans = run(_SUMMARY).rows[0]
    is_more = traces > most or (traces > 1 and spans > most_spans)
    if is_more:
        run(_LIMIT_DUE, {"most": most, "most_spans": most_spans})
        _, *summary, _ = run(_SUMMARY).rows[0]
    pending, late, lo, feedback = summary
    columns = DueTraces(*zip(*run(_DUE).rows, strict=True))
    # Everything that arrives from now on has a later time than this transaction.
    return Due(
        until=until, next_low=pending or until, more=is_more, late=late, feedback=feedback,
        since=EPOCH if late else low, lo=lo, columns=columns,
    )  # fmt: skip


def _stored_low(transaction: Transaction) -> datetime:
    """Return the stored low-water mark."""
    low = transaction.execute(_LOW_WATER).value
    if low is None:
        transaction.execute(_ADD_LOW_WATER)
    return low or EPOCH


def _recovered(transaction: Transaction, low: datetime, present: datetime) -> datetime:
    """Return the low-water mark: `low`, or an earlier one if the clock was ahead and is right again."""
    if low <= present and not _received_after(transaction, present + _TOLERANCE):
        return low
    since = transaction.execute(_LAST_DECIDED, {"present": present}).value - _MARGIN
    for table, column in _STAMPED:
        transaction.execute(
            f"UPDATE raw.{table} SET {column} = $present WHERE {column} > $present", {"present": present}
        )
    first = transaction.execute(_FIRST_UNDECIDED, {"since": since}).value
    mark = min(low, present, first or present)
    transaction.execute(SET_LOW_WATER, {"low": mark.isoformat(sep=" ")})
    _log.warning("the clock was set back: traces received since %s are looked at again", mark)
    return mark


def _received_after(transaction: Transaction, instant: datetime) -> bool:
    return bool(transaction.execute("SELECT 1 FROM raw.spans WHERE received_at > $at LIMIT 1", {"at": instant}).rows)
