"""The made-up answers are of the types that the collector answers with."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ragpulse_collector.analysis.plan import Plan

from .fake_answers import typed

PLAN: Mapping[str, Any] = {
    "evaluator": "groundedness", "half_width": 0.02, "assumed": 0.9, "assumed_from": "measured", "n": 865,
    "traces_per_day": 1290.0, "rate_for_daily": 0.67, "rate_for_weekly": 0.1, "days_at_full_rate": 0.67,
    "cost_usd_each": None, "cost_usd": None, "cost_usd_per_day": None,
}  # fmt: skip


def test_an_answer_has_the_type_of_its_operation() -> None:
    """Pages read its attributes."""
    assert typed("GET plan", PLAN) == Plan(**PLAN)


@pytest.mark.parametrize(
    "wrong", [{"evaluator": "x"}, {**PLAN, "n": "many"}, {**PLAN, "unknown": 1}], ids=["missing", "wrong", "unknown"]
)
def test_a_wrong_field_fails(wrong: Mapping[str, Any]) -> None:
    """So the pages' tests cannot go on with fields that the collector does not have."""
    with pytest.raises(ValidationError):
        typed("GET plan", wrong)


def test_what_has_no_typed_answer_stays() -> None:
    """Names that are no operation, and answers that are files."""
    assert typed("GET nothing", {"t": "2026-11-21T12:00:00Z"}) == {"t": "2026-11-21T12:00:00Z"}
