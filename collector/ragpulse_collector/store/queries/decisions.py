"""The sampler's decisions: the latest one of each unit and evaluator."""

from __future__ import annotations

__all__ = ["BARE_NAME", "COVERED", "DECIDED_UNITS", "DECISIONS", "ELIGIBLE", "dropped"]

BARE_NAME = "CASE WHEN contains(evaluator, '@') THEN split_part(evaluator, '@', 1) ELSE evaluator END"
"""The name of an evaluator without its version: few have one, and cutting all costs as much as the scan."""
DECISIONS = "SELECT * FROM raw.decisions WHERE latest AND request_time >= $first AND request_time < $last"
"""One row per unit and evaluator that the sampler decided about, for the requests of the range."""
DECIDED_UNITS = f"SELECT * FROM ({DECISIONS}) WHERE reason <> 'late'"
"""The decisions about units that arrived in time: those that coverage counts."""
ELIGIBLE = f"""
    SELECT trace_id, span_id, any_value(request_time) AS request_time, max(pi) AS pi, bool_or(sampled) AS sampled,
           bool_or(reason = 'budget') AS capped, any_value(u) AS u
    FROM ({DECIDED_UNITS}) WHERE pi > 0 AND split_part(evaluator, '@', 1) = $evaluator GROUP BY trace_id, span_id"""
"""One row per unit that a rule of `$evaluator` could have sampled, over all its versions."""
COVERED = f"""
    SELECT trace_id, span_id, max(pi) AS pi FROM ({DECISIONS})
    WHERE split_part(evaluator, '@', 1) = $check GROUP BY trace_id, span_id"""
"""One row per unit that the sampler decided about for `$check`."""


def dropped(evaluator: str | None) -> str:
    """The decisions that a budget turned down, of `$evaluator` or of all (None); some of them were never selected."""
    named = "" if evaluator is None else "evaluator = $evaluator AND "
    return f"SELECT * FROM ({DECISIONS}) WHERE {named}reason = 'budget' AND NOT sampled AND pi > 0"
