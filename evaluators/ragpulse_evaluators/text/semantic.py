"""Closeness in meaning by embeddings: cosine similarity, SemScore, vector distances, BERTScore."""

from __future__ import annotations

import asyncio
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.judges.protocol import Embedder, OfflineEmbedder, cosine
from ragpulse_evaluators.judges.providers import as_embedder
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.matching import nonempty_references

Vector = Sequence[float]
_COSINE = Scale(lo=-1.0, kind="clip")
_UNBOUNDED = Scale(hi=None, reverse=True)


def _differences(left: Vector, right: Vector) -> list[float]:
    return [abs(a - b) for a, b in zip(left, right, strict=True)]


_LATIN_SHARE = 0.8


def _is_latin(text: str) -> bool:
    """Tell whether most letters are Latin: in other scripts unrelated texts get a cosine of 0.4 to 0.96."""
    letters = [sign for sign in text if sign.isalpha()]
    latin = sum(sign.isascii() or unicodedata.name(sign, "").startswith("LATIN") for sign in letters)
    return latin >= _LATIN_SHARE * len(letters)


def _similarity(left: Vector, right: Vector) -> float:
    """Cosine; an empty answer, whose vector is zero, is like nothing."""
    return cosine(left, right) if any(left) else 0.0


Distance = Literal["cosine", "euclidean", "manhattan", "chebyshev", "hamming"]
DISTANCES: Mapping[Distance, tuple[Callable[[Vector, Vector], float], Scale]] = {
    "cosine": (lambda left, right: 1.0 - _similarity(left, right), Scale(hi=2.0, kind="clip", reverse=True)),
    "euclidean": (math.dist, _UNBOUNDED),
    "manhattan": (lambda left, right: math.fsum(_differences(left, right)), _UNBOUNDED),
    "chebyshev": (lambda left, right: max(_differences(left, right)), _UNBOUNDED),
    "hamming": (
        lambda left, right: sum(a != b for a, b in zip(left, right, strict=True)) / len(left),
        Scale(reverse=True),
    ),
}
"""Distance and scale by name; the unbounded ones have no `normalized`."""


class _Embedding(Evaluator):
    needs = frozenset({"response", "reference"})
    parser = "embedding"
    cost_class = "embedding"

    def __init__(
        self, *, embedder: str | Embedder | None = None, threshold: float | None = None, **params: Any
    ) -> None:
        self._embedder = as_embedder(embedder) or OfflineEmbedder()
        embedder_id = getattr(self._embedder, "id", type(self._embedder).__name__)
        super().__init__(threshold=threshold, embedder=embedder_id, **params)

    async def _vectors(self, case: Case) -> tuple[Vector, list[Vector]]:
        """The answer's vector and those of the references."""
        response = case.response or ""
        texts = [response, *nonempty_references(case.references)]
        if isinstance(self._embedder, OfflineEmbedder) and not all(map(_is_latin, texts)):
            raise MissingField("response and reference in Latin letters: the offline embedder knows no other script")
        if not response.strip():
            references = await self._embedder.embed(texts[1:])
            return [0.0] * len(references[0]), list(references)
        answer, *references = await self._embedder.embed(texts)
        if not any(answer):
            raise Unreadable("an embedding is a vector of zeros")
        if any(len(vector) != len(answer) for vector in references):
            raise Unreadable("the embedder returned vectors of different lengths")
        return answer, list(references)


class EmbeddingSimilarity(_Embedding):
    """Cosine of the embeddings of answer and nearest reference, -1..1; `normalized` is it cut at 0.

    `embedder`: a litellm embedding model's name, an `Embedder`, or by default the offline one of `ragpulse[semantic]`.
    """

    name = "embedding_similarity"
    scale = _COSINE

    async def run(self, case: Case) -> float:
        """Embed and compare."""
        answer, references = await self._vectors(case)
        return max(_similarity(answer, vector) for vector in references)


class SemScore(EmbeddingSimilarity):
    """`EmbeddingSimilarity` under the name of its paper."""

    name = "semscore"


class EmbeddingDistance(_Embedding):
    """Distance of the embeddings of answer and nearest reference: one of `DISTANCES`; lower is better."""

    name = "embedding_distance"
    scale = DISTANCES["cosine"][1]

    def __init__(self, *, metric: Distance = "cosine", **params: Any) -> None:
        super().__init__(metric=metric, **params)
        self._measure, self.scale = DISTANCES[metric]

    async def run(self, case: Case) -> float:
        """Embed and compare."""
        answer, references = await self._vectors(case)
        return min(self._measure(answer, vector) for vector in references)


class BertScore(Evaluator):
    """BERTScore F1 (Zhang et al. 2020) of answer and nearest reference; parts: precision and recall.

    Needs the `bert-score` package, which brings torch and fetches the model of `language` (or `model`) when first used.
    `model` may be the folder of a model of your own; `layers` then says after how many of its layers to compare.
    """

    name = "bertscore"
    needs = frozenset({"response", "reference"})
    scale = _COSINE
    parser = "bertscore"

    def __init__(
        self,
        *,
        model: str | None = None,
        layers: int | None = None,
        language: str = "en",
        threshold: float | None = None,
    ) -> None:
        super().__init__(threshold=threshold, model=model, layers=layers)
        self.language = language

    async def run(self, case: Case) -> Outcome:
        """Score off the event loop: a transformer takes its time."""
        return await asyncio.to_thread(self._score, case.response or "", nonempty_references(case.references))

    def _score(self, response: str, references: Sequence[str]) -> Outcome:
        scorer = _bert_scorer(self.params["model"], self.params["layers"], self.language)
        scores = scorer.score([response] * len(references), list(references))
        # Single precision: the cosine of equal vectors may come out above one.
        rows = list(zip(*(values.clamp(-1.0, 1.0).tolist() for values in scores), strict=True))
        precision, recall, f1 = max(rows, key=lambda row: row[2])
        return Outcome(score=f1, parts={"precision": precision, "recall": recall})


@cache
def _bert_scorer(model: str | None, layers: int | None, language: str) -> Any:
    from bert_score import BERTScorer
    from bert_score.utils import model2layers

    if model and layers is None and model not in model2layers:
        raise ConfigurationError(f"bertscore does not know the model {model!r}: say its layers= as well")
    return BERTScorer(model_type=model, num_layers=layers, lang=language)


ENTRIES = (
    Entry.of(
        EmbeddingSimilarity,
        source="PolyEval; S3",
        description="How close in meaning are answer and reference, by the cosine of their embeddings?",
        options='embedder="openai/text-embedding-3-small"',
    ),
    Entry.of(
        EmbeddingDistance,
        source="PolyEval EmbeddingDistanceEvaluator",
        description="How far apart are the embeddings of answer and reference?",
        options='metric="euclidean", embedder="openai/text-embedding-3-small"',
    ),
    Entry.of(
        SemScore,
        source="SemScore (Aynetdinov and Akbik 2024)",
        description="How close in meaning are answer and reference, by sentence embeddings?",
        options='embedder="openai/text-embedding-3-small"',
    ),
    Entry.of(
        BertScore,
        source="Zhang et al. 2020; bert-score",
        description="How well do the words of answer and reference match in meaning, each in its context?",
        options='language="zh"',
        packages=("bert_score",),
        install="bert-score",
    ),
)
