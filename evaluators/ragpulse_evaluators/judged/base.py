"""The base of judged evaluators: a judge, a prompt file in a language, a session that records the calls."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, ContextTooLong
from ragpulse_evaluators.evaluator import CostClass, Estimate, Evaluator, as_outcome
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judged.templates import PromptFile, fields_of
from ragpulse_evaluators.judges.litellm import as_judge
from ragpulse_evaluators.judges.parsing import words_of
from ragpulse_evaluators.judges.protocol import Judge, Message, count_tokens, max_tokens_of, split_text, with_sampling
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome


class JudgedEvaluator(Evaluator):
    """Base of the judged families: subclasses write `assess`.

    `judge` is a model name or a judge, `language` chooses prompts and verdict words, `prompts` is a folder whose files
    replace the built-in prompts, `repair=False` makes an unreadable reply invalid at once. With `canary` the judge must
    repeat a mark that no author of the material can know: a verdict copied out of the material is invalid. `examples`
    (worked cases with their mark) and `task` (a sentence in front) are what alignment with people trains. `max_tokens`
    limits a reply, reasoning included; without it the judge's own limit holds.
    """

    prompt_name: ClassVar[str | None] = None
    """Folder of the prompts, where it is not the evaluator's name."""
    cost_class: CostClass = "1 call"
    wants_judge = True
    calls: ClassVar[int] = 1
    """Judge calls of a case, where they are the same for each."""
    reply_tokens: ClassVar[int] = 200
    """Tokens one reply is expected to need, for estimates."""
    repairs: ClassVar[bool] = True
    """Whether an unreadable reply is repaired; False where samples are dropped instead."""

    def __init__(
        self,
        *,
        judge: str | Judge | None = None,
        language: str = "en",
        prompts: str | Path | None = None,
        repair: bool = True,
        canary: bool = False,
        threshold: float | None = None,
        examples: Sequence[Mapping[str, Any]] = (),
        task: str | None = None,
        max_tokens: Annotated[int, Field(ge=1)] | None = None,
        **params: Any,
    ) -> None:
        training = {"examples": [dict(example) for example in examples], "task": task} if examples or task else {}
        super().__init__(threshold=threshold, repair=repair, canary=canary, **training, **params)
        self.max_tokens = max_tokens
        self.judge = as_judge(judge)
        if self.judge is not None and max_tokens is not None:
            self.judge = with_sampling(self.judge, max_tokens=max_tokens)
        self.language = language
        self.words = words_of(language)
        self.prompts = PromptFile(self.prompt_name or self.name, language, prompts)
        self._repair, self._canary = repair, canary

    def prompt(self) -> str:
        """The source of the prompt file."""
        return self.prompts.source

    def render(self, step: str, case: Case, *, file: PromptFile | None = None, **extra: Any) -> list[Message]:
        """Fill in one step of the prompt (or of another file) with the case: a system and a user message.

        The trained task and examples follow the instructions; earlier turns of the conversation precede the material.
        """
        fields = {**fields_of(case), **extra}
        source = file or self.prompts
        user = self._earlier_turns(fields) + source.render(step, **fields)
        system = source.render(f"{step}_system", **fields) if source.has(f"{step}_system") else ""
        training = self._training(fields["fence"])
        if not system:
            return [{"role": "user", "content": training + user}]
        return [{"role": "system", "content": f"{system}\n\n{training}".strip()}, {"role": "user", "content": user}]

    def _earlier_turns(self, fields: Mapping[str, Any]) -> str:
        """The history as fenced text with its heading; empty without history."""
        if not fields["history"]:
            return ""
        return f"{self.words.history}\n{fields['fence']('history', fields['history'])}\n\n"

    def _training(self, fence: Callable[[str, str], str]) -> str:
        task, examples = self.params.get("task"), self.params.get("examples", ())
        head = f"{task}\n\n" if task else ""
        blocks = [fence("example", _as_lines(example)) for example in examples]
        return head + "".join(f"{block}\n\n" for block in ([self.words.examples, *blocks] if blocks else []))

    def trained(self, *, examples: Sequence[Mapping[str, Any]] = (), task: str | None = None) -> Self:
        """A copy with worked examples (mappings such as query, response, score) and a task; it has its own version."""
        copied = copy.copy(self)
        vars(copied).pop("version", None)
        copied.params = {**self.params, "examples": [dict(example) for example in examples], "task": task}
        return copied

    @abstractmethod
    async def assess(self, case: Case, session: Session) -> Any:
        """Score one case by asking through `session`."""

    async def run(self, case: Case) -> Any:
        """Score one case without recording the calls."""
        return await self._attempt(case, [])

    async def _attempt(self, case: Case, calls: list[JudgeCall]) -> Any:
        if self.judge is None:
            raise ConfigurationError(f"{self.name} needs a judge: pass judge='provider/model'")
        try:
            return await self._assess(case, calls, self.judge)
        except ContextTooLong as error:
            packed = _packed(case, error.window, max_tokens_of(self.judge))
            if packed is None:
                raise
            return _noted(await self._assess(packed, calls, self.judge), case, packed)

    async def _assess(self, case: Case, calls: list[JudgeCall], judge: Judge) -> Any:
        canary = fields_of(case)["mark"] if self._canary else None
        return await self.assess(case, Session(judge, calls, self.words, repair=self._repair, canary=canary))

    def calls_for(self, case: Case) -> int:
        """The number of judge calls of this case when every reply can be read."""
        del case
        return self.calls

    def estimate(self, case: Case) -> Estimate:
        """Calls, prompt and reply tokens: every call is counted with the whole case in it."""
        calls = self.calls_for(case)
        return self._estimate(
            case,
            calls=calls,
            instructions=count_tokens(self.prompts.source),
            reply=self.reply_tokens,
            repairs=calls if self._repair and self.repairs else 0,
        )


