"""The made-up answers are of the types that the collector answers with."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from ragpulse_collector.analysis.quality.coverage import Coverage, CoverageRow

from .fake_answers import typed

ROW: Mapping[str, Any] = {
    "evaluator": "groundedness", "eligible": 9, "selected": 8, "scored": 4, "skipped": 2, "invalid": 1, "error": 1,
    "dropped": 0, "uncovered_share": 0.0,
}  # fmt: skip


def test_an_answer_has_the_type_of_its_operation() -> None:
    """Pages read its attributes."""
    assert typed("GET coverage", {"coverage": [ROW], "queued": 3}) == Coverage([CoverageRow(**ROW)], 3)


@pytest.mark.parametrize(
    "wrong", [{"evaluator": "x"}, {**ROW, "scored": "many"}, {**ROW, "unknown": 1}], ids=["missing", "wrong", "unknown"]
)
def test_a_wrong_field_fails(wrong: Mapping[str, Any]) -> None:
    """So the pages' tests cannot go on with fields that the collector does not have."""
    with pytest.raises(ValidationError):
        typed("GET coverage", {"coverage": [wrong], "queued": 3})


def test_what_has_no_typed_answer_stays() -> None:
    """Names that are no operation, and answers that are files."""
    assert typed("GET nothing", {"t": "2026-11-21T12:00:00Z"}) == {"t": "2026-11-21T12:00:00Z"}
