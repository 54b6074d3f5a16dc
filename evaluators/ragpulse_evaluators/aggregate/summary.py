"""Results of one evaluator over a set, in one report: means with intervals, pass rate, parsing success."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import overload

from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.statistics import Estimate, hajek, mean_ci, wilson


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Means, rates and counts of a set of results; a mean leaves out results without the number."""

    evaluator: str
    version: str
    judge: str | None
    n: int
    """Results of every status."""
    counts: Mapping[str, int]
    """Results by status: ok, skipped, invalid, error."""
    mean: float | None
    """Mean native score."""
    mean_ci: Estimate | None
    normalized: Estimate | None
    """Mean of `normalized` with its interval."""
    pass_rate: float | None
    """Share of passing results among those with a verdict."""
    pass_ci: Estimate | None
    """The pass rate with Wilson's interval."""
    parsing_success: float | None
    """Share of readable replies among those that came: ok / (ok + invalid)."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Mean of each numeric part over the results that have it, also where another part could not be read (GroUSE's
    report); also read as attributes."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """Count of each label."""
    precision: float | None = None
    """With `expected`: of the results that passed, how many should have."""
    recall: float | None = None
    f1: float | None = None
    accuracy: float | None = None

    def __getattr__(self, name: str) -> float:
        parts = self.__dict__.get("parts", {})
        if name in parts:
            return float(parts[name])
        raise AttributeError(f"{type(self).__name__} has no {name!r}; parts are {', '.join(parts) or 'none'}")

    def __str__(self) -> str:
        counts = [f"{status} {count}" for status, count in self.counts.items() if count]
        return f"{self.evaluator}: {_value(self.normalized)}, pass rate {_value(self.pass_ci)} ({', '.join(counts)})"


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    lo, hi = estimate
    return f"{estimate.estimate:.3f}" + (f" [{lo:.3f}, {hi:.3f}]" if lo is not None and hi is not None else "")


@overload
def summarize(results: Sequence[EvaluationResult], *, expected: Sequence[bool] | None = None) -> Summary: ...
@overload
def summarize(
    results: Mapping[str, Sequence[EvaluationResult]], *, expected: Sequence[bool] | None = None
) -> dict[str, Summary]: ...
def summarize(
    results: Sequence[EvaluationResult] | Mapping[str, Sequence[EvaluationResult]],
    *,
    expected: Sequence[bool] | None = None,
) -> Summary | dict[str, Summary]:
    """Sum up results of one evaluator, or each of what `evaluate` returned.

    `expected` says for each result whether it should pass: precision, recall, F1 and accuracy of the verdicts then
    appear. Raises `ConfigurationError` for results of several evaluators or versions in one list: they do not pool.
    """
    if isinstance(results, Mapping):
        return {name: _summary(list(group), expected) for name, group in results.items()}
    return _summary(list(results), expected)


def _summary(results: list[EvaluationResult], expected: Sequence[bool] | None) -> Summary:
    series = {(result.evaluator, result.version, result.judge) for result in results}
    if len(series) > 1:
        raise ConfigurationError(f"results of {len(series)} evaluators or versions do not pool; sum each up alone")
    name, version, judge = series.pop() if series else ("", "", None)
    counts = Counter(result.status for result in results)
    readable = [result for result in results if result.status == "ok"]
    scores = [result.score for result in readable if result.score is not None]
    units = [result.normalized for result in readable if result.normalized is not None]
    verdicts = [result.passing for result in readable if result.passing is not None]
    rate = wilson(sum(verdicts), len(verdicts))
    replies = counts["ok"] + counts["invalid"]
    mean = mean_ci(scores, bounds=_bounds(readable))
    return Summary(
        evaluator=name,
        version=version,
        judge=judge,
        n=len(results),
        counts={status: counts[status] for status in ("ok", "skipped", "invalid", "error")},
        mean=mean.estimate if mean else None,
        mean_ci=mean,
        normalized=hajek(units, [1.0] * len(units)),
        pass_rate=rate.estimate if rate else None,
        pass_ci=rate,
        parsing_success=counts["ok"] / replies if replies else None,
        parts=_part_means(results),
        labels=dict(Counter(result.label for result in readable if result.label is not None)),
        **_against(results, expected),
    )


def _bounds(results: Sequence[EvaluationResult]) -> tuple[float, float] | None:
    """The native scale, derived from scores and their 0..1 forms; None where it has no ends or they do not show it.

    The 0..1 form is linear in the score, so two results with different forms determine where 0 and 1 lie.
    """
    pairs = [(result.score, result.normalized) for result in results if result.score is not None]
    points = sorted({(unit, score) for score, unit in pairs if unit is not None})
    if len(points) < len(set(pairs)) or len(points) < 2 or points[0][0] == points[-1][0]:
        return None
    (low, first), (high, last) = points[0], points[-1]
    slope = (last - first) / (high - low)
    if any(abs(first + slope * (unit - low) - score) > 1e-6 * (1 + abs(score)) for unit, score in points):
        return None
    ends = first - slope * low, first + slope * (1.0 - low)
    return min(ends), max(ends)


def _part_means(results: Iterable[EvaluationResult]) -> dict[str, float]:
    by_part: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.parts.items():
            if isinstance(value, int | float):
                by_part.setdefault(name, []).append(float(value))
    return {name: fmean(values) for name, values in by_part.items()}


def _against(results: Sequence[EvaluationResult], expected: Sequence[bool] | None) -> dict[str, float | None]:
    if expected is None:
        return {}
    if len(expected) != len(results):
        raise ConfigurationError(f"{len(results)} results but {len(expected)} expectations")
    pairs = [
        (result.passing, expectation)
        for result, expectation in zip(results, expected, strict=True)
        if result.status == "ok" and result.passing is not None
    ]
    hits = sum(passing and expectation for passing, expectation in pairs)
    passed, positives = (sum(map(bool, flags)) for flags in zip(*pairs, strict=True)) if pairs else (0, 0)
    return {
        "precision": hits / passed if passed else None,
        "recall": hits / positives if positives else None,
        "f1": 2.0 * hits / (passed + positives) if passed + positives else None,
        "accuracy": fmean(passing == expectation for passing, expectation in pairs) if pairs else None,
    }
