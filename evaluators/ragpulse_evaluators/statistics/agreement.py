"""Agreement of two or more raters: correlations, kappas, alpha, ROC AUC. Undefined (a constant series) is None."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import product
from typing import Any, Literal

Level = Literal["nominal", "ordinal", "interval", "ratio"]


def _check_lengths(a: Sequence[Any], b: Sequence[Any]) -> None:
    if len(a) != len(b):
        raise ValueError(f"two series of one length are needed, got {len(a)} and {len(b)}")


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Pearson's linear correlation, -1..1; None where a series is constant or has fewer than two values."""
    _check_lengths(x, y)
    n = len(x)
    if n < 2 or min(x) == max(x) or min(y) == max(y):
        return None
    mean_x, mean_y = math.fsum(x) / n, math.fsum(y) / n
    dx, dy = [value - mean_x for value in x], [value - mean_y for value in y]
    # Scaling first keeps tiny or huge series from under- and overflowing in the squares.
    scale_x, scale_y = max(map(abs, dx)), max(map(abs, dy))
    dx, dy = [value / scale_x for value in dx], [value / scale_y for value in dy]
    norm = math.sqrt(math.fsum(v * v for v in dx)) * math.sqrt(math.fsum(v * v for v in dy))
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(dx, dy, strict=True)) / norm))


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    mid_ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop + 1 < len(order) and values[order[stop + 1]] == values[order[start]]:
            stop += 1
        for position in order[start : stop + 1]:
            mid_ranks[position] = (start + stop) / 2.0 + 1.0
        start = stop + 1
    return mid_ranks


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's rank correlation with mid-ranks for ties, -1..1; None where a series is constant."""
    _check_lengths(x, y)
    return pearson(ranks(x), ranks(y))


def kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's τ-b (ties corrected), -1..1; None where a series is constant."""
    _check_lengths(x, y)
    n = len(x)
    if n < 2:
        return None
    pairs = sorted(zip(x, y, strict=True))
    discordant = 0
    ordered: list[float] = []
    for start, (_, second) in enumerate(pairs):
        discordant += start - bisect_right(ordered, second)
        insort(ordered, second)
    total = n * (n - 1) // 2
    ties_x, ties_y, ties_both = (_tied(values) for values in (x, y, pairs))
    if ties_x == total or ties_y == total:
        return None
    concordant = total - ties_x - ties_y + ties_both - discordant
    tau = (concordant - discordant) / math.sqrt(total - ties_x) / math.sqrt(total - ties_y)
    return max(-1.0, min(1.0, tau))


def _tied(values: Sequence[Hashable]) -> int:
    """The number of pairs of equal values."""
    return sum(count * (count - 1) // 2 for count in Counter(values).values())


def cohen_kappa(
    a: Sequence[Any],
    b: Sequence[Any],
    weights: Literal["linear", "quadratic"] | None = None,
    *,
    labels: Sequence[Any] | None = None,
) -> float | None:
    """Cohen's kappa of two raters: agreement beyond chance, 1 perfect, 0 what a constant judge gets.

    `weights` count a near miss on an ordered scale for less (Cohen 1968); `labels` is the whole scale in order, needed
    where a grade between two others was never given. None where both raters always say one and the same.
    """
    _check_lengths(a, b)
    scale = list(labels) if labels is not None else sorted(set(a) | set(b))
    index_of = {label: index for index, label in enumerate(scale)}
    distance: Callable[[int, int], float] = {
        None: lambda i, j: float(i != j),
        "linear": lambda i, j: abs(i - j),
        "quadratic": lambda i, j: (i - j) ** 2,
    }[weights]
    rows, columns = Counter(index_of[value] for value in a), Counter(index_of[value] for value in b)
    joint = Counter((index_of[left], index_of[right]) for left, right in zip(a, b, strict=True))
    observed = sum(count * distance(i, j) for (i, j), count in joint.items())
    expected = sum(n_i * n_j * distance(i, j) for i, n_i in rows.items() for j, n_j in columns.items())
    return 1.0 - observed * len(a) / expected if expected else None


def fleiss_kappa(table: Sequence[Sequence[int]]) -> float | None:
    """Fleiss' kappa of many raters: `table[subject][category]` counts votes, every subject having as many.

    None where only one category was ever used; ValueError for unequal numbers of votes or fewer than two.
    """
    votes = {sum(row) for row in table}
    if len(votes) != 1 or min(votes) < 2:
        raise ValueError("every subject needs the same number of votes, at least two")
    raters = votes.pop()
    share = [sum(column) / (len(table) * raters) for column in zip(*table, strict=True)]
    chance = math.fsum(p * p for p in share)
    agreed = math.fsum(sum(n * (n - 1) for n in row) for row in table) / (len(table) * raters * (raters - 1))
    return (agreed - chance) / (1.0 - chance) if chance < 1.0 else None


def krippendorff_alpha(ratings: Sequence[Sequence[Any]], level: Level = "interval") -> float | None:
    """Krippendorff's alpha, 1 - observed/expected disagreement: any number of raters, missing ratings as None.

    `ratings[rater][unit]`; `level` says what a difference means: nominal, ordinal, interval or ratio. None where no
    unit was rated twice or all ratings are equal.
    """
    units = [[value for value in unit if not _missing(value)] for unit in zip(*ratings, strict=True)]
    units = [unit for unit in units if len(unit) > 1]
    counts = Counter(value for unit in units for value in unit)
    values = sorted(counts)
    difference = _difference(values, counts, level)
    observed = 0.0
    for unit in units:
        pairs = product(Counter(unit).items(), repeat=2)
        observed += sum(n * m * difference(c, k) for (c, n), (k, m) in pairs) / (len(unit) - 1)
    expected = sum(counts[c] * counts[k] * difference(c, k) for c in values for k in values)
    total = sum(counts.values())
    return 1.0 - (total - 1) * observed / expected if expected else None


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _difference(values: list[Any], counts: Counter[Any], level: Level) -> Callable[[Any, Any], float]:
    if level == "nominal":
        return lambda c, k: float(c != k)
    if level == "interval":
        return lambda c, k: float((c - k) ** 2)
    if level == "ratio":
        return lambda c, k: 0.0 if c == k else float(((c - k) / (c + k)) ** 2)
    middle, below = {}, 0
    for value in values:
        middle[value] = below + counts[value] / 2.0
        below += counts[value]
    return lambda c, k: (middle[c] - middle[k]) ** 2


def roc_auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """The chance that a positive scores above a negative (ties half), 0..1; None without both kinds."""
    _check_lengths(scores, labels)
    positives = sum(map(bool, labels))
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    above = math.fsum(rank for rank, label in zip(ranks(scores), labels, strict=True) if label)
    return (above - positives * (positives + 1) / 2.0) / (positives * negatives)
