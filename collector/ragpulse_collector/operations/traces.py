"""`GET traces`, `GET sessions`: lists, filtered, sorted, in pages, with scores; the turns of one session in order."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.query import begun, every
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.api.models import DEFAULT_LIMIT, MAX_OFFSET, Filters, PageSize, Range, TraceChoice, TraceList
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import EvaluatorName
from ragpulse_collector.instants import EPOCH
from ragpulse_collector.interface import Command, Tool
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.scored_traces import ScoredTrace, scored
from ragpulse_collector.store.queries.trace_lists import (
    FacetValue,
    ScoredSession,
    SessionRow,
    SessionScore,
    facets,
    has_outcome,
    lowest_scores,
    retrieved,
    session_figures,
    session_scores,
    session_turns,
    sessions_with,
    with_scores,
)
from ragpulse_collector.store.queries.traces import COLUMNS, Filter, TraceRow, newest
from ragpulse_evaluators.case import CONVERSATIONS

_NEWEST_FIRST = "start_time DESC, trace_id DESC"
_TOKENS = "coalesce(input_tokens, 0) + coalesce(output_tokens, 0)"
_SORTS = {
    "time": _NEWEST_FIRST,
    "oldest": "start_time, trace_id",
    "slow": f"latency_ms DESC NULLS LAST, {_NEWEST_FIRST}",
    "fast": f"latency_ms ASC NULLS LAST, {_NEWEST_FIRST}",
    "expensive": f"cost_usd DESC NULLS LAST, {_NEWEST_FIRST}",
    "cheap": f"cost_usd ASC NULLS LAST, {_NEWEST_FIRST}",
    "long": f"{_TOKENS} DESC, {_NEWEST_FIRST}",
    "short": f"{_TOKENS} ASC, {_NEWEST_FIRST}",
    "worst": f"failing DESC NULLS LAST, score ASC NULLS LAST, {_NEWEST_FIRST}",
    "best": f"failing ASC NULLS LAST, score DESC NULLS LAST, {_NEWEST_FIRST}",
}


@dataclass(frozen=True, slots=True)
class TracePage:
    """A page of the list; `next` is the cursor of older traces, `newest` the one of newer traces."""

    traces: list[ScoredTrace]
    next: str | None
    newest: str | None
    facets: dict[str, list[FacetValue]] | None
    total: int | None
    """The traces on all pages."""
    judged_by: str | None
    """The evaluator by which answers fail and are the worst, where it matters here; null: any."""
    lead: str
    """The evaluator whose score is shown first: the one asked for, else the one that leads."""


_COLUMNS = {"time": "start_time", "question": "query+name", "{lead}": "scores.{lead}", "latency": "latency_ms",
            "cost": "cost_usd", "": "error", "trace": "trace_id", "tokens": "input_tokens+output_tokens",
            "scores": "scores"}  # fmt: skip
_WORST = "The answers with the lowest scores of an evaluator (default: the one that leads), worst first."


@operation(
    "GET traces",
    bound=True,
    command=Command("traces", columns={"traces": _COLUMNS}, presets={"limit": 20}),
    tools=(
        Tool("search_traces", ("since", "words=q", "where", "sort", "limit"), {"limit": 20}),
        Tool("worst_answers", ("evaluator", "since", "where", "limit"), {"limit": 10, "sort": "worst"}, _WORST),
    ),
)
def trace_list(store: Store, lead: Lead, /, params: TraceList) -> TracePage:
    """The newest traces with question, answer, latency, tokens, cost and scores.

    Raises Invalid for an invalid cursor or condition.
    """
    judge = _judge(store, params, params.evaluator, lead) if _needs_score(params) else params.evaluator
    store, common, own = params.limited(store), params.filters(), _own(params, judge, utc_now())
    relation = _relation(store, params, judge)
    matching, by_time = common & own, params.sort == "time"
    place = _place(params.cursor) if params.cursor else None
    offset = place.offset if place and not by_time else 0
    if by_time and not _needs_score(params):
        page = own & _beyond(params, place)
        first, last = _edges(params, page)
        rows = newest(store, common & page, params.limit + 1, first=first, last=last)
        among_others = bool(common) or not page.parameters.keys() <= {"from_time"}
    else:
        page = matching & _beyond(params, place)
        order = f"ORDER BY {_SORTS[params.sort]} LIMIT {params.limit + 1} OFFSET {offset}"
        sql = f"SELECT {COLUMNS} FROM {relation} WHERE {page.sql} {order}"
        rows, among_others = store.read(sql, page.parameters), True
    traces = scored(store, rows.first(params.limit), among_others=among_others)
    more, total = len(rows.rows) > len(traces), len(traces)
    if params.total and (more or params.cursor or params.after):  # else another reading could know one more
        total = _total(store, relation, matching)
    return TracePage(
        traces=traces,
        next=_cursor(traces[-1], 0 if by_time else offset + params.limit) if more else None,
        newest=_cursor(traces[0], 0) if traces and by_time else params.after,
        facets=facets(store, relation, matching) if params.facets else None,
        total=total if params.total else None,
        judged_by=judge,
        lead=judge or lead(),
    )


def _total(store: Store, relation: str, matching: Filter) -> int:
    sql = f"SELECT count(*) FROM {relation} WHERE {matching.sql}"
    return int(store.read(sql, matching.parameters).value)


class Listed(NamedTuple):
    """A query for rows of the list, with its parameters."""

    sql: str
    parameters: dict[str, Any]


def list_sql(store: Store, lead: Lead, params: TraceChoice, *, max_rows: int) -> Listed:
    """Return the query for the first `max_rows` of the filtered list, in no order; raises Invalid.

    Only the ids are sorted: with the texts a sort would not fit into memory.
    """
    judge = _judge(store, params, params.evaluator, lead) if _needs_score(params) else params.evaluator
    chosen = params.filters() & _own(params, judge, utc_now())
    order = f"ORDER BY {_SORTS[params.sort]} LIMIT {int(max_rows)}"
    ids = f"SELECT trace_id FROM {_relation(store, params, judge)} WHERE {chosen.sql} {order}"
    return Listed(with_scores(ids), chosen.parameters)


def _judge(
    store: Store, params: Filters, evaluator: str | None, lead: Lead, before: tuple[str, ...] = ()
) -> str | None:
    """Return the evaluator by which answers fail: the one asked for, else the one that leads; None is any.

    Where the one that leads has no verdict in the range, it is the next one that reads whether an answer is supported.
    Those of `before` come before the one that leads.
    """
    now = utc_now()
    first, last = params.instant(params.from_, now), params.instant(params.to, now)
    window = Window(first or EPOCH, last or datetime.max, 0)
    return evaluator or first_of(store, window, (*before, lead(), *FAITHFUL))


def _relation(store: Store, params: TraceChoice, judge: str | None) -> str:
    """Return the SQL after FROM: the traces, with their scores where needed."""
    if not _needs_score(params):
        return "traces t"
    kind = "LEFT JOIN" if params.outcome else "JOIN"
    return f"traces t {kind} ({lowest_scores(store, judge)}) s ON s.scored_id = t.trace_id"


def _own(params: TraceChoice, judge: str | None, now: datetime) -> Filter:
    """Return the conditions that lists of traces have beyond the common filters."""
    times = between(params, now)
    return every((times, _of_evaluator(judge), _scored_as(params), _with_outcome(params, now),
                  _with_document(params.document, times)))  # fmt: skip


def _of_evaluator(name: str | None) -> Filter:
    """Return the parameter that the SQL of scores reads; it keeps every trace."""
    return Filter("true", {"evaluator": name.partition("@")[0]} if name else {})


def _scored_as(params: TraceChoice) -> Filter:
    bounds = (("min_score", params.min_score, ">="), ("max_score", params.max_score, "<="))
    within = (Filter(f"score {sign} ${name}", {name: score}) for name, score, sign in bounds if score is not None)
    failing = Filter() if params.failing is None else Filter("failing" if params.failing else "NOT failing")
    return every((*within, failing))


def _with_outcome(params: TraceChoice, now: datetime) -> Filter:
    if not params.outcome:
        return Filter()
    since = params.instant(params.evaluated_from, now)
    sql = has_outcome(params.outcome, since=since is not None)
    return Filter(sql, {} if since is None else {"evaluated_from": since})


def _with_document(name: str | None, times: Filter) -> Filter:
    return Filter(retrieved(times.parameters), {"document": name}) if name else Filter()


def between(params: Range, now: datetime) -> Filter:
    """Return the filter of `from` and `to`: the same range as that of the figures."""
    first, last = params.instant(params.from_, now), params.instant(params.to, now)
    length = (last or now) - (first or now)
    if isinstance(params.from_, timedelta) and first:
        first = begun(first, length, params.zone)
    if isinstance(params.to, timedelta) and last:
        last = begun(last, length, params.zone)
    bounds = (("from", first, ">="), ("to", last, "<"))
    return every(Filter(f"start_time {sign} ${name}_time", {f"{name}_time": time})
                 for name, time, sign in bounds if time is not None)  # fmt: skip


def _needs_score(params: TraceChoice) -> bool:
    filters = (params.min_score, params.max_score, params.failing, params.evaluator)
    return params.sort in ("worst", "best") or any(value is not None for value in filters)


class _Place(NamedTuple):
    """What a cursor holds: the trace that it stands at, and the rows before it where they are not in order of time."""

    time: datetime
    trace_id: str
    offset: int


def _beyond(params: TraceList, place: _Place | None) -> Filter:
    """Return the filter of a page after a cursor, where rows are in order of time."""
    if params.after:
        place, sign = _place(params.after), ">"
    elif params.sort == "time":
        sign = "<"
    else:
        place = None
    if place is None:
        return Filter()
    key = {"cursor_time": place.time, "cursor_id": place.trace_id}
    return Filter(f"(start_time, trace_id) {sign} ($cursor_time, $cursor_id)", key)


def _edges(params: TraceList, page: Filter) -> tuple[datetime | None, datetime | None]:
    """Return the earliest and the latest start of the page's traces, where they are limited."""
    firsts, lasts = [page.parameters.get("from_time")], [page.parameters.get("to_time")]
    (firsts if params.after else lasts).append(page.parameters.get("cursor_time"))
    return max(filter(None, firsts), default=None), min(filter(None, lasts), default=None)


