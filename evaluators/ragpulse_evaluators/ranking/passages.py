"""Recall of reference passages by their text, where no ids are known."""

from __future__ import annotations

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.text.words import nonempty_references, normalize_answer

__all__ = ("ENTRIES", "RetrieverRecall")


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


ENTRIES: tuple[Entry, ...] = (
    Entry.of(
        RetrieverRecall,
        source="AdalFlow RetrieverRecall",
        description="Which share of the reference passages is found in the retrieved text?",
    ),
)
