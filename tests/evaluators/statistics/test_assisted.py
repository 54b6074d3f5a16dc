"""A judge's mean assisted by a check that saw everything: unbiased, covering, and narrower where the check tells."""

from __future__ import annotations

import math
import random

import pytest

from ragpulse_evaluators.statistics import AssistedEstimate, Estimate, assisted_mean, hajek

RATE = 0.8
STEP = math.log(RATE / (1 - RATE))


def drawn(seed: int, noise: float, *, doubtful: float, others: float) -> tuple[AssistedEstimate, Estimate]:
    """1,200 answers, 80 % good, a check that sees the quality through noise; what it doubts is judged more often."""
    chance = random.Random(seed)
    merits = [chance.gauss() for _ in range(1200)]
    good = [float(merit > -0.8416) for merit in merits]
    checks = [1 / (1 + math.exp(-1.5 * merit - STEP - noise * chance.gauss())) for merit in merits]
    pi = [doubtful if check < 0.5 else others for check in checks]
    values = [y if chance.random() < p else None for y, p in zip(good, pi, strict=True)]
    assisted = assisted_mean(values, checks, pi)
    judged = [(value, p) for value, p in zip(values, pi, strict=True) if value is not None]
    plain = hajek([value for value, _ in judged], [p for _, p in judged])
    assert assisted is not None
    assert plain is not None
    return assisted, plain


def covers(found: Estimate) -> bool:
    """Whether the interval holds the true rate."""
    assert found.lo is not None
    assert found.hi is not None
    return found.lo <= RATE <= found.hi


@pytest.mark.parametrize(("doubtful", "others"), [(0.15, 0.15), (0.6, 0.1)])
def test_it_is_unbiased_and_covers_and_is_narrower(doubtful: float, others: float) -> None:
    """Check and judge correlated about 0.7: as honest as without the check, at most nine tenths as wide."""
    found = [drawn(seed, 0.85, doubtful=doubtful, others=others) for seed in range(120)]
    assert sum(one.estimate for one, _ in found) / 120 == pytest.approx(RATE, abs=0.008)
    assert sum(covers(one) for one, _ in found) >= 108
    assert sum(one.narrowing for one, _ in found) / 120 < 0.9
    for assisted, plain in found:
        assert width(assisted) <= width(plain) + 1e-12


def width(found: Estimate) -> float:
    """The width of the interval."""
    return (found.hi or 0.0) - (found.lo or 0.0)


def test_a_check_that_tells_nothing_costs_nothing() -> None:
    """λ is about 0, the interval the plain one; exactly so for one that always says the same."""
    found = [drawn(seed, 60.0, doubtful=0.2, others=0.2) for seed in range(20)]
    assert all(one.narrowing > 0.95 for one, _ in found)
    constant = assisted_mean([1.0, 0.0] * 50, [0.5] * 100, [0.5] * 100)
    assert constant is not None
    assert (constant.lam, constant.narrowing, constant.estimate) == (0.0, 1.0, 0.5)


def test_the_standard_error_is_that_of_the_samples() -> None:
    """What it says of its own error is how much it really varies."""
    seeds = 150
    found = [drawn(seed, 0.85, doubtful=0.2, others=0.2)[0] for seed in range(seeds)]
    mean = sum(one.estimate for one in found) / seeds
    spread = math.sqrt(sum((one.estimate - mean) ** 2 for one in found) / (seeds - 1))
    assert sum(one.se or 0.0 for one in found) / seeds == pytest.approx(spread, rel=0.15)


@pytest.mark.parametrize("values", [[1.0, 0.0] * 14, [1.0] * 95 + [0.0] * 5, [1.0] * 60])
def test_too_little_judged_is_left_as_it_is(values: list[float]) -> None:
    """Below thirty judged, or ten failures, the plain estimate and interval."""
    checks = [value * 0.8 for value in values]
    found = assisted_mean([*values, None, None], [*checks, 0.1, 0.1], [0.5] * (len(values) + 2))
    plain = hajek(values, [0.5] * len(values))
    assert found is not None
    assert plain is not None
    assert (found.lam, found.estimate, found.lo, found.hi) == (0.0, plain.estimate, plain.lo, plain.hi)


