"""A mixture is not a change: two groups compared at an equal mix of what their requests brought."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ragpulse_collector.analysis.compare.missing import reach_of_sides
from ragpulse_collector.analysis.compare.sides import ALPHA, TAU, Compared, Scored, SideUnits, SideVerdict, Units
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import FACTS, metadata_column, public_name
from ragpulse_evaluators.statistics import msprt
from ragpulse_evaluators.statistics.standardised import Answer, standardised

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

    The column is chosen by the requests alone, so that choosing does not raise false alarms. Missing verdicts could
    move this difference as far as the plain one.
    """
    a, b = (side.scored for side in sides)
    if outcome.paired or outcome.need_more_of == "users":
        return outcome, None
    shifts = [(_shift(a, b, number), number) for number in range(len(columns))]
    shift, chosen = max(shifts, default=(0.0, 0))
    found = standardised(_answers(a, chosen), _answers(b, chosen)) if shift >= _SHIFTED else None
    sequence = msprt(found.difference, found.se, TAU) if found else None
    if found is None or sequence is None or found.excluded > 1.0 - _COMMON:
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


def _answers(side: Units, column: int) -> list[Answer]:
    return [Answer(one.value, one.pi, one.cluster, one.mix[column]) for one in side.values()]


def _shift(a: Units, b: Units, column: int) -> float:
    """Return the share of the requests by which two mixes differ."""
    first, second = (_shares(side, lambda one: one.mix[column]) for side in (a, b))
    return 0.5 * sum(abs(first.get(value, 0.0) - second.get(value, 0.0)) for value in first.keys() | second.keys())


def _grown(a: Units, b: Units, column: int) -> str:
    """Return the value whose share grew most from a to b."""
    first, second = (_shares(side, lambda one: one.mix[column]) for side in (a, b))
    value = max(second, key=lambda one: second[one] - first.get(one, 0.0))
    return str(value if value is not None else "requests without it")


def _shares(side: Units, key: Callable[[Scored], str | None]) -> Mapping[str | None, float]:
    weights: dict[str | None, float] = defaultdict(float)
    for one in side.values():
        weights[key(one)] += 1.0 / one.pi
    whole = sum(weights.values())
    return {value: weight / whole for value, weight in weights.items()}
