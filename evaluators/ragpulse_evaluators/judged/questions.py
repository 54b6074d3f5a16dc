"""Test questions written from stored contexts: a judge writes question and reference for each sampled passage.

As in ARES (arXiv:2311.09476) and RAGEval (arXiv:2408.01262); the cases serve as a test set for retrieval and answers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field

from ragpulse_evaluators.case import Case, Context
from ragpulse_evaluators.errors import ConfigurationError, JudgeError, MissingField, Unreadable
from ragpulse_evaluators.judged.base import PromptFile, fields_of
from ragpulse_evaluators.judged.session import JudgeSession, Reply
from ragpulse_evaluators.judges.protocol import Judge, close_judge
from ragpulse_evaluators.judges.providers import as_judge
from ragpulse_evaluators.judges.tokens import words_of
from ragpulse_evaluators.judges.wrappers import Gate, GatedJudge
from ragpulse_evaluators.result import JudgeCall


class Written(Reply):
    """One question with its answer."""

    question: str
    reference: Annotated[str, Field(validation_alias=AliasChoices("reference", "answer", "ground_truth"))]


class Questions(Reply):
    """`{"questions": [{"question": "...", "reference": "..."}]}`."""

    form = '{"questions": [{"question": "...", "reference": "..."}]}'
    questions: list[Written]


@dataclass(frozen=True, kw_only=True)
class GeneratedQuestions:
    """Questions as cases, and what became of the passages that brought none."""

    cases: tuple[Case, ...]
    """Each with query, reference, the passage as only context, and its id in `relevant_ids` where it has one."""
    skipped: Mapping[str, int]
    """Why passages brought no question: `nothing to ask`, `unreadable`, `judge failed`, `repeated`."""
    calls: tuple[JudgeCall, ...] = ()


async def generate_questions(
    contexts: Iterable[Context | str],
    judge: str | Judge,
    *,
    count: int | None = None,
    per_context: int = 1,
    language: str = "en",
    prompts: str | Path | None = None,
    seed: int = 0,
    concurrency: int = 8,
) -> GeneratedQuestions:
    """Sample `count` of the contexts (all by default) by `seed`; the judge writes `per_context` questions for each.

    `language` is that of the instructions; questions are written in the language of the passage. Equal passages and
    equal questions are taken once. A passage without a question is counted in `skipped`. Raises `ConfigurationError`
    for a wrong count, and where there is no context with text.
    """
    ready_judge = as_judge(judge)
    if ready_judge is None or per_context < 1 or (count is not None and count < 1):
        raise ConfigurationError("generate_questions needs a judge, count and per_context of at least 1")
    passages = _sampled(contexts, count, seed)
    writer = _QuestionWriter(
        GatedJudge(ready_judge, Gate(concurrency)), PromptFile("generate_questions", language, prompts)
    )
    try:
        written = await asyncio.gather(*(writer.write(passage, per_context) for passage in passages))
    finally:
        await close_judge(ready_judge)
    cases: dict[str, Case] = {}
    for case in chain.from_iterable(written):
        if cases.setdefault((case.query or "").casefold(), case) is not case:
            writer.skipped["repeated"] += 1
    return GeneratedQuestions(cases=tuple(cases.values()), skipped=dict(writer.skipped), calls=tuple(writer.calls))


def _sampled(contexts: Iterable[Context | str], count: int | None, seed: int) -> list[Context]:
    """Distinct passages with text, in their order; a sample of them where there are more than `count`."""
    all_contexts = (Context(text=item) if isinstance(item, str) else item for item in contexts)
    passages = list({context.text: context for context in all_contexts if context.text.strip()}.values())
    if not passages:
        raise ConfigurationError("generate_questions: no context has text")
    if count is None or count >= len(passages):
        return passages
    return [passages[index] for index in sorted(random.Random(seed).sample(range(len(passages)), count))]


class _QuestionWriter:
    """Asks for the questions of one passage after another."""

    def __init__(self, judge: Judge, prompts: PromptFile) -> None:
        self._judge, self._prompts = judge, prompts
        self.skipped: Counter[str] = Counter()
        self.calls: list[JudgeCall] = []

    async def write(self, passage: Context, count: int) -> list[Case]:
        """The questions of one passage; none is counted with the reason."""
        fields = {**fields_of(Case(contexts=[passage])), "count": count}
        prompt = [
            {"role": "system", "content": self._prompts.render("evaluate_system", **fields)},
            {"role": "user", "content": self._prompts.render("evaluate", **fields)},
        ]
        session = JudgeSession(self._judge, self.calls, words_of(self._prompts.language))
        try:
            written = (await session.reply(prompt, Questions)).questions
        except (Unreadable, MissingField):
            self.skipped["unreadable"] += 1
            return []
        except JudgeError:
            self.skipped["judge failed"] += 1
            return []
        usable = [item for item in written if item.question.strip() and item.reference.strip()][:count]
        if not usable:
            self.skipped["nothing to ask"] += 1
        return [_case(item, passage) for item in usable]


def _case(written: Written, passage: Context) -> Case:
    return Case(
        query=written.question.strip(),
        reference=written.reference.strip(),
        contexts=[passage],
        relevant_ids=None if passage.id is None else [passage.id],
    )
