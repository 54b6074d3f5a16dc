"""A mixture is not a change: two groups, or two ranges of time, at an equal mix of what their requests brought."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ragpulse_collector.analysis.compare.missing import reach_of_sides
from ragpulse_collector.analysis.compare.sides import ALPHA, TAU, Compared, SideUnits, SideVerdict
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER, KEPT
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.queries.traces import FACTS, metadata_column, public_name, with_columns
from ragpulse_evaluators.statistics import Interval, msprt
from ragpulse_evaluators.statistics.standardised import Answer, Standardised, standardised

_SAMPLE, _COMMON = 2_000, 0.8
_FEWEST, _MOST_VALUES, _MOST_KEYS = 2, 20, 5
_SHIFTED = 0.1
"""The two mixes differ by this share of the requests at least (total variation), or mix explains little."""
_SAME = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class AtEqualMix:
    """The difference b minus a as if both groups had been asked the same mix of requests."""

    by: str
    value: float
    lo: float
    hi: float
    p: float
    excluded: float
    """The share of the traffic with values that only one side has."""
    verdict: SideVerdict
    words: str


def request_keys(store: Store, query: Query) -> list[str]:
    """Return the columns that most requests have with a few values: of the metadata (tenant, language), and topic.

    Model, prompt and number of contexts belong to a version: they explain a difference and are never levelled out.
    """
    rows = store.read(
        f"WITH drawn AS (SELECT metadata, topic FROM ({FACTS}) WHERE start_time >= $first AND start_time < $last"
        f" AND {query.filters.sql} USING SAMPLE reservoir({_SAMPLE} ROWS) REPEATABLE (1))"
        " (SELECT e.key FROM (SELECT unnest(map_entries(metadata)) AS e FROM drawn) WHERE e.value IS NOT NULL"
        f" GROUP BY e.key HAVING count(*) >= {_COMMON} * (SELECT count(*) FROM drawn)"
        f" AND count(DISTINCT e.value) BETWEEN {_FEWEST} AND {_MOST_VALUES}"
        f" ORDER BY count(DISTINCT e.value), e.key LIMIT {_MOST_KEYS}) UNION ALL SELECT NULL FROM drawn"
        f" HAVING count(topic) >= {_COMMON} * count(*) AND count(DISTINCT topic) >= {_FEWEST}",
        query.parameters,
    ).rows
    return ["topic" if key is None else metadata_column(key) for (key,) in rows]


def levelled(
    outcome: Compared, sides: Sequence[SideUnits], columns: Sequence[str]
) -> tuple[Compared, AtEqualMix | None]:
    """Return the comparison, and the one at an equal mix of the column whose mix differs most; it decides the verdict.

    Missing verdicts could move this difference as far as the plain one.
    """
    a, b = (side.scored.values() for side in sides)
    if outcome.paired or outcome.need_more_of == "users":
        return outcome, None
    chosen, found = _at_equal_mix(a, b, len(columns))
    sequence = msprt(found.difference, found.se, TAU) if found else None
    if found is None or sequence is None:
        return outcome, None
    verdict: SideVerdict = "not enough data"
    if sequence.p <= ALPHA:
        lower, raised, _ = reach_of_sides(*sides)
        if found.difference > 0.0:
            verdict = "better" if sequence.lo + lower > 0.0 else verdict
        else:
            verdict = "worse" if sequence.hi + raised < 0.0 else verdict
    name, difference = public_name(columns[chosen]), outcome.difference
    level = AtEqualMix(
        by=name, value=found.difference, lo=sequence.lo, hi=sequence.hi, p=sequence.p, excluded=found.excluded,
        verdict=verdict, words=f"at equal {name} {found.difference:+.2f}: B got more {_grown(a, b, chosen)}",
    )  # fmt: skip
    near = difference is None or abs((difference.value or 0.0) - found.difference) < _SAME
    return (outcome if near or verdict == outcome.verdict else replace(outcome, verdict=verdict)), level


@dataclass(frozen=True, slots=True, kw_only=True)
class MixChange:
    """Another mix of requests explains a change: at an equal mix it is not there, or points the other way."""

    by: str
    grown: str
    """The value whose share grew most."""
    value: float
    """The difference at an equal mix, with its 95 % interval."""
    lo: float
    hi: float
    words: str


def mix_change(
    store: Store, query: Query, metric: str, change: float, before: Window, after: Window,
    *, version: str | None = None, judge: str | None = None,
) -> MixChange | None:  # fmt: skip
    """Return the mix that explains a sure `change` of `quality:NAME` or `error_rate` between two ranges; else None.

    It does where at an equal mix at most half of the change is left, and its interval holds 0 or lies beyond. The mix
    is that key of the metadata whose shares moved most, by a tenth or more. Only scores of this version and judge
    count.
    """
    spanning = replace(query, window=Window(before.first, after.last, 0))
    columns = request_keys(store, spanning)
    sides = _pooled(store, spanning, metric, columns, (before, after), (version, judge)) if columns else ([], [])
    chosen, found = _at_equal_mix(*sides, len(columns))
    if found is None:
        return None
    level, sign = Interval.normal(found.difference, found.se), math.copysign(1.0, change)
    if sign * found.difference > abs(change) / 2.0 or min(sign * level.lo, sign * level.hi) > 0.0:
        return None
    by, grown = public_name(columns[chosen]), _grown(*sides, chosen)[:_LONGEST]
    words = f"the mix changed ({by.removeprefix('metadata.')[:_LONGEST]}: more {grown})"
    return MixChange(
        by=by, grown=grown, value=level.value, lo=level.lo, hi=level.hi,
        words=f"{words}; at equal questions {level.value:+.2f}",
    )  # fmt: skip


_LONGEST = 40
"""The characters of a key and of a value in a sentence: senders choose them."""


class _Pooled(NamedTuple):
    """A user's answers of one mix in one range, together: their mean, and one over their weight."""

    value: float
    pi: float
    cluster: int
    mix: Sequence[str | None]


