"""Perplexity of an answer, from log-probabilities that were recorded with it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, Unreadable
from ragpulse_evaluators.evaluator import PlainEvaluator, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

_SCALE = Scale(lo=1.0, hi=None, reverse=True)


class Perplexity(PlainEvaluator):
    """exp(-mean log-probability) of the answer's tokens; 1 is certainty, there is no upper end.

    Read from the case's metadata `logprobs`: numbers, or objects with a `logprob` as OpenAI's `content` lists them.
    Skipped where none were recorded. No `normalized`: values of two models do not compare.
    """

    name = "perplexity"
    scale = _SCALE
    parser = "logprobs"

    async def run(self, case: Case) -> Outcome:
        """Average what was recorded."""
        recorded = case.metadata.get("logprobs")
        if isinstance(recorded, Mapping):
            recorded = recorded.get("content")
        if not recorded:
            raise MissingField("metadata.logprobs")
        values = _values(recorded)
        surprise = max(0.0, -math.fsum(values) / len(values))
        if surprise > 700.0:
            raise Unreadable("the recorded log-probabilities are too small to be real")
        return Outcome(score=math.exp(surprise), parts={"tokens": len(values)})


def _values(recorded: Iterable[Any]) -> list[float]:
    values: list[Any] = [entry.get("logprob") if isinstance(entry, Mapping) else entry for entry in recorded]
    if not all(isinstance(value, int | float) and value <= 1e-9 for value in values):
        raise Unreadable("log-probabilities are numbers not above 0")
    return [float(value) for value in values]


ENTRIES = (
    Entry.of(
        Perplexity,
        source="Jelinek et al. 1977",
        description="How surprised was the model by its own answer, by recorded log-probabilities?",
        options="threshold=5.0",
    ),
)
