"""The newest traces, in time that does not grow with the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.views import DECIDED, FACT_COLUMNS, LOW, UNDECIDED_SINCE

_SPANS_A_TRACE = 8
_FURTHER = 32
"""So many times as many spans are looked at where the ones before did not hold enough traces."""
_EVER, _NEVER = datetime(1970, 1, 1), datetime(9999, 1, 1)
_ORDER = "ORDER BY start_time DESC, trace_id DESC LIMIT"


def newest(
    store: Store,
    columns: str,
    where: str,
    parameters: Mapping[str, Any],
    limit: int,
    *,
    first: datetime | None = None,
    last: datetime | None = None,
) -> list[dict[str, Any]]:
    """Return `columns` of the newest `limit` rows of the view `traces` that meet `where`, the newest first.

    `where` lets none pass that starts before `first` or after `last`. Ordering the view would write out the ids of
    every trace. Traces that are decided come in order at little cost; so what waits is read from a time on that
    promises enough of them, and from an earlier one only where that was too late.
    """
    first, last = first or _EVER, last or _NEVER
    looked = limit * _SPANS_A_TRACE
    while True:
        since, found = _waiting(store, looked, first, last)
        asked = f"SELECT {columns} FROM ({UNDECIDED_SINCE}) t WHERE {where} {_ORDER} {limit}"
        rows = store.read(asked, {**parameters, "since": since}).dicts() if found else []
        # After what waits: a trace that is decided in between is met twice, where it would be missed.
        enough = rows[-1]["start_time"] if len(rows) == limit else first
        asked = f"SELECT {columns} FROM ({DECIDED} AND start_time BETWEEN $enough AND $last) t WHERE {where}"
        decided = store.read(f"{asked} {_ORDER} {limit}", {**parameters, "enough": enough, "last": last}).dicts()
        rows = _merged(rows, decided)[:limit]
        if found < looked or (len(rows) == limit and rows[-1]["start_time"] >= since):
            return rows
        looked *= _FURTHER


def newest_of_all(store: Store, limit: int, *, first: datetime | None = None) -> list[dict[str, Any]]:
    """Return the newest `limit` rows of the view `traces` that start at `first` or later, the newest first."""
    where, given = ("true", {}) if first is None else ("start_time >= $from", {"from": first})
    return newest(store, ", ".join(("trace_id", *FACT_COLUMNS)), where, given, limit, first=first)


def _place(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["start_time"], row["trace_id"]


def _waiting(store: Store, limit: int, first: datetime, last: datetime) -> tuple[datetime, int]:
    """The earliest start of the newest `limit` spans that wait to be decided, and how many there are."""
    newest_spans = f"""SELECT start_time FROM raw.spans WHERE received_at >= {LOW}
        AND start_time BETWEEN $first AND $last ORDER BY start_time DESC LIMIT {limit}"""
    asked = f"SELECT min(start_time), count(*) FROM ({newest_spans})"
    since, found = store.read(asked, {"first": first, "last": last}).rows[0]
    return since, found


def _merged(waiting: list[dict[str, Any]], decided: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = {row["trace_id"]: row for row in (*waiting, *decided)}
    return sorted(rows.values(), key=_place, reverse=True)
