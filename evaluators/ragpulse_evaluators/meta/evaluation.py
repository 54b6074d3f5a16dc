"""Judges against unit tests: which failures of an answer does a judge see?

A unit test is an answer, its failure mode, and the conditions that a good judge's scores meet.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError, first_problem
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.judges.protocol import Judge
from ragpulse_evaluators.meta.calibration import Verdict
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.runner import evaluate, run_or_await
from ragpulse_evaluators.statistics import Estimate, wilson

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
        lines = ",".join(filter(str.strip, text.split("\n")))
        rows = json.loads(text if text.startswith("[") else f"[{lines}]")
    else:
        rows = list(source)
    try:
        return [row if isinstance(row, UnitTest) else UnitTest.model_validate(_with_conditions(row)) for row in rows]
    except ValidationError as error:
        raise ConfigurationError(f"unit test: {first_problem(error)}") from None


def _with_conditions(row: Mapping[str, Any]) -> dict[str, Any]:
    own = row.get("conditions") or {}
    conditions = {"": own} if isinstance(own, (str, list)) else dict(own)
    conditions |= {key: value for key, value in row.items() if key.endswith("_condition")}
    by_metric = {key.removesuffix("_condition"): value for key, value in conditions.items() if value is not None}
    return {**row, "conditions": by_metric}


_METRICS = (
    "answer_relevancy",
    "completeness",
    "faithfulness",
    "usefulness",
    "positive_acceptance",
    "negative_rejection",
)
_CONDITIONS: Mapping[str, Sequence[str]] = {
    "good": ("==5", "==5", "==1", "==None", "==1", "==None"),
    "irrelevant_information": ("<=4", ">=4", "==1", "==None", "==1", "==None"),
    "missing_information": (">=4", "<=3", "==1", "==None", "==1", "==None"),
    "wrongly_refuses": ("==None", "==1", "==None", "==None", "==0", "==None"),
    "altered_facts": (">=4", "", "==0", "==None", "==1", "==None"),
    "wrong_citation": (">=4", ">=4", "==0", "==None", "==1", "==None"),
    "answers_without_evidence": (">=1", "==None", "==0", "==None", "==None", "==0"),
    "useless_addition": ("==None", "==None", "==1", "==0", "==None", "==1"),
    "good_refusal": ("==None", "==None", "==1", "==1", "==None", "==1"),
    "bare_refusal": ("==None", "==None", "==None", "==None", "==None", "==1"),
}
"""The conditions of each kind of answer, one for each of `_METRICS`; the same for every subject."""

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
            conditions={m: c for m, c in zip(_METRICS, _CONDITIONS[mode], strict=True) if c},
            mode=mode,
            language=language,
            split=subject["split"],
        )
        for mode, answer in answers.items()
    ]


Split = Literal["train", "test", "all"]

_CHAIN = "grouse"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One condition of one unit test, and the judge's score."""

    test: str
    """The test's id."""
    mode: str
    language: str
    question: str
    answer: str
    metric: str
    condition: str | list[str]
    value: float | None
    failed: bool
    """True where no verdict could be read."""
    passed: bool
    explanation: str | None


@dataclass(frozen=True, kw_only=True)
class MetaReport:
    """The results of a judge on unit tests. A verdict that could not be read counts as wrong."""

    evaluator: str
    version: str
    judge: str | None
    n_tests: int
    success: Mapping[str, float]
    """Success rate by metric."""
    intervals: Mapping[str, Estimate]
    """The same with Wilson's interval."""
    total: float | None
    """Mean of the success rates over metrics."""
    by_mode: Mapping[str, float]
    """Success rate by failure mode, over metrics."""
    by_language: Mapping[str, float]
    parsing_success: float
    """Share of conditions on which a verdict could be read."""
    constant: tuple[str, ...]
    """Metrics the judge gave one and the same score throughout, though the tests demand different ones."""
    failures: tuple[Check, ...]
    """The conditions that were not met."""
    verdict: Verdict

    def __getitem__(self, metric: str) -> float | None:
        return self.total if metric == "total" else self.success[metric]

    def __str__(self) -> str:
        rates = ", ".join(f"{metric} {rate:.0%}" for metric, rate in self.success.items())
        return f"{self.verdict}: {self.total or 0.0:.0%} of {self.n_tests} unit tests ({rates})"