def _pooled(
    store: Store, query: Query, metric: str, columns: Sequence[str], ranges: tuple[Window, Window],
    series: tuple[str | None, str | None],
) -> tuple[list[_Pooled], list[_Pooled]]:  # fmt: skip
    family, _, evaluator = metric.partition(":")
    parameters = {**query.parameters, "until": ranges[0].last, "since": ranges[1].first}
    if family == "quality":
        sample = sample_of(store, evaluator, query.window.parameters, query.filters, columns=tuple(columns))
        parameters |= {**sample.parameters, "version": series[0], "judge": series[1]}
        source = (
            f"SELECT *, normalized AS y FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0"
            " AND version IS NOT DISTINCT FROM $version AND judge IS NOT DISTINCT FROM $judge"
        )
    else:
        source = (
            f"SELECT *, coalesce(error, false)::INTEGER AS y, start_time AS request_time, {KEPT} AS pi,"
            f" {CLUSTER} AS cluster FROM {with_columns(f'({FACTS})', columns)}"
            f" WHERE start_time >= $first AND start_time < $last AND {query.filters.sql}"
        )
    rows = store.read(
        f"SELECT request_time >= $since, sum(y / pi) / sum(1 / pi), 1 / sum(1 / pi), cluster, {', '.join(columns)}"
        f" FROM ({source}) WHERE y IS NOT NULL AND (request_time < $until OR request_time >= $since) GROUP BY ALL",
        parameters,
    ).rows
    before, after = (
        [_Pooled(row[1], row[2], row[3], row[4:]) for row in rows if row[0] is later] for later in (False, True)
    )
    return before, after


class _Mixed(Protocol):
    """What requests brought, and how an answer of theirs fared."""

    @property
    def value(self) -> float: ...
    @property
    def pi(self) -> float: ...
    @property
    def cluster(self) -> int: ...
    @property
    def mix(self) -> Sequence[str | None]: ...


def _at_equal_mix(a: Collection[_Mixed], b: Collection[_Mixed], columns: int) -> tuple[int, Standardised | None]:
    """Return the column whose mix differs most, and the difference at an equal mix of it; None where it says little.

    The requests alone choose the column, so that choosing does not raise false alarms.
    """
    shift, chosen = max(((_shift(a, b, number), number) for number in range(columns)), default=(0.0, 0))
    found = standardised(_answers(a, chosen), _answers(b, chosen)) if shift >= _SHIFTED else None
    return chosen, None if found is None or found.excluded > 1.0 - _COMMON else found


def _answers(side: Collection[_Mixed], column: int) -> list[Answer]:
    return [Answer(one.value, one.pi, one.cluster, one.mix[column]) for one in side]


def _shift(a: Collection[_Mixed], b: Collection[_Mixed], column: int) -> float:
    """Return the share of the requests by which two mixes differ."""
    first, second = (_shares(side, column) for side in (a, b))
    return 0.5 * sum(abs(first.get(value, 0.0) - second.get(value, 0.0)) for value in first.keys() | second.keys())


def _grown(a: Collection[_Mixed], b: Collection[_Mixed], column: int) -> str:
    """Return the value whose share grew most from a to b."""
    first, second = (_shares(side, column) for side in (a, b))
    value = max(second, key=lambda one: second[one] - first.get(one, 0.0))
    return str(value if value is not None else "requests without it")


def _shares(side: Collection[_Mixed], column: int) -> Mapping[str | None, float]:
    weights: dict[str | None, float] = defaultdict(float)
    for one in side:
        weights[one.mix[column]] += 1.0 / one.pi
    whole = sum(weights.values())
    return {value: weight / whole for value, weight in weights.items()}
