"""Metrics that exist over a set of cases only: labels against labels, requests in a window, passes in a set."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField
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
        counts = {"cases": len(usable), "skipped": len(cases) - len(usable)}
        try:
            if not usable:
                raise MissingField(*sorted(self.needs))
            found = await self.measure(usable)
            result = self._settle(Case(), replace(found, parts={**found.parts, **counts}), [])
        except Exception as error:  # noqa: BLE001 - the boundary: an evaluator's failure is a value, never an exception
            result = self._failure(Case(), [], error)
        return result.model_copy(update={"case": None})
