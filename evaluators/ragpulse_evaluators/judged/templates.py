"""Prompt files: `prompts/<evaluator>/<language>.jinja`, one `{% block %}` per step, rendered in a sandbox.

The judged texts are data: they stand between marks that carry a digest of the case, which its author cannot know.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.digest import sha256_hex
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judges.parsing import words_of

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
