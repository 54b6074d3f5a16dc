"""The pytest plugin, used as its users use it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
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


@pytest.mark.parametrize(("score", "count"), [(0.7, 3), (0.1, 7), (0.9, 11)])
def test_a_mean_on_the_bar_passes(assert_quality: Callable[..., Any], score: float, count: int) -> None:
    """Sums of floats are a little less than the number that a person writes; so is a share of cases."""
    assert_quality([{"response": "x"}] * count, lambda response: score, at_least=score)
    cases = [*[{"response": "Paris", "reference": "Paris"}] * 19, {"response": "x"}]
    assert_quality(cases, "exact_match", at_least=1.0, unscored=0.05)


def test_cases_that_cannot_be_scored_fail_too(assert_quality: Callable[..., Any]) -> None:
    """Skipped cases are no quality."""
    with pytest.raises(pytest.fail.Exception, match="skipped 1"):
        assert_quality([*CASES[1:], {"response": "x"}], "exact_match", at_least=0.5)


@pytest.mark.parametrize(
    ("test", "missing", "outcome"),
    [
        ("def test_plain(): pass", "pydantic", "1 passed"),
        ("def test_plain(): pass", "ragpulse_evaluators", "1 passed"),
        (
            "def test_quality(assert_quality): pass",
            "pydantic",
            "pip install 'ragpulse[evaluators]'  (missing: pydantic)",
        ),
        ("def test_quality(assert_quality): pass", "jinja2", "pip install 'ragpulse[evaluators]'  (missing: jinja2)"),
    ],
)
def test_pytest_runs_where_the_extra_is_missing(test: str, missing: str, outcome: str, tmp_path: Path) -> None:
    """The plugin is in every environment that has ragpulse; only its fixture needs the evaluators."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_own.py").write_text(test)
    program = f"import sys; sys.modules[{missing!r}] = None; import pytest; pytest.main(['-p', 'ragpulse_pytest'])"
    command = [sys.executable, "-c", program]
    variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
