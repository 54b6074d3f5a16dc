"""Lists of traces and sessions: outcomes, facets, lowest scores, the rows with scores as one query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from ragpulse_collector.store.protocol import Store
from ragpulse_collector.store.queries.labels import all_labels, of_roots
from ragpulse_collector.store.queries.scored_traces import SHOWN, ScoredTrace, listed_scores, scored
from ragpulse_collector.store.queries.scores import repeats
from ragpulse_collector.store.queries.traces import COLUMNS, DIMENSIONS, Filter
from ragpulse_collector.store.units.row import REQUEST
from ragpulse_collector.store.views import COUNTED, IN_LISTS, SERIES, SESSION_FIGURES, SOURCE, hex_trace

FACETS = tuple(name for name in DIMENSIONS if name not in ("prompt_name", "name", "retriever", "error"))
MAX_FACET_VALUES = 20
MAX_FACET_KEYS = 8
_IN_FORCE = "raw.decisions WHERE latest AND reason <> 'late'"
_CAPPED = "reason = 'budget' AND u < pi"
OUTCOMES = {
    "eligible": _IN_FORCE,
    "selected": f"{_IN_FORCE} AND (sampled OR ({_CAPPED}))",
    "dropped": f"{_IN_FORCE} AND NOT sampled AND {_CAPPED}",
    "uncovered": f"{_IN_FORCE} AND pi <= 0",
    "scored": "raw.scores WHERE source = 'online' AND status = 'ok'",
    **{name: f"raw.scores WHERE source = 'online' AND status = '{name}'" for name in ("skipped", "invalid", "error")},
}
"""The outcomes of a trace with an evaluator, as in `GET coverage`, and their relations."""


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a column, and the number of its traces."""

    value: str
    n: int


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The figures of a session over its turns."""

    session_id: str
    start_time: datetime
    end_time: datetime
    n_turns: int
    user_id: str | None
    service: str | None
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    error: bool | None
    estimated: bool
    """Whether an upstream sampler dropped turns: turns, tokens and cost are scaled up."""


@dataclass(frozen=True, slots=True)
class ScoredSession(SessionRow):
    """A session with its worst turn and its first question."""

    failing: bool | None
    """Whether a turn fails a check; null without checks."""
    worst_score: float | None
    query: str | None


@dataclass(frozen=True, slots=True)
class SessionScore:
    """A score about a whole session."""

    evaluator: str
    identifier: str | None
    source: str
    normalized: float | None
    score: float | None
    label: str | None
    explanation: str | None
    created_at: datetime


def has_outcome(outcome: str, *, since: bool) -> str:
    """Return the condition that a trace has this outcome with `$evaluator`, at any time or since `$evaluated_from`."""
    column = "decided_at" if OUTCOMES[outcome].startswith("raw.decisions") else "created_at"
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM {OUTCOMES[outcome]}"
        f" AND split_part(evaluator, '@', 1) = $evaluator{f' AND {column} >= $evaluated_from' if since else ''})"
    )


def retrieved(times: Collection[str]) -> str:
    """Return the condition that a span retrieved `$document`: a name in `GET documents`, or a source."""
    since = " AND start_time >= $from_time" if "from_time" in times else ""
    until = " AND start_time < $to_time + INTERVAL 1 DAY" if "to_time" in times else ""
    return (
        f"trace_id IN (SELECT {hex_trace('trace_id')} FROM raw.contexts"
        f" WHERE (coalesce(id, hash[1:16]) = $document OR (contains(metadata, $document) AND {SOURCE} = $document))"
        f"{since}{until})"
    )


def _lowest(score: str, failing: str) -> str:
    """Return SQL for the lowest score of failing results, else of passing ones, else of all others."""
    return (
        f"bool_or({failing}) AS failing, coalesce(min({score}) FILTER ({failing}), min({score}) FILTER (NOT {failing}),"
        f" min({score}))"
    )


def lowest_scores(store: Store, evaluator: str | None) -> str:
    """One row per scored trace: its hex id, whether a check failed, its lowest score of `$evaluator` or of all (None).

    A score is the one that lists show; a person's without a verdict passes from one half on. Failing results come
    first, so a low score without a threshold does not lead the list.
    """
    only = "true" if evaluator is None else f"$evaluator IN (evaluator, {SERIES})"
    parameters = {} if evaluator is None else {"evaluator": evaluator.partition("@")[0]}
    several = repeats(store, only, parameters, also="source IN ('human', 'code')")
    # One evaluator's scores have one scale, which may reach beyond 0..1.
    value, failing = ("normalized", "NOT passing") if evaluator is None else (
        "coalesce(normalized, score)", "NOT coalesce(passing, CASE WHEN source = 'human' THEN normalized >= 0.5 END)"
    )  # fmt: skip
    return (
        f"SELECT replace(trace_id::VARCHAR, '-', '') AS scored_id, {_lowest(value, failing)} AS score"
        f" FROM (SELECT * FROM {COUNTED} WHERE {IN_LISTS} AND {only}{SHOWN if several else ''})"
        " WHERE status = 'ok' GROUP BY trace_id"
    )


def with_scores(ids: str) -> str:
    """Return the traces with these ids (a relation of one column), each with its newest scores."""
    chosen = f"{hex_trace('trace_id')} IN (FROM chosen)"
    return f"""
        WITH chosen AS ({ids}), newest AS (
            SELECT *, coalesce(normalized, score) AS value FROM ({listed_scores(chosen)})
            QUALIFY row_number() OVER (PARTITION BY trace_id, series, identifier
                                       ORDER BY status <> 'error' DESC, created_at DESC) = 1),
        judged AS (SELECT * FROM newest WHERE status = 'ok' AND value IS NOT NULL),
        named AS (
            SELECT trace_id, value,
                   CASE WHEN identifier <> '' AND count(*) OVER (PARTITION BY trace_id, series) > 1
                        THEN series || ' (' || identifier || ')' ELSE series END AS name FROM judged),
        latest AS (
            SELECT trace_id AS scored_id, map(list(name), list(value)) AS scores FROM named GROUP BY trace_id)
        SELECT {COLUMNS}, coalesce(scores, MAP {{}}) AS scores
        FROM traces LEFT JOIN latest ON scored_id = trace_id
        WHERE trace_id IN (FROM chosen)"""


def facets(store: Store, relation: str, chosen: Filter) -> dict[str, list[FacetValue]]:
    """Count the values of each facet in the chosen rows of a relation, the most frequent first."""
    facet_sql = "CASE " + " ".join(f"WHEN grouping({name}) = 0 THEN '{name}'" for name in FACETS) + " END"
    texts = ", ".join(f"{name}::VARCHAR" for name in FACETS)
    chosen_sql = f"{relation} WHERE {chosen.sql}"
    rows = store.read(
        f"SELECT {facet_sql} AS facet, coalesce({texts}) AS value, count(*) AS n"
        f" FROM {chosen_sql} GROUP BY GROUPING SETS ({', '.join(f'({name})' for name in FACETS)})"
        " HAVING value IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}"
        " ORDER BY n DESC, value",
        chosen.parameters,
    ).rows
    by_facet: dict[str, list[FacetValue]] = {name: [] for name in FACETS}
    for others in (_STATED, _LABELLED):
        rows += store.read(others.replace("{chosen}", chosen_sql), chosen.parameters).rows
    for facet, value, n in rows:
        by_facet.setdefault(facet, []).append(FacetValue(value, n))
    return by_facet


_STATED = f"""
    WITH stated AS (SELECT tags, metadata FROM {{chosen}} AND (tags IS NOT NULL OR metadata IS NOT NULL)),
    counted AS (
        SELECT 'tag' AS facet, value, count(*) AS n FROM (SELECT unnest(tags) AS value FROM stated) GROUP BY ALL
        UNION ALL
        SELECT 'metadata.' || entry.key, entry.value, count(*)
        FROM (SELECT unnest(map_entries(metadata)) AS entry FROM stated)
        WHERE entry.value IS NOT NULL GROUP BY ALL),
    ranked AS (
        SELECT *, row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) AS number,
               sum(n) OVER (PARTITION BY facet) AS total FROM counted)
    SELECT facet, value, n FROM ranked WHERE number <= {MAX_FACET_VALUES}
    QUALIFY facet = 'tag' OR dense_rank() OVER (ORDER BY facet = 'tag', total DESC, facet) <= {MAX_FACET_KEYS}
    ORDER BY facet <> 'tag', total DESC, facet, n DESC, value"""
"""The values of the tags, and of the most frequent keys of the metadata."""
_LABELLED = f"""
    WITH counted AS (
        SELECT 'label.' || name AS facet, label AS value, count(*) AS n
        FROM ({of_roots(all_labels("trace_id IN (SELECT trace_id::UUID FROM {chosen})"))}) GROUP BY ALL)
    SELECT facet, value, n FROM counted
    QUALIFY row_number() OVER (PARTITION BY facet ORDER BY n DESC, value) <= {MAX_FACET_VALUES}
    ORDER BY sum(n) OVER (PARTITION BY facet) DESC, facet, n DESC, value
    LIMIT {MAX_FACET_VALUES * MAX_FACET_KEYS}"""
"""The labels of the most frequent evaluators."""
SESSION_SORTS = {
    "time": "end_time DESC, session_id",
    "cost": "cost_usd DESC NULLS LAST, end_time DESC, session_id",
    "worst": "failing DESC NULLS LAST, worst_score ASC NULLS LAST, end_time DESC, session_id",
}
MAX_TURNS = 1_000


def sessions_with(store: Store, condition: str, sort: str, evaluator: str | None) -> str:
    """Return the sessions with a turn that meets the condition, in order: the figures of all their turns.

    `failing` and `worst_score` are those of the worst turn, by `$evaluator` or by all evaluators (None).
    """
    return (
        f"SELECT session_id, {SESSION_FIGURES}, {_lowest('score', 'failing')} AS worst_score,"
        " arg_min(query, (start_time, trace_id)) AS query"
        f" FROM traces LEFT JOIN ({lowest_scores(store, evaluator)}) s ON s.scored_id = traces.trace_id"
        f" WHERE {REQUEST} AND session_id IN (SELECT session_id FROM traces t WHERE {condition}) GROUP BY session_id"
        f" ORDER BY {SESSION_SORTS[sort]}"
    )


def session_figures(store: Store, name: str) -> SessionRow | None:
    """Return the figures of a session."""
    found = store.read(f"SELECT $session AS session_id, {SESSION_FIGURES} FROM traces WHERE session_id = $session"
                       f" AND {REQUEST} HAVING count(*) > 0", {"session": name}).of(SessionRow)  # fmt: skip
    return found[0] if found else None


def session_turns(store: Store, name: str) -> list[ScoredTrace]:
    """Return the last turns of a session, the first one first."""
    turns = store.read(
        f"SELECT {COLUMNS} FROM traces WHERE session_id = $session AND {REQUEST}"
        f" ORDER BY start_time DESC, trace_id DESC LIMIT {MAX_TURNS}",
        {"session": name},
    )
    return scored(store, turns, among_others=True)[::-1]


def session_scores(store: Store, name: str) -> list[SessionScore]:
    """Return the scores about a session as a whole, oldest first."""
    return store.read(
        f"SELECT {SERIES} AS evaluator, identifier, source, normalized, score, label, explanation, created_at"
        " FROM raw.scores WHERE scope = 'session' AND session_id = $session ORDER BY created_at",
        {"session": name},
    ).of(SessionScore)
