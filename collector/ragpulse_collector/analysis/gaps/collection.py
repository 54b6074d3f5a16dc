"""The collection of documents, as far as requests show it: what is not retrieved any more, and what competes.

A document that no stored request ever retrieved is unknown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import documents_before, documents_of, named_documents

_LISTED = 20
_LEAST = 10
"""Requests that retrieved a listed document, different questions that find a pair."""
_TOGETHER = 0.5
"""Documents compete where at least this share of the retrievals of each found the other as well."""
_PAIRS = f"""
    WITH found AS MATERIALIZED (SELECT DISTINCT trace, query, weight, doc FROM ({{retrievals}})),
    sizes AS (SELECT doc, sum(weight) AS n FROM found GROUP BY doc HAVING count(DISTINCT query) >= {_LEAST}),
    frequent AS MATERIALIZED (SELECT * FROM found JOIN sizes USING (doc)),
    pairs AS (
        SELECT a.doc AS a, b.doc AS b, sum(a.weight) / greatest(any_value(a.n), any_value(b.n)) AS share
        FROM frequent a JOIN frequent b ON a.trace = b.trace AND a.doc < b.doc GROUP BY a.doc, b.doc
        HAVING share >= {_TOGETHER})
    SELECT a, b, count(DISTINCT x.query) AS questions, share
    FROM pairs JOIN frequent x ON x.doc = a JOIN frequent y ON y.doc = b AND y.trace = x.trace GROUP BY a, b, share
    HAVING questions >= {_LEAST} ORDER BY share * questions DESC, a, b LIMIT {_LISTED}"""
"""Questions are counted of the few pairs alone: of all pairs that would take three times as long."""


@dataclass(frozen=True, slots=True)
class UnretrievedDocument:
    """A document that earlier requests retrieved, and none of the range."""

    id: str
    retrieved: int
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class CompetingPair:
    """Two documents that are mostly retrieved together."""

    ids: tuple[str, str]
    questions: int
    """Different ones that find both."""
    share: float
    """Of the retrievals of each, the one that is more often found without the other."""


@dataclass(frozen=True, slots=True)
class Collection:
    """Documents that are not retrieved any more, and those that compete for the same questions."""

    unretrieved: Sequence[UnretrievedDocument]
    competing: Sequence[CompetingPair]


def collection(store: Store, query: Query) -> Collection:
    """Return what requests show of the collection."""
    before = documents_before(store, query.window.first, least=_LEAST, limit=_LISTED)
    rows = store.read(_PAIRS.format(retrievals=documents_of(query.filters)), query.parameters).rows
    names = named_documents(store, [doc for row in rows for doc in row[:2]], query.window.parameters)
    pairs = [CompetingPair((names[a].id, names[b].id), both, share) for a, b, both, share in rows]
    return Collection([UnretrievedDocument(*row) for row in before], pairs)


def first_documents(store: Store, query: Query, groups: Sequence[Sequence[str]]) -> list[str | None]:
    """Return the document that most traces of each group find first."""
    rows = store.read(
        "SELECT number, arg_max(doc, (n, doc)) FROM (SELECT number, doc, count(*) AS n FROM ("
        " SELECT number, trace, arg_min(doc, (start_time, rank)) AS doc"
        f" FROM ({documents_of(query.filters)}) JOIN ("
        "  SELECT hash(unnest($traces::UUID[])) AS trace, unnest($numbers::INTEGER[]) AS number) USING (trace)"
        " GROUP BY ALL) GROUP BY ALL) GROUP BY number",
        {
            **query.parameters,
            "traces": [trace for group in groups for trace in group],
            "numbers": [number for number, group in enumerate(groups) for _ in group],
        },
    ).rows
    names = named_documents(store, [doc for _, doc in rows], query.window.parameters)
    found = {number: names[doc].id for number, doc in rows}
    return [found.get(number) for number in range(len(groups))]
