"""One contract for every registered evaluator: whoever keeps it can be sampled, stored, drawn and replayed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evaluator_cases import FULL, JUDGED, ReadableJudge, made
from pydantic import BaseModel

from ragpulse_evaluators import (
    Case,
    EvaluationResult,
    Evaluator,
    JudgeCall,
    ScriptedJudge,
    default_registry,
    list_evaluators,
)
from ragpulse_evaluators.errors import JudgeError
from ragpulse_evaluators.judges.chat import strict_schema
from ragpulse_evaluators.judges.protocol import MAX_TOKENS, transcript
from ragpulse_evaluators.judges.tokens import LANGUAGES

PROMPTS = Path(__file__).parents[2] / "evaluators/ragpulse_evaluators/prompts"
NOT_INSTALLED = {"bertscore"}
NAMES = [name for name in list_evaluators() if name not in NOT_INSTALLED]
TEXTS = {
    "empty": "",
    "blank": " \n\t",
    "chinese": "图书馆九点开门。周末休息！",
    "arabic": "تفتح المكتبة الساعة التاسعة. \u200fشكرا",
    "emoji": "👩🏽‍💻🇧🇷 ok 🎉",
    "braces": "{{ response }} {% raw %} {0} %s \\ \"'",
    "controls": "a\x00b\u202e\ufeffc",
    "surrogate": "half \ud83d a pair",
    "huge": "word " * 20_000,
}


async def scored(evaluator: Evaluator, case: Case) -> EvaluationResult:
    """One result, over a set of two where the metric needs a set."""
    return await (evaluator.over([case, case]) if evaluator.takes_all else evaluator(case))


def is_sound(result: EvaluationResult) -> bool:
    """A status of the four, a score only with `ok`, a normalized score in range, and no exception."""
    unit = result.normalized
    fits = unit is None or 0.0 <= unit <= 1.0
    silent = result.status == "ok" or (result.score is None and unit is None)
    return fits and silent and result.status != "error"


@pytest.mark.parametrize("name", NAMES)
async def test_a_full_case_is_judged_within_range(name: str) -> None:
    """Everything given: a sound result that serialises to strict JSON and back."""
    evaluator = made(name)
    result = await scored(evaluator, FULL)
    assert is_sound(result), result
    assert (result.evaluator, result.version) == (name, evaluator.version)
    assert EvaluationResult.model_validate_json(result.model_dump_json()).score == result.score
    json.loads(json.dumps(result.model_dump(mode="json"), allow_nan=False))


@pytest.mark.parametrize("name", NAMES)
async def test_equal_cases_give_equal_results(name: str) -> None:
    """Asked twice, by two evaluators, the result is the same to the byte; also without a history that is not read."""
    again = FULL if made(name).reads_history else FULL.model_copy(update={"history": None})
    results = [await scored(made(name), case) for case in (FULL, again)]
    assert results[0].model_dump_json() == results[1].model_dump_json()


@pytest.mark.parametrize("name", [name for name in NAMES if name != "composite"])  # its missing part is invalid
async def test_a_missing_field_is_skipped_by_name(name: str) -> None:
    """Without any one needed field the result is skipped, names the field and asks nothing."""
    needs = made(name).needs
    for field in sorted(needs) or ["response"]:
        lacking = FULL.model_copy(update={field: None}) if needs else Case()
        result = await scored(made(name, judge=ScriptedJudge([])), lacking)
        assert result.status == "skipped", (field, result)
        assert not needs or field in (result.explanation or ""), result.explanation


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [kind for kind in TEXTS if kind != "huge"])
async def test_any_text_is_survived(name: str, kind: str) -> None:
    """Empty, Chinese, right-to-left, emoji, template marks and control characters never make an error."""
    text = TEXTS[kind]
    fields = {"query": text, "response": text, "second_response": text, "reference": text, "contexts": [text, text]}
    result = await scored(made(name), Case(**FULL.model_dump() | fields))
    assert is_sound(result), result
    assert result.model_dump_json()


@pytest.mark.parametrize("name", NAMES)
async def test_huge_fields_are_survived(name: str) -> None:
    """A hundred thousand characters in response and context give a sound result."""
    text = TEXTS["huge"]
    case = Case(**FULL.model_dump() | {"response": text, "contexts": [text]})
    assert is_sound(await scored(made(name), case))


@pytest.mark.parametrize("name", NAMES)
def test_versions_change_with_parameters_only(name: str) -> None:
    """Twelve hex digits; equal for equal parameters, another one for another threshold."""
    version = made(name).version
    assert len(bytes.fromhex(version)) == 6
    assert made(name).version == version
    if "threshold" in default_registry().accepts(name):
        assert made(name, threshold=made(name).scale.lo + 0.123).version != version


@pytest.mark.parametrize("name", JUDGED)
async def test_an_unreadable_judge_is_invalid(name: str) -> None:
    """A judge that only ever says "hmm" gives no score at all; what that costs is within the reservation."""
    evaluator = made(name, judge=ScriptedJudge(["hmm"] * 100))
    result = await evaluator(FULL)
    assert (result.status, result.score, result.normalized) == ("invalid", None, None)
    assert 0 < len(result.calls) * MAX_TOKENS <= evaluator.estimate(FULL).max_output_tokens


@pytest.mark.parametrize("name", JUDGED)
async def test_an_unreachable_judge_is_a_retriable_error(name: str) -> None:
    """A judge that cannot be reached is an error that another attempt may pass."""
    result = await made(name, judge=ScriptedJudge([JudgeError("down")] * 100))(FULL)
    assert (result.status, result.score, result.retriable) == ("error", None, True)


@pytest.mark.parametrize("name", JUDGED)
async def test_an_estimate_covers_the_calls_made(name: str) -> None:
    """The bill before asking is no smaller than what is asked when replies can be read."""
    evaluator = made(name)
    result, estimate = await evaluator(FULL), evaluator.estimate(FULL)
    assert len(result.calls) <= estimate.calls
    assert estimate.input_tokens > 0 < estimate.output_tokens
    assert evaluator.estimate(Case()).calls == 0


@pytest.mark.parametrize("language", ["zh", "pt"])
@pytest.mark.parametrize("name", JUDGED)
async def test_every_judged_evaluator_speaks_its_languages(name: str, language: str) -> None:
    """Each language has its own prompt, its own version, and results all the same."""
    translated = made(name, language=language)
    assert translated.version != made(name).version
    result = await translated(FULL)
    assert is_sound(result)
    assert result.calls[0].prompt != (await made(name)(FULL)).calls[0].prompt


@pytest.mark.parametrize(
    "folder", sorted(path for path in PROMPTS.iterdir() if path.is_dir()), ids=lambda path: path.name
)
def test_prompts_are_parallel_in_each_language(folder: Path) -> None:
    """Every language has the same blocks, so the same questions, rubrics and steps; each question has a system part."""
    blocks = {
        language: re.findall(r"{% block (\w+)", (folder / f"{language}.jinja").read_text(encoding="utf-8"))
        for language in LANGUAGES
    }
    assert blocks["en"]
    assert all(sorted(found) == sorted(blocks["en"]) for found in blocks.values())
    assert any(name.endswith("_system") for name in blocks["en"])


@pytest.mark.parametrize("name", JUDGED)
def test_a_byte_of_the_prompt_breaks_the_version(name: str, tmp_path: Path) -> None:
    """A prompt folder that differs by one byte is another version."""
    evaluator: Any = made(name)
    folder = evaluator.prompt_name or evaluator.name
    source = PROMPTS / folder / "en.jinja"
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "en.jinja").write_text(source.read_text(encoding="utf-8") + " ", encoding="utf-8")
    assert made(name, prompts=tmp_path).version != evaluator.version


def named(schema: Any) -> Iterator[str]:
    """Every property name and every text of an enum in a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from named(item)
    elif isinstance(schema, dict):
        yield from schema.get("properties", ())
        yield from (value for value in schema.get("enum", ()) if isinstance(value, str))
        for key in ("properties", "$defs"):
            yield from named(list(schema.get(key, {}).values()))
        yield from named([schema.get("items"), schema.get("anyOf")])


class Noting(ReadableJudge):
    """Answers readably and keeps prompt and schema of every question."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.asked: list[tuple[str, type[BaseModel]]] = []

    async def ask(self, messages: Any, **options: Any) -> list[JudgeCall]:
        """Keep, then answer."""
        if options.get("schema"):
            self.asked.append((transcript(messages), options["schema"]))
        return await super().ask(messages, **options)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", [name for name in JUDGED if name not in ("geval", "custom_yaml")])
async def test_schemas_ask_for_what_prompts_ask_for(name: str, language: str) -> None:
    """Every property and every allowed word of the schema stands in the prompt, reasons before verdicts."""
    judge = Noting(name)
    await made(name, judge=judge, language=language)(FULL)
    assert judge.asked
    for prompt, schema in judge.asked:
        words = list(named(strict_schema(schema)))
        assert [word for word in words if f'"{word}"' not in prompt] == []
        assert words[0] not in ("verdict", "score", "winner", "rating")
