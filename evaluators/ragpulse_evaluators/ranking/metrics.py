"""Ranking measures of one query: ids as retrieved, best first, against graded relevant ids.

Values are trec_eval's (checked against pytrec-eval-terrier). Repeated ids count at their first place only. `k` cuts the
list; None takes all of it. A grade above 0 is relevant. Two lists are compared where no relevant ids are known;
retrieved text is compared with reference passages where no ids are known at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.evaluator import Evaluator, PlainEvaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.matching import nonempty_references, normalize_answer, words

Ids = Sequence[str]
Grades = Mapping[str, float]
"""Relevant ids and their grades."""
Cutoff = Annotated[int, Field(ge=1)] | None
"""The length of the list that counts; None takes all of it."""
Gain = Literal["linear", "exponential"]
GAINS: Mapping[Gain, Callable[[float], float]] = {"linear": float, "exponential": lambda grade: 2.0**grade - 1.0}
"""The gain of a grade: linear in trec_eval's nDCG, exponential in web search (Burges et al. 2005)."""


def _grades(retrieved: Ids, relevant: Grades, k: Cutoff) -> list[float]:
    """The grade at each rank, 0 where not relevant."""
    return [max(0.0, relevant.get(name, 0.0)) for name in list(dict.fromkeys(retrieved))[:k]]


def recall(retrieved: Ids, relevant: Grades, k: Cutoff = None) -> float:
    """The share of relevant ids among the first k."""
    return _hits(_grades(retrieved, relevant, k)) / _hits(relevant.values())


def precision(retrieved: Ids, relevant: Grades, k: Cutoff = None) -> float:
    """The share of relevant ids among k places, some empty in a shorter list; without k among all retrieved."""
    grades = _grades(retrieved, relevant, k)
    count = k or len(grades)
    return _hits(grades) / count if count else 0.0


def reciprocal_rank(retrieved: Ids, relevant: Grades, k: Cutoff = None) -> float:
    """1 / the rank of the first relevant id, 0 without one."""
    ranks = (rank for rank, grade in enumerate(_grades(retrieved, relevant, k), start=1) if grade > 0)
    return 1.0 / next(ranks, math.inf)


def hit_rate(retrieved: Ids, relevant: Grades, k: Cutoff = None) -> float:
    """1 where any relevant id is among the first k."""
    return float(any(_grades(retrieved, relevant, k)))


def average_precision(retrieved: Ids, relevant: Grades, k: Cutoff = None) -> float:
    """The mean over all relevant ids of the precision at their rank, 0 for those not among the first k."""
    hits, total = 0, 0.0
    for rank, grade in enumerate(_grades(retrieved, relevant, k), start=1):
        if grade > 0:
            hits += 1
            total += hits / rank
    return total / _hits(relevant.values())


def ndcg(retrieved: Ids, relevant: Grades, k: Cutoff = None, *, gain: Gain = "linear") -> float:
    """Discounted cumulative gain over that of the ideal order of min(k, relevant) ids (Järvelin, Kekäläinen 2002)."""
    gain_of = GAINS[gain]
    ideal = sorted((grade for grade in relevant.values() if grade > 0), reverse=True)[:k]
    return _dcg([gain_of(g) for g in _grades(retrieved, relevant, k)]) / _dcg([gain_of(g) for g in ideal])


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank) for rank, gain in enumerate(gains, start=2))


def _hits(grades: Iterable[float]) -> int:
    return sum(grade > 0 for grade in grades)


