"""Traces: conditions over their columns, decided traces, rows of lists, the newest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

from ragpulse_collector.instants import EPOCH
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.connection import literal
from ragpulse_collector.store.protocol import Rows, Store, Within
from ragpulse_collector.store.queries.failures import FAILURE, KINDS
from ragpulse_collector.store.queries.labels import label_column, labels_in, undecided_with_labels, with_labels
from ragpulse_collector.store.schema import REQUESTS_SINCE
from ragpulse_collector.store.units.row import REQUEST
from ragpulse_collector.store.units.undecided import LOW
from ragpulse_collector.store.views import COUNTED, DECIDED, SERIES, UNDECIDED_SINCE, decided_of

DIMENSIONS = (
    "service", "model", "prompt_version", "prompt_name", "variant", "environment", "name", "retriever", "release",
    "user_id", "session_id", "finish_reason", "agent", "data_source", "index_version", "top_k", "answer", "topic",
    "error",
)  # fmt: skip
"""Columns of `traces` for filters, groups, facets and Explain, beside `tag`, `metadata.<key>` and labels."""
T = TypeVar("T")
_MAX_WORDS = 8
_TRACE_ID = re.compile(r"[0-9a-fA-F-]{6,36}")
"""A trace id, or its beginning."""


Roots = Literal["requests", "other", "all"]
_ROOTS: dict[Roots, str] = {"requests": f"{REQUEST} AND ", "other": "n_units = 0 AND ", "all": ""}


@dataclass(frozen=True, slots=True)
class Filter:
    """A SQL boolean over the columns of `traces` with its parameters; `true` keeps every request."""

    condition: str = "true"
    parameters: dict[str, Any] = field(default_factory=dict)
    tests: bool = False
    """Whether test runs count: the filter names an environment."""
    written: bool = False
    """Whether a user wrote a part of it in SQL."""
    roots: Roots = "requests"
    """Which traces are kept: requests, other roots, or all."""
    labels: tuple[str, ...] = ()
    """Names of the labels that it reads: figures are weighted by their probabilities."""
    beside_labels: str = ""
    """The condition on a row that has these labels as columns, which is quicker; empty: the same."""

    @property
    def sql(self) -> str:
        """The condition on a row of `traces`."""
        return f"{_ROOTS[self.roots]}{self.condition}"

    @property
    def on_columns(self) -> str:
        """The condition on a row of `with_columns(..., filter)`."""
        return f"{_ROOTS[self.roots]}{self.beside_labels or self.condition}"

    def __bool__(self) -> bool:
        return self.condition != "true"

    def __and__(self, other: Filter) -> Filter:
        parts = [part for part in (self, other) if part]
        condition = " AND ".join(part.condition for part in parts) or "true"
        beside = " AND ".join(part.beside_labels or part.condition for part in parts)
        parameters = {**self.parameters, **other.parameters}
        roots = other.roots if self.roots == "requests" else self.roots
        tests, written = self.tests or other.tests, self.written or other.written
        return Filter(condition, parameters, tests, written, roots, (*self.labels, *other.labels), beside)


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


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def listed(row: type[T]) -> type[T]:
    """Make a dataclass of the rows of long lists, frozen for mypy alone, without slots.

    A thousand rows are made in 1.2 ms instead of 4, since a frozen row sets each field by a call, and encoded in 0.8 ms
    instead of 3.
    """
    return dataclass(row)


@listed
class TraceRow:
    """A row of the view `traces`."""

    trace_id: str
    start_time: datetime
    latency_ms: float | None
    ttft_ms: float | None
    service: str | None
    environment: str | None
    name: str | None
    query: str | None
    response: str | None
    session_id: str | None
    user_id: str | None
    prompt_name: str | None
    prompt_version: str | None
    variant: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None
    cost_unknown_reason: str | None
    error: bool | None
    top_score: float | None
    n_spans: int | None
    n_units: int | None
    upstream_pi: float | None
    late_spans: int | None
    feedback: float | None
    retriever: str | None
    misdated_spans: int | None
    tags: list[str] | None
    metadata: dict[str, str | None] | None
    release: str | None
    finish_reason: str | None
    agent: str | None
    data_source: str | None
    top_k: int | None
    response_missing_reason: str | None
    control_flow: str | None
    feedbacks: dict[str, float] | None
    """The newest score of people by name."""
    feedbacks_off_scale: list[str] | None
    answer: str | None
    """`answered`, `refused` or `empty`; null if that is unknown."""
    topic: str | None
    """The name of its topic; `other` for none, null before topics were found."""
    question_distance: float | None
    """1 - cosine of the question and the centre of the nearest topic; null before topics were found."""
    index_version: str | None
    """The version of the index that its first retriever searched."""


COLUMNS = ", ".join(column.name for column in fields(TraceRow))
"""The columns of a trace in a list; pages are `Rows` of these until they have their scores."""
ID, START = 0, 1


def newest(
    store: Store, filter: Filter, limit: int, *, first: datetime | None = None, last: datetime | None = None
) -> Rows:
    """Return the newest `limit` rows of the view `traces` that pass the filter, the newest first.

    The filter excludes traces that start before `first` or after `last`. Ordering the view would write out the ids of
    all traces. Decided traces are cheap to read in order. Undecided ones are read from a time on that probably has
    enough of them, and from an earlier time only if it has not.
    """
    first, last = first or EPOCH, last or _NEVER
    span_limit = limit * _SPANS_A_TRACE
    while True:
        since, n_spans = _undecided_from(store, span_limit, first, last)
        waiting = undecided_with_labels(UNDECIDED_SINCE, filter.labels)
        sql = f"SELECT {COLUMNS} FROM {waiting} t WHERE {filter.on_columns} {_ORDER} {limit}"
        undecided = store.read(sql, {**filter.parameters, "since": since}) if n_spans else Rows((), [])
        # After the undecided ones: a trace that is decided in between is read twice, instead of never.
        enough = {"first": undecided.rows[-1][START] if len(undecided.rows) == limit else first, "last": last}
        facts = with_labels(f"({FACTS})", filter.labels, listed=True) if filter.labels else ""
        rows = decided_of(facts, map(label_column, filter.labels)) if facts else DECIDED
        sql = f"SELECT {COLUMNS} FROM ({rows} AND start_time BETWEEN $first AND $last) t WHERE {filter.on_columns}"
        decided = store.read(f"{sql} {_ORDER} {limit}", {**filter.parameters, **enough})
        found = _merged(undecided, decided, limit)
        if n_spans < span_limit or (len(found.rows) == limit and found.rows[-1][START] >= since):
            return found
        span_limit *= _FURTHER


def _undecided_from(store: Store, limit: int, first: datetime, last: datetime) -> tuple[datetime, int]:
    """Return the earliest start of the newest `limit` undecided spans, and their number."""
    newest_spans = f"""SELECT start_time FROM raw.spans WHERE received_at >= {LOW}
        AND start_time BETWEEN $first AND $last ORDER BY start_time DESC LIMIT {limit}"""
    sql = f"SELECT min(start_time), count(*) FROM ({newest_spans})"
    since, n_spans = store.read(sql, {"first": first, "last": last}).rows[0]
    return since, n_spans


def _merged(undecided: Rows, decided: Rows, limit: int) -> Rows:
    if not undecided.rows:
        return decided
    rows = {row[ID]: row for row in (*undecided.rows, *decided.rows)}
    return Rows(decided.columns, sorted(rows.values(), key=lambda row: (row[START], row[ID]), reverse=True)[:limit])


_KEY = re.compile(r'"metadata\.((?:[^"]|"")*)"\Z')


def metadata_column(key: str) -> str:
    """Return the SQL name of the column that `with_columns` makes of a key of the metadata."""
    return '"metadata.' + key.replace('"', '""') + '"'


def public_name(column: str) -> str:
    """Return the name under which a column is grouped by: `metadata.tenant` for what `metadata_column` made."""
    return column[1:-1].replace('""', '"') if column.startswith('"') else column


OTHER = "(other)"
"""Stands for all groups beyond the largest: senders choose the values, and there may be as many as traces."""


class GroupColumn(str):
    """A column to group by, with the condition on a row whose group is one of the largest."""

    largest: str


_OF_FEW = ("answer", "error", label_column(FAILURE))
"""Columns that have so few values that nobody counts them."""


class Grouping(NamedTuple):
    """What to group by, and how many groups are read as `OTHER`."""

    columns: tuple[str, ...] = ()
    others: int = 0


def grouping_of(store: Store, within: Within, filter: Filter, columns: tuple[str, ...], limit: int) -> Grouping:
    """Return a grouping into at most `limit` groups of the traces in a range, the largest ones, and `OTHER`."""
    if not columns or (columns[0] in _OF_FEW and len(columns) == 1 and limit > len(KINDS)):
        return Grouping(columns)
    group = f"hash({', '.join(f'{column}::VARCHAR' for column in columns)})"
    rows = store.read(
        f"SELECT {group} AS g, count(*) AS n, count(*) OVER () FROM {with_columns('traces', columns, filter)}"
        f" WHERE start_time >= $first AND start_time < $last AND {filter.on_columns}"
        f" GROUP BY g ORDER BY n DESC, g LIMIT {limit}",
        {**within, **filter.parameters},
    ).rows
    if not rows or rows[0][2] <= limit:
        return Grouping(columns)
    grouped = tuple(map(GroupColumn, columns))
    for column in grouped:
        column.largest = f"{group} IN ({', '.join(str(row[0]) for row in rows)})"
    return Grouping(grouped, rows[0][2] - limit)


def with_columns(relation: str, columns: Iterable[str], filter: Filter | None = None) -> str:
    """Return `traces` or `FACTS` with derived columns: `tag` and keys of the metadata; rare groups become `OTHER`.

    With `tag` or `label` a trace has one row for each of its tags, or of the labels of its scores. By labels of one
    evaluator, also those of a filter, requests are weighted (`with_labels`).
    """
    columns = list(columns)
    if labels := [*labels_in(columns), *(filter.labels if filter else ())]:
        relation = with_labels(relation, labels)
    derived = [sql for column in columns if (sql := _made(column))]
    made = f"(SELECT *, {', '.join(derived)} FROM {relation})" if derived else relation
    grouped = [_or_other(column) for column in columns if isinstance(column, GroupColumn)]
    return f"(SELECT * REPLACE ({', '.join(grouped)}) FROM {made})" if grouped else made


def of_range(filter: Filter, columns: Iterable[str] = (), relation: str = "traces") -> str:
    """Return `FROM ... WHERE ...` for the requests of the range that pass the filter, with `columns` to group by."""
    rows = with_columns(relation, columns, filter)
    return f"FROM {rows} WHERE start_time >= $first AND start_time < $last AND {filter.on_columns}"


def _or_other(column: GroupColumn) -> str:
    value, other = (column, "NULL") if column == "error" else (f"{column}::VARCHAR", literal(OTHER))
    return f"CASE WHEN {column.largest} THEN {value} ELSE {other} END AS {column}"


_LABELS = f"SELECT trace_id AS of, label FROM {COUNTED} WHERE label IS NOT NULL AND status = 'ok'"


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
    relation = with_columns(f"({FACTS})", columns, filter)
    return f"SELECT {', '.join(('trace_id', *columns))} FROM {relation} WHERE {filter.on_columns}"


VERSIONED = {"prompt_version": "prompt_name", "index_version": "data_source"}
"""The columns with a version, and with the name of what has it."""


def version_starts(filter: Filter) -> str:
    """One row per version of a prompt or an index that began in the range, without the first version of each.

    A version that was in use in the day or the range of the same length before did not begin in it.
    """
    return " UNION ALL ".join(
        f"""
        (SELECT '{kind}' AS kind, {name} AS what, {kind} AS version, min(start_time) AS t,
            list(DISTINCT coalesce(service, '')) AS services
        FROM ({FACTS}) WHERE {kind} IS NOT NULL AND start_time >= $first - greatest($last - $first, INTERVAL 1 DAY)
        AND start_time < $last AND {filter.sql} GROUP BY {name}, {kind}
        QUALIFY t >= $first AND row_number() OVER (PARTITION BY {name} ORDER BY t) > 1)"""
        for kind, name in VERSIONED.items()
    )


def versions_in(filter: Filter) -> str:
    """One row per version of a prompt or an index that requests of the range use."""
    kinds, whats = (", ".join(names) for names in (map(literal, VERSIONED), VERSIONED.values()))
    return f"""
        SELECT DISTINCT * FROM (
            SELECT unnest([{kinds}]) AS kind, unnest([{whats}]) AS what, unnest([{", ".join(VERSIONED)}]) AS version
            FROM {with_columns("traces", (), filter)}
            WHERE start_time >= $first AND start_time < $last AND {filter.on_columns})
        WHERE version IS NOT NULL"""


def has_service(store: Store, service: str, within: Within) -> bool:
    """Whether a decided trace of this service starts in the range."""
    sql = f"SELECT EXISTS (FROM ({FACTS}) WHERE service = $service AND start_time >= $first AND start_time < $last)"
    return bool(store.read(sql, {**within, "service": service}).value)


def requests_since(store: Store) -> datetime | None:
    """Return the time of the upgrade before which every root was counted; None where none was, or after `remap`."""
    since: datetime | None = store.read(
        f"SELECT max(value::TIMESTAMP) FROM raw.meta WHERE key = '{REQUESTS_SINCE}'"
    ).value
    return since


def newest_span(store: Store) -> tuple[datetime | None, datetime | None]:
    """When the last span arrived, and the latest start of a span; None for an empty store."""
    received, started = store.read("SELECT max(received_at), max(start_time) FROM raw.spans").rows[0]
    return received, started


def first_span(store: Store) -> datetime | None:
    """When the earliest span started; None for an empty store."""
    start: datetime | None = store.read("SELECT min(start_time) FROM raw.spans").value
    return start
