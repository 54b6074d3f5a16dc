"""Groups of vectors, their number unknown. docs/benchmarks.md compares this with the other methods.

What all questions have in common is halved, and each vector moves towards its neighbours. The number is that of the
groups that remain when small groups are merged while they are alike; k-means with this number makes the groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragpulse_collector.refusals import Conflict
from ragpulse_collector.topics.vectors import unit

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Labels, Matrix

COMMON = 0.5
"""The part of the mean vector that is taken away: "how do I" is no topic."""
NEIGHBOURS, OF, TIMES = 10, 50, 3
"""A vector moves half of the way to the mean of so many neighbours, at most one of fifty vectors, so many times."""
SMALL_GROUPS = 500
APART = 0.55
"""Small groups are merged while their mean cosine distance is less."""
SMALLEST = 10
"""Questions of the smallest topic."""
SEED = 41


def clustered(vectors: Matrix, weights: Matrix) -> Labels:
    """Return the number of the group of each vector; a weight is how many questions have it. Needs scikit-learn."""
    try:
        from sklearn.cluster import KMeans
    except ImportError as missing:
        raise Conflict("topics need scikit-learn: pip install 'ragpulse[topics]'") from missing
    spread = unit(vectors - COMMON * vectors.mean(axis=0))
    for _ in range(TIMES):
        spread = smoothed(spread)
    number = max(1, int((merged(spread, weights) >= SMALLEST).sum()))
    labels: Labels = KMeans(number, n_init=10, random_state=SEED).fit_predict(spread, sample_weight=weights)
    return labels


def smoothed(vectors: Matrix) -> Matrix:
    """Return each vector half of the way to the mean of its neighbours: words that a question leaves out come back."""
    from sklearn.neighbors import NearestNeighbors

    count = min(NEIGHBOURS, len(vectors) // OF) + 1
    near = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(vectors)
    neighbours = near.kneighbors(vectors, return_distance=False)
    return unit(vectors + unit(vectors[neighbours].mean(axis=1)))


def merged(vectors: Matrix, weights: Matrix) -> Matrix:
    """Return the sizes of the groups that are left when alike ones are merged."""
    import numpy
    from sklearn.cluster import AgglomerativeClustering, MiniBatchKMeans

    if len(vectors) == 1:
        return weights
    parts, centres = numpy.arange(len(vectors)), vectors
    if len(vectors) > SMALL_GROUPS:
        small = MiniBatchKMeans(SMALL_GROUPS, random_state=SEED, n_init=1, batch_size=2048, max_iter=10).fit(vectors)
        parts, centres = small.labels_, small.cluster_centers_
    merging = AgglomerativeClustering(None, distance_threshold=APART, metric="cosine", linkage="average").fit(centres)
    sizes: Matrix = numpy.bincount(merging.labels_[parts], weights).astype(numpy.float32)
    return sizes