def jaccard(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """The share of all ids in either list that is in both (Jaccard 1901): 1 the same set, 0 nothing in common.

    Two empty lists are the same set.
    """
    a, b = set(first), set(second)
    return len(a & b) / len(a | b) if a or b else 1.0


def rank_biased_overlap(first: Sequence[Hashable], second: Sequence[Hashable], *, p: float = 0.9) -> float:
    """The overlap of two rankings, the top weighing most: 1 the same order, 0 nothing in common.

    RBO_EXT of Webber, Moffat and Zobel 2010 (equation 32, lists of uneven length): the agreement seen is taken to go on
    below the end, so a list and its own beginning overlap by 1. At `p` = 0.9 the first ten ranks carry 86 % of the
    weight. An id that a list repeats counts at its first rank. ValueError unless 0 < p < 1.
    """
    if not 0.0 < p < 1.0:
        raise ValueError(f"p lies between 0 and 1, got {p}")
    short, long = sorted((list(dict.fromkeys(first)), list(dict.fromkeys(second))), key=len)
    s, n = len(short), len(long)
    if s == 0:
        return 1.0 if n == 0 else 0.0
    shared = [len(set(short[:depth]) & set(long[:depth])) for depth in range(1, n + 1)]
    at_short, at_end = shared[s - 1], shared[-1]
    observed = sum(x / depth * p**depth for depth, x in enumerate(shared, start=1))
    extrapolated = sum(at_short * (depth - s) / (s * depth) * p**depth for depth in range(s + 1, n + 1))
    overlap = (1.0 - p) / p * (observed + extrapolated) + ((at_end - at_short) / n + at_short / s) * p**n
    return min(1.0, overlap)  # rounding


class RankingMetric(Evaluator):
    """A ranking measure at `k` (None: all that was retrieved).

    Ids are the case's `retrieved_ids`, else those of its contexts; an empty list is a retriever that found nothing and
    scores 0. Without any relevant id there is nothing to find: skipped.
    """

    needs = frozenset({"relevant_ids"})
    parser = "ranking"
    immediate = True

    def __init__(
        self,
        name: str,
        measure: Callable[..., float],
        *,
        k: Cutoff = None,
        threshold: float | None = None,
        **options: str,
    ) -> None:
        super().__init__(threshold=threshold, k=k, **options)
        self.name = name
        self._measure = partial(measure, k=k, **options)

    def run(self, case: Case) -> float:
        """Measure one query."""
        relevant = case.relevant_ids or {}
        if not any(grade > 0 for grade in relevant.values()):
            raise MissingField("relevant_ids")
        return self._measure(_retrieved(case), relevant)


def _retrieved(case: Case) -> tuple[str, ...]:
    if case.retrieved_ids is not None:
        return case.retrieved_ids
    if case.contexts is None or any(context.id is None for context in case.contexts):
        raise MissingField("retrieved_ids")
    return tuple(context.id for context in case.contexts if context.id is not None)


class Ndcg(RankingMetric):
    """Normalized discounted cumulative gain at `k`, with linear or exponential gains."""

    name = "ndcg"

    def __init__(self, *, k: Cutoff = None, gain: Gain = "linear", threshold: float | None = None) -> None:
        super().__init__("ndcg", ndcg, k=k, gain=gain, threshold=threshold)


def _ranking_entry(name: str, measure: Callable[..., float], description: str) -> Entry:
    factory = partial(RankingMetric, name=name, measure=measure)
    return Entry.of(factory(), factory=factory, source="trec_eval", description=description, options="k=5")


_TOKEN = re.compile(r"\w+|[^\w\s]")


class RetrieverRecall(PlainEvaluator):
    """The share of reference passages contained in the joined retrieved text, both normalised (AdalFlow)."""

    name = "retriever_recall"
    needs = frozenset({"contexts", "reference"})
    parser = "passages"

    async def run(self, case: Case) -> Outcome:
        """Look for each reference passage; parts say which were found."""
        retrieved = normalize_answer(" ".join(case.texts))
        matches = [normalize_answer(passage) in retrieved for passage in nonempty_references(case.references)]
        return Outcome(score=sum(matches) / len(matches), parts={"found": matches})


def _tokens(text: str) -> int:
    """Words and punctuation marks; scripts without spaces by character."""
    return len(_TOKEN.findall(text)) if text.isascii() else len(words(text))


class RetrieverTokenRelevance(Evaluator):
    """Which share of the retrieved tokens lies in reference passages, each found as a whole (AdalFlow)?

    `tokenizer` counts: a function from a text to its tokens or their number, by default words and punctuation marks.
    AdalFlow counts the tokens of `cl100k_base`: `tokenizer=tiktoken.get_encoding("cl100k_base").encode`.
    """

    name = "retriever_token_relevance"
    needs = frozenset({"contexts", "reference"})
    parser = "passages"

    def __init__(
        self, *, tokenizer: Callable[[str], int | Sized] | None = None, threshold: float | None = None
    ) -> None:
        super().__init__(threshold=threshold, tokenizer=tokenizer)
        self._tokenizer = tokenizer or _tokens

    async def run(self, case: Case) -> Outcome:
        """Count the tokens of the reference passages that are found, over all retrieved tokens."""
        retrieved = " ".join(case.texts)
        total = self._count(retrieved)
        if not total:
            raise MissingField("contexts")
        passages = nonempty_references(case.references)
        matches = [passage in retrieved for passage in passages]
        relevant = sum(self._count(passage) for passage in passages if passage in retrieved)
        return Outcome(
            score=min(1.0, relevant / total), parts={"found": matches, "relevant": relevant, "tokens": total}
        )

    def _count(self, text: str) -> int:
        tokens = self._tokenizer(text)
        return tokens if isinstance(tokens, int) else len(tokens)


ENTRIES = (
    _ranking_entry("recall_at_k", recall, "How many of the relevant documents are among the first k?"),
    _ranking_entry("precision_at_k", precision, "How many of the first k documents are relevant?"),
    _ranking_entry("mrr", reciprocal_rank, "How far up is the first relevant document (1 / its rank)?"),
    _ranking_entry("hit_rate", hit_rate, "Is any relevant document among the first k?"),
    _ranking_entry("map", average_precision, "How precise is the list down to each relevant document, on average?"),
    Entry.of(
        Ndcg,
        source="Järvelin and Kekäläinen 2002; trec_eval",
        description="How close is the order to the ideal one, by graded relevance?",
        options='k=5, gain="exponential"',
    ),
    Entry.of(
        RetrieverRecall,
        source="AdalFlow RetrieverRecall",
        description="Which share of the reference passages is found in the retrieved text?",
    ),
    Entry.of(RetrieverTokenRelevance, source="AdalFlow RetrieverRelevance"),
)
