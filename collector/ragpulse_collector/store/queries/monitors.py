"""The states of monitors: every change of state is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragpulse_collector.store.protocol import Rows, Transaction

__all__ = ["add_state", "latest_states", "monitors_named", "states"]

Read = Callable[..., Rows]
_COLUMNS = ("monitor", "group", "state", "value", "lo", "hi", "text", "delivery", "statistic", "created_at")


def monitors_named(read: Read, prefix: str) -> list[str]:
    """Return the monitors with a stored state whose names start with `prefix`, in order."""
    sql = "SELECT DISTINCT monitor FROM raw.monitor_states WHERE starts_with(monitor, $prefix) ORDER BY 1"
    return [str(name) for (name,) in read(sql, {"prefix": prefix}).rows]


def latest_states(read: Read, monitor: str) -> dict[str, dict[str, Any]]:
    """Return the latest state of each group of a monitor."""
    rows = read(
        'SELECT * FROM raw.monitor_states WHERE monitor = ? QUALIFY row_number() OVER (PARTITION BY "group"'
        " ORDER BY created_at DESC) = 1",
        [monitor],
    ).dicts()
    return {row["group"]: row for row in rows}


def states(read: Read, monitor: str, *, limit: int = 100) -> list[dict[str, Any]]:
    """Return the states of a monitor, newest first."""
    sql = "SELECT * FROM raw.monitor_states WHERE monitor = $monitor ORDER BY created_at DESC LIMIT $limit"
    return read(sql, {"monitor": monitor, "limit": limit}).dicts()


def add_state(
    tx: Transaction,
    monitor: str,
    group: str,
    state: str,
    figures: tuple[float | None, float | None, float | None],
    texts: tuple[str, str | None, str | None],
) -> None:
    """Append a state: `figures` are the value and the ends of its interval, `texts` text, delivery and statistic."""
    tx.append("monitor_states", _COLUMNS, [(monitor, group, state, *figures, *texts, tx.at)])
