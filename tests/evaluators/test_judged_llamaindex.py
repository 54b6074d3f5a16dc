"""LlamaIndex's evaluators: verdicts, refine, marks, guidelines, balanced positions."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators import Case, EvaluationResult, JudgeCall, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.faithfulness import pack

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("YES", 1.0),
        ("NO", 0.0),
        ("Yes, it says so.", 1.0),
        ("No, yesterday it was different", 0.0),
        ("**NO**\nNothing says so.", 0.0),
        ("Let me see. The text is clear.\nAnswer: YES", 1.0),
        ('{"reason": "stated", "verdict": "YES"}', 1.0),
        ('```json\n{"reason": "", "verdict": false}\n```', 0.0),
    ],
)
async def test_faithfulness_reads_a_verdict(reply: str, score: float) -> None:
    """YES is 1.0 and passes, NO is 0.0 and fails, in every form judges write them."""
    result = await judged("faithfulness", reply)
    assert (result.status, result.score, result.normalized, result.passing) == ("ok", score, score, score == 1.0)


async def test_faithfulness_shows_response_and_contexts_but_not_the_query() -> None:
    """Information is the response; the query plays no part in LlamaIndex's faithfulness."""
    judge = ScriptedJudge(["YES"])
    await get_evaluator("faithfulness", judge=judge)(CASE)
    assert "At nine." in judge.asked[0]
    assert "It opens at nine." in judge.asked[0]
    assert "When does it open?" not in judge.asked[0]


@pytest.mark.parametrize("name", ["faithfulness", "relevancy"])
async def test_the_last_reply_of_a_refinement_decides(name: str) -> None:
    """YES, NO, NO over three pieces of context is a fail in three calls."""
    case = CASE.model_copy(update={"contexts": Case(contexts=["a " * 100, "b " * 100, "c " * 100]).contexts})
    result = await judged(name, "YES", "NO", "NO", case=case, context_window=60)
    assert (result.score, len(result.calls)) == (0.0, 3)
    assert "Answer so far: YES" in result.calls[1].prompt
    assert "Answer so far: NO" in result.calls[2].prompt


async def test_stopping_at_the_first_yes_saves_calls() -> None:
    """With on_yes="stop" a YES ends the refinement."""
    case = Case(response="r", contexts=["a " * 100, "b " * 100])
    result = await judged("faithfulness", "YES", case=case, context_window=60, on_yes="stop")
    assert (result.score, len(result.calls)) == (1.0, 1)


def test_contexts_are_packed_into_as_few_pieces_as_fit() -> None:
    """Short texts share a piece, a long one is cut, order and content stay."""
    pieces = pack(["aaaa " * 10, "bbbb " * 10, "cccc " * 40], 30)
    assert "".join(pieces).replace("\n", "").replace(" ", "") == "aaaa" * 10 + "bbbb" * 10 + "cccc" * 40
    assert len(pieces) == 3
    assert "aaaa" in pieces[0]
    assert "bbbb" in pieces[0]


async def test_empty_contexts_are_skipped_without_a_call() -> None:
    """No contexts is a missing field, not a failed verdict."""
    result = await judged("faithfulness", case=Case(response="r", contexts=[]))
    assert (result.status, result.explanation, result.calls) == ("skipped", "missing: contexts", ())


@pytest.mark.parametrize(
    ("reply", "score", "passing"),
    [
        ("4.0\nSame facts, less concise.", 4.0, True),
        ("4", 4.0, True),
        ("3.5\nA mistake.", 3.5, False),
        ("Score: 5", 5.0, True),
        ("**2**/5\nPoor.", 2.0, False),
        ('{"reason": "fine", "score": 4.5}', 4.5, True),
        ("Feedback: good, but long. [RESULT] 4", 4.0, True),
    ],
)
async def test_correctness_reads_marks_and_passes_from_four(reply: str, score: float, passing: bool) -> None:
    """The mark keeps its native scale 1..5; threshold 4.0 is inclusive."""
    result = await judged("correctness", reply)
    assert (result.score, result.passing, result.normalized) == (score, passing, (score - 1) / 4)


@pytest.mark.parametrize("reply", ["6", "0", "nan", "good", "3 mistakes", "8/10", '{"score": 6}', ""])
async def test_correctness_refuses_what_is_no_mark(reply: str) -> None:
    """A mark outside 1..5 or none at all is invalid after the repair turn, never a score."""
    result = await judged("correctness", reply, reply)
    assert (result.status, result.score, result.normalized, len(result.calls)) == ("invalid", None, None, 2)


