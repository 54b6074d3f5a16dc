"""The difference at equal questions: over common strata, by user, without what only one side was asked."""

from __future__ import annotations

import math

import pytest

from ragpulse_evaluators.statistics import hajek
from ragpulse_evaluators.statistics.standardised import Answer, standardised


def answers(stratum: str, passed: int, failed: int, *, user: str = "", pi: float = 1.0) -> list[Answer]:
    """So many answers of a stratum, each of a user of its own, or all of one."""
    values = [1.0] * passed + [0.0] * failed
    return [Answer(value, pi, user or (stratum, number, pi), stratum) for number, value in enumerate(values)]


def test_a_mixture_is_no_difference() -> None:
    """Version b fares better with easy and with hard questions, and worse over all, because it got the hard ones."""
    a = answers("easy", 90, 10) + answers("hard", 10, 10)
    b = answers("easy", 19, 1) + answers("hard", 56, 44)
    means = [sum(answer.value for answer in side) / len(side) for side in (a, b)]
    assert means[1] < means[0]
    outcome = standardised(a, b)
    assert outcome is not None
    assert outcome.difference == pytest.approx(0.5 * 0.05 + 0.5 * 0.06)
    assert outcome.difference == pytest.approx(outcome.b - outcome.a)


def test_a_stratum_of_one_side_is_left_out_and_told() -> None:
    """Its share of the traffic counts by weights; four answers are as few as none."""
    both = answers("x", 8, 2), answers("x", 6, 4)
    outcome = standardised(both[0] + answers("y", 10, 0, pi=0.5), both[1] + answers("y", 0, 4))
    assert outcome is not None
    assert (outcome.strata, outcome.excluded) == (1, pytest.approx(24 / 44))
    assert outcome.difference == pytest.approx(-0.2)
    assert standardised(answers("x", 9, 0), answers("y", 9, 0)) is None


def test_one_stratum_is_the_plain_difference() -> None:
    """The error is that of two means with n - 1, whatever the weights."""
    a, b = answers("x", 30, 10, pi=0.5), answers("x", 20, 20, pi=0.5)
    outcome = standardised(a, [Answer(one.value, one.pi, ("b", one.cluster), one.stratum) for one in b])
    assert outcome is not None
    errors = [hajek([one.value for one in side], [one.pi for one in side]) for side in (a, b)]
    plain = math.hypot(*(each.se or 0.0 for each in errors if each))
    assert outcome.se == pytest.approx(plain * math.sqrt(40 / 39))


def test_answers_of_a_user_count_once() -> None:
    """Ten users who ask ten times alike leave ten times the variance; one user on both sides cancels out."""
    apart = standardised(
        answers("x", 50, 50), [Answer(a.value, 1.0, ("b", a.cluster), "x") for a in answers("x", 50, 50)]
    )
    users = [Answer(float(n < 50), 1.0, ("a", n // 10), "x") for n in range(100)]
    alike = standardised(users, [Answer(one.value, 1.0, ("b", one.cluster), "x") for one in users])
    same = standardised(users, users)
    assert apart is not None
    assert alike is not None
    assert same is not None
    assert alike.se == pytest.approx(math.sqrt(10.0) * apart.se)
    assert same.se == pytest.approx(0.0, abs=1e-12)