def meta_evaluate(
    evaluator: str | Evaluator,
    *,
    judge: str | Judge | None = None,
    prompts: str | Path | None = None,
    split: Split = "train",
    unit_tests: str | Path | Iterable[UnitTest | Mapping[str, Any]] | None = None,
    language: str | None = None,
    concurrency: int = 8,
    **options: Any,
) -> MetaReport:
    """Run a judge over unit tests and report how often it meets their conditions, by metric and in all.

    `evaluator` is a name ("grouse" runs its chain of six once a test) or an instance. `prompts` is a folder of prompt
    files that replace the built-in ones: tune them on `split="train"`, then look at "test" once. `unit_tests`: a file
    or mappings (`UnitTest`), by default the project's own 120, of which `language` takes those in one language.
    Further options go to `evaluate`. The report is red where a metric never varies or fewer than half succeed.
    Inside a running event loop await it. Raises `ConfigurationError` where no test has a condition for this evaluator.
    """
    tests = builtin_tests() if unit_tests is None else read_tests(unit_tests)
    tests = [test for test in tests if split in ("all", test.split) or test.split is None]
    tests = [test for test in tests if language in (None, test.language)]
    if isinstance(evaluator, str):
        evaluator = get_evaluator(evaluator, judge=judge, prompts=prompts, language=language)
    metrics = _metrics(evaluator, tests)
    tests = [test for test in tests if any(metric in test.conditions for metric in metrics.values())]
    if not tests:
        raise ConfigurationError(
            f"no unit test of the {split} split has a condition for {evaluator.name}; pass unit_tests="
        )
    return run_or_await(_run(evaluator, tests, metrics, {"concurrency": concurrency, **options}))


async def _run(
    evaluator: Evaluator, tests: Sequence[UnitTest], metrics: Mapping[str, str], options: Mapping[str, Any]
) -> MetaReport:
    (results,) = (await evaluate([test.case for test in tests], [evaluator], **options)).values()
    checks = [
        _check(test, result, metric, key)
        for test, result in zip(tests, results, strict=True)
        for metric, key in metrics.items()
        if key in test.conditions
    ]
    return _report(evaluator, tests, checks)


def _metrics(evaluator: Evaluator, tests: Sequence[UnitTest]) -> dict[str, str]:
    """The metrics to check, each with its key in the tests' conditions.

    The chain's metrics are the conditions' own keys; a single evaluator goes by its name, its name without "grouse_",
    or the one condition that a test gives without naming a metric.
    """
    keys = list(dict.fromkeys(key for test in tests for key in test.conditions))
    if evaluator.name == _CHAIN:
        return {key: key for key in keys if key}
    names = (evaluator.name, evaluator.name.removeprefix(f"{_CHAIN}_"), "")
    key = next((name for name in names if name in keys), None)
    return {} if key is None else {key or evaluator.name: key}


def _check(test: UnitTest, result: EvaluationResult, metric: str, key: str) -> Check:
    value = _value(result, metric)
    condition = test.conditions[key] or []
    return Check(
        test=test.id,
        mode=test.mode,
        language=test.language,
        question=test.input,
        answer=test.actual_output,
        metric=metric,
        condition=condition,
        value=None if value is FAILED else value,
        failed=value is FAILED,
        passed=satisfies(value, condition),
        explanation=result.explanation,
    )


def _value(result: EvaluationResult, metric: str) -> Any:
    """The judge's score of a metric; None where it does not apply, `FAILED` where it could not be read."""
    if result.evaluator == _CHAIN and result.status in ("ok", "invalid"):
        return result.parts.get(metric, FAILED)
    if result.status == "ok":
        return result.score
    return None if result.status == "skipped" else FAILED


def _report(evaluator: Evaluator, tests: Sequence[UnitTest], checks: Sequence[Check]) -> MetaReport:
    by_metric = _grouped(checks, "metric")
    intervals = {
        metric: rate
        for metric, group in by_metric.items()
        if (rate := wilson(sum(check.passed for check in group), len(group))) is not None
    }
    success = {metric: rate.estimate for metric, rate in intervals.items()}
    total = fmean(success.values()) if success else None
    constant = tuple(metric for metric, group in by_metric.items() if _constant(group))
    return MetaReport(
        evaluator=evaluator.name,
        version=evaluator.version,
        judge=evaluator.judge_id,
        n_tests=len(tests),
        success=success,
        intervals=intervals,
        total=total,
        by_mode=_rates(_grouped(checks, "mode")),
        by_language=_rates(_grouped(checks, "language")),
        parsing_success=sum(not check.failed for check in checks) / len(checks) if checks else 0.0,
        constant=constant,
        failures=tuple(check for check in checks if not check.passed),
        verdict="red" if constant or (total or 0.0) < 0.5 else "green" if (total or 0.0) >= 0.8 else "amber",
    )


def _grouped(checks: Sequence[Check], field: Literal["metric", "mode", "language"]) -> dict[str, list[Check]]:
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(getattr(check, field), []).append(check)
    return groups


def _rates(groups: Mapping[str, Sequence[Check]]) -> dict[str, float]:
    return {key: sum(check.passed for check in group) / len(group) for key, group in groups.items()}


def _constant(checks: Sequence[Check]) -> bool:
    """One value throughout, although no value could meet every condition."""
    values = {check.value for check in checks if not check.failed}
    return len(values) == 1 and len(checks) > 1 and not all(check.passed for check in checks)
