"""Sessions as units: rules with `unit = "session"` decide the last turn of each session that has been quiet.

The case of that turn has the turns before as its history. A session that continues is decided again at its next end,
and its earlier decision leaves the estimates: each session counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from ragpulse_collector.sampling.rule import Rule, draw_sql, scored_evaluators
from ragpulse_collector.store.protocol import Rows, Transaction
from ragpulse_collector.store.queries import deciding as sql

_REACH = timedelta(days=1)
"""A session that ended this long before the last look is not decided: a new rule does not apply to the past."""
_MAX_REACH = timedelta(days=30)
"""The longest look back after a stop of the collector."""
_MARK_LAG = timedelta(hours=1)
"""How far the mark of the last look may lag behind: not every look writes."""


def has_quiet(read: Callable[..., Rows], rules: Sequence[Rule], before: datetime) -> bool:
    """Whether a session whose last turn ended `before` is undecided."""
    return bool(read(f"{sql.QUIET_SESSIONS} LIMIT 1", _bounds(read, rules, before)).rows)


def is_marked(read: Callable[..., Rows], before: datetime) -> bool:
    """Whether the mark of the last look need not be moved yet."""
    last_look = _last_look(read)
    return last_look is not None and before - last_look < _MARK_LAG


def mark(transaction: Transaction, before: datetime) -> None:
    """Store that every session which ended `before` was looked at: the next look may follow a long stop."""
    transaction.execute(sql.DELETE_SESSIONS_SEEN)
    transaction.execute(sql.ADD_SESSIONS_SEEN, {"seen": before})


def decide(
    transaction: Transaction, rules: Sequence[Rule], scales: Mapping[str, tuple[float, str]], *,
    before: datetime, salt: str, limit: int,
) -> int:  # fmt: skip
    """Decide at most `limit` sessions whose last turn ended `before`; returns how many."""
    run, bounds = transaction.execute, _bounds(transaction.execute, rules, before)
    lo = {"lo": bounds["since"]}
    run(sql.FACT_OF_SESSIONS, bounds | {"most": limit})
    run(sql.UNIT_OF_SESSIONS, {"salt": salt})
    names = scored_evaluators(rules)
    if names:
        run(sql.scores_seen(names), lo)
    run(draw_sql(rules, scales))
    run(sql.RETIRE_SESSIONS, lo)
    run(sql.ADD_DECISIONS, {"at": transaction.at})
    run(sql.ADD_JOBS, {"at": transaction.at})
    return int(run("SELECT count(*) FROM unit").rows[0][0])


def _bounds(read: Callable[..., Rows], rules: Sequence[Rule], before: datetime) -> dict[str, object]:
    evaluators = sorted({name for rule in rules for name in rule.evaluators})
    last_look = max(min(_last_look(read) or before, before), before - _MAX_REACH)
    return {"quiet": before, "since": last_look - _REACH, "evaluators": evaluators}


def _last_look(read: Callable[..., Rows]) -> datetime | None:
    last_look: datetime | None = read(sql.SESSIONS_SEEN).rows[0][0]
    return last_look
