"""G-Eval: a dimension of a text marked many times, averaged over samples or over log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable
from ragpulse_evaluators.evaluator import Estimate, Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, attempt
from ragpulse_evaluators.judges.parsing import final_text, read_number
from ragpulse_evaluators.judges.protocol import brief, together
from ragpulse_evaluators.judges.replies import end_of
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome

DIMENSIONS: Mapping[str, Mapping[str, int]] = {
    "summarization": {"Relevance": 5, "Fluency": 3, "Consistency": 5, "Coherence": 5},
    "chatbot": {"Naturalness": 3, "Coherence": 3, "Engagingness": 3, "Groundedness": 1},
}
"""Highest mark of each dimension, by task; marks begin at 1, groundedness at 0."""

_MARK_TOKENS = 16
_OWN = "criterion"
"""The block of the prompt file, and the part, of your own criterion."""


def expected_mark(logprobs: Mapping[str, float], lowest: int, highest: int) -> float:
    """The mean of the marks among the first token's candidates, weighted by probability; others are left out."""
    weights: dict[int, float] = {}
    for token, logprob in logprobs.items():
        if token.strip().isascii() and token.strip().isdigit() and lowest <= int(token) <= highest:
            weights[int(token)] = weights.get(int(token), 0.0) + math.exp(logprob)
    total = math.fsum(weights.values())
    if not total:
        raise Unreadable(f"no candidate is a mark in {lowest}..{highest}: {sorted(logprobs)}")
    return math.fsum(mark * weight for mark, weight in weights.items()) / total


class _Dimension(NamedTuple):
    """A dimension with its lowest and highest mark."""

    name: str
    lowest: int
    highest: int

    def ratio(self, mark: float) -> float:
        """The mark as a share: of the highest mark for the built-in dimensions, else of the span."""
        return mark / self.highest if self.name != _OWN else (mark - self.lowest) / (self.highest - self.lowest)


