"""Was the right thing retrieved: ranking measures over ids, recall of reference passages over texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError, MissingField
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.ranking import metrics
from ragpulse_evaluators.ranking.passages import RetrieverRecall

__all__ = ("ENTRIES", "RankingMetric")


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
        k: int | None = None,
        threshold: float | None = None,
        **options: str,
    ) -> None:
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
            raise ConfigurationError(f"{name}: k is a whole number from 1, or None for all; got {k!r}")
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


def _measure(name: str, measure: Callable[..., float], description: str, source: str = "trec_eval") -> Entry:
    def make(*, k: int | None = None, threshold: float | None = None) -> Evaluator:
        return RankingMetric(name, measure, k=k, threshold=threshold)

    return _entry(
        name=name, factory=make, source=source, description=description, example=f'get_evaluator("{name}", k=5)'
    )


def _ndcg(*, k: int | None = None, gain: str = "linear", threshold: float | None = None) -> Evaluator:
    if gain not in metrics.GAINS:
        raise ConfigurationError(f"ndcg has no gain {gain!r}; choose one of {', '.join(metrics.GAINS)}")
    return RankingMetric("ndcg", metrics.ndcg, k=k, gain=gain, threshold=threshold)


_entry = partial(Entry, needs=("relevant_ids",), scale=Scale())

ENTRIES: tuple[Entry, ...] = (
    _measure("recall_at_k", metrics.recall, "How many of the relevant documents are among the first k?"),
    _measure("precision_at_k", metrics.precision, "How many of the first k documents are relevant?"),
    _measure("mrr", metrics.reciprocal_rank, "How far up is the first relevant document (1 / its rank)?"),
    _measure("hit_rate", metrics.hit_rate, "Is any relevant document among the first k?"),
    _measure("map", metrics.average_precision, "How precise is the list down to each relevant document, on average?"),
    _entry(
        name="ndcg",
        factory=_ndcg,
        source="Järvelin and Kekäläinen 2002; trec_eval",
        description="How close is the order to the ideal one, by graded relevance?",
        example='get_evaluator("ndcg", k=5, gain="exponential")',
    ),
    Entry(
        name="retriever_recall",
        factory=RetrieverRecall,
        needs=("contexts", "reference"),
        scale=Scale(),
        source="AdalFlow RetrieverRecall",
        description="Which share of the reference passages is found in the retrieved text?",
        example='get_evaluator("retriever_recall")',
    ),
)
