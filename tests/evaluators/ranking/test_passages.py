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


def test_retriever_token_relevance_reproduces_the_seed() -> None:
    """AdalFlow's docstring, counted in its tokens: 1.0 and 0.606; in words and marks by default."""
    encode = pytest.importorskip("litellm", reason="brings the tokens of cl100k_base").encoding.encode
    apple: dict[str, object] = {
        "contexts": ["Apple is founded before Google."],
        "reference": ["Apple is founded in 1976.", "Google is founded in 1998.", "Apple is founded before Google."],
    }
    february: dict[str, object] = {
        "contexts": [
            "Feburary has 28 days in common years. Feburary has 29 days in leap years. "
            "Feburary is the second month of the year."
        ],
        "reference": ["Feburary has 28 days in common years", "Feburary has 29 days in leap years"],
    }
    theirs, ours = make("retriever_token_relevance", tokenizer=encode), make("retriever_token_relevance")
    assert [score(theirs, **case).score for case in (apple, february)] == pytest.approx([1.0, 0.6060606060606061])
    assert [score(ours, **case).score for case in (apple, february)] == pytest.approx([1.0, 14 / 25])
    assert score(ours, contexts=["x y"], reference=["x y", "x", "y"]).score == 1.0
