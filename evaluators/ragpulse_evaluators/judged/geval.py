"""G-Eval: a dimension of a text marked many times, averaged over samples or over log-probabilities."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, MissingField, Unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, judged_entry
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judges.parsing import read_number
from ragpulse_evaluators.judges.protocol import for_sampling
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import JudgeCall, Outcome

__all__ = ("DIMENSIONS", "ENTRIES", "GEval", "expected_mark")

DIMENSIONS: Mapping[str, Mapping[str, int]] = {
    "summarization": {"Relevance": 5, "Fluency": 3, "Consistency": 5, "Coherence": 5},
    "chatbot": {"Naturalness": 3, "Coherence": 3, "Engagingness": 3, "Groundedness": 1},
}
"""Highest mark of each dimension, by task; marks begin at 1, groundedness at 0."""


@dataclass(frozen=True)
class _Mark:
    score: float
    n_valid: int


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


class GEval(JudgedEvaluator):
    """Quality of a response by dimension, each as mark over highest mark.

    `task` is "summarization" (source: contexts, else query; summary: response) or "chatbot" (dialogue: query; facts:
    contexts). `dimension` asks for one, on its native scale; without it the score is the mean over all. Each mark is
    the mean of `n` samples, or of one reply's log-probabilities with `use_logprobs`. Unreadable samples are dropped and
    counted in `parts["n_valid"]`; a dimension without any is None and left out of the mean.
    """

    name = "geval"
    needs = frozenset({"response"})
    scale = Scale(lo=0, hi=1, kind="ratio")
    parser: ClassVar[str] = "mark-samples"
    cost_class = "k calls"
    reply_tokens = 5

    def __init__(
        self,
        *,
        task: str = "summarization",
        dimension: str | None = None,
        n: int = 20,
        use_logprobs: bool = False,
        **options: Any,
    ) -> None:
        if task not in DIMENSIONS:
            raise ConfigurationError(f"geval: task is one of {', '.join(DIMENSIONS)}, not {task!r}")
        known = {name.casefold(): name for name in DIMENSIONS[task]}
        if dimension is not None and dimension.casefold() not in known:
            raise ConfigurationError(f"geval: dimension of {task} is one of {', '.join(known)}, not {dimension!r}")
        if n < 1:
            raise ConfigurationError("geval: n is at least 1")
        if options.get("canary"):
            raise ConfigurationError("geval: its replies are bare marks, which can carry no canary")
        super().__init__(evaluated=task, dimension=dimension, n=n, use_logprobs=use_logprobs, **options)
        self._task, self._n, self._logprobs = task, n, use_logprobs
        self._asked = [known[dimension.casefold()]] if dimension else list(DIMENSIONS[task])
        if dimension:
            self.scale = Scale(lo=0, hi=DIMENSIONS[task][self._asked[0]], kind="ratio")
        if self.judge is not None and n > 1 and not use_logprobs:
            self.judge = for_sampling(self.judge, 1.0)  # the method is a mean over samples: they must differ

    async def assess(self, case: Case, session: Session) -> Outcome:
        """Mark every dimension, then average."""
        if case.query is None and not case.texts:
            raise MissingField("contexts", "query")
        marks = await asyncio.gather(*(self._mark(dimension, case, session) for dimension in self._asked))
        units = {
            name: None if mark is None else mark.score / DIMENSIONS[self._task][name]
            for name, mark in zip(self._asked, marks, strict=True)
        }
        present = [unit for unit in units.values() if unit is not None]
        if not present:
            raise Unreadable(f"no readable mark for {', '.join(self._asked)}")
        valid = {name: 0 if mark is None else mark.n_valid for name, mark in zip(self._asked, marks, strict=True)}
        overall = fmean(present)
        score = overall if len(self._asked) > 1 or marks[0] is None else marks[0].score
        return Outcome(score=score, explanation=_shown(units), parts={**units, "overall": overall, "n_valid": valid})

    async def _mark(self, dimension: str, case: Case, session: Session) -> _Mark | None:
        """The mean mark of one dimension, or None where no sample can be read."""
        highest = DIMENSIONS[self._task][dimension]
        lowest = 0 if highest == 1 else 1
        criterion = self.prompts.render(f"{self._task}_{dimension.casefold()}")
        source = "\n\n".join(case.texts) or case.query
        span: dict[str, Any] = {"lowest": lowest, "highest": highest}
        prompt = self.render(self._task, case, source=source, criterion=criterion, dimension=dimension, **span)
        calls = await session.ask(prompt, n=1 if self._logprobs else self._n, logprobs=self._logprobs)
        marks = [mark for call in calls if (mark := self._read(call, dimension, lowest, highest)) is not None]
        return _Mark(fmean(marks), len(marks)) if marks else None

    def _read(self, call: JudgeCall, dimension: str, lowest: int, highest: int) -> float | None:
        try:
            if self._logprobs and call.logprobs:
                return expected_mark(call.logprobs, lowest, highest)
            bare = re.sub(rf"^\W*{dimension}\s*:", "", call.completion, flags=re.IGNORECASE)
            return read_number(bare, self.words, lo=lowest, hi=highest)
        except Unreadable:
            return None

    def calls_for(self, case: Case) -> int:
        """Samples times dimensions."""
        return len(self._asked) * (1 if self._logprobs else self._n)


def _shown(units: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'unreadable' if unit is None else format(unit, '.3g')}" for name, unit in units.items())


ENTRIES: tuple[Entry, ...] = (judged_entry(GEval, "G-Eval (arXiv:2303.16634)", 'task="summarization", n=20'),)
