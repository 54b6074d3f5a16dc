"""Test questions written from stored contexts."""

import json

import pytest

from ragpulse_evaluators import Context, ScriptedJudge, generate_questions
from ragpulse_evaluators.errors import ConfigurationError, JudgeError

PASSAGE = Context("Returns are free within 30 days. Refunds take five working days.", id="faq-12")


def written(*pairs: tuple[str, str]) -> str:
    """A reply with these questions and answers."""
    return json.dumps({"questions": [{"question": question, "reference": answer} for question, answer in pairs]})


async def test_each_sampled_passage_brings_cases() -> None:
    """Query, reference, passage and its id; equal passages and questions once; every loss is counted."""
    judge = ScriptedJudge(
        [
            written(("How long does a refund take?", "Five working days."), ("Are returns free?", "Yes, for 30 days.")),
            written(("how long does a refund take?", "A week.")),
            written(),
            "hmm",
            "hmm",
            JudgeError("down"),
        ]
    )
    passages = [PASSAGE, PASSAGE, "one", "two", "three", "four", " "]
    found = await generate_questions(passages, judge, per_context=2, concurrency=1)
    first, second = found.cases
    assert (first.query, first.reference) == ("How long does a refund take?", "Five working days.")
    assert (first.texts, first.relevant_ids, second.query) == ((PASSAGE.text,), {"faq-12": 1}, "Are returns free?")
    assert found.skipped == {"repeated": 1, "nothing to ask": 1, "unreadable": 1, "judge failed": 1}
    assert PASSAGE.text in found.calls[0].prompt
    assert "write 2 question(s)" in found.calls[0].prompt


async def test_the_sample_follows_the_seed() -> None:
    """Two of twenty passages, the same two for the same seed."""
    passages = [f"passage {number}" for number in range(20)]
    asked = []
    for seed in (1, 1, 2):
        judge = ScriptedJudge([written()] * 2)
        await generate_questions(passages, judge, count=2, seed=seed)
        asked.append(judge.asked)
    assert asked[0] == asked[1] != asked[2]
    assert len(asked[0]) == 2


async def test_nothing_to_read_is_refused() -> None:
    """Neither contexts without text nor a count of none."""
    with pytest.raises(ConfigurationError, match="no context has text"):
        await generate_questions([" "], ScriptedJudge([]))
    with pytest.raises(ConfigurationError, match="count"):
        await generate_questions(["x"], ScriptedJudge([]), count=0)