def _packed(case: Case, window: int | None, max_tokens: int) -> Case | None:
    """The case with its contexts cut so that they may fit into `window`; None where contexts are not what is long.

    Every context keeps its place: long ones lose their end, short ones stay whole. Without a known window the contexts
    get half of their present size.
    """
    sizes = [count_tokens(text) for text in case.texts]
    budget = sum(sizes) // 2
    if window is not None:
        fixed = sum(count_tokens(text or "") for text in (case.query, case.response, *case.references))
        budget = min(sum(sizes) - 1, int(0.7 * window) - min(max_tokens, window // 4) - fixed)
    if not sizes or budget < 16 * len(sizes):
        return None
    limit = _limit(sizes, budget)
    contexts = tuple(c.model_copy(update={"text": split_text(c.text, limit)[0]}) for c in case.contexts or ())
    return case.model_copy(update={"contexts": contexts})


def _limit(sizes: Sequence[int], budget: int) -> int:
    """The most tokens one context may have so that all together have `budget`."""
    count = len(sizes)
    for size in sorted(sizes):
        if size > budget // count:
            break
        budget, count = budget - size, max(1, count - 1)
    return budget // count


def _noted(value: Any, case: Case, packed: Case) -> Outcome | EvaluationResult:
    """The outcome with a note on what was cut."""
    tokens, of = (sum(count_tokens(text) for text in item.texts) for item in (packed, case))
    note = f"(the contexts were cut to {tokens} of {of} tokens: the judge's window is too small)"
    outcome = as_outcome(value)
    change: dict[str, Any] = {
        "explanation": f"{outcome.explanation or ''} {note}".strip(),
        "parts": {**outcome.parts, "packed_contexts": {"tokens": tokens, "of": of}},
    }
    return outcome.model_copy(update=change) if isinstance(outcome, EvaluationResult) else replace(outcome, **change)


def _as_lines(example: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in example.items())


def judged_entry(kind: type[JudgedEvaluator], source: str, options: str = "") -> Entry:
    """The entry of a judged evaluator; its example names a judge."""
    return Entry.of(kind, source=source, options=", ".join(filter(None, ('judge="openai/gpt-5-mini"', options))))
