"""PolyEval's custom evaluators: a YAML file with a prompt, choices, their scores and a threshold."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, nearest, unreadable
from ragpulse_evaluators.evaluator import Scale
from ragpulse_evaluators.judged.base import JudgedEvaluator, fields_of, judged_entry
from ragpulse_evaluators.judged.session import JudgeSession, reasoning_of
from ragpulse_evaluators.judges.protocol import Message
from ragpulse_evaluators.judges.tokens import Words
from ragpulse_evaluators.result import Outcome

_PLACEHOLDERS = {
    "input": "query",
    "completion": "response",
    "completion_2": "second_response",
    "ideal": "reference",
    "context": "contexts",
}
_PLACEHOLDER = re.compile(rf"\{{({'|'.join(_PLACEHOLDERS)}|criteria)\}}")
_LETTERS = {"from_n_abc": string.ascii_lowercase, "from_n_ABC": string.ascii_uppercase}
_LAST_NUMBER = re.compile(r"(?<![\d./])(?<!/ )(?<!of )[-+]?\d+(?:\.\d+)?")
"""No number that another one is out of."""


PRESETS = ("granite_guardian", "lynx")
"""Judges that were trained to say yes or no in a format of their own."""
_TAG = re.compile(r"</?\w+>")


class Spec(BaseModel):
    """The YAML file. Unknown keys are refused; a brace in the data is data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str = Field(min_length=1)
    """Text with {input}, {completion}, {ideal}, {context}, {criteria} (and {completion_2} for a rival)."""
    name: str | None = None
    description: str = ""
    eval_type: Literal["cot_classify", "classify", "classify_cot"] = "cot_classify"
    """Whether the choice comes after the reasoning (searched from the last line) or before it (from the first)."""
    choice_strings: str | list[str] | None = None
    """The choices: a list, a string of single letters, or from_n, from_n_abc, from_n_ABC; without: a number is read."""
    choice_scores: dict[str, float] | Literal["from_strings"] | None = None
    n: int = Field(default=2, ge=1, le=26)
    """The number of choices of `from_n...`."""
    threshold: float | None = None
    reverse_score: bool = False
    """Lower is better: passes at or below the threshold, normalized = 1 - score."""
    answer_prompt: str | None = None
    """Replaces the closing instruction on how to answer."""
    criteria: str = ""
    system: str | None = None
    """For a model with a format of its own: its system message in place of ours. The prompt is sent as written."""
    scale: tuple[float, float] | None = None
    """Range of the number, where no choices are given."""

    @property
    def choices(self) -> list[str]:
        """The choices as a list; empty where a number is read."""
        choices = self.choice_strings
        if choices == "from_n":
            return [str(number) for number in range(1, self.n + 1)]
        return list(_LETTERS[choices][: self.n] if isinstance(choices, str) and choices in _LETTERS else choices or ())

    @model_validator(mode="after")
    def _scores_cover_choices(self) -> Spec:
        if isinstance(self.choice_scores, dict) and set(self.choice_scores) != set(self.choices):
            raise ValueError("choice_scores must name each of choice_strings, and nothing else")
        if self.choice_scores == "from_strings":
            [float(choice) for choice in self.choices]
        return self

    def score_of(self, choice: str) -> float | None:
        """The score of a choice; None where the file gives choices no scores."""
        if self.choice_scores == "from_strings":
            return float(choice)
        return None if self.choice_scores is None else self.choice_scores[choice]

    def needs(self) -> frozenset[str]:
        """Case fields the prompt mentions."""
        return frozenset(_PLACEHOLDERS[name] for name in _PLACEHOLDER.findall(self.prompt) if name != "criteria")


def read_spec(spec: Mapping[str, Any] | str | Path | None) -> Spec:
    """A specification from a preset's name, a mapping, a YAML file or YAML text.

    Raises `ConfigurationError` naming the wrong key.
    """
    import yaml  # some milliseconds, needed only here

    folder = resources.files("ragpulse_evaluators") / "prompts" / "custom_yaml"
    if spec is None:
        spec = (folder / "example.yaml").read_text(encoding="utf-8")
    elif isinstance(spec, str) and spec in PRESETS:
        spec = (folder / "presets" / f"{spec}.yaml").read_text(encoding="utf-8")
    source = "custom_yaml"
    try:
        if isinstance(spec, Path) or (isinstance(spec, str) and "\n" not in spec):
            source = str(spec)
            spec = Path(spec).read_text(encoding="utf-8")
        return Spec.model_validate(yaml.safe_load(spec) if isinstance(spec, str) else dict(spec))
    except ValidationError as error:
        first = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"]) or "spec"
        hint = nearest(where, Spec.model_fields) if first["type"] == "extra_forbidden" else ""
        raise ConfigurationError(f"{source}: {where}: {first['msg']}{hint}") from None
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise ConfigurationError(f"{source}: {error}") from None


