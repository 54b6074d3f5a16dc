"""GroUSE: four judged metrics of a grounded answer, two derived from them, and the chain of all six.

    answer relevancy, completeness ──▶ positive acceptance, negative rejection
          │ null
          ▼
      usefulness ── null ──▶ faithfulness is null without a call;  else faithfulness

A metric that does not apply is null: its result is `ok` with neither score nor normalized, label "null".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, WithJsonSchema, create_model

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import Unreadable, excerpt
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession
from ragpulse_evaluators.judges.parsing import is_nothing, read_json, read_number
from ragpulse_evaluators.judges.tokens import unwrapped, words_of
from ragpulse_evaluators.result import EvaluationResult, Outcome

_LIKERT, _BINARY = Scale(lo=1, hi=5), Scale(lo=0, hi=1)
METRICS: Mapping[str, Scale] = {
    "answer_relevancy": _LIKERT,
    "completeness": _LIKERT,
    "faithfulness": _BINARY,
    "usefulness": _BINARY,
    "positive_acceptance": _BINARY,
    "negative_rejection": _BINARY,
}
"""The six metrics and their scales, in the order of the report."""


_NULL = words_of("en").none | {"not applicable"}


@dataclass(frozen=True)
class Grade:
    """The judge's grade of one metric; `score` None means null: the metric does not apply."""

    score: float | None
    justification: str = ""

    def outcome(self) -> Outcome:
        """As an evaluator's outcome."""
        return Outcome(
            score=self.score, label="null" if self.score is None else None, explanation=self.justification or None
        )


class Sentence(BaseModel):
    """One sentence under faithfulness' three questions: cited, rightly cited, undistorted."""

    sentence: str
    criterion_1: str
    criterion_2: str
    criterion_3: str


_CONSIDERED: Mapping[str, Mapping[str, Any]] = {
    "answer_relevancy": {"answer_affirms_no_document_answers": (bool, ...)},
    "completeness": {},
    "faithfulness": {
        "answer_only_asserts_no_document_answers": (bool, ...),
        "content_analysis_sentence_by_sentence": (list[Sentence], ...),
    },
    "usefulness": {
        "answer_affirms_no_document_answers": (bool, ...),
        "answer_contains_related_information": (bool, ...),
    },
}
"""Fields that the judge fills in before each grade."""


def _pair(metric: str) -> type[BaseModel]:
    """The shape asked for: both answers, each considered, justified and graded in this order."""
    scale = METRICS[metric]
    grades = {"type": "integer", "enum": list(range(int(scale.lo), int(scale.hi or 1) + 1))}
    grade = Annotated[int | None, WithJsonSchema({"anyOf": [grades, {"type": "null"}]})]
    graded = {f"{metric}_justification": (str, ...), metric: (grade, ...)}
    fields: dict[str, Any] = {**_CONSIDERED[metric], **graded}
    answer: Any = create_model(f"Answer_{metric}", **fields)
    return create_model(f"Pair_{metric}", answer_1=(answer, ...), answer_2=(answer, ...))


_PAIRS = {metric: _pair(metric) for metric in _CONSIDERED}


def read_grade(text: str, metric: str) -> Grade:
    """The grade of the answer under test: of `answer_2` in the pair form, or of the object itself."""
    reply = unwrapped(read_json(text), {"answer_1", "answer_2", metric})
    answer = reply.get("answer_2", reply)
    answer = unwrapped(answer, {metric}) if isinstance(answer, dict) else {}
    if metric not in answer:
        raise Unreadable(f"no {metric!r} in {excerpt(text)!r}")
    return Grade(_grade_value(answer[metric], metric), str(answer.get(f"{metric}_justification", "")))


def _grade_value(value: Any, metric: str) -> float | None:
    scale = METRICS[metric]
    if is_nothing(value, _NULL):
        return None
    try:
        if isinstance(value, str):
            score = read_number(value, words_of("en"), lo=0, hi=float(scale.hi or 1))
        else:
            score = float(value)
        if isinstance(value, bool) and scale is _LIKERT:
            raise ValueError
    except (TypeError, ValueError):
        raise Unreadable(f"{metric} is {excerpt(str(value))!r}") from None
    if score not in range(int(scale.lo), int(scale.hi or 1) + 1):
        raise Unreadable(f"{metric} is {score:g}, not a whole number in {scale.lo:g}..{scale.hi:g}")
    return score


class _Grouse(JudgedEvaluator):
    """Base of the six: one prompt file with a block per metric."""

    prompt_name = "grouse"
    parser = "grouse-pair"
    reply_tokens = 500

    @property
    def metric(self) -> str:
        """The metric that the class stands for; an instance may have another name."""
        return type(self).name.removeprefix("grouse_")

    async def grade(self, metric: str, case: Case, session: JudgeSession) -> Grade:
        """Ask for one metric."""
        form = f'{{"answer_1": {{...}}, "answer_2": {{"{metric}_justification": "...", "{metric}": ...}}}}'
        prompt = self.render(metric, case)
        return await session.parse(prompt, lambda text: read_grade(text, metric), form=form, schema=_PAIRS[metric])


