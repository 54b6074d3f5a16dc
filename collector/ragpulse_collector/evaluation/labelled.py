"""The labelled answers of a judge's check as units: they have ids like those of traces, and no trace."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, UUID, uuid5

if TYPE_CHECKING:
    from ragpulse_evaluators.meta.judge_check import Question


@cache
def labelled() -> Mapping[tuple[UUID, int], Question]:
    """Return the questions of a check by the trace and span id of their jobs, in their order."""
    from ragpulse_evaluators.meta.judge_check import check_questions  # pairs and tests: only a check reads them

    return {(uuid5(NAMESPACE_OID, f"ragpulse check {n}"), n): each for n, each in enumerate(check_questions())}
