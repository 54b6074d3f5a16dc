"""The base of judged evaluators: a judge, a prompt file in a language, a session that records the calls."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import CostClass, Estimate, Evaluator
from ragpulse_evaluators.judged.session import Session
from ragpulse_evaluators.judged.templates import PromptFile, fields_of
from ragpulse_evaluators.judges.names import as_judge
from ragpulse_evaluators.judges.parsing import words_of
from ragpulse_evaluators.judges.protocol import Judge
from ragpulse_evaluators.judges.tokens import count_tokens
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import JudgeCall

__all__ = ("JudgedEvaluator", "judged_entry")


class JudgedEvaluator(Evaluator):
    """Base of the judged families: subclasses write `assess`.

    `judge` is a model name or a judge, `language` chooses prompts and verdict words, `prompts` is a folder whose files
    replace the built-in prompts, `repair=False` makes an unreadable reply invalid at once. With `canary` the judge must
    repeat a mark that no author of the material can know: a verdict copied out of the material is invalid. `examples`
    (worked cases with their mark) and `task` (a sentence in front) are what alignment with people trains.
    """

    prompt_name: ClassVar[str | None] = None
    """Folder of the prompts, where it is not the evaluator's name."""
    cost_class: CostClass = "1 call"
    wants_judge = True
    reply_tokens: ClassVar[int] = 200
    """Tokens one reply is expected to need, for estimates."""

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
        **params: Any,
    ) -> None:
        trained = {"examples": [dict(example) for example in examples], "task": task} if examples or task else {}
        super().__init__(threshold=threshold, repair=repair, canary=canary, **trained, **params)
        self.judge = as_judge(judge)
        self.language = language
        self.words = words_of(language)
        self.prompts = PromptFile(self.prompt_name or self.name, language, prompts)
        self._repair, self._canary = repair, canary

    def prompt(self) -> str:
        """The source of the prompt file."""
        return self.prompts.source

    def render(self, step: str, case: Case, *, file: PromptFile | None = None, **extra: Any) -> str:
        """Fill in one step of the prompt (or of another file) with the case, after the trained task and examples."""
        fields = {**fields_of(case), **extra}
        return self._trained(fields["fence"]) + (file or self.prompts).render(step, **fields)

    def _trained(self, fence: Callable[[str, str], str]) -> str:
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
        canary = fields_of(case)["mark"] if self._canary else None
        return await self.assess(case, Session(self.judge, calls, self.words, repair=self._repair, canary=canary))

    def calls_for(self, case: Case) -> int:
        """How many judge calls this case takes when every reply can be read."""
        del case
        return 1

    def estimate(self, case: Case) -> Estimate:
        """Calls, prompt and reply tokens: every call is counted with the whole case in it."""
        if any(case.lacks(field) for field in self.needs):
            return Estimate()
        calls = self.calls_for(case)
        texts = (case.query, case.response, case.second_response, *case.references, *case.texts)
        data = sum(count_tokens(text) for text in texts if text)
        per_call = data + count_tokens(self.prompts.source)
        return Estimate(calls=calls, input_tokens=calls * per_call, output_tokens=calls * self.reply_tokens)


def _as_lines(example: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in example.items())


def judged_entry(made: type[JudgedEvaluator], source: str, options: str = "") -> Entry:
    """The entry of a judged evaluator; its example names a judge."""
    return Entry.of(made, source=source, options=", ".join(filter(None, ('judge="openai/gpt-5-mini"', options))))
