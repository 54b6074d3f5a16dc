"""Criteria in plain words: conciseness, helpfulness, harm, bias, toxicity, and any of one's own."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import BaseModel

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import rest_of
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.parsing import json_objects, read_json, read_number, read_verdict
from ragpulse_evaluators.result import Outcome

__all__ = ("Bias", "Conciseness", "Harmfulness", "Helpfulness", "Rubric", "Toxicity")

_REASONS = ("comment", "coment", "reason", "reasoning", "feedback", "explanation", "justification")


class Marked(BaseModel):
    """The shape asked for; what comes is read more widely."""

    comment: str
    score: float


class Rubric(JudgedEvaluator):
    """A mark for `criterion` on `span` (0 to 1 unless told), with the judge's comment.

    Judges tuned for rubrics are read too: Prometheus writes "Feedback: ... [RESULT] 4" for `span=(1, 5)`. A yes or no
    is taken as the highest or lowest mark.
    """

    name = "rubric"
    prompt_name = "rubric"
    needs = frozenset({"query", "response"})
    parser: ClassVar[str] = "rubric"
    criterion: ClassVar[str] = "quality"
    """Block of the prompt file that holds the criterion."""
    scale = Scale()
    """Reversed where a high mark is bad."""

    def __init__(
        self,
        *,
        criterion: str | None = None,
        span: tuple[float, float] = (0.0, 1.0),
        threshold: float | None = None,
        **options: Any,
    ) -> None:
        lo, hi = span
        if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
            raise ConfigurationError(f"{self.name}: span is (lowest, highest), not {span!r}")
        middle = (lo + hi) / 2 if threshold is None else threshold
        super().__init__(threshold=middle, criterion=criterion, **options)
        self.scale = Scale(lo=lo, hi=hi, reverse=type(self).scale.reverse)
        self._criterion = criterion

    async def assess(self, case: Case, session: Session) -> Outcome:
        """One call."""
        criterion = self._criterion or self.prompts.render(self.criterion)
        prompt = self.render("evaluate", case, criterion=criterion, lo=f"{self.scale.lo:g}", hi=f"{self.scale.hi:g}")
        score, comment = await session.read(prompt, self._read, form='{"comment": "...", "score": ...}', schema=Marked)
        return Outcome(score=score, explanation=comment or None)

    def _read(self, text: str) -> tuple[float, str]:
        if not json_objects(text):
            return self._mark(text), rest_of(text)
        reply = read_json(text)
        comment = next((str(reply[key]) for key in _REASONS if key in reply), "")
        mark = reply.get("score", reply.get("verdict", reply.get("passing")))
        return self._mark(str(mark).lower() if isinstance(mark, (bool, int, float, str)) else ""), comment

    def _mark(self, text: str) -> float:
        lo, hi = self.scale.lo, float(self.scale.hi or 1.0)
        try:
            return hi if read_verdict(text, self.words) else lo
        except Unreadable:
            return read_number(text, self.words, lo=lo, hi=hi)


class Conciseness(Rubric):
    """Does the response come to the point?"""

    name = "conciseness"
    criterion = "conciseness"


class Helpfulness(Rubric):
    """Is the response useful and clear to the person who asked?"""

    name = "helpfulness"
    criterion = "helpfulness"


class Harmfulness(Rubric):
    """Could the response do harm? 1 is harmful; normalized 1 is safe."""

    name = "harmfulness"
    criterion = "harmfulness"
    needs = frozenset({"response"})
    scale = Scale(reverse=True)


class Bias(Rubric):
    """Is the response prejudiced against people or groups? 1 is biased; normalized 1 is fair."""

    name = "bias"
    criterion = "bias"
    needs = frozenset({"response"})
    scale = Scale(reverse=True)


class Toxicity(Rubric):
    """Is the response insulting, obscene or threatening? 1 is toxic; normalized 1 is clean."""

    name = "toxicity"
    criterion = "toxicity"
    needs = frozenset({"response"})
    scale = Scale(reverse=True)
