"""Traces: conditions over their columns, decided traces, rows and scores of lists, the newest, spans of a trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from ragpulse_collector.instants import EPOCH
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.views import DECIDED, FACT_COLUMNS, LOW, UNDECIDED_SINCE

_MAX_WORDS = 8
_TRACE_ID = re.compile(r"[0-9a-fA-F-]{6,36}")
"""A trace id, or its beginning."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A SQL boolean over the columns of `traces` with its parameters; `true` keeps every trace."""

    sql: str = "true"
    parameters: dict[str, Any] = field(default_factory=dict)
    tests: bool = False
    """Whether test runs count: the filter names an environment."""
    written: bool = False
    """Whether a user wrote a part of it in SQL."""

    def __bool__(self) -> bool:
        return self.sql != "true"

    def __and__(self, other: Filter) -> Filter:
        if not (self and other):
            return self if self else other
        parameters = {**self.parameters, **other.parameters}
        return Filter(
            f"{self.sql} AND {other.sql}", parameters, self.tests or other.tests, self.written or other.written
        )


def bound_to(binding: Binding) -> Filter:
    """Return the filter for traces whose spans all belong to what a key is bound to.

    A trace with spans of other services is left out, because its texts and scores may contain theirs.
    """
    allowed = " AND ".join(f"coalesce({name[:-1]} IN (SELECT unnest($bound_{name}::VARCHAR[])), false)"
                           for name, values in binding._asdict().items() if values)  # fmt: skip
    foreign = f"SELECT trace_id FROM raw.spans WHERE NOT ({allowed})"
    parameters = {f"bound_{name}": list(values) for name, values in binding._asdict().items() if values}
    return Filter(f"{allowed} AND trace_id::UUID NOT IN ({foreign})", parameters)


def is_bound(store: Store, trace_id: UUID, binding: Binding | None) -> bool:
    """Whether all spans of a trace belong to what a key is bound to; true for an unknown trace."""
    if binding is None:
        return True
    rows = store.read("SELECT DISTINCT service, environment FROM raw.spans WHERE trace_id = $id", {"id": trace_id}).rows
    return all(binding.allows(*row) for row in rows)


def holds_words(text: str) -> tuple[str, dict[str, str]]:
    """Return SQL over the columns of `traces`, with its parameters, that is true where every word occurs.

    Words are found anywhere in `query` and `response`, in any case; words in "double quotes" stay together. A word also
    finds the user and the session of this id, and traces whose id begins with it. Without words it is `true`.
    """
    parameters = {f"word_{number}": word for number, word in enumerate(words(text))}
    return " AND ".join(_occurs(name, word) for name, word in parameters.items()) or "true", parameters


def _occurs(name: str, word: str) -> str:
    ids = f"user_id = ${name} OR session_id = ${name}"
    if _TRACE_ID.fullmatch(word):
        ids += f" OR starts_with(replace(trace_id::VARCHAR, '-', ''), lower(replace(${name}, '-', '')))"
    return f"(contains(lower(query), lower(${name})) OR contains(lower(response), lower(${name})) OR {ids})"


def words(text: str) -> list[str]:
    """Split a search text into at most eight words; quoted parts stay whole."""
    result: list[str] = []
    for index, text_part in enumerate(text.split('"')):
        result += [text_part.strip()] if index % 2 else text_part.split()
    return [word for word in result if word][:_MAX_WORDS]


