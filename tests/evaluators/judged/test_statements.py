"""RAGAS' faithfulness: the supported share of statements."""

import json
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, default_registry, get_evaluator
from ragpulse_evaluators.aggregate.reports import summarize

CASE = Case(
    query="When was Apple founded?",
    response="Apple was founded in 1976. It sells phones.",
    contexts=["Apple is founded in 1976.", "Google is founded in 1998. Bread is baked.", "Apples are fruit."],
    reference="Apple was founded in 1976 by Steve Jobs.",
)


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


TEXTS = ("Apple was founded in 1976.", "Apple sells phones.", "Apple is big.")
STATEMENTS = json.dumps({"statements": TEXTS})


def verdicts(*values: int) -> str:
    """A structured reply with these verdicts."""
    return reply(*({"statement": text, "verdict": value} for text, value in zip(TEXTS, values, strict=False)))


def reply(*items: dict[str, Any]) -> str:
    """A structured reply of these items."""
    return json.dumps({"statements": [{"reason": "r", **item} for item in items]})


async def test_statement_faithfulness_is_the_supported_share() -> None:
    """Two of three statements are supported; the parts say which."""
    result = await judged("statement_faithfulness", STATEMENTS, verdicts(1, 0, 1))
    assert result.score == pytest.approx(2 / 3)
    assert [part["verdict"] for part in result.parts["statements"]] == [True, False, True]
    assert result.explanation == "not supported: Apple sells phones. (r)"


async def test_fewer_verdicts_than_statements_are_invalid() -> None:
    """Three statements and two verdicts are no score of 1.0."""
    result = await judged("statement_faithfulness", STATEMENTS, verdicts(1, 1), verdicts(1, 1))
    assert (result.status, result.explanation) == ("invalid", "no verdict on 'Apple is big.'")


async def test_a_final_line_of_verdicts_is_read() -> None:
    """PolyEval's form: a list of statements, then one line of verdicts in order."""
    listed = "1. Apple was founded in 1976.\n2. Apple sells phones."
    result = await judged(
        "statement_faithfulness", listed, "Reasoning.\nFinal verdict for each statement in order: Yes. No."
    )
    assert result.score == 0.5


ABSTAINED = ['{"statements": []}', '{"statements": [""]}', '{"statements": ["N/A"]}', '{"statements": ["None."]}']


@pytest.mark.parametrize("reply", ABSTAINED)
async def test_a_response_that_states_nothing_abstains(reply: str) -> None:
    """Nothing to check is no perfect score, and no missing verdict either: bounds do not widen."""
    result = await judged("statement_faithfulness", reply)
    assert (result.status, result.label, result.score, len(result.calls)) == ("skipped", "abstained", None, 1)


@pytest.mark.parametrize("name", ["groundedness", "statement_faithfulness"])
async def test_abstentions_are_counted_by_their_label(name: str) -> None:
    """Beside the answers that are scored."""
    judge = ScriptedJudge([STATEMENTS, verdicts(1, 0, 1), '{"statements": []}'])
    evaluator = get_evaluator(name, **({"judge": judge} if "judge" in default_registry().accepts(name) else {}))
    results = [await evaluator(case) for case in (CASE, CASE.model_copy(update={"response": "I don't know."}))]
    summary = summarize(results)
    assert (summary.counts["skipped"], summary.labels["abstained"]) == (1, 1)


def item(index: int, verdict: str, **fields: Any) -> dict[str, Any]:
    """A verdict on one of the statements."""
    return {"number": index + 1, "statement": TEXTS[index], "verdict": verdict, **fields}


@pytest.mark.parametrize(
    "items",
    [
        [item(2, "YES"), item(0, "YES"), item(1, "NO")],
        [item(2, "YES", number=1), item(0, "YES", number=2), item(1, "NO", number=3)],
        [item(0, "YES", statement=""), item(1, "NO", statement="phones are sold"), item(2, "YES", statement="")],
        [item(0, "YES"), {"statement": "Apple  SELLS phones", "verdict": "NO"}, item(2, "YES"), item(2, "YES")],
    ],
)
async def test_verdicts_are_matched_by_statement(items: list[dict[str, Any]]) -> None:
    """In any order: by the words first, by the number where the words were changed."""
    result = await judged("statement_faithfulness", STATEMENTS, reply(*items))
    assert [part["verdict"] for part in result.parts["statements"]] == [True, False, True]
    assert [part["statement"] for part in result.parts["statements"]] == list(TEXTS)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([item(0, "YES"), item(1, "NO"), item(1, "YES")], "two verdicts on"),
        ([item(0, "YES"), item(1, "NO"), {"statement": "Something else", "verdict": "YES"}], "is none of the 3"),
    ],
)
async def test_a_verdict_on_nothing_and_two_on_one_are_invalid(items: list[dict[str, Any]], why: str) -> None:
    """As many verdicts as statements are not enough."""
    result = await judged("statement_faithfulness", STATEMENTS, reply(*items), repair=False)
    assert (result.status, why in (result.explanation or "")) == ("invalid", True)
