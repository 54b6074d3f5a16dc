"""pytest plugin: the fixture `assert_quality`.

pytest imports it in every run of an environment that has ragpulse, whatever the extras. It is therefore a module of its
own, outside the packages, and imports nothing of ours before the fixture is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ragpulse_evaluators import EvaluationResult, Evaluator
    from ragpulse_evaluators.aggregate import Summary

__all__ = ("assert_quality",)

_ROUNDING = 1e-9
"""The mean of three times 0.7 is a little less than 0.7."""


@pytest.fixture
def assert_quality() -> Callable[..., Summary]:
    """Score cases and fail the test when the mean normalized score is too low; returns the summary.

    `assert_quality(cases, "faithfulness", at_least=0.8, judge=...)`. With `sure=True` the lower end of the 95 %
    interval must reach `at_least`, not only the mean. More than `unscored` (5 %) of invalid, skipped or failed cases
    fail the test too. Further options go to `evaluate`.
    """
    try:
        from ragpulse_evaluators import default_registry

        default_registry()  # imports all that the extra brings
    except ModuleNotFoundError as error:
        install = f"assert_quality needs the evaluators: pip install 'ragpulse[evaluators]'  (missing: {error.name})"
        pytest.fail(install, pytrace=False)
    return _assert_quality


def _assert_quality(
    cases: Sequence[Any],
    evaluator: str | Evaluator,
    *,
    at_least: float,
    sure: bool = False,
    unscored: float = 0.05,
    **options: Any,
) -> Summary:
    from ragpulse_evaluators import evaluate_sync, summarize

    results = next(iter(evaluate_sync(cases, evaluator, **options).values()))
    summary = summarize(results)
    mean = summary.normalized
    value = None if mean is None else (mean.lo if sure and mean.lo is not None else mean.estimate)
    unscored_share = 1.0 - summary.counts["ok"] / max(summary.n, 1)
    if value is None or value < at_least - _ROUNDING or unscored_share > unscored + _ROUNDING:
        pytest.fail(f"{summary}; wanted at least {at_least:g}\n{_worst(results)}", pytrace=False)
    return summary


def _worst(results: Sequence[EvaluationResult], count: int = 3) -> str:
    """The lowest and the unscored results, with the evaluator's explanation."""
    ranked = sorted(results, key=lambda result: -1.0 if result.normalized is None else result.normalized)
    lines = []
    for result in ranked[:count]:
        unit = result.status if result.normalized is None else f"{result.normalized:.2f}"
        lines.append(f"  {unit}: {result.query or ''} → {(result.response or '')[:80]} ({result.explanation or ''})")
    return "\n".join(lines)
