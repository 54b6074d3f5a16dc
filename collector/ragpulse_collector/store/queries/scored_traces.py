"""The rows of lists with the newest score of each evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.queries.traces import COLUMNS, FACTS, ID, START, Filter, TraceRow, listed
from ragpulse_collector.store.views import COUNTED, IN_LISTS, SERIES, hex_trace

_RUN = 3


@listed
class TraceScore:
    """The newest score of one evaluator."""

    normalized: float | None
    status: str
    passing: bool | None
    label: str | None
    score: float | None
    """On its own scale."""


@listed
class ScoredTrace(TraceRow):
    """A trace with its scores, by evaluator."""

    scores: dict[str, TraceScore] = field(kw_only=True)


def trace_rows(store: Store, trace_ids: Sequence[str]) -> list[ScoredTrace]:
    """Return the decided traces with these ids (hex), in this order, as `GET traces` shows them."""
    if not trace_ids:
        return []
    listed = Filter("trace_id IN (SELECT unnest($ids::UUID[]))", {"ids": list(trace_ids)})
    sql = f"SELECT {COLUMNS} FROM (SELECT * REPLACE ({hex_trace('trace_id')} AS trace_id) FROM ({FACTS})"
    rows = store.read(f"{sql} WHERE {listed.condition})", listed.parameters)
    by_id = {row.trace_id: row for row in _with_scores(store, rows, listed)}
    return [by_id[trace] for trace in trace_ids if trace in by_id]


def scored(store: Store, page: Rows, *, among_others: bool) -> list[ScoredTrace]:
    """Return the traces of one page with the newest score of each evaluator.

    Without others that start as late as these, a condition on time alone takes half as long.
    """
    if not page.rows:
        return []
    times = [row[START] for row in page.rows]
    about = Filter("request_time >= $first", {"first": min(times)})
    if among_others:
        ids = {"ids": [row[ID] for row in page.rows], "last": max(times)}
        about &= Filter("request_time <= $last + INTERVAL 1 DAY AND trace_id IN (SELECT unnest($ids::UUID[]))", ids)
    return _with_scores(store, page, about)


SHOWN = """
    QUALIFY (source = 'human') = bool_or(source = 'human') OVER (PARTITION BY trace_id, evaluator)
        AND row_number() OVER (PARTITION BY trace_id, evaluator, source = 'human',
                               CASE WHEN source <> 'human' THEN identifier END
                               ORDER BY status <> 'error' DESC, created_at DESC) = 1"""
"""Keeps the score that counts in a list: a person's, else the newest of each judge. A failure supersedes no answer."""


def listed_scores(condition: str, scores: str = COUNTED) -> str:
    """Return the scores that lists show, each with its column (`series`) and the identifier of its judge."""
    return (
        f"SELECT {hex_trace('trace_id')} AS trace_id, {SERIES} AS series, identifier, run_id, normalized, status,"
        f" passing, label, score, created_at FROM {scores} WHERE {condition} AND {IN_LISTS}"
    )


def _with_scores(store: Store, page: Rows, about: Filter) -> list[ScoredTrace]:
    """Return the traces with the newest score of each evaluator; several judges of one name have their identifiers.

    Newest and names are found here: windows in SQL, as in `with_scores`, take four times as long for a page.
    """
    found: dict[str, dict[tuple[str, str], TraceScore]] = {}
    for trace_id, series, identifier, _run, *values in _listed(store, about):
        found.setdefault(trace_id, {})[series, identifier or ""] = TraceScore(*values)
    return [ScoredTrace(*row, scores=_by_name(found.get(row[ID], {}))) for row in page.rows]


def _listed(store: Store, about: Filter) -> list[tuple[Any, ...]]:
    """Return scores by age; which replays count is asked only where there are some: that takes as long as the rest."""
    sql = "SELECT * EXCLUDE (created_at) FROM ({}) ORDER BY status <> 'error', created_at"
    rows = store.read(sql.format(listed_scores(about.condition, "raw.scores")), about.parameters).rows
    if any(row[_RUN] is not None for row in rows):
        return store.read(sql.format(listed_scores(about.condition)), about.parameters).rows
    return rows


def _by_name(scores: Mapping[tuple[str, str], TraceScore]) -> dict[str, TraceScore]:
    """Return scores by series; several judges of one have their identifiers."""
    named = {name: score for (name, _), score in scores.items()}
    if len(named) == len(scores):
        return named
    judges = Counter(name for name, _ in scores)
    return {
        f"{name} ({identifier})" if identifier and judges[name] > 1 else name: score
        for (name, identifier), score in scores.items()
    }
