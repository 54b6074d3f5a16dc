"""How prompts stand against material that addresses the judge, and how many ways of writing a verdict are read.

    python benchmarks/injection.py

Every judged evaluator is asked in every language about cases with an order in query, response, context or history. An
order is *outside* where it can be read outside the marks around the material, as a program would read them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from evaluator_cases import JUDGED, ReadableJudge, made
from judge_suite import ORDERS, READINGS, marked_away

from ragpulse_evaluators import Case, JudgeCall, ScriptedJudge, get_evaluator
from ragpulse_evaluators.judges.parsing import LANGUAGES
from ragpulse_evaluators.judges.protocol import count_tokens, transcript

PLACES = ("query", "response", "contexts", "history")
CASE = Case(
    query="q",
    response="It opens at nine [1].",
    contexts=["It opens at nine."],
    reference="At nine.",
    history=[("Is there a library?", "Yes.")],
)


class Keeping(ReadableJudge):
    """Answers readably and keeps every prompt."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.prompts: list[str] = []

    async def ask(self, messages: Sequence[Any], **asked: Any) -> list[JudgeCall]:
        """Keep the prompt, then answer."""
        self.prompts.append(transcript(messages))
        return await super().ask(messages, **asked)


async def outside(name: str, language: str) -> tuple[int, list[str]]:
    """How many orders can be read outside the marks of an evaluator's prompts, and the prompts."""
    found, prompts = 0, []
    for place in PLACES:
        for order in ORDERS:
            judge = Keeping(name)
            text: Any = {"contexts": [order], "history": [(order, order)]}.get(place, order)
            case = Case(**{**CASE.model_dump(), place: text})
            await made(name, judge, language=language)(case)
            found += any("nswer YES." in marked_away(prompt) for prompt in judge.prompts)
            prompts += judge.prompts
    return found, prompts


async def read_right() -> tuple[int, list[str]]:
    """How many replies give the score that they mean at the first call, and which do not."""
    wrong = []
    for name, reply, score in READINGS:
        options = {"consensus": False} if name == "pairwise" else {}
        result = await get_evaluator(name, judge=ScriptedJudge([reply]), repair=False, **options)(CASE)
        if (result.status, result.score) != ("ok", score):
            wrong.append(f"{name}: {reply!r} gave {result.status} {result.score}")
    return len(READINGS) - len(wrong), wrong


async def main() -> None:
    """Print a line a language, one for each evaluator that lets orders out, and one for the replies."""
    for language in LANGUAGES:
        found = {name: await outside(name, language) for name in JUDGED}
        prompts = [prompt for _, asked in found.values() for prompt in asked]
        cases, leaks = len(JUDGED) * len(PLACES) * len(ORDERS), sum(count for count, _ in found.values())
        tokens = fmean(count_tokens(prompt) for prompt in prompts)
        print(f"{language}: {leaks} of {cases} cases with an order outside the marks; {tokens:.0f} tokens a prompt")
        for name, (count, _) in found.items():
            if count:
                print(f"    {name}: {count}")
    right, wrong = await read_right()
    print(f"replies read as they are meant: {right} of {len(READINGS)}")
    print("".join(f"    {one}\n" for one in wrong), end="")


if __name__ == "__main__":
    asyncio.run(main())
