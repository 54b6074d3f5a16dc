"""Runs evaluators of LlamaIndex, RAGAS, DeepEval and autoevals as ours: a case in, a result with a status out.

A package is imported when one of its objects is adapted: it made the object, so it is installed.
"""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable
from ragpulse_evaluators.evaluator import CostClass, Evaluator, Scale
from ragpulse_evaluators.result import Outcome

__all__ = ("adapt",)


class Foreign(Evaluator):
    """An evaluator of another package; its class and the package's version are part of the version."""

    parser: ClassVar[str] = "foreign"
    distribution: ClassVar[str]
    cost_class: CostClass = "k calls"

    def __init__(
        self, target: Any, *, name: str | None, needs: Iterable[str], scale: Scale, threshold: float | None
    ) -> None:
        super().__init__(threshold=threshold, target=f"{type(target).__module__}.{type(target).__qualname__}")
        self.target = target
        self.name = name or getattr(target, "name", None) or type(target).__name__
        self.needs = frozenset(needs)
        self.scale = scale
        self.label = f"{self.distribution} {_installed(self.distribution)}"

    @abstractmethod
    async def run(self, case: Case) -> Outcome:
        """Ask the other package about the case."""


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


def _given(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _reference(case: Case) -> str | None:
    return "\n".join(case.references) or None


class LlamaIndexEvaluator(Foreign):
    """`aevaluate(query, response, contexts, ...)`; an `invalid_result` is invalid."""

    distribution = "llama-index-core"

    async def run(self, case: Case) -> Outcome:
        """Hand over strings, read score, passing and feedback."""
        given = _given(reference=_reference(case), second_response=case.second_response)
        found = await self.target.aevaluate(
            query=case.query,
            response=case.response,
            contexts=None if case.contexts is None else list(case.texts),
            **given,
        )
        if getattr(found, "invalid_result", False):
            raise Unreadable(getattr(found, "invalid_reason", None) or "the evaluator called its result invalid")
        return Outcome(score=found.score, passing=found.passing, explanation=found.feedback)


class RagasMetric(Foreign):
    """A RAGAS metric: `ascore(**fields)` of its collections, or `single_turn_ascore(sample)` of the older classes."""

    distribution = "ragas"

    async def run(self, case: Case) -> Outcome:
        """Hand over the fields the metric names."""
        fields = _given(
            user_input=case.query,
            response=case.response,
            reference=_reference(case),
            retrieved_contexts=None if case.contexts is None else list(case.texts),
        )
        if hasattr(self.target, "single_turn_ascore"):
            from ragas import SingleTurnSample  # type: ignore[import-not-found]  # there already: it made the target

            return Outcome(score=float(await self.target.single_turn_ascore(SingleTurnSample(**fields))))
        wanted = inspect.signature(self.target.ascore).parameters
        if missing := [p.name for p in wanted.values() if p.default is p.empty and p.name not in fields]:
            raise MissingField(*missing)
        found = await self.target.ascore(**{key: value for key, value in fields.items() if key in wanted})
        return Outcome(score=float(found.value), explanation=found.reason)


class DeepEvalMetric(Foreign):
    """`a_measure(test_case)`; a metric stores its last score, so each case gets a copy of it."""

    distribution = "deepeval"

    async def run(self, case: Case) -> Outcome:
        """Measure a test case made of the case."""
        from deepeval.test_case import LLMTestCase  # type: ignore[import-not-found]  # there already

        metric = copy.copy(self.target)
        given = _given(
            input=case.query or "",
            actual_output=case.response,
            expected_output=_reference(case),
            retrieval_context=None if case.contexts is None else list(case.texts),
        )
        score = await metric.a_measure(LLMTestCase(**given))
        passing = getattr(metric, "success", None)
        return Outcome(score=score, passing=passing, explanation=getattr(metric, "reason", None))


class AutoevalsScorer(Foreign):
    """`eval_async(output, expected, input=...)`; an error it reports is invalid."""

    distribution = "autoevals"

    async def run(self, case: Case) -> Outcome:
        """Score the output; the rationale is the explanation."""
        given = _given(input=case.query, context=list(case.texts) or None)
        found = await self.target.eval_async(output=case.response, expected=_reference(case), **given)
        if found.error is not None:
            raise Unreadable(str(found.error))
        if found.score is None:
            raise MissingField("anything to score")
        return Outcome(score=found.score, explanation=(found.metadata or {}).get("rationale"))


_KINDS: Mapping[str, type[Foreign]] = {
    "llama_index": LlamaIndexEvaluator,
    "ragas": RagasMetric,
    "deepeval": DeepEvalMetric,
    "autoevals": AutoevalsScorer,
}


def adapt(
    target: Any,
    *,
    name: str | None = None,
    needs: Iterable[str] = ("response",),
    scale: Scale | None = None,
    threshold: float | None = None,
) -> Evaluator:
    """An evaluator of LlamaIndex, RAGAS, DeepEval or autoevals (or a subclass) as one of ours.

    `scale` is the range of its score, 0 to 1 by default. An object with `aevaluate(query, response, contexts)` counts
    as LlamaIndex's. Raises `ConfigurationError` for anything else.
    """
    packages = [layer.__module__.partition(".")[0] for layer in type(target).__mro__]
    kind = next((_KINDS[package] for package in packages if package in _KINDS), None)
    if kind is None and hasattr(target, "aevaluate"):
        kind = LlamaIndexEvaluator
    if kind is None:
        raise ConfigurationError(f"{type(target).__qualname__} is not an evaluator of {', '.join(_KINDS)}")
    return kind(target, name=name, needs=needs, scale=scale or Scale(), threshold=threshold)
