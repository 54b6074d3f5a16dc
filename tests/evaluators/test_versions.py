"""Versions and recorded questions that stored series and caches depend on: a restructuring changes none of them.

`python tests/evaluators/test_versions.py` writes the fixture again; do so only where an evaluator changes on purpose.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluator_cases import FULL, JUDGED, NEEDED, ReadableJudge, made
from pydantic import BaseModel

from ragpulse_evaluators import JudgeCall, default_registry, get_evaluator
from ragpulse_evaluators.judges.wrappers import call_key

PINNED = Path(__file__).parent / "fixtures" / "versions.json"
VARIANTS: dict[str, dict[str, Any]] = {
    "groundedness threshold": {"name": "groundedness", "threshold": 0.7},
    "geval chatbot": {"name": "geval", "task": "chatbot", "dimension": "engagingness", "n": 3, "use_logprobs": True},
    "faithfulness canary": {"name": "faithfulness", "canary": True, "repair": False},
    "faithfulness trained": {"name": "faithfulness", "examples": [{"query": "q", "score": 1}], "task": "Be strict."},
    "rouge rouge1": {"name": "rouge", "variant": "rouge1"},
    "geval criterion": {"name": "geval", "criterion": "Polite.", "steps": ["Read.", "Mark."], "span": (1, 4)},
    "rubric criterion": {"name": "rubric", "criterion": "Cites a source."},
    "custom_yaml spec": {
        "name": "custom_yaml",
        "spec": {"prompt": "{input} {completion}", "choice_strings": ["A", "B"], "choice_scores": {"A": 1, "B": 0}},
    },
}


class Recording(ReadableJudge):
    """Answers readably and keeps the key under which a cache would record each question."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.keys: list[str] = []

    async def ask(
        self,
        messages: Sequence[Any],
        *,
        n: int = 1,
        schema: type[BaseModel] | None = None,
        logprobs: bool = False,
    ) -> list[JudgeCall]:
        """Keep the key, then answer."""
        self.keys.append(call_key(self.id, messages, schema=schema, logprobs=logprobs, index=0)[:12])
        return await super().ask(messages, n=n, schema=schema, logprobs=logprobs)


OF_A_MODEL = "groundedness_model"
"""Its version is that of the model's files."""


def versions() -> dict[str, str]:
    """The version of every built-in evaluator, in every language, and of some configured ones."""
    entries = default_registry().entries
    found = {entry.name: made(entry.name).version for entry in entries if entry.name not in ("bertscore", OF_A_MODEL)}
    found["bertscore"] = next(entry for entry in entries if entry.name == "bertscore").factory().version
    for name in JUDGED:
        found |= {f"{name} {language}": made(name, language=language).version for language in ("zh", "pt")}
    for label, variant in VARIANTS.items():
        params = dict(variant)
        found[label] = get_evaluator(params.pop("name"), **params).version
    return found


async def _questions(name: str) -> list[str]:
    judge = Recording(name)
    await made(name, judge=judge)(FULL)
    return judge.keys


def questions() -> dict[str, list[str]]:
    """What each judged evaluator asks about one case, as keys of a cache: prompt bytes and reply schema."""
    return {name: asyncio.run(_questions(name)) for name in JUDGED}


def test_no_version_has_changed() -> None:
    """A stored series goes on: every version is what it was."""
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))["versions"]
    assert versions() == pinned
    assert set(NEEDED) <= {*pinned, OF_A_MODEL}


def test_no_recorded_question_has_changed() -> None:
    """A recorded judge call is found again: prompts and schemas are what they were, to the byte."""
    assert questions() == json.loads(PINNED.read_text(encoding="utf-8"))["questions"]


if __name__ == "__main__":
    PINNED.parent.mkdir(exist_ok=True)
    pins = {"versions": versions(), "questions": questions()}
    PINNED.write_text(json.dumps(pins, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
