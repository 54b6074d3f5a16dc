"""Wording that answer and reference share: ROUGE, BLEU, chrF, METEOR.

ROUGE (Lin 2004) works for any language and gives Google's rouge-score values for ASCII text. BLEU and chrF are
sacrebleu's and METEOR is nltk's: `ragpulse[text]`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from itertools import chain, islice
from typing import Annotated, Any, Literal

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.matching import (
    References,
    form_of,
    is_unspaced,
    nonempty_references,
    overlap_outcome,
    tokens,
)

_TABLE_CELLS = 250_000
Variant = Annotated[str, Field(pattern=r"^rouge([1-9]|L|Lsum)$")]


def rouge(response: str, reference: References, *, variant: Variant = "rougeL") -> Outcome:
    """F1 of the n-grams (`rouge1`, `rouge2`, ...) or longest common subsequence shared with the nearest reference.

    `rougeLsum` takes each line as a sentence. Parts: precision and recall. No stemming.
    """
    measure = _measure(variant)
    outcomes = [measure(response, text) for text in nonempty_references(reference)]
    return max(outcomes, key=lambda outcome: outcome.score or 0.0)


def _measure(variant: str) -> Callable[[str, str], Outcome]:
    if variant == "rougeL":
        return _longest
    if variant == "rougeLsum":
        return _longest_by_line
    return partial(_ngrams, n=int(variant.removeprefix("rouge")))


def _ngrams(answer: str, reference: str, n: int) -> Outcome:
    left, right = (
        Counter(zip(*(islice(parts, start, None) for start in range(n)), strict=False))
        for parts in (tokens(answer), tokens(reference))
    )
    return overlap_outcome((left & right).total(), left.total(), right.total())


def _longest(answer: str, reference: str) -> Outcome:
    from rapidfuzz.distance import LCSseq

    left, right = tokens(answer), tokens(reference)
    return overlap_outcome(LCSseq.similarity(right, left), len(left), len(right))


def _longest_by_line(answer: str, reference: str) -> Outcome:
    """Summary-level ROUGE-L: each reference line against the union of its common subsequences with all answer lines."""
    answer_lines, reference_lines = (
        [parts for line in text.split("\n") if (parts := tokens(line))] for text in (answer, reference)
    )
    free_answer, free_reference = (Counter(chain.from_iterable(lines)) for lines in (answer_lines, reference_lines))
    sizes = free_answer.total(), free_reference.total()
    shared = 0
    for line in reference_lines:
        positions = {position for other in answer_lines for position in _subsequence(line, other)}
        for token in (line[position] for position in sorted(positions)):
            if free_reference[token] > 0 and free_answer[token] > 0:
                shared += 1
                free_reference[token] -= 1
                free_answer[token] -= 1
    return overlap_outcome(shared, *sizes)


def _subsequence(line: Sequence[str], other: Sequence[str]) -> set[int]:
    """The positions in `line` of a longest common subsequence, ties broken as rouge-score breaks them.

    Lines of thousands of words are left to rapidfuzz, which is fast and breaks ties its own way.
    """
    if len(line) * len(other) > _TABLE_CELLS:
        from rapidfuzz.distance import LCSseq

        equal = [block for block in LCSseq.opcodes(line, other) if block.tag == "equal"]
        return {position for block in equal for position in range(block.src_start, block.src_end)}
    table = [[0] * (len(other) + 1)]
    for token in line:
        row, above = [0], table[-1]
        for column, rival in enumerate(other, start=1):
            row.append(above[column - 1] + 1 if token == rival else max(above[column], row[-1]))
        table.append(row)
    positions, i, j = set(), len(line), len(other)
    while i and j:
        if line[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            positions.add(i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return positions


Smoothing = Literal["none", "floor", "add-k", "exp"]


class _Overlap(Evaluator):
    needs = frozenset({"response", "reference"})
    parser = "reference"


class Bleu(_Overlap):
    """Sentence BLEU over 100, as sacrebleu computes it (Papineni et al. 2002; Post 2018).

    `smooth_method` of sacrebleu: "exp" (default), "none" gives the unsmoothed 0.0 where no 4-gram is shared. `tokenize`
    is sacrebleu's; by default chosen by script: its 13a tokenizer, or "zh", or characters for other unspaced scripts.
    `nfc=False` keeps apart what differs in its Unicode form only.
    """

    name = "bleu"

    def __init__(
        self,
        *,
        smooth_method: Smoothing = "exp",
        tokenize: str | None = None,
        language: str | None = None,
        threshold: float | None = None,
        nfc: bool = True,
    ) -> None:
        super().__init__(threshold=threshold, smooth_method=smooth_method, tokenize=tokenize, **_changed(nfc))
        self.language = language
        self._read = form_of(nfc)

    async def run(self, case: Case) -> float:
        """Score the answer against all references at once."""
        references = list(nonempty_references(case.references))
        tokenize = self.params["tokenize"] or _tokenizer(references[0], self.language)
        metric = _bleu(self.params["smooth_method"], tokenize)
        return _unit(metric.sentence_score(self._read(case.response or ""), list(map(self._read, references))))


def _changed(nfc: bool) -> dict[str, bool]:
    """The parameter where it is not the default: versions of before stay."""
    return {} if nfc else {"nfc": nfc}


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


class Chrf(_Overlap):
    """Character n-gram F-score over 100, as sacrebleu computes it (Popović 2015); `word_order=2` is chrF++.

    `nfc=False` keeps apart what differs in its Unicode form only.
    """

    name = "chrf"

    def __init__(self, *, word_order: int = 0, threshold: float | None = None, nfc: bool = True) -> None:
        super().__init__(threshold=threshold, word_order=word_order, **_changed(nfc))
        self._read = form_of(nfc)

    async def run(self, case: Case) -> float:
        """Score the answer against the nearest reference."""
        metric = _chrf(self.params["word_order"])
        references = map(self._read, nonempty_references(case.references))
        return _unit(metric.sentence_score(self._read(case.response or ""), list(references)))


@cache
def _chrf(word_order: int) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=word_order)


class Meteor(_Overlap):
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
        answer = tokens(case.response or "")
        return max(float(score(tokens(text), answer, **self._options)) for text in nonempty_references(case.references))


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


_INSTALL = "ragpulse[text]"

ENTRIES = (
    Entry.of_function(
        rouge,
        threshold=True,
        source="Lin 2004; rouge-score",
        description="How much wording do answer and reference share, in order?",
        options='variant="rouge2"',
    ),
    Entry.of(
        Bleu,
        source="Papineni et al. 2002; sacrebleu",
        description="How many n-grams of one to four words do answer and references share?",
        options='smooth_method="none"',
        packages=("sacrebleu",),
        install=_INSTALL,
    ),
    Entry.of(
        Chrf,
        source="Popović 2015; sacrebleu",
        description="How many character n-grams do answer and reference share? Good for inflected languages.",
        options="word_order=2",
        packages=("sacrebleu",),
        install=_INSTALL,
    ),
    Entry.of(
        Meteor,
        source="Banerjee and Lavie 2005; nltk",
        description="How many words, or their stems, do answer and reference share, and how contiguously?",
        packages=("nltk",),
        install=_INSTALL,
    ),
)
