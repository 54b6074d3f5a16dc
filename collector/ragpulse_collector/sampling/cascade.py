"""The cascade: scores of evaluators that run on everything move units to strata that costly ones draw more often.

They come after the decision. A unit that they move is decided once more, with the same u and the stratum's pi, by
appending; everything else keeps its decision. Both chances are functions of the unit and never of u, so that the later
one is as exact as the first; before the scores are there the estimate is unbiased as well, with wider intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.sampling.rule import Rule, drawn, named_in
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.queries import deciding as sql


class News(NamedTuple):
    """Scores that were stored: how many, the requests they are about, and when the last was made."""

    scores: int
    first: datetime
    last: datetime


def news_since(read: Callable[..., Rows], names: Sequence[str], since: datetime, most: int) -> News | None:
    """Say what scores were made since then, the oldest `most` of them; None for none."""
    rows = read(
        f"SELECT count(*), min(request_time), max(created_at) FROM ({sql.SCORES_SINCE})",
        {"names": list(names), "since": since, "most": most},
    )
    count, first, last = rows.rows[0]
    return News(count, first, last) if count else None


def redecide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    lo: datetime, since: datetime, most: int,
) -> int:  # fmt: skip
    """Decide the units once more whose chance the scores made since then raise; returns how many evaluations."""
    names, run = named_in(rules), transaction.execute
    bound = {"lo": lo}
    evaluators = sorted({name for rule in rules if rule.scores for name in rule.evaluators})
    run(sql.FACT_OF_SCORED, bound | {"names": list(names), "since": since, "most": most})
    run(sql.UNIT_OF_SCORED, bound | {"evaluators": evaluators})
    run(sql.scores_seen(names), bound)
    run(drawn(rules, scales))
    run(sql.RAISED, bound | {"evaluators": evaluators, "policies": [rule.policy for rule in rules]})
    count = int(run("SELECT count(*) FROM drawn").rows[0][0])
    if count:
        run(sql.RETIRE_DECISIONS, bound)
        run(sql.ADD_DECISIONS, {"at": transaction.at})
        run(sql.ADD_NEW_JOBS, bound | {"at": transaction.at})
    return count
