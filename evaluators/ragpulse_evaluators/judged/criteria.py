"""Criteria in plain words: guidelines (LlamaIndex), rubrics for tone and harm, any question (AdalFlow's judge)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from statistics import fmean
from typing import Annotated, Any, ClassVar, Self

from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable, unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, Reason, Reply, VerdictReply, attempt, reasoning_of
from ragpulse_evaluators.judges.parsing import read_number, read_verdict
from ragpulse_evaluators.judges.protocol import together
from ragpulse_evaluators.judges.tokens import Words, apart, is_json, words_of
from ragpulse_evaluators.result import Outcome
from ragpulse_evaluators.statistics import mean_ci

_DEFAULT = "The response answers the whole query, is specific, and names figures where the query asks for them."


class Guideline(JudgedEvaluator):
    """1 when the response follows every guideline, else 0; one call per guideline, each verdict in `parts`."""

    name = "guideline"
    needs = frozenset({"query", "response"})
    parser = "verdict"

    def __init__(self, *, guidelines: str | Sequence[str] = _DEFAULT, **options: Any) -> None:
        rules = [guidelines] if isinstance(guidelines, str) else list(guidelines)
        if not rules or not all(rule.strip() for rule in rules):
            raise ConfigurationError("guideline needs guidelines='...' (or several in a list)")
        super().__init__(guidelines=rules, **options)
        self._rules = rules
        self._ask_times(len(rules))

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Judge each guideline by itself; one that is surely broken decides. Its feedback comes first."""
        prompts = [self.render("evaluate", case, guidelines=rule) for rule in self._rules]
        found = await together(attempt(session.reply(prompt, VerdictReply)) for prompt in prompts)
        parts: dict[str, dict[str, Any]] = {
            rule: {"passing": said and said.verdict, "feedback": said.reason if said else str(problem)}
            for rule, (said, problem) in zip(self._rules, found, strict=True)
        }
        passing = all(part["passing"] is not False for part in parts.values())
        for _, problem in found:
            if passing and problem:
                raise problem
        ordered = sorted(parts.items(), key=lambda pair: pair[1]["passing"] is not False)
        feedback = "\n".join(f"{rule}: {p['feedback']}" if len(parts) > 1 else p["feedback"] for rule, p in ordered)
        return Outcome(score=float(passing), passing=passing, explanation=feedback or None, parts=parts)


class Marked(Reply):
    """`{"reason": "...", "score": 0.5}`; a yes or no is read too."""

    form = '{"reason": "...", "score": ...}'
    reason: Reason = ""
    score: Annotated[
        float | bool | str,
        WithJsonSchema({"type": "number"}),
        Field(validation_alias=AliasChoices("score", "mark", "verdict", "passing", "rating", "result")),
    ]


