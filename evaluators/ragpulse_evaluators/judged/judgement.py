"""AdalFlow's LLM as judge: any question about the response, with or without query and reference."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable
from ragpulse_evaluators.judged.base import JudgedEvaluator
from ragpulse_evaluators.judged.replies import Reason, either, rest_of
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.parsing import Words, read_number, read_verdict, words_of
from ragpulse_evaluators.judges.protocol import for_sampling
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.statistics import mean_ci

__all__ = ("Judgement",)


def _number_or_verdict(value: Any) -> Any:
    if isinstance(value, str) and value.strip().casefold() in ("true", "false", "yes", "no"):
        return float(value.strip().casefold() in ("true", "yes"))
    return value


class Judged(BaseModel):
    """`{"reason": "...", "score": true | false | 0.0..1.0}`."""

    reason: Reason = ""
    score: Annotated[
        float,
        BeforeValidator(_number_or_verdict),
        Field(
            ge=0, le=1, allow_inf_nan=False, validation_alias=AliasChoices("score", "verdict", "judgement", "answer")
        ),
    ]


def read_judgement(text: str, words: Words) -> Judged:
    """True or false by token, else a number in 0..1."""
    try:
        return Judged(score=float(read_verdict(text, words)), reason=rest_of(text))
    except Unreadable:
        return Judged(score=read_number(text, words, lo=0, hi=1), reason=rest_of(text))


class Judgement(JudgedEvaluator):
    """The answer to `question` about the response: true or false, or a number in 0..1.

    Without a `question` it is whether the response contains the reference, asked in the evaluator's language.
    Three modes by what the case holds: query and reference, reference only, query only. With `n` samples the score is
    their mean, `parts["scores"]` the list and `ci95` the mean ± 1.96·s/√n cut to 0..1 (one sample: the whole range).
    """

    name = "judge"
    needs = frozenset({"response"})
    parser: ClassVar[str] = "judgement"

    def __init__(
        self,
        *,
        question: str | None = None,
        n: int = 1,
        threshold: float | None = 0.5,
        language: str = "en",
        **options: Any,
    ) -> None:
        self._question = words_of(language).question if question is None else question
        if n < 1 or not self._question.strip():
            raise ConfigurationError("judge: question is a text, n at least 1")
        super().__init__(threshold=threshold, question=self._question, n=n, language=language, **options)
        self._n = n
        if self.judge is not None and n > 1:
            self.judge = for_sampling(self.judge, 1.0)  # equal samples would be one sample

    async def assess(self, case: Case, session: Session) -> Outcome:
        """Ask `n` times; unreadable samples of several are dropped and counted."""
        if case.query is None and not case.references:
            raise MissingField("query", "reference")
        prompt = self.render("evaluate", case, question=self._question)
        found = await self._asked(prompt, session)
        scores = [judged.score for judged in found]
        parts = {"scores": scores, "n_valid": len(scores)}
        return Outcome(score=fmean(scores), ci95=_interval(scores), explanation=found[0].reason or None, parts=parts)

    async def _asked(self, prompt: str, session: Session) -> list[Judged]:
        reader = either(Judged, lambda text: read_judgement(text, self.words))
        if self._n > 1:
            return await session.samples(prompt, reader, n=self._n, schema=Judged)
        form = '{"reason": "...", "score": true | false}'
        return [await session.read(prompt, reader, form=form, schema=Judged)]

    def calls_for(self, case: Case) -> int:
        """One a sample."""
        return self._n


def _interval(scores: Sequence[float]) -> tuple[float, float]:
    estimate = mean_ci(scores, bounds=(0.0, 1.0))
    if estimate is None or estimate.lo is None or estimate.hi is None:
        return (0.0, 1.0)
    return (estimate.lo, estimate.hi)
