"""The cascade: scores of cheap evaluators move units to strata with a higher rate for costly evaluators.

Scores arrive after the decision. A unit whose stratum changes is decided once more, with the same u and the stratum's
pi; the row is appended, and all other decisions stay. Both probabilities depend on the unit and never on u, so both are
exact. Before the scores are stored the estimate is unbiased too, with wider intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.sampling.rule import Rule, draw_sql, scored_evaluators
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.queries import deciding as sql


class NewScores(NamedTuple):
    """Stored scores: how many, the earliest request, and when the last score was made."""

    n: int
    first: datetime
    last: datetime


def new_scores(read: Callable[..., Rows], names: Sequence[str], since: datetime, limit: int) -> NewScores | None:
    """Return what scores were made since then, the oldest `limit` of them; None for none."""
    rows = read(
        f"SELECT count(*), min(request_time), max(created_at) FROM ({sql.SCORES_SINCE})",
        {"names": list(names), "since": since, "most": limit},
    )
    count, first, last = rows.rows[0]
    return NewScores(count, first, last) if count else None


def redecide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    lo: datetime, since: datetime, limit: int,
) -> int:  # fmt: skip
    """Decide the units again whose probability the newer scores raise; returns the number of evaluations."""
    names, run = scored_evaluators(rules), transaction.execute
    bound = {"lo": lo}
    evaluators = sorted({name for rule in rules if rule.scores for name in rule.evaluators})
    run(sql.FACT_OF_SCORED, bound | {"names": list(names), "since": since, "most": limit})
    run(sql.UNIT_OF_SCORED, bound | {"evaluators": evaluators})
    run(sql.scores_seen(names), bound)
    run(draw_sql(rules, scales))
    run(sql.RAISED, bound | {"evaluators": evaluators, "policies": [rule.policy for rule in rules]})
    count = int(run("SELECT count(*) FROM drawn").rows[0][0])
    if count:
        run(sql.RETIRE_DECISIONS, bound)
        run(sql.ADD_DECISIONS, {"at": transaction.at})
        run(sql.ADD_NEW_JOBS, bound | {"at": transaction.at})
    return count
