"""The scores of machine translation, for answers against references: BLEU, chrF, METEOR."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any, Literal, get_args

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.text.words import is_unspaced, spoken, words

__all__ = ("ENTRIES", "Bleu", "Chrf", "Meteor")

Smoothing = Literal["none", "floor", "add-k", "exp"]


class _Reference(Evaluator):
    needs = frozenset({"response", "reference"})
    parser = "reference"


class Bleu(_Reference):
    """Sentence BLEU over 100, as sacrebleu computes it (Papineni et al. 2002; Post 2018).

    `smooth_method` of sacrebleu: "exp" (default), "none" gives the unsmoothed 0.0 where no 4-gram is shared. `tokenize`
    is sacrebleu's; by default chosen by script: its 13a tokenizer, or "zh", or characters for other unspaced scripts.
    """

    name = "bleu"

    def __init__(
        self,
        *,
        smooth_method: Smoothing = "exp",
        tokenize: str | None = None,
        language: str | None = None,
        threshold: float | None = None,
    ) -> None:
        if smooth_method not in get_args(Smoothing):
            known = ", ".join(get_args(Smoothing))
            raise ConfigurationError(f"bleu has no smooth_method {smooth_method!r}; choose one of {known}")
        super().__init__(threshold=threshold, smooth_method=smooth_method, tokenize=tokenize)
        self.language = language

    async def run(self, case: Case) -> float:
        """Score the answer against all references at once."""
        references = list(spoken(case.references))
        tokenize = self.params["tokenize"] or _tokenizer(references[0], self.language)
        metric = _bleu(self.params["smooth_method"], tokenize)
        return _unit(metric.sentence_score(case.response, references))


def _unit(score: Any) -> float:
    """sacrebleu's 0..100 as 0..1; its geometric mean may exceed 100 by rounding."""
    return min(1.0, float(score.score) / 100.0)


def _tokenizer(reference: str, language: str | None) -> str:
    if language == "zh" or any("\u4e00" <= character <= "\u9fff" for character in reference):
        return "zh"
    return "char" if is_unspaced(reference) else "13a"


@cache
def _bleu(smooth_method: str, tokenize: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(smooth_method=smooth_method, tokenize=tokenize, effective_order=True)


class Chrf(_Reference):
    """Character n-gram F-score over 100, as sacrebleu computes it (Popović 2015); `word_order=2` is chrF++."""

    name = "chrf"

    def __init__(self, *, word_order: int = 0, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold, word_order=word_order)

    async def run(self, case: Case) -> float:
        """Score the answer against the nearest reference."""
        metric = _chrf(self.params["word_order"])
        return _unit(metric.sentence_score(case.response, list(spoken(case.references))))


@cache
def _chrf(word_order: int) -> Any:
    from ragpulse_evaluators.text.chrf import ArrayChrf

    return ArrayChrf(word_order=word_order)


class Meteor(_Reference):
    """METEOR with exact and stem matches (Banerjee and Lavie 2005), as nltk computes it without WordNet."""

    name = "meteor"

    def __init__(
        self, *, alpha: float = 0.9, beta: float = 3.0, gamma: float = 0.5, threshold: float | None = None
    ) -> None:
        super().__init__(threshold=threshold, alpha=alpha, beta=beta, gamma=gamma)
        self._options = {"alpha": alpha, "beta": beta, "gamma": gamma}

    async def run(self, case: Case) -> float:
        """Score the answer against the nearest reference."""
        # nltk takes seconds to import: not on the event loop.
        score = await asyncio.to_thread(_meteor) if not _meteor.cache_info().currsize else _meteor()
        said = words(case.response or "")
        return max(float(score(words(text), said, **self._options)) for text in spoken(case.references))


class NoSynonyms:
    """A WordNet without entries: its data are in no package index."""

    def synsets(self, word: str) -> list[Any]:
        """Nothing means the same as `word`."""
        del word
        return []


class _Stems:
    """A stemmer that stems a word once: texts repeat their words."""

    def __init__(self, stem: Callable[[str], str]) -> None:
        self.stem = lru_cache(maxsize=65_536)(stem)


@cache
def _meteor() -> Any:
    from nltk.stem.porter import PorterStemmer
    from nltk.translate.meteor_score import single_meteor_score

    return partial(single_meteor_score, preprocess=str, stemmer=_Stems(PorterStemmer().stem), wordnet=NoSynonyms())


_entry = partial(Entry, needs=("response", "reference"), scale=Scale())

ENTRIES: tuple[Entry, ...] = (
    _entry(
        name="bleu",
        factory=Bleu,
        source="Papineni et al. 2002; sacrebleu",
        description="How many runs of up to four words do answer and references share?",
        example='get_evaluator("bleu", smooth_method="none")',
    ),
    _entry(
        name="chrf",
        factory=Chrf,
        source="Popović 2015; sacrebleu",
        description="How many runs of characters do answer and reference share? Good for inflected languages.",
        example='get_evaluator("chrf", word_order=2)',
    ),
    _entry(
        name="meteor",
        factory=Meteor,
        source="Banerjee and Lavie 2005; nltk",
        description="How many words, or their stems, do answer and reference share, and in one piece?",
        example='get_evaluator("meteor")',
    ),
)
