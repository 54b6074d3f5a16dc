"""Recovery after the system clock was set back: instants in the store that lie in the future become the present.

The sampler looks at what was received since its low-water mark. A mark or a time of receipt in the future, left by a
clock that was once ahead, would hide every later trace until that future is reached.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from ragpulse_collector.store.protocol import Transaction
from ragpulse_collector.store.queries import deciding as sql

__all__ = ["recovered"]

_log = logging.getLogger("ragpulse.collector")
_TOLERANCE = timedelta(minutes=10)
"""Receipts this far ahead are left alone: collectors that share a lake differ so much at most."""
_MARGIN = timedelta(hours=1)
"""A trace received this long before the last decision at a right time is decided."""
_STAMPED = (
    ("spans", "received_at"),
    ("feedback", "received_at"),
    ("content_events", "received_at"),
    ("trace_facts", "decided_at"),
    ("eval_jobs", "created_at"),
)
"""Columns that hold the store's own clock and that decide what is looked at."""


def recovered(transaction: Transaction, low: datetime, present: datetime) -> datetime:
    """Return the low-water mark to use: `low`, or an earlier one where the clock was ahead and is right again."""
    if low <= present and not _received_after(transaction, present + _TOLERANCE):
        return low
    since = transaction.execute(sql.LAST_DECIDED, {"present": present}).rows[0][0] - _MARGIN
    for table, column in _STAMPED:
        transaction.execute(
            f"UPDATE raw.{table} SET {column} = $present WHERE {column} > $present", {"present": present}
        )
    first = transaction.execute(sql.FIRST_UNDECIDED, {"since": since}).rows[0][0]
    mark = min(low, present, first or present)
    transaction.execute(sql.SET_LOW_WATER, {"low": mark.isoformat(sep=" ")})
    _log.warning("the clock was set back: traces received since %s are looked at again", mark)
    return mark


def _received_after(transaction: Transaction, instant: datetime) -> bool:
    return bool(transaction.execute("SELECT 1 FROM raw.spans WHERE received_at > $at LIMIT 1", {"at": instant}).rows)