def _cursor(row: TraceRow, offset: int) -> str:
    content = [row.start_time.isoformat(), row.trace_id, offset]
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _place(cursor: str) -> _Place:
    try:
        time, trace_id, offset = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        place = _Place(datetime.fromisoformat(time), str(trace_id), int(offset))
    except (ValueError, TypeError, OverflowError) as error:
        raise Invalid(_BAD_CURSOR) from error
    if not 0 <= place.offset < MAX_OFFSET:
        raise Invalid(_BAD_CURSOR)
    return place


_BAD_CURSOR = "this cursor is invalid: start again without it"


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of sessions; `next` is the `offset` of the next page."""

    sessions: list[ScoredSession]
    next: int | None
    judged_by: str | None
    """The evaluator by which turns fail and are the worst; null: any."""


@operation("GET sessions")
def session_list(
    store: Store,
    lead: Lead,
    /,
    params: Filters,
    sort: Literal["time", "cost", "worst"] = "time",
    evaluator: Annotated[EvaluatorName | None, "`worst` is by this evaluator; default: the one that leads."] = None,
    limit: PageSize = DEFAULT_LIMIT,
    offset: Annotated[int, Field(ge=0, le=MAX_OFFSET), "`next` of an earlier answer."] = 0,
) -> SessionPage:
    """Conversations with their figures: sessions with a turn that passes the filters, with all their turns.

    Evaluators of whole conversations lead where there are any.
    """
    judge = _judge(store, params, evaluator, lead, CONVERSATIONS)
    chosen = params.filters() & between(params, utc_now()) & _of_evaluator(judge)
    sql = sessions_with(store, chosen.sql, sort, judge)
    rows = params.limited(store).read(f"{sql} LIMIT {limit + 1} OFFSET {offset}", chosen.parameters).of(ScoredSession)
    return SessionPage(rows[:limit], offset + limit if len(rows) > limit else None, judge)


@dataclass(frozen=True, slots=True)
class SessionTurns:
    """A session with its turns, the first one first."""

    session: SessionRow
    turns: list[ScoredTrace]
    scores: list[SessionScore]
    """Those about the session as a whole."""


@operation("GET sessions/{id}", slashes=True)
def session_detail(store: Store, /, id: str) -> SessionTurns:
    """The turns of a conversation, in order, with scores.

    Raises NotFound. The answer holds the last thousand turns.
    """
    figures = session_figures(store, id)
    if figures is None:
        raise NotFound(f"no session {id!r}")
    return SessionTurns(figures, session_turns(store, id), session_scores(store, id))
