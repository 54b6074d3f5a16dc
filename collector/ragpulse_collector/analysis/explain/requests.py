"""The requests that Explain looks at, with what is known of each, and which of them are bad."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.explain.exemplars import column_of
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import Filter

__all__ = ["MOST_ROWS", "Key", "Row", "read"]

MOST_ROWS = 20_000
_ATTRIBUTES = (
    "service",
    "environment",
    "name",
    "model",
    "prompt_name",
    "prompt_version",
    "variant",
    "release",
    "error",
)
_COLUMNS_READ = ", ".join((*_ATTRIBUTES, "tags", "metadata"))
_SCRIPTS = ("Hiragana", "Katakana", "Hangul", "Han", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Thai", "Greek")
_SCRIPT = (
    "CASE WHEN strlen(query) = length(query) THEN 'Latin' "
    + " ".join(f"WHEN regexp_matches(query, '\\p{{{name}}}') THEN '{name}'" for name in _SCRIPTS)
    + " WHEN query IS NOT NULL THEN 'Latin' END"
)
"""What a question is written in: sure, where a guess at its language would not be."""
_WORST = 0.1
"""Where nothing passes or fails, this share counts as bad: the highest values of traffic, the lowest scores."""
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One request: when, its value, the weight it stands for, its attributes, and whether it is bad."""

    trace_id: str
    at: datetime
    value: float
    weight: float
    attributes: tuple[Key, ...]
    bad: bool
    cluster: int
    """Whose request it is."""


def read(store: Store, metric: str, window: Window, keep: Filter) -> list[Row]:
    """The requests of a range, a random sample of very many."""
    family, _, evaluator = metric.partition(":")
    scored = bool(evaluator) and family in MEASURES
    if scored:
        sample = sample_of(
            store, evaluator, window.parameters, keep, columns=(*_ATTRIBUTES, "tags", "metadata", "query")
        )
        source, parameters = (
            f"SELECT trace_id, request_time AS start_time, {MEASURES[family]} AS y, pi, passing, cluster,"
            f" {_COLUMNS_READ}, query"
            f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0",
            sample.parameters,
        )
    else:
        source, parameters = (
            f"SELECT trace_id::UUID AS trace_id, start_time, {column_of(metric)} AS y,"
            f" coalesce(upstream_pi, 1) AS pi, NULL AS passing, {CLUSTER} AS cluster, {_COLUMNS_READ}, query"
            " FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql}",
            {**window.parameters, **keep.parameters},
        )
    rows = store.read(
        f"SELECT trace_id, start_time, y, pi, passing, {_COLUMNS_READ}, {_SCRIPT}, length(query), cluster"
        f" FROM ({source})"
        f" WHERE y IS NOT NULL USING SAMPLE reservoir({MOST_ROWS} ROWS) REPEATABLE (1)",
        parameters,
    ).rows
    bad = _bad([(float(row[2]), row[4]) for row in rows], scored=scored)
    return [
        Row(
            row[0].hex,
            row[1],
            float(row[2]),
            1.0 / row[3],
            tuple(_named(row[5:-1])),
            bad(float(row[2]), row[4]),
            row[-1],
        )
        for row in rows
    ]


def _bad(values: Sequence[tuple[float, bool | None]], *, scored: bool) -> Callable[[float, bool | None], bool]:
    """What counts as bad: an answer that does not pass, an error, the highest tenth, or the lowest tenth of scores."""
    if any(passing is not None for _, passing in values):
        return lambda _, passing: passing is False
    ordered = sorted((value for value, _ in values), reverse=not scored)
    if not ordered or ordered[0] == ordered[-1]:
        return lambda value, _: not scored and set(ordered) == {1.0} and value == 1.0
    limit = ordered[int(len(ordered) * _WORST)]
    if limit == ordered[-1]:  # most are alike: those that are not
        return lambda value, _: value < limit if scored else value > limit
    return lambda value, _: value <= limit if scored else value >= limit


def _named(values: Sequence[Any]) -> Iterator[Key]:
    """Attribute and value of everything that is known of a request; lengths in doublings."""
    for name, value in zip(_ATTRIBUTES, values, strict=False):
        if value is not None:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)
    tags, metadata, script, length = values[-4:]
    yield from (("tag", tag) for tag in tags or ())
    yield from ((f"metadata.{key}", value) for key, value in (metadata or {}).items() if value is not None)
    if script:
        yield "query script", script
    if length:
        low = 2 ** int(math.log2(length))
        yield "query length", f"{low}..{2 * low - 1}"
