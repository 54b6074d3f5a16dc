"""Which method finds the topics of questions? Known topics, their number unknown to the method.

    python benchmarks/topics.py            all methods on all parts (20 minutes beside other load)
    python benchmarks/topics.py --short    the chosen method and the baselines that are given the number
    python benchmarks/topics.py --large    100,000 questions: seconds and memory

Banking77 (in RAGPULSE_SHARED_DATA or ../shared/data) and a helpdesk of two languages (`_helpdesk.py`). Constants were
chosen on every second topic of banking77 and on the English helpdesk; the other halves are held out. A method's "other"
counts as one more topic.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from _grounding_model import data_folder
from _helpdesk import NOISE, edited, helpdesk
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_score
from sklearn.preprocessing import normalize

from ragpulse_collector.topics import assign, assign_all, fit
from ragpulse_collector.topics.clusters import COMMON, smoothed
from ragpulse_collector.topics.vectors import static_vectors, unit

if TYPE_CHECKING:
    from ragpulse_collector.topics.vectors import Labels, Matrix

    Method = Callable[["Part"], Labels]

NUMBERS = (10, 20, 40, 60, 80, 120)
CHOOSING = 2500
"""Questions on which the number is chosen."""
LARGE = 100_000
LINE = "{:<44} {:<22} {:>6} {:>6} {:>6} {:>6} {:>7} {:>7}"


@dataclass(frozen=True, slots=True)
class Part:
    """Questions with their true topics."""

    name: str
    questions: list[str]
    topics: list[str]
    vectors: Matrix

    @property
    def number(self) -> int:
        return len(set(self.topics) - {NOISE})


def part(name: str, pairs: Sequence[tuple[str, str]]) -> Part:
    questions = [question for question, _ in pairs]
    return Part(name, questions, [topic for _, topic in pairs], static_vectors(questions))


def parts() -> Iterator[Part]:
    lines = (data_folder() / "banking77.jsonl").read_text(encoding="utf-8").splitlines()
    banking = [(row["question"], row["topic"]) for row in map(json.loads, lines)]
    chosen = set(sorted({topic for _, topic in banking})[::2])
    yield part("banking77, chosen on", [pair for pair in banking if pair[1] in chosen])
    yield part("banking77, held out", [pair for pair in banking if pair[1] not in chosen])
    yield part("banking77, all", banking)
    desk = helpdesk()
    yield part("helpdesk en, chosen on", [(item.question, item.topic) for item in desk if item.language == "en"])
    yield part("helpdesk de, held out", [(item.question, item.topic) for item in desk if item.language == "de"])
    yield part("helpdesk, all", [(item.question, item.topic) for item in desk])


def ours(part: Part) -> Labels:
    """Fit and assign, as the product does; every question has another user."""
    topics = fit(part.questions, [str(number) for number in range(len(part.questions))])
    return np.array([-1 if one.topic is None else one.topic.topic_id for one in assign_all(topics, part.questions)])


def kmeans(vectors: Matrix, number: int, seed: int = 0) -> MiniBatchKMeans:
    return MiniBatchKMeans(number, random_state=seed, n_init=2, batch_size=2048).fit(vectors)


def sample(vectors: Matrix, seed: int = 0) -> Matrix:
    return vectors[np.random.default_rng(seed).permutation(len(vectors))[:CHOOSING]]


def by_silhouette(part: Part) -> Labels:
    some = sample(part.vectors)
    best = max(NUMBERS, key=lambda k: silhouette_score(some, kmeans(some, k).labels_, metric="cosine"))
    return kmeans(part.vectors, best).labels_


def by_stability(part: Part) -> Labels:
    """The number at which two halves of the questions give the most equal topics."""

    def agreement(number: int) -> float:
        halves = [kmeans(sample(part.vectors, seed), number, seed) for seed in (1, 2)]
        return float(adjusted_rand_score(*[half.predict(sample(part.vectors, 3)) for half in halves]))

    return kmeans(part.vectors, max(NUMBERS, key=agreement)).labels_


def by_gap(part: Part) -> Labels:
    """The gap statistic, against uniform vectors in the box of the principal components."""
    some = PCA(32, random_state=0).fit_transform(sample(part.vectors))
    uniform = np.random.default_rng(0).uniform(some.min(axis=0), some.max(axis=0), some.shape)
    best = max(NUMBERS, key=lambda k: np.log(kmeans(uniform, k).inertia_) - np.log(kmeans(some, k).inertia_))
    return kmeans(part.vectors, best).labels_


def density(least: int) -> Method:
    return lambda part: HDBSCAN(min_cluster_size=least, min_samples=5, copy=True).fit_predict(
        PCA(32, random_state=0).fit_transform(part.vectors)
    )


def merged_groups(linkage: str, apart: float, refined: bool = False) -> Method:
    """Merge 500 small groups of vectors that are prepared as in the product; `refined`: k-means from their centres."""

    def labels(part: Part) -> Labels:
        spread = prepared(part)
        small = MiniBatchKMeans(min(500, len(spread) // 4), random_state=0, n_init=1, batch_size=2048, max_iter=10)
        groups = small.fit_predict(spread)
        metric = "euclidean" if linkage == "ward" else "cosine"
        merging = AgglomerativeClustering(None, distance_threshold=apart, linkage=linkage, metric=metric)
        found = merging.fit_predict(normalize(small.cluster_centers_))[groups]
        if not refined:
            return found
        centres = np.array([spread[found == number].mean(axis=0) for number in set(found)])
        return KMeans(len(centres), init=centres, n_init=1).fit_predict(spread)

    return labels


def prepared(part: Part) -> Matrix:
    return smoothed(unit(part.vectors - COMMON * part.vectors.mean(axis=0)))


def tfidf(part: Part) -> Labels:
    plain = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(part.questions)
    return kmeans(normalize(TruncatedSVD(100, random_state=0).fit_transform(plain)), part.number).labels_


GIVEN: dict[str, Method] = {
    "TF-IDF, SVD, k-means, number given": tfidf,
    "k-means, number given": lambda part: kmeans(part.vectors, part.number).labels_,
    "k-means of smoothed, number given": lambda part: kmeans(prepared(part), part.number).labels_,
}
FOUND: dict[str, Method] = {
    "merged groups of smoothed, average 0.6": merged_groups("average", 0.6),
    "the same, k-means from their centres": merged_groups("average", 0.6, refined=True),
    "merged groups of smoothed, Ward 1.4": merged_groups("ward", 1.4),
    "k-means, number by silhouette": by_silhouette,
    "k-means, number by stability": by_stability,
    "k-means, number by gap": by_gap,
    "HDBSCAN, at least 10": density(10),
}
OURS: dict[str, Method] = {"chosen: number by merging, k-means, other": ours}


def report(part: Part, name: str, method: Method) -> None:
    began = time.process_time()
    labels = method(part)
    took = time.process_time() - began
    noise = np.array([topic == NOISE for topic in part.topics])
    print(LINE.format(
        name, part.name, part.number, len(set(labels.tolist()) - {-1}),
        f"{adjusted_rand_score(part.topics, labels):.2f}", f"{normalized_mutual_info_score(part.topics, labels):.2f}",
        f"{(labels[~noise] < 0).mean():.0%}" + (f"/{(labels[noise] < 0).mean():.0%}" if noise.any() else ""),
        f"{took:.1f}"), flush=True)  # fmt: skip


def large() -> None:
    """100,000 questions of banking77, every second one edited: the first fit, and the topic of each."""
    lines = (data_folder() / "banking77.jsonl").read_text(encoding="utf-8").splitlines()
    questions, rng = [json.loads(line)["question"] for line in lines], random.Random(1)
    asked = [edited(question, rng) if rng.random() < 0.5 else question for question in rng.choices(questions, k=LARGE)]
    users = [str(rng.randrange(LARGE // 10)) for _ in asked]
    before, began, cpu = peak_mb(), time.perf_counter(), time.process_time()
    topics = fit(asked, users)
    fitted = time.perf_counter()
    starts = range(0, LARGE, 10_000)
    chosen = [one.topic for start in starts for one in assign_all(topics, asked[start : start + 10_000])]
    ended, used = time.perf_counter(), time.process_time() - cpu
    for question in asked[:1000]:
        assign(topics, question)
    one = (time.perf_counter() - ended) / 1000
    print(f"{LARGE} questions: fit {fitted - began:.1f} s, all assigned {ended - fitted:.1f} s, CPU {used:.1f} s")
    print(
        f"{len(topics.topics)} topics, other {chosen.count(None) / LARGE:.1%}; one question assigned {one * 1e3:.2f} ms"
    )
    print(f"memory at most {peak_mb():.0f} MB, of which {before:.0f} MB before")


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--large", action="store_true")
    asked = parser.parse_args()
    if asked.large:
        large()
        return
    print(LINE.format("method", "questions", "topics", "found", "ARI", "NMI", "other", "CPU s"))
    for part in parts():
        for name, method in (OURS | GIVEN | ({} if asked.short else FOUND)).items():
            report(part, name, method)


if __name__ == "__main__":
    main()
