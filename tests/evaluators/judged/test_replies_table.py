"""Replies in the habits of many models, each with what it means: one row of `fixtures/replies.json` each."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragpulse_evaluators import Case, ScriptedJudge, get_evaluator

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "fixtures" / "replies.json").read_text("utf-8"))
CASE = Case(query="q", response="r", second_response="s", contexts=["c"], reference="g")
STATUS = {"unreadable": "invalid", "skipped": "skipped"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['habit']}-{row['reply'][:40]!r}")
async def test_a_reply_means_what_its_row_says(row: dict[str, Any]) -> None:
    """The first reply alone decides; what is quoted is no verdict, and contradictions are none either."""
    options = {"repair": False, "language": row.get("language", "en"), **row.get("options", {})}
    judge = ScriptedJudge([row["reply"]])
    result = await get_evaluator(row["evaluator"], judge=judge, **options)(CASE)
    score = None if row["score"] in STATUS else pytest.approx(row["score"])
    assert (result.status, result.score) == (STATUS.get(row["score"], "ok"), score), result.explanation
