"""LlamaIndex's guideline adherence: does the response follow rules written in plain words?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import Verdict, verdict_reader
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.result import Outcome

__all__ = ("Guideline",)

_DEFAULT = "The response answers the whole query, is specific, and names figures where the query asks for them."


class Guideline(JudgedEvaluator):
    """1 when every guideline is met, else 0; one call a guideline, each verdict in `parts`."""

    name = "guideline"
    needs = frozenset({"query", "response"})
    parser: ClassVar[str] = "verdict"

    def __init__(self, *, guidelines: str | Sequence[str] = _DEFAULT, **options: Any) -> None:
        rules = [guidelines] if isinstance(guidelines, str) else list(guidelines)
        if not rules or not all(rule.strip() for rule in rules):
            raise ConfigurationError("guideline needs guidelines='...' (or several in a list)")
        super().__init__(guidelines=rules, **options)
        self._rules = rules
        self.cost_class = "1 call" if len(rules) == 1 else "k calls"

    async def assess(self, case: Case, session: Session) -> Outcome:
        """Judge each guideline by itself; the feedback of the first broken one comes first."""
        verdicts = await asyncio.gather(*(self._check(rule, case, session) for rule in self._rules))
        passing = all(verdict.verdict for verdict in verdicts)
        told = sorted(zip(self._rules, verdicts, strict=True), key=lambda pair: pair[1].verdict)
        feedback = "\n".join(f"{rule}: {v.reason}" if len(self._rules) > 1 else v.reason for rule, v in told)
        parts = {
            rule: {"passing": v.verdict, "feedback": v.reason} for rule, v in zip(self._rules, verdicts, strict=True)
        }
        return Outcome(score=float(passing), passing=passing, explanation=feedback or None, parts=parts)

    async def _check(self, rule: str, case: Case, session: Session) -> Verdict:
        prompt = self.render("evaluate", case, guidelines=rule)
        form = '{"feedback": "...", "passing": true | false}'
        return await session.read(prompt, verdict_reader(self.words), form=form, schema=Verdict)

    def calls_for(self, case: Case) -> int:
        """One a guideline."""
        return len(self._rules)