def read_choice(text: str, choices: Sequence[str], words: Words, *, from_last: bool) -> str:
    """The choice a line consists of, begins with (marked off by punctuation) or ends with; never part of a word."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines) if from_last else lines:
        matches = {choice for choice in choices if _on_line(line, choice)}
        longest = max(matches, key=len, default=None)
        if longest is not None and all(choice in longest for choice in matches):
            return longest
        if matches:
            break
    unreadable(f"one of {', '.join(choices)}", text)


def _on_line(line: str, choice: str) -> bool:
    """True for "B", "(B) ...", "B. ...", "... is B."; false for "Because" and for "A good answer"."""
    mark = re.escape(choice)
    edge = r"[\s\"'“”‘’*_`#()\[\]{}<>.,:;!?。，：；！？（）【】-]*"
    begins = re.match(rf"{edge}{mark}(?:{edge}$|[\"'”’*_`)\].,:;!?。，：；！？）】])", line)
    return bool(begins or re.search(rf"(?<![\w'’-]){mark}{edge}$", line))


class CustomYaml(JudgedEvaluator):
    """An evaluator written as a YAML file: prompt, choices, scores, threshold."""

    name = "custom_yaml"
    needs = frozenset({"query", "response", "reference"})
    scale = Scale(kind="open")
    parser = "choice-or-number"
    reply_tokens = 300

    def __init__(
        self,
        *,
        spec: Mapping[str, Any] | str | Path | None = None,
        threshold: float | None = None,
        **options: Any,
    ) -> None:
        self.spec = read_spec(spec)
        limit = self.spec.threshold if threshold is None else threshold
        own_format = None if self.spec.system is not None else {"system"}  # versions of other files stay
        super().__init__(threshold=limit, spec=self.spec.model_dump(exclude=own_format), **options)
        self.name = self.spec.name or self.name
        self.needs = self.spec.needs()
        lo, hi = self.spec.scale or (0.0, 1.0)
        kind: Literal["minmax", "open"] = "minmax" if self.spec.scale else "open"
        self.scale = Scale(lo=lo, hi=hi, reverse=self.spec.reverse_score, kind=kind)

    async def assess(self, case: Case, session: JudgeSession) -> Outcome:
        """One call; the label is the choice, the score what the file gives it."""
        prompt = self._prompt(case)
        if not self.spec.choices:
            score, reasoning = await session.parse(prompt, self._last_number, form=self._closing())
            return Outcome(score=score, explanation=reasoning)
        choice, reasoning = await session.parse(prompt, self._choice_and_reasoning, form=self._closing())
        score_of_choice = self.spec.score_of(choice)
        return Outcome(score=score_of_choice, label=choice, explanation=reasoning)

    def _prompt(self, case: Case) -> list[Message]:
        if self.spec.system is None:
            return self.render("material", case, material=self._filled(case), closing=self._closing())
        head: list[Message] = [{"role": "system", "content": self.spec.system}] if self.spec.system else []
        return [*head, {"role": "user", "content": self._filled(case)}]

    def _choice_and_reasoning(self, text: str) -> tuple[str, str]:
        text = text if self.spec.system is None else _TAG.sub("\n", text)
        from_last = self.spec.eval_type == "cot_classify"
        return read_choice(text, self.spec.choices, self.words, from_last=from_last), text.strip()

    def _last_number(self, text: str) -> tuple[float, str]:
        """The last number of the last line."""
        lines = [line for line in text.splitlines() if line.strip()]
        numbers = _LAST_NUMBER.findall(lines[-1]) if lines else []
        if not numbers:
            unreadable("a number on the last line", text)
        return float(numbers[-1]), reasoning_of(text, self.words)

    def _filled(self, case: Case) -> str:
        """The prompt with its placeholders replaced by fenced data in one pass, so that braces in the data stay."""
        fields = fields_of(case) | {"contexts": "\n\n".join(case.texts)}

        def value(match: re.Match[str]) -> str:
            if match[1] == "criteria":  # the author's own words
                return self.spec.criteria
            text = fields[_PLACEHOLDERS[match[1]]]
            return str(fields["fence"](match[1], text) if self.spec.system is None else text)

        return _PLACEHOLDER.sub(value, self.spec.prompt)

    def _closing(self) -> str:
        if self.spec.answer_prompt:
            return self.spec.answer_prompt
        step = self.spec.eval_type if self.spec.choices else "number"
        return self.prompts.render(step, choices=self.spec.choices)


ENTRIES = (judged_entry(CustomYaml, "PolyEval", 'spec="tone.yaml"'),)
