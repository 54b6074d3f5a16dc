"""Recall and relevance of retrieved text by reference passages, where no ids are known."""

from __future__ import annotations

import re
from collections.abc import Callable, Sized

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import nonempty_references, normalize_answer, words

_TOKEN = re.compile(r"\w+|[^\w\s]")


class RetrieverRecall(Evaluator):
    """The share of reference passages contained in the joined retrieved text, both normalised (AdalFlow)."""

    name = "retriever_recall"
    needs = frozenset({"contexts", "reference"})
    parser = "passages"

    def __init__(self, *, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold)

    async def run(self, case: Case) -> Outcome:
        """Look for each reference passage; parts say which were found."""
        retrieved = normalize_answer(" ".join(case.texts))
        wanted = nonempty_references(case.references)
        found = [normalize_answer(passage) in retrieved for passage in wanted]
        return Outcome(score=sum(found) / len(found), parts={"found": found})


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
        found = [passage in retrieved for passage in nonempty_references(case.references)]
        passages = zip(nonempty_references(case.references), found, strict=True)
        relevant = sum(self._count(passage) for passage, there in passages if there)
        return Outcome(score=min(1.0, relevant / total), parts={"found": found, "relevant": relevant, "tokens": total})

    def _count(self, text: str) -> int:
        counted = self._tokenizer(text)
        return counted if isinstance(counted, int) else len(counted)


ENTRIES: tuple[Entry, ...] = (
    Entry.of(
        RetrieverRecall,
        source="AdalFlow RetrieverRecall",
        description="Which share of the reference passages is found in the retrieved text?",
    ),
    Entry.of(RetrieverTokenRelevance, source="AdalFlow RetrieverRelevance"),
)
