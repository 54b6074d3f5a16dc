"""Would another variant of the method find better topics?

    python benchmarks/topic_variants.py [--seeds N]

The parts are those of `benchmarks/topics.py`. A variant is chosen on "chosen on" parts, and checked on those held out.
Each runs with N seeds (5): the mean of ARI and NMI, and the standard deviation of ARI over the seeds.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.cluster import AgglomerativeClustering, KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors
from topics import Part, parts

from ragpulse_collector.topics.clusters import SMALL_GROUPS, SMALLEST
from ragpulse_collector.topics.model import nearest
from ragpulse_collector.topics.vectors import _model, unit

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Labels, Matrix

LINE = "{:<51} {:<22} {:>5} {:>5.1f} {:>7.3f} {:>6.3f} {:>6.3f} {:>6.1f}"


@dataclass(frozen=True)
class Variant:
    """The method, with what differs."""

    sif: float = 0.0
    """Smooth inverse frequency: a word weighs a / (a + its frequency); 0: all words weigh the same."""
    unit_words: bool = False
    """Whether each word's vector has length one before the mean."""
    common: float = 0.5
    """The part of the mean vector that is taken away."""
    components: int = 0
    """Principal components that are taken away."""
    neighbours: int = 10
    rounds: int = 1
    """How often each vector moves to its neighbours."""
    apart: float = 0.6
    linkage: str = "average"
    small: int = SMALL_GROUPS
    n_init: int = 2
    from_merged: bool = False
    """Whether k-means begins at the centres of the merged groups."""
    alike: float = 0.4


VARIANTS = {
    "as it was": Variant(),
    "n_init 10": Variant(n_init=10),
    "SIF 0.001": Variant(sif=0.001),
    "SIF 0.01": Variant(sif=0.01),
    "SIF 0.1": Variant(sif=0.1),
    "words of length one": Variant(unit_words=True),
    "mean not taken away": Variant(common=0.0),
    "whole mean taken away": Variant(common=1.0),
    "whole mean, 1 component": Variant(common=1.0, components=1),
    "half mean, 1 component": Variant(components=1),
    "half mean, 2 components": Variant(components=2),
    "5 neighbours": Variant(neighbours=5),
    "20 neighbours": Variant(neighbours=20),
    "smoothed twice": Variant(rounds=2),
    "smoothed three times": Variant(rounds=3),
    "not smoothed": Variant(rounds=0, apart=0.75),
    "merged below 0.5": Variant(apart=0.5),
    "merged below 0.55": Variant(apart=0.55),
    "merged below 0.65": Variant(apart=0.65),
    "Ward 1.4": Variant(linkage="ward", apart=1.4),
    "Ward 1.6": Variant(linkage="ward", apart=1.6),
    "Ward 1.8": Variant(linkage="ward", apart=1.8),
    "Ward 2.0": Variant(linkage="ward", apart=2.0),
    "complete 1.0": Variant(linkage="complete", apart=1.0),
    "1,000 small groups": Variant(small=1000),
    "250 small groups": Variant(small=250),
    "from the merged centres": Variant(from_merged=True),
    "other below 0.3": Variant(alike=0.3),
    "other below 0.5": Variant(alike=0.5),
    "smoothed twice, below 0.55": Variant(rounds=2, apart=0.55),
    "smoothed three times, below 0.5": Variant(rounds=3, apart=0.5),
    "smoothed three times, below 0.55": Variant(rounds=3, apart=0.55),
    "smoothed three times, n_init 10": Variant(rounds=3, n_init=10),
    "chosen: smoothed three times, below 0.55, n_init 10": Variant(rounds=3, apart=0.55, n_init=10),
    "smoothed four times": Variant(rounds=4),
    "smoothed five times": Variant(rounds=5),
    "30 neighbours": Variant(neighbours=30),
    "20 neighbours twice": Variant(neighbours=20, rounds=2),
    "20 neighbours, below 0.55": Variant(neighbours=20, apart=0.55),
}