def test_one_that_foresees_every_verdict_leaves_the_error_of_all() -> None:
    """With λ = 1 the estimate is the check's mean, however the sample fell."""
    checks = [1.0, 0.0, 1.0] * 200
    found = assisted_mean([*checks[:120], *[None] * 480], checks, [0.2] * 600)
    assert found is not None
    assert found.estimate == pytest.approx(2 / 3)
    assert (found.n, found.n_all) == (120, 600)


def test_a_scale_of_its_own_is_kept() -> None:
    """Scores from 1 to 5 give the same as from 0 to 1, stretched."""
    values = [1.0, 0.5, 0.0, 0.25] * 25
    checks = [0.9, 0.6, 0.2, 0.3] * 25 + [0.9] * 100
    unit = assisted_mean([*values, *[None] * 100], checks, [0.5] * 200)
    five = assisted_mean([*[1 + 4 * value for value in values], *[None] * 100], checks, [0.5] * 200, bounds=(1, 5))
    assert unit is not None
    assert five is not None
    assert [five.estimate, five.lo, five.hi] == pytest.approx([1 + 4 * (v or 0) for v in (unit.estimate, *unit)])


def test_lengths_must_agree_and_nothing_is_nothing() -> None:
    """A row an answer; no judged one: None."""
    assert assisted_mean([None, None], [0.5, 0.6], [0.5, 0.5]) is None
    with pytest.raises(ValueError, match="2 values, 1 checks, 2 chances"):
        assisted_mean([1.0, None], [0.5], [0.5, 0.5])


def test_a_drawn_answer_without_a_verdict_does_not_shift_the_mean() -> None:
    """The judge skips what the check finds hard: the share of those drawn is known, so that nothing moves by it."""
    estimates: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(60):
        chance = random.Random(seed)
        checks = [chance.random() for _ in range(1000)]
        pi = [0.3] * 1000
        asked = [chance.random() < 0.3 for _ in checks]
        answerable = [check > 0.5 or chance.random() < 0.5 for check in checks]
        good = [float(chance.random() < check) for check in checks]
        values = [y if a and b else None for y, a, b in zip(good, asked, answerable, strict=True)]
        with_drawn = assisted_mean(values, checks, pi, drawn=asked)
        not_drawn = assisted_mean(values, checks, pi)
        assert with_drawn is not None
        assert not_drawn is not None
        estimates[True].append(with_drawn.estimate)
        estimates[False].append(not_drawn.estimate)
    truth = 0.5 + 0.5 * 0.25 / 1.5  # of those the judge can answer: half above 0.5 at 0.75, a quarter below at 0.25
    assert sum(estimates[True]) / 60 == pytest.approx(truth, abs=0.01)
    assert sum(estimates[False]) / 60 < truth - 0.02


def test_a_missing_check_tells_nothing_and_moves_nothing() -> None:
    """It counts as the mean of the others; where all are missing the plain interval is left."""
    chance = random.Random(3)
    checks = [chance.random() for _ in range(400)]
    values = [float(chance.random() < check) if index < 200 else None for index, check in enumerate(checks)]
    some = [None if index % 5 == 0 else check for index, check in enumerate(checks)]
    mean = sum(check for check in some if check is not None) / 320
    filled = [mean if check is None else check for check in some]
    found, meant = assisted_mean(values, some, [0.5] * 400), assisted_mean(values, filled, [0.5] * 400)
    bare = assisted_mean(values, [None] * 400, [0.5] * 400)
    assert found is not None
    assert meant is not None
    assert bare is not None
    assert tuple(found) == pytest.approx(tuple(meant))
    assert (found.n_all, bare.n_all, bare.lam, bare.narrowing) == (320, 0, 0.0, 1.0)
