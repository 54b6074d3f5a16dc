"""Ranking measures of one query: ids as retrieved, best first, against graded relevant ids.

Values are trec_eval's (checked against pytrec-eval-terrier). Repeated ids count at their first place only. `k` cuts the
list; None takes all of it. A grade above 0 is relevant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = (
    "GAINS",
    "average_precision",
    "hit_rate",
    "ndcg",
    "precision",
    "recall",
    "reciprocal_rank",
)

GAINS: Mapping[str, Callable[[float], float]] = {"linear": float, "exponential": lambda grade: 2.0**grade - 1.0}
"""What a grade is worth: trec_eval's nDCG is linear, the web search one exponential (Burges et al. 2005)."""


def _judged(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None) -> list[float]:
    """The grade at each rank, 0 where not relevant."""
    return [max(0.0, relevant.get(name, 0.0)) for name in list(dict.fromkeys(retrieved))[:k]]


def recall(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None) -> float:
    """The share of relevant ids among the first k."""
    return _hits(_judged(retrieved, relevant, k)) / _hits(relevant.values())


def precision(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None) -> float:
    """The share of relevant ids among k places, some empty in a shorter list; without k among all retrieved."""
    grades = _judged(retrieved, relevant, k)
    places = k or len(grades)
    return _hits(grades) / places if places else 0.0


def reciprocal_rank(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None) -> float:
    """1 / the rank of the first relevant id, 0 without one."""
    ranks = (rank for rank, grade in enumerate(_judged(retrieved, relevant, k), start=1) if grade > 0)
    return 1.0 / next(ranks, math.inf)


def hit_rate(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None) -> float:
    """1 where any relevant id is among the first k."""
    return float(any(_judged(retrieved, relevant, k)))


def average_precision(retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None) -> float:
    """The mean over all relevant ids of the precision at their rank, 0 for those not among the first k."""
    found, total = 0, 0.0
    for rank, grade in enumerate(_judged(retrieved, relevant, k), start=1):
        if grade > 0:
            found += 1
            total += found / rank
    return total / _hits(relevant.values())


def ndcg(
    retrieved: Sequence[str], relevant: Mapping[str, float], k: int | None = None, *, gain: str = "linear"
) -> float:
    """Discounted cumulative gain over that of the ideal order of min(k, relevant) ids (Järvelin, Kekäläinen 2002)."""
    worth = GAINS[gain]
    ideal = sorted((grade for grade in relevant.values() if grade > 0), reverse=True)[:k]
    return _dcg([worth(g) for g in _judged(retrieved, relevant, k)]) / _dcg([worth(g) for g in ideal])


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place) for place, gain in enumerate(gains, start=2))


def _hits(grades: Iterable[float]) -> int:
    return sum(grade > 0 for grade in grades)