class _Single(_Grouse):
    """One judged metric by itself."""

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call."""
        return (await self.grade(self.metric, case, session)).outcome()


class GrouseAnswerRelevancy(_Single):
    """Does the answer address the question, 1 to 5? Null where it says that no document does."""

    name = "grouse_answer_relevancy"
    needs = frozenset({"query", "response", "reference"})
    scale = _LIKERT


class GrouseCompleteness(_Single):
    """Does the answer contain everything the contexts say on the question, 1 to 5? Null where they say nothing."""

    name = "grouse_completeness"
    needs = frozenset({"query", "response", "reference", "contexts"})
    scale = _LIKERT


class GrouseFaithfulness(_Single):
    """Is every sentence cited, and supported by the context it cites? 1, 0, or null where nothing is stated."""

    name = "grouse_faithfulness"
    needs = frozenset({"response", "reference", "contexts"})


class GrouseUsefulness(_Single):
    """Where no document answers, is the additional information still useful? 1, 0, or null where it does not apply."""

    name = "grouse_usefulness"
    needs = frozenset({"query", "response", "reference"})


def derive(relevancy: float | None, completeness: float | None) -> dict[str, float | None]:
    """Positive acceptance (answered when it should) and negative rejection (refrained when nothing could answer)."""
    answerable, has_answer = completeness is not None, relevancy is not None
    return {
        "positive_acceptance": float(has_answer) if answerable else None,
        "negative_rejection": None if answerable else float(not has_answer),
    }


class _Derived(_Grouse):
    """A metric that follows from answer relevancy and completeness; two calls."""

    needs = frozenset({"query", "response", "reference", "contexts"})
    cost_class = "k calls"
    calls = 2

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """Ask for both, then derive."""
        relevancy = await self.grade("answer_relevancy", case, session)
        completeness = await self.grade("completeness", case, session)
        return Grade(derive(relevancy.score, completeness.score)[self.metric], relevancy.justification).outcome()


class GrousePositiveAcceptance(_Derived):
    """Did the answer respond when the contexts allow it? 1, 0, or null where they do not."""

    name = "grouse_positive_acceptance"


class GrouseNegativeRejection(_Derived):
    """Did the answer refrain when no context answers? 1, 0, or null where one does."""

    name = "grouse_negative_rejection"


class Grouse(_Grouse):
    """The six GroUSE metrics by one chain of two to four calls.

    `parts` holds each metric's native score by its short name; None is null, and a metric whose reply could not be read
    is absent, which makes the whole result invalid. The score is the mean of the normalized metrics that apply.
    """

    name = "grouse"
    needs = frozenset({"query", "response", "reference", "contexts"})
    cost_class = "k calls"
    calls = 4
    """At most."""

    async def assess(self, case: Case, session: JudgeSession) -> Outcome | EvaluationResult:
        """Run the chain; an unreadable answer relevancy also fails what depends on it."""
        grades, problems = await self._chain(case, session)
        parts: dict[str, Any] = {metric: grades[metric].score for metric in METRICS if metric in grades}
        if problems:
            return EvaluationResult(status="invalid", explanation="; ".join(problems), parts=parts)
        units = [scale.normalize(score) for metric, scale in METRICS.items() if (score := parts[metric]) is not None]
        reasons = [f"{metric}: {grade.justification}" for metric, grade in grades.items() if grade.justification]
        present = [unit for unit in units if unit is not None]
        return Outcome(score=fmean(present), explanation="\n".join(reasons) or None, parts=parts)

    async def _chain(self, case: Case, session: JudgeSession) -> tuple[dict[str, Grade], list[str]]:
        grades: dict[str, Grade] = {}
        problems: list[str] = []

        async def attempt(metric: str) -> Grade | None:
            try:
                grades[metric] = await self.grade(metric, case, session)
            except Unreadable as unreadable:
                problems.append(f"{metric}: {unreadable}")
            return grades.get(metric)

        relevancy = await attempt("answer_relevancy")
        completeness = await attempt("completeness")
        if relevancy is None:
            return grades, problems
        if relevancy.score is not None:
            grades["usefulness"] = Grade(None)
            await attempt("faithfulness")
        elif (usefulness := await attempt("usefulness")) and usefulness.score is None:
            grades["faithfulness"] = Grade(None)
        else:
            await attempt("faithfulness")
        if completeness is not None:
            derived = derive(relevancy.score, completeness.score)
            grades.update({metric: Grade(score) for metric, score in derived.items()})
        return grades, problems


_KINDS: tuple[type[_Grouse], ...] = (
    Grouse,
    GrouseAnswerRelevancy,
    GrouseCompleteness,
    GrouseFaithfulness,
    GrouseUsefulness,
    GrousePositiveAcceptance,
    GrouseNegativeRejection,
)
ENTRIES = tuple(judged_entry(kind, "GroUSE (arXiv:2409.06595)") for kind in _KINDS)
