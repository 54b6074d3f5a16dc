"""How alike are two retrieved lists when nobody knows which documents are right: overlap as sets and as rankings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

__all__ = ("jaccard", "rank_biased_overlap")


def jaccard(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """The share of all ids in either list that is in both (Jaccard 1901): 1 the same set, 0 nothing in common.

    Two empty lists are the same set.
    """
    a, b = set(one), set(other)
    return len(a & b) / len(a | b) if a or b else 1.0


def rank_biased_overlap(one: Sequence[Hashable], other: Sequence[Hashable], *, p: float = 0.9) -> float:
    """The overlap of two rankings, the top weighing most: 1 the same order, 0 nothing in common.

    RBO_EXT of Webber, Moffat and Zobel 2010 (equation 32, lists of uneven length): the agreement seen is taken to go on
    below the end, so a list and its own beginning overlap by 1. At `p` = 0.9 the first ten ranks carry 86 % of the
    weight. An id that a list repeats counts at its first rank. ValueError unless 0 < p < 1.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"p lies between 0 and 1, got {p}")
    short, long = sorted((list(dict.fromkeys(one)), list(dict.fromkeys(other))), key=len)
    s, n = len(short), len(long)
    if s == 0:
        return 1.0 if n == 0 else 0.0
    shared = [len(set(short[:depth]) & set(long[:depth])) for depth in range(1, n + 1)]
    at_short, at_end = shared[s - 1], shared[-1]
    seen = sum(x / depth * p**depth for depth, x in enumerate(shared, start=1))
    beyond = sum(at_short * (depth - s) / (s * depth) * p**depth for depth in range(s + 1, n + 1))
    overlap = (1.0 - p) / p * (seen + beyond) + ((at_end - at_short) / n + at_short / s) * p**n
    return min(1.0, overlap)  # rounding
