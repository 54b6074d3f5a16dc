"""Unit tests for judges: an answer, its failure mode, and the conditions that a good judge meets."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError

FAILURE_MODES: Mapping[str, str] = {
    "irrelevant_information": "the answer adds what was not asked",
    "missing_information": "the answer leaves out what the references say",
    "wrongly_refuses": "the answer says that nothing answers, though a reference does",
    "altered_facts": "the answer changes what the reference says",
    "wrong_citation": "a sentence cites the wrong reference, or none",
    "answers_without_evidence": "the answer responds though no reference does",
    "useless_addition": "the answer rightly refuses, and adds what has nothing to do with the question",
}
"""The seven ways in which a grounded answer fails (GroUSE, Muller et al. 2024)."""

FAILED = object()
"""Stands for a verdict that could not be read; it satisfies no condition."""

_CONDITION = re.compile(r"\s*(==|!=|>=|<=|>|<)\s*(none|null|[-+]?\d+(?:\.\d+)?)\s*", re.IGNORECASE)


class UnitTest(BaseModel):
    """One answer and the conditions a judge's scores of it must meet."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    input: str
    """The question."""
    actual_output: str
    """The answer under test."""
    expected_output: str | None = None
    """A right answer."""
    references: tuple[str, ...] = ()
    """The passages that were retrieved."""
    conditions: dict[str, str | list[str] | None] = Field(default_factory=dict)
    """By metric: "==5", ">=3", "==None", or a list of which all must hold."""
    id: str = ""
    mode: str = "good"
    """Its failure mode, or "good"."""
    language: str = "en"
    split: str | None = None
    """"train" or "test"; None belongs to both."""

    @property
    def case(self) -> Case:
        """The test as an evaluator sees it."""
        return Case(
            query=self.input, response=self.actual_output, reference=self.expected_output, contexts=self.references
        )


def satisfies(value: Any, condition: str | list[str]) -> bool:
    """Does a score meet a condition? None (the metric does not apply) meets `==None` only, `FAILED` nothing.

    Raises `ConfigurationError` for a condition that cannot be read.
    """
    if isinstance(condition, list):
        return all(satisfies(value, item) for item in condition)
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise ConfigurationError(f'a condition is like "==5", ">=3" or "==None", not {condition!r}')
    sign, limit = match[1], match[2].casefold()
    if value is FAILED:
        return False
    if limit in ("none", "null"):
        return value is None if sign == "==" else sign == "!=" and value is not None
    return value is not None and bool(_COMPARE[sign](float(value), float(limit)))


_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


def read_tests(source: str | Path | Iterable[UnitTest | Mapping[str, Any]]) -> list[UnitTest]:
    """Unit tests from a JSON or JSON-lines file, or from mappings.

    `conditions` is a mapping by metric, or one condition for whatever is tested; keys such as
    `faithfulness_condition`, as GroUSE's own data have them, are read too.
    """
    if isinstance(source, (str, Path)):
        text = Path(source).read_text(encoding="utf-8").strip()
        rows = json.loads(text if text.startswith("[") else f"[{','.join(filter(str.strip, text.splitlines()))}]")
    else:
        rows = list(source)
    try:
        return [row if isinstance(row, UnitTest) else UnitTest.model_validate(_with_conditions(row)) for row in rows]
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(f"unit test: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _with_conditions(row: Mapping[str, Any]) -> dict[str, Any]:
    own = row.get("conditions") or {}
    conditions = {"": own} if isinstance(own, (str, list)) else dict(own)
    conditions |= {key: value for key, value in row.items() if key.endswith("_condition")}
    by_metric = {key.removesuffix("_condition"): value for key, value in conditions.items() if value is not None}
    return {**row, "conditions": by_metric}


_ANSWERED = {"usefulness": "==None", "positive_acceptance": "==1", "negative_rejection": "==None"}
_REFUSED = {
    "answer_relevancy": "==None",
    "completeness": "==None",
    "positive_acceptance": "==None",
    "negative_rejection": "==1",
}
_CONDITIONS: Mapping[str, Mapping[str, str]] = {
    "good": {"answer_relevancy": "==5", "completeness": "==5", "faithfulness": "==1", **_ANSWERED},
    "irrelevant_information": {"answer_relevancy": "<=4", "completeness": ">=4", "faithfulness": "==1", **_ANSWERED},
    "missing_information": {"answer_relevancy": ">=4", "completeness": "<=3", "faithfulness": "==1", **_ANSWERED},
    "wrongly_refuses": {
        "answer_relevancy": "==None",
        "completeness": "==1",
        "faithfulness": "==None",
        "usefulness": "==None",
        "positive_acceptance": "==0",
        "negative_rejection": "==None",
    },
    "altered_facts": {"answer_relevancy": ">=4", "faithfulness": "==0", **_ANSWERED},
    "wrong_citation": {"answer_relevancy": ">=4", "completeness": ">=4", "faithfulness": "==0", **_ANSWERED},
    "answers_without_evidence": {
        "answer_relevancy": ">=1",
        "completeness": "==None",
        "faithfulness": "==0",
        "usefulness": "==None",
        "positive_acceptance": "==None",
        "negative_rejection": "==0",
    },
    "useless_addition": {**_REFUSED, "faithfulness": "==1", "usefulness": "==0"},
    "good_refusal": {**_REFUSED, "faithfulness": "==1", "usefulness": "==1"},
    "bare_refusal": {**_REFUSED, "faithfulness": "==None", "usefulness": "==None"},
}
"""The conditions of each kind of answer; the same for every subject."""

_UNANSWERABLE = ("answers_without_evidence", "useless_addition", "good_refusal", "bare_refusal")


def builtin_tests() -> list[UnitTest]:
    """The project's own unit tests: twelve subjects in English and Chinese, ten answers each, seven failure modes."""
    folder = resources.files("ragpulse_evaluators.meta") / "unit_tests"
    tests: list[UnitTest] = []
    for language in ("en", "zh"):
        for subject in json.loads((folder / f"{language}.json").read_text(encoding="utf-8")):
            tests += _tests_of(subject, language)
    return tests


def _tests_of(subject: Mapping[str, Any], language: str) -> list[UnitTest]:
    answers: Mapping[str, str] = subject["answers"]
    return [
        UnitTest(
            id=f"{subject['id']}-{mode}",
            input=subject["unanswerable" if mode in _UNANSWERABLE else "question"],
            actual_output=answer,
            expected_output=subject["expected_refusal" if mode in _UNANSWERABLE else "expected"],
            references=tuple(subject["references"]),
            conditions=dict(_CONDITIONS[mode]),
            mode=mode,
            language=language,
            split=subject["split"],
        )
        for mode, answer in answers.items()
    ]
