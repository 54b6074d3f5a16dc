"""The pytest plugin, used as its users use it."""

from collections.abc import Callable
from typing import Any

import pytest

CASES = [{"query": f"q{i}", "response": "Paris" if i else "Rome", "reference": "Paris"} for i in range(10)]


def test_quality_above_the_bar_passes_and_returns_the_summary(assert_quality: Callable[..., Any]) -> None:
    """Nine of ten are right: 0.8 is reached."""
    assert assert_quality(CASES, "exact_match", at_least=0.8).normalized.estimate == pytest.approx(0.9)


@pytest.mark.parametrize("bar", [{"at_least": 0.95}, {"at_least": 0.8, "sure": True}])
def test_quality_below_the_bar_fails_and_shows_the_worst(assert_quality: Callable[..., Any], bar: Any) -> None:
    """Ten cases cannot be sure of 0.8; the failing answer is named."""
    with pytest.raises(pytest.fail.Exception, match=r"exact_match: 0\.900.*\n  0\.00: q0 → Rome"):
        assert_quality(CASES, "exact_match", **bar)


def test_cases_that_cannot_be_scored_fail_too(assert_quality: Callable[..., Any]) -> None:
    """Skipped cases are no quality."""
    with pytest.raises(pytest.fail.Exception, match="skipped 1"):
        assert_quality([*CASES[1:], {"response": "x"}], "exact_match", at_least=0.5)
