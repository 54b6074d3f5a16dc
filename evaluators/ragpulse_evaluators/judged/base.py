"""The base of judged evaluators: a judge, a prompt file in a language, a session that records the calls.

Prompt files are `prompts/<evaluator>/<language>.jinja`, one `{% block %}` per step, rendered in a sandbox. The judged
texts are data: they stand between marks that carry a digest of the case, which its author cannot know.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment
from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.errors import ConfigurationError, ContextTooLong
from ragpulse_evaluators.evaluator import AskingEvaluator, CostClass, Estimate, as_outcome
from ragpulse_evaluators.judged.session import JudgeSession
from ragpulse_evaluators.judges.protocol import (
    Judge,
    Message,
    count_tokens,
    for_sampling,
    max_tokens_of,
    split_text,
    with_sampling,
)
from ragpulse_evaluators.judges.providers import as_judge
from ragpulse_evaluators.judges.tokens import words_of
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import EvaluationResult, JudgeCall, Outcome

_BUILT_IN = resources.files("ragpulse_evaluators") / "prompts"


@cache
def _environment(*, plain: bool = False) -> SandboxedEnvironment:
    """Our own files have their blocks trimmed; a user's step file follows Jinja's plain rules, as in GroUSE."""
    return SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=not plain, lstrip_blocks=not plain)


@lru_cache(maxsize=256)
def _compiled(text: str, *, plain: bool = False) -> Template:
    return _environment(plain=plain).from_string(text)


class PromptFile:
    """The prompt of one evaluator in one language; files in `folder` replace the built-in ones.

    `folder` may hold `<evaluator>/<language>.jinja`, `<language>.jinja`, or one step a file: `<step>.txt.jinja`,
    `<evaluator>.txt.jinja` (its first step). Raises `ConfigurationError` for a folder or template that cannot be read.
    """

    def __init__(self, evaluator: str, language: str, folder: str | Path | None = None) -> None:
        self.language = language
        self._words = words_of(language)
        self._whole, self._steps = _sources(evaluator, language, None if folder is None else Path(folder))
        phrases = (self._words.guard, self._words.history, self._words.reply, self._words.close)
        self.source = "\n".join((*phrases, self._whole, *(f"{k}\n{v}" for k, v in sorted(self._steps.items()))))
        try:
            self._template = _compiled(self._whole)
            self._replaced = {step: _compiled(text, plain=True) for step, text in self._steps.items()}
        except TemplateError as error:
            raise ConfigurationError(f"prompt of {evaluator} ({language}): {error}") from None

    def has(self, step: str) -> bool:
        """Whether the step is there; the system message of a step that a user's file replaces is not."""
        if step.endswith("_system") and step.removesuffix("_system") in self._replaced:
            return step in self._replaced
        return step in self._replaced or step in self._template.blocks

    def render(self, step: str, **data: Any) -> str:
        """Fill in one step; an unknown variable raises `ConfigurationError` with its name."""
        data = {"guard": self._words.guard, "reply": self._words.reply, "close": self._words.close, **data}
        try:
            if step in self._replaced:
                return self._replaced[step].render(data).strip()
            if step not in self._template.blocks:
                raise ConfigurationError(f"the prompt file has no step {step!r}: add {{% block {step} %}} to it")
            context = self._template.new_context(data)
            return "".join(self._template.blocks[step](context)).strip()
        except TemplateError as error:
            raise ConfigurationError(f"prompt step {step!r}: {error}") from None


def _sources(evaluator: str, language: str, folder: Path | None) -> tuple[str, dict[str, str]]:
    built_in = _BUILT_IN / evaluator / f"{language}.jinja"
    whole = built_in.read_text(encoding="utf-8") if built_in.is_file() else ""
    if folder is None:
        if not whole:
            raise ConfigurationError(f"no prompt file for {evaluator} in {language!r}")
        return whole, {}
    if not folder.is_dir():
        raise ConfigurationError(f"prompts: {folder} is no folder")
    for path in (folder / evaluator / f"{language}.jinja", folder / f"{language}.jinja"):
        if path.is_file():
            whole = path.read_text(encoding="utf-8")
    blocks = list(_compiled(whole).blocks) if whole else []
    steps = {path.name.removesuffix(".txt.jinja"): path for path in sorted(folder.glob("*.txt.jinja"))}
    if blocks and evaluator in steps and evaluator not in blocks:
        first = next(block for block in blocks if not block.endswith("_system"))
        steps[first] = steps.pop(evaluator)
    return whole, {name: path.read_text(encoding="utf-8") for name, path in steps.items() if name in blocks}


def mark_of(*texts: str | None) -> str:
    """Eight hex digits that only the texts together determine: the author of one text cannot know it."""
    return sha256_hex("\x00".join(text or "" for text in texts))[:8]


def fencer(mark: str) -> Callable[[str, str], str]:
    """A function that puts a named text between opening and closing marks."""
    return lambda name, text: f"<{name} {mark}>\n{text}\n</{name} {mark}>"


def _turn(number: int, query: str | None, response: str | None) -> str:
    texts = (("user", query), ("assistant", response))
    return "\n".join(f"[{number}] {role}: {text}" for role, text in texts if text is not None)


def fields_of(case: Case) -> dict[str, Any]:
    """Template variables of a case, under our names and the seeds' (`input`, `actual_output`, `expected_output`)."""
    reference = "\n".join(case.references)
    texts = list(case.texts)
    turns = [(turn.query, turn.response) for turn in case.history or ()]
    history = "\n".join(_turn(number, *turn) for number, turn in enumerate(turns, start=1))
    mark = mark_of(case.query, case.response, case.second_response, reference, *texts, history)
    return {
        "query": case.query or "",
        "response": case.response or "",
        "second_response": case.second_response or "",
        "reference": reference,
        "references": list(case.references),
        "history": history,
        "turns": turns,
        "contexts": texts,
        "context": "\n\n".join(texts),
        "input": case.query or "",
        "actual_output": case.response or "",
        "expected_output": reference,
        "fence": fencer(mark),
        "mark": mark,
    }


class JudgedEvaluator(AskingEvaluator):
    """Base of the judged families: subclasses write `assess`.

    `judge` is a model name or a judge, `language` chooses prompts and verdict words, `prompts` is a folder whose files
    replace the built-in prompts, `repair=False` makes an unreadable reply invalid at once. With `canary` the judge must
    repeat a mark that no author of the material can know: a verdict copied out of the material is invalid. `examples`
    (worked cases with their mark) and `task` (a sentence in front) are what alignment with people trains. `max_tokens`
    limits a reply, reasoning included; without it the judge's own limit holds. Where a subclass has a parameter `n`,
    it is the number of samples of a question.
    """

    prompt_name: ClassVar[str | None] = None
    """Folder of the prompts, where it is not the evaluator's name."""
    cost_class: CostClass = "1 call"
    wants_judge = True
    calls: int = 1
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
        if self.judge is not None and params.get("n", 1) > 1 and not params.get("use_logprobs"):
            self.judge = for_sampling(self.judge, 1.0)  # at temperature 0 all samples would be equal
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
    async def assess(self, case: Case, session: JudgeSession) -> Any:
        """Score one case by asking through `session`."""

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
        return await self.assess(case, JudgeSession(judge, calls, self.words, repair=self._repair, canary=canary))

    def _ask_times(self, calls: int) -> None:
        """Set the number of calls that the parameters ask for."""
        self.calls, self.cost_class = calls, "1 call" if calls == 1 else "k calls"

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
