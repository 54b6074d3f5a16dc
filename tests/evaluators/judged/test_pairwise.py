"""Two responses compared in both orders (LlamaIndex)."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragpulse_evaluators import Case, EvaluationResult, JudgeCall, ScriptedJudge, get_evaluator

CASE = Case(query="When does it open?", response="At nine.", contexts=["It opens at nine."], reference="At nine.")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


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


async def test_what_is_no_choice_is_asked_for_in_plain_words() -> None:
    """The repair turn names the three choices, not each spelling that is read."""
    result = await judged("pairwise", "Hard to say", "1", case=RIVALS, consensus=False)
    assert "expected 1, 2 or TIE, got 'Hard to say'" in result.calls[1].prompt
