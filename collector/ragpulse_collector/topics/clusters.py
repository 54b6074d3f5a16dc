"""Groups of vectors, their number unknown: small k-means groups of smoothed vectors, merged while they are alike.

docs/topics.md compares this with the other methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragpulse_collector.refusals import Conflict
from ragpulse_collector.topics.vectors import unit

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Labels, Matrix

NEIGHBOURS = 10
"""A vector moves half of the way to the mean of so many neighbours: words that a question leaves out come back."""
SMALL_GROUPS, A_GROUP = 500, 4
"""The most small groups, and how many vectors one has at least on average."""
APART = 0.45
"""Groups are merged while the mean cosine distance of their small groups is less."""
SEED = 41


def clustered(vectors: Matrix) -> Labels:
    """Return the number of the group of each vector. Needs scikit-learn."""
    try:
        from sklearn.cluster import AgglomerativeClustering, MiniBatchKMeans
    except ImportError as missing:
        raise Conflict("topics need scikit-learn: pip install 'ragpulse[topics]'") from missing
    count = min(SMALL_GROUPS, max(1, len(vectors) // A_GROUP))
    small = MiniBatchKMeans(count, random_state=SEED, n_init=1, batch_size=2048, max_iter=10)
    parts = small.fit_predict(smoothed(vectors))
    if count == 1:
        return parts.astype("int64")
    merging = AgglomerativeClustering(None, distance_threshold=APART, metric="cosine", linkage="average")
    return merging.fit_predict(small.cluster_centers_)[parts].astype("int64")


def smoothed(vectors: Matrix) -> Matrix:
    """Return each vector half of the way to the mean of its neighbours."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS + 1, len(vectors)), algorithm="brute").fit(vectors)
    neighbours = near.kneighbors(vectors, return_distance=False)
    return unit(vectors + unit(vectors[neighbours].mean(axis=1)))
