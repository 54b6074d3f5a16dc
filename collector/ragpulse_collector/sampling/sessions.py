"""Sessions as units: rules with `unit = "session"` decide the last turn of each session that has been quiet.

The case of that turn holds the turns before as its history. A session that goes on is decided again at its next end,
and the decision at the earlier one leaves the estimates: each session counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from ragpulse_collector.sampling.rule import Rule, drawn, named_in
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.queries import deciding as sql

_REACH = timedelta(days=1)
"""A session that ended so long before the last look is left as it is: a new rule does not begin with the past."""
_FARTHEST = timedelta(days=30)
"""A collector that was off looks back no further."""
_MARKED = timedelta(hours=1)
"""So far may the mark of the last look lag behind: not every look writes."""


def any_quiet(read: Callable[..., Rows], rules: Sequence[Rule], quiet: datetime) -> bool:
    """Whether a session whose last turn ended before `quiet` waits to be decided."""
    return bool(read(f"{sql.QUIET_SESSIONS} LIMIT 1", _bounds(read, rules, quiet)).rows)


def is_marked(read: Callable[..., Rows], quiet: datetime) -> bool:
    """Whether the mark of the last look need not be moved yet."""
    seen = _seen(read)
    return seen is not None and quiet - seen < _MARKED


def mark(transaction: Transaction, quiet: datetime) -> None:
    """Remember that every session which ended before `quiet` was looked at: the next look may follow a long stop."""
    transaction.execute(sql.DELETE_SESSIONS_SEEN)
    transaction.execute(sql.ADD_SESSIONS_SEEN, {"seen": quiet})


def decide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    quiet: datetime, salt: str, most: int,
) -> int:  # fmt: skip
    """Decide the sessions whose last turn ended before `quiet`, at most so many; returns how many."""
    run, bounds = transaction.execute, _bounds(transaction.execute, rules, quiet)
    lo = {"lo": bounds["since"]}
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


def _bounds(read: Callable[..., Rows], rules: Sequence[Rule], quiet: datetime) -> dict[str, object]:
    evaluators = sorted({name for rule in rules for name in rule.evaluators})
    last_look = max(min(_seen(read) or quiet, quiet), quiet - _FARTHEST)
    return {"quiet": quiet, "since": last_look - _REACH, "evaluators": evaluators}


def _seen(read: Callable[..., Rows]) -> datetime | None:
    found: datetime | None = read(sql.SESSIONS_SEEN).rows[0][0]
    return found
