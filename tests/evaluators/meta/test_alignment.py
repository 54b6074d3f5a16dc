"""Examples and task descriptions chosen by agreement with people."""

from __future__ import annotations

import pytest
from replying import Replying

from ragpulse_evaluators import Case, ScriptedJudge, evaluator, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.meta import (
    align,
)


def learns(prompt: str) -> str:
    """Fails everything until an example shows an answer that passes; then only what is bad."""
    answers = [prompt.rfind(f"{kind} ") for kind in ("ok", "bad")]
    return "True" if "score: 1" in prompt and answers[0] > answers[1] else "False"


def test_alignment_picks_examples_and_reports_on_held_out_cases() -> None:
    """A judge that learns from its examples agrees better with people on cases it never saw."""
    made = get_evaluator("judge", judge=Replying(learns), question="Is the answer acceptable? True or False.")
    texts = [f"ok {number}" for number in range(12)] + [f"bad {number}" for number in range(12)]
    labelled = [(Case(query="q", response=text, reference="x"), text.startswith("ok")) for text in texts]
    aligned, report = align(made, labelled, seed=1)
    assert report.before.verdict == "red"
    assert report.after.kappa == 1.0
    assert report.improved
    assert report.kappa == 1.0
    assert aligned.version != made.version
    assert report.n_train + report.n_held_out == 24
    again, repeated = align(made, labelled, seed=1)
    assert (again.version, repeated.after) == (aligned.version, report.after)


def test_alignment_keeps_the_plain_judge_where_nothing_helps() -> None:
    """A judge deaf to examples stays as it is."""
    made = get_evaluator("judge", judge=Replying(lambda prompt: "True"))
    labelled = [(Case(query="q", response=str(i), reference="x"), i % 2) for i in range(12)]
    aligned, report = align(made, labelled)
    assert aligned is made
    assert (report.examples, report.after.constant, report.improved) == ((), True, False)


def test_alignment_refuses_what_cannot_be_trained() -> None:
    """A rule has no prompt, and a handful of labels no second half."""

    @evaluator
    def rule(response: str) -> bool:
        return bool(response)

    with pytest.raises(ConfigurationError, match="no examples"):
        align(rule, [(Case(response="x"), 1)] * 10)
    made = get_evaluator("judge", judge=ScriptedJudge([]))
    with pytest.raises(ConfigurationError, match="at least 8"):
        align(made, [(Case(response="x"), 1)] * 3)