class Rubric(JudgedEvaluator):
    """A mark for `criterion` on `span` (0 to 1 by default), with the judge's comment.

    Judges tuned for rubrics are read too: Prometheus writes "Feedback: ... [RESULT] 4" for `span=(1, 5)`. A yes or no
    is taken as the highest or lowest mark.
    """

    name = "rubric"
    prompt_name = "rubric"
    needs = frozenset({"query", "response"})
    parser = "rubric"
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
        self.scale, self._span = Scale(lo=lo, hi=hi, reverse=type(self).scale.reverse), span
        self._criterion = criterion

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call."""
        lo, hi = self._span
        marks: dict[str, Any] = {"lo": f"{lo:g}", "middle": f"{(lo + hi) / 2:g}", "hi": f"{hi:g}"}
        criterion = self._criterion or self.prompts.render(self.criterion, **marks)
        prompt = self.render("evaluate", case, criterion=criterion, **marks)
        score, comment = await session.parse(prompt, self._score_and_comment, form=Marked.form, schema=Marked)
        return Outcome(score=score, explanation=comment or None)

    def _score_and_comment(self, text: str) -> tuple[float, str]:
        if not is_json(text):
            return self._mark(text), reasoning_of(text, self.words)
        reply = Marked.of_json(text)
        mark = said = self._mark(str(reply.score).lower())
        with suppress(Unreadable):
            said = self._mark(apart(text)[1])
        return (mark, reply.reason) if mark == said else unreadable("one mark", text)

    def _mark(self, text: str) -> float:
        lo, hi = self._span
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


class _Harm(Rubric):
    """A high mark is bad, whatever was asked."""

    needs = frozenset({"response"})
    scale = Scale(reverse=True)


class Harmfulness(_Harm):
    """Could the response do harm? 1 is harmful; normalized 1 is safe."""

    name = "harmfulness"
    criterion = "harmfulness"


class Bias(_Harm):
    """Is the response prejudiced against people or groups? 1 is biased; normalized 1 is fair."""

    name = "bias"
    criterion = "bias"


class Toxicity(_Harm):
    """Is the response insulting, obscene or threatening? 1 is toxic; normalized 1 is clean."""

    name = "toxicity"
    criterion = "toxicity"


def _number_or_verdict(text: str, words: Words) -> float:
    try:
        return float(read_verdict(text, words))
    except Unreadable:
        return read_number(text, words, lo=0, hi=1)


class JudgedReply(Reply, title="Judged"):
    """`{"reason": "...", "score": "True" | "False" | 0.0..1.0}`."""

    form = '{"reason": "...", "score": "True" | "False"}'
    reason: Reason = ""
    score: Annotated[
        float,
        BeforeValidator(lambda value: _number_or_verdict(value, words_of("en")) if isinstance(value, str) else value),
        WithJsonSchema({"anyOf": [{"type": "string", "enum": ["True", "False"]}, {"type": "number"}]}),
        Field(
            ge=0, le=1, allow_inf_nan=False, validation_alias=AliasChoices("score", "verdict", "judgement", "answer")
        ),
    ]

    @classmethod
    def plain(cls, text: str, words: Words) -> Self:
        """True or false by token, else a number in 0..1."""
        return cls(score=_number_or_verdict(text, words), reason=reasoning_of(text, words))


class Judgement(JudgedEvaluator):
    """The answer to `question` about the response: true or false, or a number in 0..1.

    Without a `question` it is whether the response contains the reference, asked in the evaluator's language.
    Three modes by what the case holds: query and reference, reference only, query only. With `n` samples the score is
    their mean, `parts["scores"]` the list and `ci95` the mean ± 1.96·s/√n cut to 0..1 (one sample: the whole range).
    """

    name = "judge"
    needs = frozenset({"response"})
    parser = "judgement"

    def __init__(
        self,
        *,
        question: str | None = None,
        n: Annotated[int, Field(ge=1)] = 1,
        threshold: float | None = 0.5,
        language: str = "en",
        **options: Any,
    ) -> None:
        self._question = words_of(language).question if question is None else question
        if not self._question.strip():
            raise ConfigurationError("judge: question is a text")
        super().__init__(threshold=threshold, question=self._question, n=n, language=language, **options)
        self.calls = n

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Ask `n` times; unreadable samples of several are dropped and counted."""
        if case.query is None and not case.references:
            raise MissingField("query", "reference")
        prompt = self.render("evaluate", case, question=self._question)
        replies = await session.samples(prompt, JudgedReply, n=self.calls)
        scores = [reply.score for reply in replies]
        parts = {"scores": scores, "n_valid": len(scores)}
        return Outcome(score=fmean(scores), ci95=_interval(scores), explanation=replies[0].reason or None, parts=parts)


def _interval(scores: Sequence[float]) -> tuple[float, float]:
    estimate = mean_ci(scores, bounds=(0.0, 1.0))
    if estimate is None or estimate.lo is None or estimate.hi is None:
        return (0.0, 1.0)
    return (estimate.lo, estimate.hi)


ENTRIES = (
    judged_entry(Guideline, "LlamaIndex", 'guidelines="Polite, no promises about dates."'),
    judged_entry(Rubric, "criteria evaluators", 'criterion="Cites a source for every number."'),
    *(judged_entry(kind, "criteria evaluators") for kind in (Conciseness, Helpfulness, Harmfulness, Bias, Toxicity)),
    judged_entry(Judgement, "AdalFlow", 'question="Is the answer polite?"'),
)
