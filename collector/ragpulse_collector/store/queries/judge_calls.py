"""Recorded replies of judges, by what was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ragpulse_collector.store.protocol import Rows, Transaction

__all__ = ["add_calls", "replies"]


def replies(read: Callable[..., Rows], keys: Sequence[str]) -> dict[str, str]:
    """Return the first recorded reply under each key that has one."""
    sql = (
        "SELECT key, arg_min(reply, created_at) FROM raw.judge_calls"
        " WHERE key IN (SELECT unnest($keys::VARCHAR[])) GROUP BY key"
    )
    return dict(read(sql, {"keys": list(keys)}).rows)


def add_calls(tx: Transaction, calls: Sequence[tuple[str, str, str]]) -> None:
    """Append replies, each given as key, judge and reply."""
    tx.append("judge_calls", ("key", "judge", "reply", "created_at"), [(*call, tx.at) for call in calls])
