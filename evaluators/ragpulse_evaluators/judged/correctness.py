"""LlamaIndex's correctness: a mark of 1 to 5 against a reference answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import Reason, either, rest_of
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.parsing import read_number
from ragpulse_evaluators.result import Outcome

__all__ = ("Correctness",)


class Mark(BaseModel):
    """`{"reason": "...", "score": 4.5}`."""

    reason: Reason = ""
    score: Annotated[
        float, Field(ge=1, le=5, allow_inf_nan=False, validation_alias=AliasChoices("score", "rating", "grade"))
    ]


class Correctness(JudgedEvaluator):
    """Relevance and correctness of the response against the reference, 1 to 5; passes from `threshold` on."""

    name = "correctness"
    needs = frozenset({"query", "response", "reference"})
    scale = Scale(lo=1, hi=5)
    parser: ClassVar[str] = "mark"
    reply_tokens = 150

    def __init__(self, *, threshold: float | None = 4.0, **options: Any) -> None:
        super().__init__(threshold=threshold, **options)

    async def assess(self, case: Case, session: Session) -> Outcome:
        """One call; the mark is on the first line or in the JSON."""
        mark = await session.read(
            self.render("evaluate", case),
            either(Mark, self._plain),
            form='{"reason": "...", "score": 1..5}',
            schema=Mark,
        )
        return Outcome(score=mark.score, explanation=mark.reason or None)

    def _plain(self, text: str) -> Mark:
        return Mark(score=read_number(text, self.words, lo=1, hi=5), reason=rest_of(text))
