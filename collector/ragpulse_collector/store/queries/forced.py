"""A person asks for an evaluation: it is made, and the estimates stay honest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.store.protocol import Transaction

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

_JOB = """
    INSERT INTO raw.eval_jobs BY NAME
    SELECT md5($trace::UUID::VARCHAR || $span::UBIGINT || $evaluator)::UUID AS job_id, $trace::UUID AS trace_id,
           $span::UBIGINT AS span_id, $start::TIMESTAMP AS request_time, $evaluator AS evaluator, 'online' AS source,
           $u::DOUBLE AS u, $at::TIMESTAMP AS created_at
    WHERE NOT EXISTS (SELECT 1 FROM raw.eval_jobs WHERE source = 'online' AND trace_id = $trace::UUID
                        AND span_id = $span AND evaluator = $evaluator)"""


def force(
    transaction: Transaction, trace_id: str, span_id: str | None, evaluators: Sequence[str], *, u: float | None
) -> int:
    """Queue the evaluators for a unit whatever the draw said; returns the number of new jobs.

    The designed pi and the outcome of the draw stay as they were: a forced score enters estimates only if chance had
    drawn it as well. `span_id` None means the trace's first unit; raises LookupError where there is no such unit.
    """
    unit = {"trace": trace_id, "span": None if span_id is None else int(span_id, 16)}
    unit["span"] = transaction.execute(_UNIT, unit).rows[0][0]
    start = None if unit["span"] is None else transaction.execute(_START, unit).rows[0][0]
    if start is None:
        raise LookupError(f"no unit {span_id or ''} in trace {trace_id}")
    return sum(_force_one(transaction, unit | {"evaluator": name}, start, u) for name in dict.fromkeys(evaluators))


def _force_one(transaction: Transaction, unit: dict[str, Any], start: datetime, u: float | None) -> int:
    known = transaction.execute(_KNOWN, unit).rows
    rule, policy, pi, sampled, revision = known[0] if known else (None, None, 0.0, False, 0)
    transaction.execute(_RETIRE, unit)
    place = unit | {"start": start, "u": u, "at": transaction.at}
    drawn = {"rule": rule, "policy": policy, "pi": pi, "sampled": sampled, "revision": revision}
    transaction.execute(_DECIDE, place | drawn)
    return int(transaction.execute(_JOB, place).rows[0][0])
