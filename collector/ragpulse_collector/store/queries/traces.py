"""Traces: the decided ones, rows for lists, the newest ones, and the spans and texts of a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.queries.filters import Filter
from ragpulse_collector.store.views import DECIDED, FACT_COLUMNS, LOW, UNDECIDED_SINCE

FACTS = "SELECT * FROM raw.trace_facts WHERE latest"
"""One row per decided trace, its latest revision: the columns of the view `traces`."""
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


def trace_rows(store: Store, trace_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the decided traces with these ids (hex), in this order, as `GET traces` shows them."""
    if not trace_ids:
        return []
    listed = {"ids": list(trace_ids)}
    facts = store.read(
        f"SELECT replace(trace_id::VARCHAR, '-', '') AS trace_id, {', '.join(FACT_COLUMNS)} FROM ({FACTS})"
        " WHERE trace_id IN (SELECT unnest($ids::UUID[]))",
        listed,
    ).dicts()
    scores: dict[str, dict[str, Any]] = defaultdict(dict)
    for trace, evaluator, normalized, status, passing in store.read(
        "SELECT replace(trace_id::VARCHAR, '-', ''), evaluator, normalized, status, passing FROM raw.scores"
        " WHERE trace_id IN (SELECT unnest($ids::UUID[])) ORDER BY created_at",
        listed,
    ).rows:
        scores[trace][evaluator] = {"normalized": normalized, "status": status, "passing": passing}
    by_id = {
        row["trace_id"]: row | {"start_time": row["start_time"].isoformat() + "Z", "scores": scores[row["trace_id"]]}
        for row in facts
    }
    return [by_id[trace] for trace in trace_ids if trace in by_id]


def facts_of(keep: Filter, columns: Sequence[str] = ()) -> str:
    """The decided traces that pass the filter, one row each: `trace_id` and the columns asked for."""
    return f"SELECT {', '.join(('trace_id', *columns))} FROM ({FACTS}) WHERE {keep.sql}"


PROMPT_STARTS = f"""
    SELECT prompt_name, prompt_version, min(start_time) AS t FROM ({FACTS})
    WHERE prompt_version IS NOT NULL AND start_time >= $first AND start_time < $last
    GROUP BY prompt_name, prompt_version QUALIFY row_number() OVER (PARTITION BY prompt_name ORDER BY t) > 1
    ORDER BY t"""
"""One row per prompt version that began in the range, without the first version of each prompt."""


def has_service(store: Store, service: str, within: Mapping[str, Any]) -> bool:
    """Whether a decided trace of this service starts in the range."""
    sql = f"SELECT EXISTS (FROM ({FACTS}) WHERE service = $service AND start_time >= $first AND start_time < $last)"
    return bool(store.read(sql, {**within, "service": service}).rows[0][0])


def newest_span(store: Store) -> tuple[datetime | None, datetime | None]:
    """When the last span arrived, and the latest start of a span; None for an empty store."""
    received, started = store.read("SELECT max(received_at), max(start_time) FROM raw.spans").rows[0]
    return received, started


def of_traces(table: str) -> str:
    """FROM and WHERE for the rows of `raw.<table>` that belong to the traces `$ids` and start in `$first` .. `$last`.

    `number` is the place of the trace in `$ids`: a shorter answer than the id.
    """
    return (
        f"FROM raw.{table} JOIN (SELECT unnest($ids::UUID[]) AS trace_id, unnest(range(len($ids))) AS number)"
        " USING (trace_id) WHERE start_time BETWEEN $first AND $last"
    )


def span_counts(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, n_spans): how many spans each trace had when it was decided."""
    return store.read(f"SELECT number, n_spans {of_traces('trace_facts')} AND latest", scope)


def spans(store: Store, scope: Mapping[str, Any]) -> Rows:
    """One row per span: its place in the trace and the figures that it states."""
    return store.read(
        "SELECT number, span_id, parent_span_id, start_time, kind, response_id, contexts_state IS NOT NULL,"
        f" duration_us, input_tokens, output_tokens, cost_usd, metadata {of_traces('spans')}",
        scope,
    )


def texts(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, span_id, query, response) of the spans that have texts."""
    return store.read(
        f"SELECT number, span_id, any_value(query), any_value(response) {of_traces('contents')} GROUP BY ALL", scope
    )