def embedded(texts: list[str], variant: Variant) -> Matrix:
    """Return the vectors of questions, with weights of words where the variant has them."""
    model, outside = _model()
    tokens = [
        [t for t in one.ids if t not in outside]
        for one in model.tokenizer.encode_batch(texts, add_special_tokens=False)
    ]
    counts = Counter(token for one in tokens for token in one)
    total = sum(counts.values())
    table = unit(model.embedding) if variant.unit_words else model.embedding
    means = np.zeros((len(texts), table.shape[1]), dtype=np.float32)
    for row, known in enumerate(tokens):
        if known:
            a = variant.sif
            weights = [a / (a + counts[t] / total) if a else 1.0 for t in known]
            means[row] = np.average(table[known], axis=0, weights=weights)
    return unit(means)


def spread_of(vectors: Matrix, variant: Variant) -> Matrix:
    """Return the vectors without what they have in common, smoothed."""
    spread = unit(vectors - variant.common * vectors.mean(axis=0))
    if variant.components:
        _, _, axes = np.linalg.svd(spread[:5000], full_matrices=False)
        axes = axes[: variant.components]
        spread = unit(spread - spread @ axes.T @ axes)
    for _ in range(variant.rounds):
        count = min(variant.neighbours, len(spread) // 50) + 1
        near = (
            NearestNeighbors(n_neighbors=count, algorithm="brute").fit(spread).kneighbors(spread, return_distance=False)
        )
        spread = unit(spread + unit(spread[near].mean(axis=1)))
    return spread


def found(part: Part, variant: Variant, seed: int, cache: dict[object, Matrix]) -> Labels:
    """Return the topics of the questions, -1 for other."""
    known = (variant.sif, variant.unit_words, part.name)
    if known not in cache:
        cache[known] = embedded(part.questions, variant)
    vectors = cache[known]
    inside = vectors.any(axis=1)
    key = (known, variant.common, variant.components, variant.neighbours, variant.rounds)
    if key not in cache:
        cache[key] = spread_of(vectors[inside], variant)
    spread = cache[key]
    small = MiniBatchKMeans(
        min(variant.small, len(spread)), random_state=seed, n_init=1, batch_size=2048, max_iter=10
    ).fit(spread)
    metric = "euclidean" if variant.linkage == "ward" else "cosine"
    merging = AgglomerativeClustering(None, distance_threshold=variant.apart, metric=metric, linkage=variant.linkage)
    merged = merging.fit_predict(small.cluster_centers_)[small.labels_]
    large = [number for number, size in enumerate(np.bincount(merged)) if size >= SMALLEST]
    start = (
        np.array([spread[merged == number].mean(axis=0) for number in large]) if variant.from_merged else "k-means++"
    )
    n_init = 1 if variant.from_merged else variant.n_init
    labels = KMeans(max(1, len(large)), init=start, n_init=n_init, random_state=seed).fit_predict(spread)
    centres = _means(vectors[inside], labels)
    centres = _means(vectors[inside], _placed(vectors[inside], centres, variant.alike))
    return _placed(vectors, centres, variant.alike)


def _placed(vectors: Matrix, centres: Matrix, alike: float) -> Labels:
    labels, cosines = nearest(vectors, centres)
    return np.where(cosines >= alike, (vectors @ centres.T).argmax(axis=1), -1) if alike != 0.4 else labels


def _means(vectors: Matrix, labels: Labels) -> Matrix:
    numbers = [number for number in range(labels.max() + 1) if (labels == number).sum() >= SMALLEST]
    return unit(np.array([vectors[labels == number].mean(axis=0) for number in numbers]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--part", default="")
    asked = parser.parse_args()
    print(f"{'variant':<51} {'questions':<22} {'true':>5} {'found':>5} {'ARI':>7} {'sd':>6} {'NMI':>6} {'CPU s':>6}")
    for part in parts():
        if not part.name.startswith(asked.part):
            continue
        cache: dict[object, Matrix] = {}
        for name, variant in VARIANTS.items():
            if asked.only and name not in asked.only:
                continue
            began = time.process_time()
            runs = [found(part, variant, seed, cache) for seed in range(asked.seeds)]
            took = (time.process_time() - began) / asked.seeds
            ari = [adjusted_rand_score(part.topics, labels) for labels in runs]
            nmi = [normalized_mutual_info_score(part.topics, labels) for labels in runs]
            number = np.mean([len(set(labels.tolist()) - {-1}) for labels in runs])
            print(
                LINE.format(name, part.name, part.number, number, np.mean(ari), np.std(ari), np.mean(nmi), took),
                flush=True,
            )


if __name__ == "__main__":
    main()
