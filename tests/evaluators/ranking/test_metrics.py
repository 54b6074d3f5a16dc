"""Ranking measures against trec_eval."""

from __future__ import annotations

import asyncio

import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.ranking import ENTRIES, metrics
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import EvaluationResult

IDS = [f"d{number}" for number in range(12)]


runs = st.lists(st.sampled_from(IDS), min_size=1, max_size=12, unique=True)


grades = st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), min_size=1, max_size=8).filter(
    lambda found: any(found.values())
)


def make(name: str, **params: object) -> Evaluator:
    """One evaluator of the family."""
    return next(entry for entry in ENTRIES if entry.name == name).factory(**params)


def score(evaluator: Evaluator, **fields: object) -> EvaluationResult:
    """What the evaluator says of a case."""
    return asyncio.run(evaluator(Case.model_validate(fields)))


@settings(max_examples=80, deadline=None)
@given(runs, grades, st.sampled_from([1, 3, 5, 10]))
def test_values_are_trec_evals(retrieved: list[str], relevant: dict[str, int], k: int) -> None:
    """Every measure at every cut-off equals pytrec-eval-terrier's."""
    measures = {f"recall_{k}", f"P_{k}", f"ndcg_cut_{k}", f"map_cut_{k}", f"success_{k}", "recip_rank", "ndcg", "map"}
    run = {name: float(-rank) for rank, name in enumerate(retrieved)}
    expected = pytrec_eval.RelevanceEvaluator({"q": relevant}, measures).evaluate({"q": run})["q"]
    ours = {
        f"recall_{k}": metrics.recall(retrieved, relevant, k),
        f"P_{k}": metrics.precision(retrieved, relevant, k),
        f"ndcg_cut_{k}": metrics.ndcg(retrieved, relevant, k),
        f"map_cut_{k}": metrics.average_precision(retrieved, relevant, k),
        f"success_{k}": metrics.hit_rate(retrieved, relevant, k),
        "recip_rank": metrics.reciprocal_rank(retrieved, relevant),
        "ndcg": metrics.ndcg(retrieved, relevant),
        "map": metrics.average_precision(retrieved, relevant),
    }
    assert ours == pytest.approx({name: expected[name] for name in ours}, abs=1e-9)


@pytest.mark.parametrize("name", ["recall_at_k", "precision_at_k", "mrr", "hit_rate", "ndcg", "map"])
def test_repeated_ids_never_score_above_one(name: str) -> None:
    """A document retrieved twice counts once, where a peer reports an average precision of 2."""
    found = score(make(name, k=4), retrieved_ids=["a", "a", "a", "b"], relevant_ids=["a"])
    assert found.score is not None
    assert found.score <= 1.0
    assert found.score == score(make(name, k=4), retrieved_ids=["a", "b"], relevant_ids=["a"]).score


def test_exponential_gain_by_hand() -> None:
    """Grades 1 then 3: (1 + 7/log2 3) / (7 + 1/log2 3)."""
    found = score(make("ndcg", gain="exponential"), retrieved_ids=["x", "y"], relevant_ids={"x": 1, "y": 3})
    assert found.score == pytest.approx((1 + 7 / 1.584962500721156) / (7 + 1 / 1.584962500721156))


def test_ideal_order_has_only_k_places() -> None:
    """One perfect place of k=1 is 1.0 although two documents are relevant."""
    assert score(make("ndcg", k=1), retrieved_ids=["a"], relevant_ids=["a", "b"]).score == 1.0


def test_nothing_relevant_is_skipped_and_nothing_retrieved_is_zero() -> None:
    """No relevant document: nothing to find. An empty list: a retriever that found nothing."""
    assert score(make("ndcg"), retrieved_ids=["a"], relevant_ids={"a": 0}).status == "skipped"
    assert score(make("recall_at_k"), retrieved_ids=[], relevant_ids=["a"]).score == 0.0
    assert score(make("precision_at_k"), retrieved_ids=[], relevant_ids=["a"]).score == 0.0
    assert score(make("mrr"), relevant_ids=["a"]).status == "skipped"


def test_ids_of_the_contexts_serve_where_no_list_was_recorded() -> None:
    """A stored trace has contexts with ids; that is the ranking."""
    contexts = [{"id": "b", "text": "…"}, {"id": "a", "text": "…"}]
    assert score(make("mrr"), contexts=contexts, relevant_ids=["a"]).score == 0.5


@pytest.mark.parametrize("k", [0, -1, 2.5, True])
def test_k_is_checked_where_it_is_configured(k: object) -> None:
    """A wrong cut-off is a configuration error, not a wrong number."""
    with pytest.raises(ConfigurationError, match=f"k={k}: .*(valid integer|equal to 1)"):
        get_evaluator("ndcg", k=k)
