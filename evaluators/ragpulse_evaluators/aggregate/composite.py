"""Several metrics as one weighted number."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, JudgeRejected, Unreadable
from ragpulse_evaluators.evaluator import AskingEvaluator, Estimate, Evaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome


class Composite(AskingEvaluator):
    """The weighted mean of other evaluators' `normalized`, divided by the sum of the weights.

    A part that is skipped, invalid or has no `normalized` makes the whole invalid: weights are never silently spread
    over what is left. Parts: each `normalized`. `params` holds parameters per name; `evaluators` ready ones by name.
    """

    name = "composite"
    parser = "composite"

    def __init__(
        self,
        *,
        weights: Mapping[str, float],
        params: Mapping[str, Mapping[str, Any]] | None = None,
        evaluators: Mapping[str, Evaluator] | None = None,
        threshold: float | None = None,
        resolve: Callable[..., Evaluator],
    ) -> None:
        if not any(weights.values()) or any(not math.isfinite(weight) or weight < 0 for weight in weights.values()):
            raise ConfigurationError("composite needs weights={name: number >= 0, ...}, one of them above 0")
        ready, options = evaluators or {}, params or {}
        self._parts = {name: ready.get(name) or resolve(name, **options.get(name, {})) for name in weights}
        self._weights = dict(weights)
        versions = {name: part.version for name, part in self._parts.items()}
        super().__init__(threshold=threshold, weights=self._weights, parts=versions)
        self.judge = next((part.judge for part in self._parts.values() if part.judge is not None), None)
        self.wants_judge = any(part.wants_judge for part in self._parts.values())
        costs = {part.cost_class for part in self._parts.values()}
        self.cost_class = next((cost for cost in ("k calls", "1 call", "embedding") if cost in costs), "free")

    def estimate(self, case: Case) -> Estimate:
        """The sum over the parts."""
        return sum((part.estimate(case) for part in self._parts.values()), Estimate())

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Outcome:
        """Run the parts at once and weigh them."""
        results = dict(zip(self._parts, await self._all(case), strict=True))
        calls.extend(call for result in results.values() for call in result.calls)
        errors = {name: result for name, result in results.items() if result.status == "error"}
        if errors:  # may succeed another time, unless a part fails for good
            retriable = all(result.retriable for result in errors.values())
            message = "no answer from " + ", ".join(f"{name} ({_reason(result)})" for name, result in errors.items())
            raise JudgeError(message) if retriable else JudgeRejected(message)
        if unscored := [f"{name} ({_reason(result)})" for name, result in results.items() if result.normalized is None]:
            raise Unreadable("no score from " + ", ".join(unscored))
        units = {name: result.normalized or 0.0 for name, result in results.items()}
        total = math.fsum(weight * units[name] for name, weight in self._weights.items())
        return Outcome(score=total / math.fsum(self._weights.values()), parts=units)

    async def _all(self, case: Case) -> list[EvaluationResult]:
        parts = self._parts.values()
        if self.cost_class == "free":
            # Nothing to wait for: a task a part would cost more than the part.
            return [await part(case) for part in parts]
        return list(await asyncio.gather(*(part(case) for part in parts)))


def _reason(result: EvaluationResult) -> str:
    return result.explanation or f"{result.status}, but without a 0..1 form"


ENTRIES = (
    Entry.of(
        Composite,
        source="Prompt Evaluation (S3)",
        description="How good is the answer by several metrics together, weighted?",
        options='weights={"token_f1": 0.7, "rouge": 0.3}',
    ),
)