class GEval(JudgedEvaluator):
    """Quality of a response by dimension, each as mark over highest mark; or one mark for a `criterion` of your own.

    `task` is "summarization" (source: contexts, else query; summary: response) or "chatbot" (dialogue: query; facts:
    contexts). `dimension` asks for one, on its native scale; without it the score is the mean over all. With
    `criterion` (a sentence or more), `steps` (how to proceed) and `span` (whole lowest and highest mark) the score is
    native on `span`. Each mark is the mean of `n` samples, or of one reply's log-probabilities with `use_logprobs`.
    Unreadable samples are dropped and counted in `parts["n_valid"]`; a dimension without any makes the result invalid.
    A judge whose replies are known to be brief is asked for no more than `_MARK_TOKENS` a sample.
    """

    name = "geval"
    needs = frozenset({"response"})
    scale = Scale(lo=0, hi=1, kind="ratio")
    parser = "mark-samples"
    cost_class = "k calls"
    reply_tokens = 5
    repairs = False

    def __init__(
        self,
        *,
        task: str = "summarization",
        dimension: str | None = None,
        criterion: str | None = None,
        steps: str | Sequence[str] | None = None,
        span: tuple[int, int] = (1, 5),
        n: Annotated[int, Field(ge=1)] = 20,
        use_logprobs: bool = False,
        **options: Any,
    ) -> None:
        if options.get("canary"):
            raise ConfigurationError("geval: its replies are bare marks, which can carry no canary")
        if criterion is None and steps is not None:
            raise ConfigurationError("geval: steps belong to a criterion: give criterion='...' too")
        if criterion is not None:
            options |= {"criterion": criterion, "steps": _lines(steps), "span": tuple(span)}
        super().__init__(evaluated=task, dimension=dimension, n=n, use_logprobs=use_logprobs, **options)
        self._task, self._samples, self._logprobs = task if criterion is None else _OWN, n, use_logprobs
        if use_logprobs:
            self._samples = 1
        if criterion is not None:
            self._dimensions = [_own_dimension(criterion, span)]
            self.scale = Scale(lo=span[0], hi=span[1])
        else:
            self._dimensions = _dimensions(task, dimension)
            if dimension:
                self.scale = Scale(lo=0, hi=self._dimensions[0].highest, kind="ratio")
        self.calls = len(self._dimensions) * self._samples
        if self.judge is not None:
            self.judge = brief(self.judge, _MARK_TOKENS)

    async def assess(self, case: Case, session: JudgeSession) -> Outcome | EvaluationResult:
        """Mark every dimension, then average."""
        if self._task != _OWN and case.query is None and not case.texts:
            raise MissingField("contexts", "query")
        marks = await together(attempt(self._marks(dimension, case, session)) for dimension in self._dimensions)
        pairs = list(zip(self._dimensions, marks, strict=True))
        ratios = {dim.name: dim.ratio(fmean(said)) if said else None for dim, (said, _) in pairs}
        explanation = _explanation(ratios)
        for _, problem in marks:
            if problem:
                why = f"no readable mark ({explanation}): {problem}"
                return EvaluationResult(status="invalid", explanation=why, parts=dict(ratios))
        overall = fmean(ratio for ratio in ratios.values() if ratio is not None)
        n_valid = {dim.name: len(said or ()) for dim, (said, _) in pairs}
        score = overall if len(pairs) > 1 else fmean(marks[0][0] or ())
        return Outcome(score=score, explanation=explanation, parts={**ratios, "overall": overall, "n_valid": n_valid})

    async def _marks(self, dimension: _Dimension, case: Case, session: JudgeSession) -> list[float]:
        """The marks of one dimension in the samples that can be read."""
        source = "\n\n".join(case.texts) or case.query
        span: dict[str, Any] = {"lowest": dimension.lowest, "highest": dimension.highest, "dimension": dimension.name}
        prompt = self.render(self._task, case, source=source, **span, **self._criterion_of(dimension))
        read = partial(self._mark_in, dimension=dimension)
        return await session.readable(prompt, read, n=self._samples, logprobs=self._logprobs)

    def _criterion_of(self, dimension: _Dimension) -> dict[str, Any]:
        """Criterion and steps: your own, or those of the prompt file."""
        if self._task == _OWN:
            return {"criterion": self.params["criterion"], "steps": self.params["steps"]}
        block = f"{self._task}_{dimension.name.casefold()}"
        return {"criterion": self.prompts.render(block), "steps": self.prompts.render(f"{block}_steps")}

    def _mark_in(self, call: JudgeCall, dimension: _Dimension) -> float:
        if call.logprobs and end_of(call.finish_reason) == "length" and dimension.highest < 10:
            call = call.model_copy(update={"finish_reason": "stop"})  # the first token is the whole mark
        text = final_text(call)
        candidates = [token.strip() for token in call.logprobs or ()]
        is_whole = dimension.highest < 10 or any(len(one) > 1 and one.isdigit() for one in candidates)
        if self._logprobs and call.logprobs and is_whole and text == call.completion.strip():
            return expected_mark(call.logprobs, dimension.lowest, dimension.highest)
        return read_number(text, self.words, lo=dimension.lowest, hi=dimension.highest)

    def estimate(self, case: Case) -> Estimate:
        """As for every judged evaluator; a reply that a brief limit cuts is asked for once more."""
        estimate = super().estimate(case)
        requests = 2 if getattr(self.judge, "is_brief", False) else 1
        return replace(estimate, max_input_tokens=requests * estimate.max_input_tokens)


def _dimensions(task: str, dimension: str | None) -> list[_Dimension]:
    if task not in DIMENSIONS:
        raise ConfigurationError(f"geval: task is one of {', '.join(DIMENSIONS)}, not {task!r}")
    all_dimensions = {
        name.casefold(): _Dimension(name, 0 if highest == 1 else 1, highest)
        for name, highest in DIMENSIONS[task].items()
    }
    if dimension is None:
        return list(all_dimensions.values())
    if dimension.casefold() not in all_dimensions:
        names = ", ".join(all_dimensions)
        raise ConfigurationError(f"geval: dimension of {task} is one of {names}, not {dimension!r}")
    return [all_dimensions[dimension.casefold()]]


def _own_dimension(criterion: str, span: tuple[int, int]) -> _Dimension:
    if not criterion.strip():
        raise ConfigurationError("geval: criterion is a text")
    lowest, highest = span
    if not 0 <= lowest < highest:
        raise ConfigurationError(f"geval: span is (lowest, highest), two whole numbers from 0 on, not {span!r}")
    return _Dimension(_OWN, lowest, highest)


def _lines(steps: str | Sequence[str] | None) -> str:
    lines = [steps] if isinstance(steps, str) else list(steps or ())
    return lines[0] if len(lines) == 1 else "\n".join(f"{i}. {step}" for i, step in enumerate(lines, start=1))


def _explanation(ratios: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'unreadable' if r is None else format(r, '.3g')}" for name, r in ratios.items())


ENTRIES = (judged_entry(GEval, "G-Eval (arXiv:2303.16634)", 'task="summarization", n=20'),)
