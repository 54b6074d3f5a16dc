"""A mixture is not a change: where two groups got another mix of requests, the whole may move without any of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ragpulse_collector.analysis.compare.sides import Compared, SideUnits
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import FACTS, metadata_column, of_range, public_name
from ragpulse_evaluators.statistics import Interval

_SAMPLE, _COMMON = 2_000, 0.8
_FEWEST, _MOST_VALUES, _MOST_KEYS = 2, 20, 5
_SHIFTED = 0.1
"""The two mixes differ by this share of the requests at least (total variation), or mix explains little."""
_OWN, _TIMES = 0.05, 10.0
"""A value with this share of a side, and so many times that of the other, may be made by the change itself."""
_LONGEST = 40
"""The characters of a value in a sentence: senders choose them."""


def request_keys(store: Store, query: Query) -> list[str]:
    """Return the columns that most requests have with a few values: of the metadata (tenant, language), and topic."""
    rows = store.read(
        f"WITH drawn AS (SELECT metadata, topic {of_range(query.filters, relation=f'({FACTS})')}"
        f" USING SAMPLE reservoir({_SAMPLE} ROWS) REPEATABLE (1))"
        " (SELECT e.key FROM (SELECT unnest(map_entries(metadata)) AS e FROM drawn) WHERE e.value IS NOT NULL"
        f" GROUP BY e.key HAVING count(*) >= {_COMMON} * (SELECT count(*) FROM drawn)"
        f" AND count(DISTINCT e.value) BETWEEN {_FEWEST} AND {_MOST_VALUES}"
        f" ORDER BY count(DISTINCT e.value), e.key LIMIT {_MOST_KEYS}) UNION ALL SELECT NULL FROM drawn"
        f" HAVING count(topic) >= {_COMMON} * count(*) AND count(DISTINCT topic) >= {_FEWEST}",
        query.parameters,
    ).rows
    return ["topic" if key is None else metadata_column(key) for (key,) in rows]


def change_of_mix(sides: Sequence[SideUnits], columns: Sequence[str]) -> str | None:
    """Return the column whose mix differs most, as a sentence; None where little differs, or only one side has a value.

    The requests alone choose the column, never their scores.
    """
    mixes = [[_shares(side, number) for side in sides] for number in range(len(columns))]
    shifts = [0.5 * sum(abs(a.get(value, 0.0) - b.get(value, 0.0)) for value in a.keys() | b.keys()) for a, b in mixes]
    most = max(range(len(columns)), key=shifts.__getitem__, default=None)
    if most is None or shifts[most] < _SHIFTED:
        return None
    a, b = mixes[most]
    made_by_change = any(
        share >= _OWN and share > _TIMES * other.get(value, 0.0)
        for one, other in ((a, b), (b, a))
        for value, share in one.items()
    )
    if made_by_change:
        return None
    value = max(b, key=lambda one: b[one] - a.get(one, 0.0))
    name = "requests without it" if value is None else str(value)[:_LONGEST]
    return f"B got more {name} ({public_name(columns[most])[:_LONGEST]})"


def moves_without_groups(whole: Compared, groups: Sequence[Compared]) -> bool:
    """Return whether the whole is better or worse, and its groups together are not.

    Their differences are joined with the weights of their precision; the interval of that has to lie on the same side.
    """
    if whole.verdict not in ("better", "worse"):
        return False
    found = [
        (one.value, ((one.hi - one.lo) / 2.0 / 1.96) ** -2)
        for group in groups
        if (one := group.difference) and one.value is not None and one.lo is not None and one.hi is not None
        if one.hi > one.lo
    ]
    if not found:
        return True
    precision = math.fsum(weight for _, weight in found)
    joined = Interval.normal(math.fsum(weight * value for value, weight in found) / precision, precision**-0.5)
    return joined.lo <= 0.0 if whole.verdict == "better" else joined.hi >= 0.0


def _shares(side: SideUnits, column: int) -> Mapping[str | None, float]:
    weights: dict[str | None, float] = defaultdict(float)
    for one in side.scored.values():
        weights[one.mix[column]] += 1.0 / one.pi
    whole = sum(weights.values())
    return {value: weight / whole for value, weight in weights.items()}
