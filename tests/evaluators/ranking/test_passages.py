"""Reference passages found by their text."""

from __future__ import annotations

import asyncio

import pytest

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.ranking import ENTRIES
from ragpulse_evaluators.result import EvaluationResult


def make(name: str, **params: object) -> Evaluator:
    """One evaluator of the family."""
    return next(entry for entry in ENTRIES if entry.name == name).factory(**params)


def score(evaluator: Evaluator, **fields: object) -> EvaluationResult:
    """What the evaluator says of a case."""
    return asyncio.run(evaluator(Case.model_validate(fields)))


def test_retriever_recall_reproduces_the_seed() -> None:
    """AdalFlow's example: 1/3 and 1.0, mean 0.6667."""
    evaluator = make("retriever_recall")
    apple = score(
        evaluator,
        contexts=["Apple is founded before Google."],
        reference=["Apple is founded in 1976.", "Google is founded in 1998.", "Apple is founded before Google."],
    )
    february = score(
        evaluator,
        contexts=["Feburary has 28 days in common years. Feburary has 29 days in leap years."],
        reference=["Feburary has 28 days in common years", "Feburary has 29 days in leap years"],
    )
    scores = [float(apple.score or 0), float(february.score or 0)]
    assert scores == pytest.approx([1 / 3, 1.0])
    assert sum(scores) / 2 == pytest.approx(0.6666666666666666)
    assert apple.parts == {"found": [False, False, True]}
