"""Pairs of answers that differ in one fact: does an evaluator tell the right one from the wrong one?

Sixty pairs in ten domains by one author: both answers of a pair are worded with the same freedom.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.statistics import Estimate, cohen_kappa, two_proportion, wilson

_SURE = 0.05
_HALF = 0.5
BETTER = "better than guessing"
_LEANS = {
    (True, False): "lenient: it lets most wrong answers pass",
    (False, True): "strict: it fails most right answers",
}
"""Whether most right answers pass and most wrong ones fail → what is wrong."""


@dataclass(frozen=True, kw_only=True)
class AnswerPair:
    """A question with its contexts, a right answer, and one that is wrong in a single fact."""

    domain: str
    fact: str
    """What kind of fact differs."""
    question: str
    contexts: list[str]
    right: str
    wrong: str

    @property
    def cases(self) -> tuple[Case, Case]:
        """The right and the wrong answer."""
        right, wrong = (Case(query=self.question, response=r, contexts=self.contexts) for r in (self.right, self.wrong))
        return right, wrong

    @property
    def choice(self) -> Case:
        """Both answers, for an evaluator that compares."""
        return self.cases[0].model_copy(update={"second_response": self.wrong, "reference": " ".join(self.contexts)})


def builtin_pairs() -> list[AnswerPair]:
    """The project's own sixty pairs."""
    text = (resources.files("ragpulse_evaluators.meta") / "pairs.json").read_text(encoding="utf-8")
    return [AnswerPair(**row) for row in json.loads(text)]


@dataclass(frozen=True, kw_only=True)
class Detection:
    """How well verdicts tell right answers from wrong ones."""

    n: int
    unread: int
    """Answers without a verdict: unreadable replies, errors, or unclear ones."""
    sensitivity: Estimate | None
    """Share of wrong answers that fail."""
    specificity: Estimate | None
    """Share of right answers that pass."""
    kappa: float | None
    verdict: str
    """In words: what the two shares mean."""


def detection(results: Sequence[EvaluationResult], right: Sequence[bool]) -> Detection:
    """Compare verdicts with the truth; answers without a verdict are counted apart."""
    read = [(r.passing, truth) for r, truth in zip(results, right, strict=True) if r.passing is not None]
    caught = [not passing for passing, truth in read if not truth]
    passed = [passing for passing, truth in read if truth]
    sensitivity, specificity = wilson(sum(caught), len(caught)), wilson(sum(passed), len(passed))
    return Detection(
        n=len(results),
        unread=len(results) - len(read),
        sensitivity=sensitivity,
        specificity=specificity,
        kappa=cohen_kappa([passing for passing, _ in read], [truth for _, truth in read]) if read else None,
        verdict=_verdict(caught, passed),
    )


def _verdict(caught: Sequence[bool], passed: Sequence[bool]) -> str:
    """Say it in words: better than guessing where right answers pass surely more often than wrong ones."""
    test = two_proportion(sum(passed), len(passed), len(caught) - sum(caught), len(caught))
    if test is None:
        return "not tested: no verdict could be read"
    how = _LEANS.get((sum(passed) >= _HALF * len(passed), sum(caught) >= _HALF * len(caught)), "")
    if test.difference <= 0.0 or test.p is None or test.p > _SURE:
        return f"no {BETTER}{f' ({how})' if how else ''}"
    return how or BETTER
