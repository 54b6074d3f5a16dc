"""Metrics that exist over a set of cases only: labels against labels, requests in a window, passes in a set."""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections.abc import Sequence

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, Unreadable
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.result import EvaluationResult, Outcome

__all__ = ("SetEvaluator",)


class SetEvaluator(Evaluator):
    """Base of metrics over a set: subclasses write `measure`, which sees the cases that have every needed field.

    The number of cases left out is `parts["skipped"]`; where none is left the result is skipped.
    """

    takes_all = True
    parser = "set"

    @abstractmethod
    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Score a set of at least one usable case."""

    async def run(self, case: Case) -> Outcome:
        """Score a set of one."""
        return await self.measure([case])

    async def over(self, cases: Sequence[Case]) -> EvaluationResult:
        """Score the set; raises nothing but cancellation."""
        usable = [case for case in cases if not any(case.lacks(field) for field in self.needs)]
        status, told, trace = "ok", None, None
        try:
            if not usable:
                raise MissingField(*sorted(self.needs))
            found = await self.measure(usable)
            normalized = self.scale.normalize(found.score) if found.score is not None else None
            return EvaluationResult(
                evaluator=self.name,
                version=self.version,
                judge=self.judge_id,
                score=found.score,
                normalized=found.normalized if found.normalized is not None else normalized,
                passing=self._passes(found),
                explanation=found.explanation,
                parts={**found.parts, "cases": len(usable), "skipped": len(cases) - len(usable)},
                ci95=found.ci95,
            )
        except MissingField as missing:
            status, told = "skipped", str(missing)
        except Unreadable as unreadable:
            status, told = "invalid", str(unreadable)
        except Exception as error:  # noqa: BLE001 - the boundary: an evaluator's failure is a value, never an exception
            status, told, trace = "error", f"{type(error).__name__}: {error}", traceback.format_exc(limit=-6)
        failed = {"status": status, "explanation": told, "error": trace}
        own = {"evaluator": self.name, "version": self.version, "judge": self.judge_id}
        return EvaluationResult.model_validate(own | failed)

    def _passes(self, found: Outcome) -> bool | None:
        if self.threshold is None or found.score is None:
            return found.passing
        return self.scale.passes(found.score, self.threshold)