async def test_a_repair_turn_shows_the_problem_and_can_succeed() -> None:
    """An unreadable reply is answered with the problem and the form; the second reply counts, both calls are kept."""
    result = await judged("correctness", "it is good", "4.5")
    assert (result.status, result.score, len(result.calls)) == ("ok", 4.5, 2)
    assert "it is good" in result.calls[1].prompt


async def test_guideline_takes_feedback_and_passing() -> None:
    """The structured reply of LlamaIndex's guideline evaluator is read."""
    result = await judged("guideline", '{"passing": false, "feedback": "Name the day."}', guidelines="Name the day.")
    assert (result.score, result.passing, result.feedback) == (0.0, False, "Name the day.")


async def test_several_guidelines_must_all_be_met() -> None:
    """One call a guideline; the broken one is named first."""
    result = await judged("guideline", "YES\nok", "NO\nrude", guidelines=["Be short.", "Be polite."])
    assert (result.passing, len(result.calls)) == (False, 2)
    assert (result.explanation or "").startswith("Be polite.: rude")
    assert result.parts["Be short."]["passing"] is True


def test_an_empty_guideline_is_refused() -> None:
    """A guideline without words is a mistake of configuration."""
    with pytest.raises(ConfigurationError):
        get_evaluator("guideline", guidelines=" ")


RIVALS = Case(query="q", response="first", second_response="second")


@pytest.mark.parametrize(
    ("first", "flipped", "score", "label"),
    [
        ("1", "2", 1.0, "A"),
        ("2", "1", 0.0, "B"),
        ("1", "1", 0.5, "TIE"),
        ("2", "2", 0.5, "TIE"),
        ("1", "TIE", 1.0, "A"),
        ("TIE", "1", 0.0, "B"),
        ("TIE", "TIE", 0.5, "TIE"),
        ("[[A]]", "[[B]]", 1.0, "A"),
        ("[[C]]", "[[C]]", 0.5, "TIE"),
        ("8 6\nbecause", "5 9", 1.0, "A"),
        ('{"winner": "2"}', '{"winner": "1"}', 0.0, "B"),
    ],
)
async def test_pairwise_settles_both_orders(first: str, flipped: str, score: float, label: str) -> None:
    """A win in one order and a tie in the other is a win; the same position twice is a tie."""
    result = await judged("pairwise", first, flipped, case=RIVALS)
    assert (result.score, result.label) == (score, label)


async def test_pairwise_shows_the_orders_swapped() -> None:
    """The second call shows the rival first; a verdict for a position is marked as bias."""
    result = await judged("pairwise", "1", "1", case=RIVALS)
    prompts = [call.prompt for call in result.calls]
    assert prompts[0].index("\nfirst\n") < prompts[0].index("\nsecond\n")
    assert prompts[1].index("\nsecond\n") < prompts[1].index("\nfirst\n")
    assert result.parts["position_bias"] is True


async def test_pairwise_without_consensus_asks_once_and_takes_the_reference_as_rival() -> None:
    """LlamaIndex's first form: the rival stands in `reference`."""
    result = await judged("pairwise", "2", case=Case(query="q", response="a", reference="b"), consensus=False)
    assert (result.score, result.label, len(result.calls)) == (0.0, "B", 1)


async def test_pairwise_without_a_rival_is_skipped_and_an_unreadable_order_is_invalid() -> None:
    """Nothing to compare with is skipped; one unreadable order spoils both."""
    assert (await judged("pairwise", case=Case(query="q", response="a"))).status == "skipped"
    assert (await judged("pairwise", "1", "maybe", "maybe", case=RIVALS)).status == "invalid"


class TasteJudge:
    """Prefers by a fixed taste of words, whatever the order; ties where the taste is equal."""

    id = "taste"

    async def ask(
        self, messages: Sequence[Any], *, n: int = 1, schema: Any = None, logprobs: bool = False
    ) -> list[JudgeCall]:
        """Compare what stands in the two fences."""
        one, two = re.findall(r"<answer_\d \w+>\n(.*?)\n</answer_", messages[-1]["content"], re.DOTALL)
        liking = len(set(one)) - len(set(two))
        return [JudgeCall(completion="1" if liking > 0 else "2" if liking < 0 else "TIE")] * n


@settings(max_examples=30, deadline=None)
@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_swapping_the_responses_mirrors_the_result(first: str, second: str) -> None:
    """What one order wins the other loses, and a response never beats itself."""
    pairwise = get_evaluator("pairwise", judge=TasteJudge())
    one = asyncio.run(pairwise(Case(query="q", response=first, second_response=second)))
    two = asyncio.run(pairwise(Case(query="q", response=second, second_response=first)))
    assert (one.score or 0.0) + (two.score or 0.0) == 1.0
    assert first != second or one.label == "TIE"
