"""The conditions of unit tests."""

from __future__ import annotations

import pytest

from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.meta import (
    satisfies,
)


@pytest.mark.parametrize(
    ("value", "condition", "met"),
    [
        (5.0, "==5", True),
        (4.0, ">=3", True),
        (2.0, "<=2", True),
        (3.0, ["<=4", ">2"], True),
        (None, "==None", True),
        (None, "<=2", False),
        (None, "!=5", False),
        (3.0, "==None", False),
        (3.0, "!=None", True),
    ],
)
def test_conditions_read_as_grouse_has_them(value: float | None, condition: str | list[str], met: bool) -> None:
    """None meets ==None only."""
    assert satisfies(value, condition) is met


def test_a_condition_that_cannot_be_read_is_refused() -> None:
    """A typing mistake is no failed test."""
    with pytest.raises(ConfigurationError, match=r"is like \"==5\""):
        satisfies(1.0, "about 3")
