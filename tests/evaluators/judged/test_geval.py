"""G-Eval: marks by dimension, means over samples, log-probabilities."""

import math
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.judged.geval import expected_mark

CASE = Case(query="Is Beijing in China?", response="Yes", reference="Yes")


async def judged(name: str, *replies: Any, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case through one evaluator with scripted replies."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


SUMMARY = Case(contexts=["A long source."], response="A summary.")


async def test_geval_gives_ratios_by_dimension_and_their_mean() -> None:
    """S1's example: marks 2/5, 1/3, 1/5, 2/5 give an overall of 0.3333."""
    result = await judged("geval", "2", "1", "1", "2", case=SUMMARY, n=1)
    expected = {"Relevance": 0.4, "Fluency": 1 / 3, "Consistency": 0.2, "Coherence": 0.4, "overall": 1 / 3}
    assert {key: result.parts[key] for key in expected} == pytest.approx(expected)
    assert result.score == pytest.approx(1 / 3)


async def test_geval_averages_its_samples_and_drops_unreadable_ones() -> None:
    """Two of three samples of one dimension count; native mark and ratio are both kept."""
    result = await judged("geval", "4", "Consistency: 5", "n/a", case=SUMMARY, dimension="consistency", n=3)
    assert (result.score, result.normalized) == (4.5, 0.9)
    assert result.parts["n_valid"] == {"Consistency": 2}


async def test_a_dimension_without_a_readable_sample_makes_the_result_invalid() -> None:
    """A mean over the others would be another metric under the same name; the explanation has their marks."""
    result = await judged("geval", "2", "n/a", "1", "2", case=SUMMARY, n=1)
    assert (result.status, result.score, len(result.calls)) == ("invalid", None, 4)
    assert result.parts == {"Relevance": 0.4, "Fluency": None, "Consistency": 0.2, "Coherence": 0.4}
    assert "Relevance 0.4, Fluency unreadable" in (result.explanation or "")


async def test_geval_weighs_log_probabilities() -> None:
    """Candidates 4 (0.75) and 5 (0.25) give 4.25; words and marks out of range are left out."""
    logprobs = {"4": math.log(0.6), "5": math.log(0.2), "The": math.log(0.1), "9": math.log(0.1)}
    reply = {"completion": "4", "logprobs": logprobs}
    result = await judged("geval", reply, case=SUMMARY, dimension="Relevance", use_logprobs=True)
    assert result.score == pytest.approx(4.25)
    assert expected_mark({"1": 0.0, " 1": 0.0}, 1, 5) == 1.0


MARKS_OF_SEVERAL_TOKENS: list[tuple[str, dict[str, float], float]] = [
    ("10", {"1": 0.9, "9": 0.05}, 10),
    ("9", {"9": 0.6, "1": 0.4}, 9),  # a 1 may begin a 10
    ("10", {"10": 0.75, "8": 0.25}, 9.5),
    ("8", {"8": 0.5, "10": 0.5}, 9),
]


@pytest.mark.parametrize(("text", "candidates", "mark"), MARKS_OF_SEVERAL_TOKENS)
async def test_a_mark_of_several_tokens_is_read_whole(text: str, candidates: dict[str, float], mark: float) -> None:
    """Only the first token's candidates are known: where a longer mark may begin with one, the text alone counts."""
    logprobs = {token: math.log(share) for token, share in candidates.items()}
    own: dict[str, Any] = {"criterion": "It is clear.", "span": (1, 10), "use_logprobs": True}
    result = await judged("geval", {"completion": text, "logprobs": logprobs}, case=SUMMARY, **own)
    assert result.score == pytest.approx(mark)


async def test_geval_marks_chat_replies() -> None:
    """The chatbot task has its own four dimensions; groundedness is 0 or 1."""
    case = Case(query="Hi!", response="Hello.", contexts=["Hello is a greeting."])
    result = await judged("geval", "3", "3", "2", "0", case=case, task="chatbot", n=1)
    assert result.parts["Groundedness"] == 0.0
    assert result.score == pytest.approx((1 + 1 + 2 / 3 + 0) / 4)


def test_geval_refuses_unknown_tasks_and_dimensions() -> None:
    """The message lists what there is."""
    with pytest.raises(ConfigurationError, match="summarization, chatbot"):
        get_evaluator("geval", task="poetry")
    with pytest.raises(ConfigurationError, match="fluency"):
        get_evaluator("geval", dimension="beauty")


async def test_geval_marks_your_own_criterion() -> None:
    """Criterion and steps are in the prompt, the mark is native on the span, the version follows all three."""
    own: dict[str, Any] = {"criterion": "Names the source of each figure.", "steps": ["Find figures.", "Find sources."]}
    result = await judged("geval", "3", "4", "n/a", case=Case(response="r"), **own, span=(0, 4), n=3)
    assert (result.score, result.normalized, result.parts["n_valid"]) == (3.5, 0.875, {"criterion": 2})
    assert "Names the source of each figure." in result.calls[0].prompt
    assert "1. Find figures.\n2. Find sources." in result.calls[0].prompt
    versions = {get_evaluator("geval", **{**own, **more}).version for more in ({}, {"steps": "x"}, {"span": (1, 3)})}
    assert len(versions) == 3
    for wrong in ({"span": (1, 2.5)}, {"criterion": " "}, {"criterion": None}):
        with pytest.raises(ConfigurationError, match="geval:"):
            get_evaluator("geval", **{**own, **wrong})


async def test_a_mark_that_was_cut_off_does_not_count_and_neither_does_reasoning() -> None:
    """A cut "1" may be the beginning of "10"; a draft within reasoning is no mark."""
    cut = {"completion": "4", "finish_reason": "length"}
    thought = {"completion": "<think>\n2? No, ", "finish_reason": "length"}
    result = await judged("geval", cut, thought, "5", case=SUMMARY, dimension="relevance", n=3)
    assert (result.score, result.parts["n_valid"]) == (5.0, {"Relevance": 1})
    lost = await judged("geval", thought, case=SUMMARY, dimension="relevance", n=1)
    assert (lost.status, "cut off" in (lost.explanation or "")) == ("invalid", True)


async def test_the_first_token_of_a_cut_reply_is_a_whole_mark() -> None:
    """With log-probabilities one token is asked for."""
    reply = {"completion": "4", "finish_reason": "length", "logprobs": {"4": 0.0}}
    assert (await judged("geval", reply, case=SUMMARY, dimension="relevance", use_logprobs=True)).score == 4.0


PROSE: dict[str, float | None] = {
    "The score is 4 out of 5": 4,
    "I'd give it a 4": 4,
    "4 (good)": 4,
    "**4** (good)": 4,
    "Relevance - 4": 4,
    "Relevance (1-5): 4": 4,
    "Relevance is 4.": 4,
    "I would rate this response 4/5.": 4,
    "I'd give this summary a solid 3.5.": 3.5,
    "On a scale of 1 to 5, the score is 4.": 4,
    "I give it 4 because 2 claims fail": 4,
    "My score: 4 out of 5 because it is fine": 4,
    "Eu dou nota 4": 4,
    "评分:4分": 4,
    "The score is between 3 and 4": None,
    "The score is not 4": None,
    "The response deserves a 2 or 3": None,
    "It scores 3; I first gave it 5": None,
    "I found 3 out of 5 claims supported": None,
    "I rated 3 sentences as wrong": None,
    "I found 3 errors": None,
    "Overall, I give it 4 out of 10": None,
    "It was published in 2019": None,
}


@pytest.mark.parametrize("reply", PROSE)
async def test_a_mark_in_prose_is_read_and_no_other_number(reply: str) -> None:
    """On the scale that was asked for; ranges, denials, counts and other scales are no marks."""
    result = await judged("geval", reply, case=SUMMARY, dimension="relevance", n=1)
    assert (result.score, result.status) == (PROSE[reply], "invalid" if PROSE[reply] is None else "ok")


@pytest.mark.parametrize("reply", ['{"Relevance": 4}', "**Relevance:** 4", "4 out of 5", "<think>3</think>4"])
async def test_marks_are_read_as_judges_write_them(reply: str) -> None:
    """A geval sample that cannot be read is dropped, so each way of writing counts."""
    assert (await judged("geval", reply, case=SUMMARY, dimension="relevance", n=1)).score == 4.0
