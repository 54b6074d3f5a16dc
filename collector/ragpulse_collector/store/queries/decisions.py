"""The sampler's decisions: the latest of each unit and evaluator, the sampling number u, forced ones; stored rules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.protocol import Read, Transaction
from ragpulse_collector.store.queries.jobs import given_up

_BELOW_ONE = 1 - 1e-16
U_SQL = f"""least(('0x' || sha256($salt || ':' || replace(m.trace_id::VARCHAR, '-', '') || ':'
                  || printf('%016x', m.span_id))[1:16])::UBIGINT / 18446744073709551616.0, {_BELOW_ONE!r})"""
"""The number of a row `m` that has `trace_id` and `span_id`; `$salt` is a parameter of the query."""


def sampling_number(salt: str, trace_id: str, span_id: str) -> float:
    """Return u in [0, 1): the first 64 bits of sha256 over salt, trace id and span id (hex)."""
    digest = hashlib.sha256(f"{salt}:{trace_id}:{span_id}".encode()).digest()
    return min(int.from_bytes(digest[:8], "big") / 2**64, _BELOW_ONE)


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
            SELECT hash(trace_id, span_id, evaluator) AS unit FROM raw.scores
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
    well. `span_id` None means the trace's first unit; raises LookupError if there is no such unit.
    """
    unit = {"trace": trace_id, "span": None if span_id is None else int(span_id, 16)}
    unit["span"] = transaction.execute(_UNIT, unit).rows[0][0]
    start = None if unit["span"] is None else transaction.execute(_START, unit).rows[0][0]
    if start is None:
        raise LookupError(f"no unit {span_id or ''} in trace {trace_id}")
    return sum(_force_one(transaction, unit | {"evaluator": name}, start, u) for name in dict.fromkeys(evaluators))


def _force_one(transaction: Transaction, unit: dict[str, Any], start: datetime, u: float | None) -> int:
    rows = transaction.execute(_KNOWN, unit).rows
    rule, policy, pi, sampled, revision = rows[0] if rows else (None, None, 0.0, False, 0)
    transaction.execute(_RETIRE, unit)
    parameters = unit | {"start": start, "u": u, "at": transaction.at}
    drawn = {"rule": rule, "policy": policy, "pi": pi, "sampled": sampled, "revision": revision}
    transaction.execute(_DECIDE, parameters | drawn)
    return int(transaction.execute(_JOB, parameters).rows[0][0])


def stored_rules(read: Read) -> list[tuple[str, str, bool]]:
    """Return name, latest form as JSON and whether it is deleted, of each rule that was made over the API."""
    sql = "SELECT name, arg_max(rule, created_at), arg_max(deleted, created_at) FROM raw.rules GROUP BY 1 ORDER BY 1"
    return [(name, text, deleted) for name, text, deleted in read(sql).rows]


def add_rule(tx: Transaction, name: str, policy: str, text: str, *, action: str, actor: str) -> None:
    """Append the new form of a rule, and the audit's line about it."""
    columns = ("name", "policy", "rule", "source", "deleted", "created_at")
    tx.append("rules", columns, [(name, policy, text, "api", action == "delete", tx.at)])
    tx.append("audit", ("created_at", "actor", "action", "detail"), [(tx.at, actor, f"rule {action}", text)])
