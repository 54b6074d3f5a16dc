"""Sessions as units: rules with `unit = "session"` decide the last turn of each session that has been quiet.

The case of that turn holds the turns before as its history. A session that goes on is decided again at its next end,
and the decision at the earlier one leaves the estimates: each session counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from ragpulse_collector.sampling.cascade import named_in
from ragpulse_collector.sampling.rule import Rule, drawn
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.queries import deciding as sql

_REACH = timedelta(days=1)
"""A session that ended longer ago is left as it is."""


def any_quiet(read: Callable[..., Rows], rules: Sequence[Rule], quiet: datetime) -> bool:
    """Whether a session whose last turn ended before `quiet` waits to be decided."""
    return bool(read(f"{sql.QUIET_SESSIONS} LIMIT 1", _bounds(rules, quiet)).rows)


def decide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    quiet: datetime, salt: str, most: int,
) -> int:  # fmt: skip
    """Decide the sessions whose last turn ended before `quiet`, at most so many; returns how many."""
    run, bounds, lo = transaction.execute, _bounds(rules, quiet), {"lo": quiet - _REACH}
    run(sql.FACT_OF_SESSIONS, bounds | {"most": most})
    run(sql.UNIT_OF_SESSIONS, {"salt": salt})
    names = named_in(rules)
    if names:
        run(sql.scores_seen(names), lo)
    run(drawn(rules, scales))
    run(sql.RETIRE_SESSIONS, lo)
    run(sql.ADD_DECISIONS, {"at": transaction.at})
    run(sql.ADD_JOBS, {"at": transaction.at})
    return int(run("SELECT count(*) FROM unit").rows[0][0])


def _bounds(rules: Sequence[Rule], quiet: datetime) -> dict[str, object]:
    evaluators = sorted({name for rule in rules for name in rule.evaluators})
    return {"quiet": quiet, "since": quiet - _REACH, "evaluators": evaluators}
