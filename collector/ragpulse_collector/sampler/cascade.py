"""The cascade: scores of evaluators that run on everything move units to strata that costly ones draw more often.

They come after the decision. A unit that they move is decided once more, with the same u and the stratum's pi, by
appending; everything else keeps its decision. Both chances are functions of the unit and never of u, so that the later
one is as exact as the first; before the scores are there the estimate is unbiased as well, with wider intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.sampler import statements as sql
from ragpulse_collector.sampler.rule import Rule, literal
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.views import FACT_COLUMNS, hex_trace

__all__ = ["News", "named_in", "news_since", "redecide", "seen"]


class News(NamedTuple):
    """Scores that were stored: how many, the requests they are about, and when the last was made."""

    scores: int
    first: datetime
    last: datetime


def named_in(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The evaluators whose scores the rules name."""
    return tuple(sorted({name for rule in rules for name in rule.scores}))


_NEWS = """
    SELECT trace_id, request_time, created_at FROM raw.scores
    WHERE created_at >= $since AND source = 'online' AND status = 'ok' AND list_contains($names::VARCHAR[], evaluator)
    ORDER BY created_at LIMIT $most"""


def news_since(read: Callable[..., Rows], names: Sequence[str], since: datetime, most: int) -> News | None:
    """Say what scores were made since then, the oldest `most` of them; None for none."""
    rows = read(
        f"SELECT count(*), min(request_time), max(created_at) FROM ({_NEWS})",
        {"names": list(names), "since": since, "most": most},
    )
    count, first, last = rows.rows[0]
    return News(count, first, last) if count else None


def seen(names: Sequence[str]) -> str:
    """Return the statement that looks up the scores of the first unit of each trace in `fact`.

    A score counts only where its evaluator runs on everything: were it drawn by chance, whether it is there would tell
    of u.
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


_FACT = f"""
    CREATE OR REPLACE TEMP TABLE fact AS
    SELECT f.trace_id AS trace_uuid, {hex_trace("f.trace_id")} AS trace_id, f.revision, f.unit_span_id,
           {", ".join(f"f.{column}" for column in FACT_COLUMNS)}
    FROM raw.trace_facts f
    WHERE f.latest AND f.start_time >= $lo AND f.trace_id IN (SELECT trace_id FROM ({_NEWS}))"""

_UNIT = """
    CREATE OR REPLACE TEMP TABLE unit AS
    SELECT DISTINCT trace_id, span_id, request_time AS start_time, u FROM raw.decisions
    WHERE latest AND request_time >= $lo AND u IS NOT NULL AND list_contains($evaluators::VARCHAR[], evaluator)
      AND trace_id IN (SELECT trace_uuid FROM fact)"""

_RAISED = """
    CREATE OR REPLACE TEMP TABLE drawn AS
    SELECT n.* REPLACE (d.revision + 1 AS revision) FROM drawn n
    JOIN fact f ON f.trace_uuid = n.trace_id
    JOIN raw.decisions d ON d.trace_id = n.trace_id AND d.span_id = n.span_id AND d.evaluator = n.evaluator
    WHERE d.latest AND d.request_time >= $lo AND n.pi > d.pi * (1 + 1e-9)
      AND list_contains($evaluators::VARCHAR[], n.evaluator) AND list_contains($policies::VARCHAR[], d.policy)
      AND (d.sampled OR d.u * coalesce(f.upstream_pi, 1) >= d.pi)"""
"""Decisions of the rules in force that the scores raise; not of those that a cap left out though they were drawn."""


def redecide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    lo: datetime, since: datetime, most: int,
) -> int:  # fmt: skip
    """Decide the units once more whose chance the scores made since then raise; returns how many evaluations."""
    names, run = named_in(rules), transaction.execute
    bound = {"lo": lo}
    evaluators = sorted({name for rule in rules if rule.scores for name in rule.evaluators})
    run(_FACT, bound | {"names": list(names), "since": since, "most": most})
    run(_UNIT, bound | {"evaluators": evaluators})
    run(seen(names), bound)
    run(sql.drawn(rules, scales))
    run(_RAISED, bound | {"evaluators": evaluators, "policies": [rule.policy for rule in rules]})
    count = int(run("SELECT count(*) FROM drawn").rows[0][0])
    if count:
        run(sql.RETIRE_DECISIONS, bound)
        run(sql.ADD_DECISIONS, {"at": transaction.at})
        run(sql.ADD_NEW_JOBS, bound | {"at": transaction.at})
    return count