FACTS = "SELECT * FROM raw.trace_facts WHERE latest"
"""One row per decided trace, its latest revision: the columns of the view `traces`."""
_SPANS_A_TRACE = 8
_FURTHER = 32
"""The factor of the next number of spans, if the spans before had too few traces."""
_NEVER = datetime(9999, 1, 1)
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

    `where` excludes traces that start before `first` or after `last`. Ordering the view would write out the ids of all
    traces. Decided traces are cheap to read in order. Undecided ones are read from a time on that probably has enough
    of them, and from an earlier time only if it has not.
    """
    first, last = first or EPOCH, last or _NEVER
    span_limit = limit * _SPANS_A_TRACE
    while True:
        since, n_spans = _waiting(store, span_limit, first, last)
        sql = f"SELECT {columns} FROM ({UNDECIDED_SINCE}) t WHERE {where} {_ORDER} {limit}"
        rows = store.read(sql, {**parameters, "since": since}).dicts() if n_spans else []
        # After the undecided ones: a trace that is decided in between is read twice, instead of never.
        from_time = rows[-1]["start_time"] if len(rows) == limit else first
        sql = f"SELECT {columns} FROM ({DECIDED} AND start_time BETWEEN $enough AND $last) t WHERE {where}"
        decided = store.read(f"{sql} {_ORDER} {limit}", {**parameters, "enough": from_time, "last": last}).dicts()
        rows = _merged(rows, decided)[:limit]
        if n_spans < span_limit or (len(rows) == limit and rows[-1]["start_time"] >= since):
            return rows
        span_limit *= _FURTHER


def newest_of_all(store: Store, limit: int, *, first: datetime | None = None) -> list[dict[str, Any]]:
    """Return the newest `limit` rows of the view `traces` that start at `first` or later, the newest first."""
    where, parameters = ("true", {}) if first is None else ("start_time >= $from", {"from": first})
    return newest(store, ", ".join(("trace_id", *FACT_COLUMNS)), where, parameters, limit, first=first)


def _place(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row["start_time"], row["trace_id"]


def _waiting(store: Store, limit: int, first: datetime, last: datetime) -> tuple[datetime, int]:
    """Return the earliest start of the newest `limit` undecided spans, and their number."""
    newest_spans = f"""SELECT start_time FROM raw.spans WHERE received_at >= {LOW}
        AND start_time BETWEEN $first AND $last ORDER BY start_time DESC LIMIT {limit}"""
    sql = f"SELECT min(start_time), count(*) FROM ({newest_spans})"
    since, n_spans = store.read(sql, {"first": first, "last": last}).rows[0]
    return since, n_spans


def _merged(undecided: list[dict[str, Any]], decided: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = {row["trace_id"]: row for row in (*undecided, *decided)}
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
    scores = _newest_scores(store, "trace_id IN (SELECT unnest($ids::UUID[]))", listed)
    by_id = {
        row["trace_id"]: row
        | {"start_time": row["start_time"].isoformat() + "Z", "scores": scores.get(row["trace_id"], {})}
        for row in facts
    }
    return [by_id[trace] for trace in trace_ids if trace in by_id]


def scores_of(store: Store, rows: Sequence[Mapping[str, Any]], *, among_others: bool) -> dict[str, dict[str, Any]]:
    """Return the newest score of each evaluator for the traces of one page.

    Without others that start as late as these, a condition on time alone takes half as long.
    """
    if not rows:
        return {}
    times = [row["start_time"] for row in rows]
    condition, parameters = "request_time >= $first", {"first": min(times)}
    if among_others:
        condition = (
            f"{condition} AND request_time <= $last + INTERVAL 1 DAY AND trace_id IN (SELECT unnest($ids::UUID[]))"
        )
        parameters |= {"ids": [row["trace_id"] for row in rows], "last": max(times)}
    return _newest_scores(store, condition, parameters)


SERIES = "CASE WHEN source = 'human' THEN 'feedback:' || evaluator ELSE evaluator END"
"""The column of a list: a person's and an evaluator's scores under one name are two."""
IN_LISTS = "scope IS DISTINCT FROM 'session'"
"""The condition that a score is about a trace, not about its session."""


def _newest_scores(store: Store, condition: str, parameters: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by trace the newest score of each evaluator; several judges of one name have their identifiers."""
    found: dict[str, dict[str, dict[str | None, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
    for trace_id, name, identifier, *values in store.read(
        f"SELECT replace(trace_id::VARCHAR, '-', ''), {SERIES}, identifier, normalized, status, passing, label, score"
        f" FROM raw.scores WHERE {condition} AND {IN_LISTS} ORDER BY created_at",
        parameters,
    ).rows:
        found[trace_id][name][identifier] = dict(zip(_SCORE, values, strict=True))
    scores: dict[str, dict[str, Any]] = defaultdict(dict)
    for trace_id, names in found.items():
        for name, judges in names.items():
            for identifier, score in judges.items():
                scores[trace_id][f"{name} ({identifier})" if identifier and len(judges) > 1 else name] = score
    return scores


_SCORE = ("normalized", "status", "passing", "label", "score")


_KEY = re.compile(r'"metadata\.((?:[^"]|"")*)"\Z')


def metadata_column(key: str) -> str:
    """Return the SQL name of the column that `with_columns` makes of a key of the metadata."""
    return '"metadata.' + key.replace('"', '""') + '"'


def public_name(column: str) -> str:
    """Return the name under which a column is grouped by: `metadata.tenant` for what `metadata_column` made."""
    return column[1:-1].replace('""', '"') if _KEY.match(column) else column


OTHER = "(other)"
"""Stands for all groups beyond the largest: senders choose the values, and there may be as many as traces."""


class GroupColumn(str):
    """A column to group by, with the condition on a row whose group is one of the largest."""

    largest: str


class Grouping(NamedTuple):
    """What to group by, and how many groups are read as `OTHER`."""

    columns: tuple[str, ...] = ()
    others: int = 0


def grouping_of(
    store: Store, within: Mapping[str, Any], filter: Filter, columns: tuple[str, ...], limit: int
) -> Grouping:
    """Return a grouping into at most `limit` groups of the traces in a range, the largest ones, and `OTHER`."""
    if not columns:
        return Grouping()
    group = f"hash({', '.join(f'{column}::VARCHAR' for column in columns)})"
    rows = store.read(
        f"SELECT {group} AS g, count(*) AS n, count(*) OVER () FROM {with_columns('traces', columns)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filter.sql}"
        f" GROUP BY g ORDER BY n DESC, g LIMIT {limit}",
        {**within, **filter.parameters},
    ).rows
    if not rows or rows[0][2] <= limit:
        return Grouping(columns)
    grouped = tuple(map(GroupColumn, columns))
    for column in grouped:
        column.largest = f"{group} IN ({', '.join(str(row[0]) for row in rows)})"
    return Grouping(grouped, rows[0][2] - limit)


def with_columns(relation: str, columns: Iterable[str]) -> str:
    """Return `traces` or `FACTS` with derived columns: `tag` and keys of the metadata; rare groups become `OTHER`.

    With `tag` or `label` a trace has one row for each of its tags, or of the labels of its scores.
    """
    columns = list(columns)
    derived = [sql for column in columns if (sql := _made(column))]
    made = f"(SELECT *, {', '.join(derived)} FROM {relation})" if derived else relation
    grouped = [_or_other(column) for column in columns if isinstance(column, GroupColumn)]
    return f"(SELECT * REPLACE ({', '.join(grouped)}) FROM {made})" if grouped else made


def _or_other(column: GroupColumn) -> str:
    value, other = (column, "NULL") if column == "error" else (f"{column}::VARCHAR", literal(OTHER))
    return f"CASE WHEN {column.largest} THEN {value} ELSE {other} END AS {column}"


_LABELS = "SELECT trace_id AS of, label FROM raw.scores WHERE label IS NOT NULL AND status = 'ok'"


def has_label(labels: str, evaluator: str | None) -> str:
    """Return the condition that a score of the trace, or of one evaluator (a parameter), has one of these labels."""
    named = "" if evaluator is None else f" AND {evaluator} IN (evaluator, {SERIES})"
    return f"trace_id::UUID IN (SELECT of FROM ({_LABELS}{named}) WHERE list_contains({labels}::VARCHAR[], label))"


def _made(column: str) -> str | None:
    if column == "label":
        return (
            f"unnest(coalesce((SELECT list(DISTINCT x.label) FROM ({_LABELS}) x WHERE x.of = trace_id::UUID), [NULL]))"
            " AS label"
        )
    if column == "tag":
        return "unnest(CASE WHEN len(tags) > 0 THEN tags ELSE [NULL] END) AS tag"
    key = _KEY.match(column)
    return key and f"metadata[{literal(public_name(column).removeprefix('metadata.'))}] AS {column}"


def facts_of(filter: Filter, columns: Sequence[str] = ()) -> str:
    """The decided traces that pass the filter, one row each: `trace_id` and `columns`."""
    return f"SELECT {', '.join(('trace_id', *columns))} FROM {with_columns(f'({FACTS})', columns)} WHERE {filter.sql}"


def prompt_starts(filter: Filter) -> str:
    """One row per prompt version that began in the range, without the first version of each prompt.

    A version that was in use in the day or the range of the same length before did not begin in it.
    """
    return f"""
        SELECT prompt_name, prompt_version, min(start_time) AS t FROM ({FACTS})
        WHERE prompt_version IS NOT NULL AND start_time >= $first - greatest($last - $first, INTERVAL 1 DAY)
        AND start_time < $last AND {filter.sql} GROUP BY prompt_name, prompt_version
        QUALIFY t >= $first AND row_number() OVER (PARTITION BY prompt_name ORDER BY t) > 1
        ORDER BY t"""


def has_service(store: Store, service: str, within: Mapping[str, Any]) -> bool:
    """Whether a decided trace of this service starts in the range."""
    sql = f"SELECT EXISTS (FROM ({FACTS}) WHERE service = $service AND start_time >= $first AND start_time < $last)"
    return bool(store.read(sql, {**within, "service": service}).rows[0][0])


def newest_span(store: Store) -> tuple[datetime | None, datetime | None]:
    """When the last span arrived, and the latest start of a span; None for an empty store."""
    received, started = store.read("SELECT max(received_at), max(start_time) FROM raw.spans").rows[0]
    return received, started


def first_span(store: Store) -> datetime | None:
    """When the earliest span started; None for an empty store."""
    start: datetime | None = store.read("SELECT min(start_time) FROM raw.spans").rows[0][0]
    return start


def of_traces(table: str) -> str:
    """FROM and WHERE for the rows of `raw.<table>` that belong to the traces `$ids` and start in `$first` .. `$last`.

    `number` is the index of the trace in `$ids`, which is shorter than the id.
    """
    return (
        f"FROM raw.{table} JOIN (SELECT unnest($ids::UUID[]) AS trace_id, unnest(range(len($ids))) AS number)"
        " USING (trace_id) WHERE start_time BETWEEN $first AND $last"
    )


def span_counts(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, n_spans): how many spans each trace had when it was decided."""
    return store.read(f"SELECT number, n_spans {of_traces('trace_facts')} AND latest", scope)


def spans(store: Store, scope: Mapping[str, Any]) -> Rows:
    """One row per span: its ids and its figures."""
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


MAX_TURNS = 20
_SESSION_REACH = timedelta(days=1)


def turns_before(store: Store, scope: Mapping[str, Any]) -> Rows:
    """Rows of (number, query, response): the decided turns of the same session before each trace, oldest first.

    Turns that began at the same time are in the order of their ids. At most the last twenty are returned, of the day
    before the first of the traces.
    """
    own_turns = (
        f"SELECT number, session_id, start_time, trace_id {of_traces('trace_facts')} AND latest"
        " AND session_id IS NOT NULL"
    )
    if not store.read(f"{own_turns} LIMIT 1", scope).rows:
        return Rows((), [])
    return store.read(
        f"WITH own AS ({own_turns}), earlier AS ("
        "   SELECT own.number, t.start_time, t.trace_id, t.query, t.response FROM raw.trace_facts t"
        "   JOIN own ON own.session_id = t.session_id"
        "    AND (t.start_time, t.trace_id) < (own.start_time, own.trace_id)"
        "   WHERE t.latest AND t.start_time BETWEEN $reach AND $last"
        "   QUALIFY row_number() OVER (PARTITION BY own.number ORDER BY t.start_time DESC, t.trace_id DESC)"
        f"   <= {MAX_TURNS})"
        " SELECT number, query, response FROM earlier ORDER BY number, start_time, trace_id",
        {**scope, "reach": max(scope["first"], EPOCH + _SESSION_REACH) - _SESSION_REACH},
    )
