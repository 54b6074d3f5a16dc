"""Lists of the newest traces in time that does not grow with the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.store.protocol import Store

_NEAR = tuple(timedelta(seconds=seconds) for seconds in (0.1, 1, 10, 100))
_FAR = tuple(timedelta(hours=hours) for hours in (0.25, 4, 48, 720))
"""How far is looked back: a busy store has a page full within a tenth of a second, a quiet one within a month."""
_MANY = 50_000
"""Spans that wait to be decided: from here on it pays to go back among them step by step."""
_EVER = datetime(1970, 1, 1)


def newest(
    store: Store,
    read: Callable[[datetime | None], list[dict[str, Any]]],
    limit: int,
    *,
    now: datetime,
    where: str = "true",
    parameters: Mapping[str, Any] | None = None,
    first: datetime | None = None,
    last: datetime | None = None,
) -> list[dict[str, Any]]:
    """Return what `read(since)` finds, which asks `traces_since($since)` for the newest `limit` that meet `where`.

    None of them starts before `first` or after `last`. Ordering the view `traces` would write out the ids of every
    trace in the store: so it is read from a time on that promises enough, from an earlier one where that failed, and
    as a whole (`read(None)`) at the end.
    """
    rows: list[dict[str, Any]] = []
    for since in _promising(store, limit, where, dict(parameters or {}), first or _EVER, min(last or now, now)):
        rows = read(since if since > _EVER else None)
        if len(rows) >= limit:
            break
    return rows


def _promising(
    store: Store, limit: int, where: str, given: dict[str, Any], first: datetime, last: datetime
) -> Iterator[datetime]:
    """Yield times to read from, the latest first, at the end `first`.

    Without a condition the spans without a parent count, decided or not; with one the traces that are decided.
    """
    rooted = where == "true"
    source = "raw.spans WHERE parent_span_id IS NULL" if rooted else f"raw.trace_facts WHERE latest AND ({where})"
    looked: list[datetime] = []
    for ladder in (_NEAR, None, _FAR):
        if ladder is None:  # nothing near: from the newest on that is there
            until, last = last, min(last, store.read("SELECT max(start_time) FROM raw.spans").rows[0][0] or _EVER)
            if last == until:
                continue
            ladder = _NEAR
        steps = [last - step for step in ladder if last - step > first]
        counts = ", ".join(f"count(*) FILTER (start_time >= $step_{place})" for place in range(len(steps)))
        if steps:
            named = {f"step_{place}": step for place, step in enumerate(steps)} | {"last": last}
            asked = f"SELECT {counts} FROM {source} AND start_time BETWEEN $step_{len(steps) - 1} AND $last"
            found = store.read(asked, given | named).rows[0]
            yield from (step for step, count in zip(steps, found, strict=True) if count >= limit)
        looked += steps
    if not rooted and _waiting(store) >= _MANY:
        yield from looked
    yield first


def _waiting(store: Store) -> int:
    """Count the spans that are not decided yet."""
    low = store.read("SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = 'low_water'").rows[0][0] or _EVER
    return int(store.read("SELECT count(*) FROM raw.spans WHERE received_at >= $low", {"low": low}).rows[0][0])
