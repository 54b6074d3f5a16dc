"""Where other packages give a wrong number: each row was measured on them, each is right here."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ragpulse_evaluators import Case, EvaluationResult, ScriptedJudge, get_evaluator
from ragpulse_evaluators.aggregate import summarize
from ragpulse_evaluators.judges.parsing import read_verdicts
from ragpulse_evaluators.judges.tokens import words_of

CASE = Case(query="q", response="r", contexts=["c"], reference="g")


async def judged(name: str, *replies: str, case: Case = CASE, **params: Any) -> EvaluationResult:
    """One case; an unreadable reply is asked for once more, so it stands twice in the script."""
    return await get_evaluator(name, judge=ScriptedJudge(replies), **params)(case)


async def test_no_yesterday_is_a_no() -> None:
    """LlamaIndex finds YES inside "yesterday" and passes."""
    assert (await judged("faithfulness", "No, yesterday it was different")).passing is False


@pytest.mark.parametrize(("reply", "statuses"), [("It is untrue", {"invalid"}), ("False, not True", {"ok", "invalid"})])
async def test_untrue_is_not_true(reply: str, statuses: set[str]) -> None:
    """AdalFlow finds "true" in both and scores True."""
    result = await judged("judge", reply, reply)
    assert result.status in statuses
    assert result.score in (None, 0.0)


@pytest.mark.parametrize(("reply", "score"), [("4", 4.0), ("6", None)])
async def test_a_lone_mark_is_read_and_one_off_the_scale_refused(reply: str, score: float | None) -> None:
    """LlamaIndex raises ValueError on one line and lets 6 pass."""
    assert (await judged("correctness", reply, reply)).score == score


async def test_an_unreadable_geval_reply_costs_one_case() -> None:
    """AdalFlow raises TypeError and loses the whole batch; a mean over the other dimensions would be another metric."""
    result = await judged("geval", "n/a", "3", "5", "5", n=1)
    assert (result.status, result.score) == ("invalid", None)
    assert "Relevance unreadable, Fluency 1" in (result.explanation or "")


@pytest.mark.parametrize("name", ["map", "ndcg", "recall_at_k", "precision_at_k", "mrr", "hit_rate"])
async def test_duplicate_ids_never_exceed_one(name: str) -> None:
    """LlamaIndex's average precision gives 2.0 for a document retrieved twice."""
    result = await get_evaluator(name)(Case(retrieved_ids=["a", "a", "a"], relevant_ids=["a"]))
    assert result.score is not None
    assert result.score <= 1.0


async def test_three_statements_and_two_verdicts_are_invalid() -> None:
    """RAGAS scores 1.0."""
    verdicts = json.dumps({"statements": [{"statement": "a", "verdict": 1}, {"statement": "b", "verdict": 1}]})
    result = await judged("statement_faithfulness", '{"statements": ["a", "b", "c"]}', verdicts, verdicts)
    assert (result.status, result.score) == ("invalid", None)


async def test_a_missing_final_verdict_line_is_invalid() -> None:
    """PolyEval's faithfulness scores 1.0."""
    prose = "Both statements are discussed at length."
    assert (await judged("statement_faithfulness", '{"statements": ["a", "b"]}', prose, prose)).status == "invalid"


@pytest.mark.parametrize(("attributed", "score"), [((1, 0, 0, 0), 0.25), ((1, 1, 0), 2 / 3), ((0, 0), 0.0)])
async def test_context_recall_is_a_fraction(attributed: Sequence[int], score: float) -> None:
    """PolyEval's recall is only ever 0 or 1."""
    found = [{"statement": str(i), "attributed": verdict} for i, verdict in enumerate(attributed)]
    result = await judged("context_recall", json.dumps({"classifications": found}))
    assert result.score == pytest.approx(score)


async def test_chinese_verdicts_in_one_line_are_counted() -> None:
    """PolyEval scores 1.0 for one yes and one no."""
    line = "每个陈述的最终裁决顺序：Yes。No。"
    assert read_verdicts(line, 2, words_of("zh")) == [True, False]
    assert read_verdicts("每个陈述的最终裁决顺序：是。否。", 2, words_of("zh")) == [True, False]
    result = await judged("statement_faithfulness", "1. 甲\n2. 乙", line, language="zh")
    assert result.score == 0.5


async def test_a_half_width_colon_is_read_in_chinese() -> None:
    """PolyEval scores 0.0."""
    assert (await judged("llm_similarity", "最终答案: [0.4]", language="zh")).score == 0.4


async def test_a_letter_within_a_word_is_no_choice() -> None:
    """PolyEval reads B from "Because", scores 0.8 and passes; an unreadable choice scores False there."""
    result = await judged("custom_yaml", "Because it disagrees", "Because it disagrees")
    assert (result.status, result.score, result.passing) == ("invalid", None, None)


async def test_identical_chinese_text_has_full_rouge() -> None:
    """rouge-score's tokenizer drops everything that is not ASCII and gives 0.0."""
    text = "图书馆九点开门"
    assert (await get_evaluator("rouge")(Case(response=text, reference=text))).score == 1.0


async def test_unreadable_judge_replies_lower_the_parsing_success() -> None:
    """GroUSE reports 1.0 whatever the judge says."""
    good = '{"answer_2": {"completeness": 4}}'
    results = [await judged("grouse_completeness", *replies) for replies in ([good], ["?", "?"])]
    assert summarize(results).parsing_success == 0.5


async def test_an_interval_is_the_same_twice() -> None:
    """AdalFlow draws its quantile from random numbers."""
    first, second = [await judged("judge", "True", "True", "False", n=3) for _ in range(2)]
    assert first.ci95 == second.ci95
