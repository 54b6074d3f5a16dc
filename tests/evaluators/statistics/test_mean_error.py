"""The mean error of a judge by labels of several chances: classes of these are added up where they may be."""

from __future__ import annotations

import pytest

from ragpulse_evaluators.statistics import Interval, hajek
from ragpulse_evaluators.statistics.correction import mean_error

Row = tuple[float, float, int]


def labels(n: int, every: int, chance: float, first: int, *, each: int = 1) -> list[Row]:
    """So many labels of a chance, of which each so manieth shows an error; `each` are of one user."""
    return [(float(k % every == 0), chance, first + k // each) for k in range(n)]


@pytest.mark.parametrize(
    ("rows", "added_up"),
    [
        (labels(60, 3, 0.5, 0) + labels(60, 20, 0.05, 100), True),
        (labels(60, 3, 0.5, 0) + labels(40, 20, 0.1, 100) + labels(40, 20, 0.02, 200), True),
        (labels(90, 3, 0.5, 0, each=3) + labels(90, 20, 0.05, 100, each=3), True),
        (labels(60, 3, 0.5, 0) + labels(29, 20, 0.05, 100), False),
        (labels(60, 3, 0.5, 0) + labels(60, 20, 0.05, 59), False),
        (labels(120, 3, 0.5, 0), False),
        (labels(60, 3, 0.5, 0) + labels(60, 20, 0.05, 100, each=30), False),
    ],
)
def test_classes_are_added_up_where_each_has_enough_labels_and_users_of_its_own(
    rows: list[Row], added_up: bool
) -> None:
    """The value is that of all labels together; the interval is narrower, else the same."""
    errors, pi, users = (list(column) for column in zip(*rows, strict=True))
    together = Interval.of(hajek(errors, pi, clusters=users, bounds=(-1.0, 1.0)))
    found = mean_error(errors, pi, users)
    if found is None or together is None:
        assert found is together
        return
    if not added_up:
        ends = together.value, together.lo, together.hi
        assert (found.value, found.lo, found.hi) == pytest.approx(ends, abs=1e-12)
        return
    assert found.value == pytest.approx(together.value, abs=1e-12)
    assert found.hi - found.lo < 0.96 * (together.hi - together.lo)
    assert found.lo < found.value < found.hi
