"""A judge on labelled answers: does it tell right from wrong, twice the same, whatever stands first, at what cost?

About 400 questions: `faithfulness` on sixty pairs that differ in one fact (twice) and on the unit tests of
`meta_evaluate`, `pairwise` on the pairs in both orders. Recorded answers are not asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from statistics import fmean, quantiles
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import BudgetExceeded, JudgeError
from ragpulse_evaluators.judges.protocol import Judge, JudgeQuestion, JudgeWrapper
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge, JudgeCache
from ragpulse_evaluators.meta.calibration import Consistency, PositionBias, position_bias, self_consistency
from ragpulse_evaluators.meta.evaluation import builtin_tests
from ragpulse_evaluators.meta.pairs import BETTER, Detection, builtin_pairs, detection
from ragpulse_evaluators.registry import get_evaluator
from ragpulse_evaluators.result import Estimate, EvaluationResult, JudgeCall
from ragpulse_evaluators.runner import Progress, evaluate

_SURE = 0.01
_FLIPS, _KAPPA = 0.1, 0.6
_MODES = {"good": True, "missing_information": True, "irrelevant_information": True, "altered_facts": False,
          "answers_without_evidence": False}  # fmt: skip
"""Failure modes of the unit tests → whether the contexts support the answer. Citations are no matter of support."""


@dataclass(frozen=True, kw_only=True)
class JudgeCheck:
    """What a check of a judge found."""

    judge: str
    server: Mapping[str, str | int | bool | list[str] | None]
    """What the server supports."""
    questions: int
    detection: Detection
    consistency: Consistency
    position: PositionBias | None
    usd_per_1000_answers: float | None
    """None where the cost is not known."""
    latency_s: float | None
    """Mean seconds of a reply."""
    latency_p95_s: float | None
    waits: int | None
    """How often the server asked to wait (its rate limit); None where nobody counted."""
    verdicts: tuple[str, ...]
    """In words, the most important first."""


class _Watched(JudgeWrapper):
    """Keeps what the server refuses; copies of the judge share it."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self.failures: list[JudgeError] = []

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Ask; note a failure."""
        try:
            return await question.put_to(self._inner)
        except JudgeError as error:
            self.failures.append(error)
            raise

    def raise_failure(self, results: Sequence[EvaluationResult]) -> None:
        """Raise what makes the check worthless: the cap, or a judge that never answered."""
        for error in self.failures:
            if isinstance(error, BudgetExceeded) or not any(result.status == "ok" for result in results):
                raise error


@dataclass(frozen=True, slots=True)
class Question:
    """One case of a check, and which evaluator puts it to the judge."""

    evaluator: str
    case: Case
    right: bool | None = None
    """Whether the answer is right, where that is known."""
    again: bool = False
    """Whether it is asked for the second time."""


@cache
def check_questions() -> tuple[Question, ...]:
    """The questions of a check, in their order."""
    cases, choices = _cases()
    return (
        *(Question("faithfulness", case, right) for case, right in (*cases, *_unit_tests())),
        *(Question("faithfulness", case, right, again=True) for case, right in cases),
        *(Question("pairwise", choice) for choice in choices),
    )


async def check_judge(
    judge: Judge, record: JudgeCache, *, concurrency: int = 4, progress: Progress = False
) -> JudgeCheck:
    """Ask the judge; raises the `JudgeError` of a judge that cannot be asked."""
    watched = _Watched(judge)
    gated = GatedJudge(watched, Gate(concurrency))
    first, second = CachedJudge(gated, record), CachedJudge(gated, record, id=f"{judge.id} (second run)")
    server, results = await _server(watched, judge), list[EvaluationResult]()
    for (name, again), asked in groupby(check_questions(), key=lambda each: (each.evaluator, each.again)):
        cases, asked_judge = [each.case for each in asked], second if again else first
        (found,) = (await evaluate(cases, name, judge=asked_judge, concurrency=concurrency, progress=progress)).values()
        results += found
    watched.raise_failure(results)
    waits = sum(error.retry_after_s is not None for error in watched.failures)
    return judge_report(judge.id, results, server=server, waits=waits)


def judge_report(
    judge: str, results: Sequence[EvaluationResult], *, server: Mapping[str, Any], waits: int | None = None
) -> JudgeCheck:
    """Return what the results of `check_questions`, in the same order, say of a judge."""
    asked = list(zip(check_questions(), results, strict=True))
    once = [(result, each.right) for each, result in asked if each.evaluator != "pairwise" and not each.again]
    again = [result for each, result in asked if each.again]
    chosen = [result for each, result in asked if each.evaluator == "pairwise" and result.status == "ok"]
    found = detection([result for result, _ in once], [bool(right) for _, right in once])
    runs = ([result for result, _ in once[: len(again)]], again)
    twice = self_consistency([[result.passing for result in run] for run in runs], threshold=0.5)
    position = position_bias(chosen)
    return JudgeCheck(
        judge=judge,
        server=server,
        detection=found,
        consistency=twice,
        position=position,
        waits=waits,
        verdicts=_verdicts(found, twice, position),
        questions=sum(len(result.calls) for result in results),
        **_costs([call for each, result in asked if each.evaluator != "pairwise" for call in result.calls]),
    )


def check_estimates(judge: Judge) -> list[Estimate]:
    """Return the expected calls and tokens of a check: one for each result, as if nothing was recorded."""
    evaluators = {name: get_evaluator(name, judge=judge) for name in ("faithfulness", "pairwise")}
    return [evaluators[each.evaluator].estimate(each.case) for each in check_questions()]


def _cases() -> tuple[list[tuple[Case, bool]], list[Case]]:
    """Return each answer of the pairs with the truth, and the pairs for an evaluator that compares."""
    pairs = builtin_pairs()
    cases = [(case, right) for pair in pairs for case, right in zip(pair.cases, (True, False), strict=True)]
    return cases, [pair.choice for pair in pairs]


def _unit_tests() -> list[tuple[Case, bool]]:
    tests = (test for test in builtin_tests() if test.language == "en" and test.mode in _MODES)
    return [(test.case, _MODES[test.mode]) for test in tests]


def _costs(calls: Sequence[JudgeCall]) -> dict[str, float | None]:
    """Return the cost of 1,000 answers, at one question each, and the latency; recorded calls cost nothing."""
    costs = [call.cost_usd for call in calls if not call.cached]
    known = [cost for cost in costs if cost is not None]
    times = [call.elapsed_s for call in calls]
    return {
        "usd_per_1000_answers": 1000 * fmean(known) if known and len(known) == len(costs) else None,
        "latency_s": fmean(times) if times else None,
        "latency_p95_s": quantiles(times, n=20)[-1] if len(times) > 1 else None,
    }


async def _server(watched: Judge, judge: Judge) -> dict[str, Any]:
    """Put one question that asks for everything; the judge notes what the server rejects."""
    from ragpulse_evaluators.judged.session import VerdictReply  # prompts: readers of stored checks need none

    content = (
        'Does "the shop opens at nine" say when the shop opens? Answer with JSON: {"reason": "...", "verdict": "YES"}'
    )
    calls = await watched.ask([{"role": "user", "content": content}], n=2, schema=VerdictReply, logprobs=True)
    return {**getattr(judge, "accepted", {}), "logprobs": any(call.logprobs for call in calls)}


def _verdicts(found: Detection, twice: Consistency, position: PositionBias | None) -> tuple[str, ...]:
    """Say what the figures mean."""
    good = found.verdict == BETTER and (found.kappa or 0.0) >= _KAPPA
    verdicts = ["good: it tells right answers from wrong ones" if good else found.verdict]
    if position and position.p is not None and position.p < _SURE:
        side = "first" if position.first_preferred > position.second_preferred else "second"
        verdicts.append(f"biased by position: it prefers the {side} answer, so compare in both orders only")
    if (twice.flip_rate or 0.0) > _FLIPS:
        verdicts.append(f"unsteady: two runs disagree on {twice.flip_rate:.0%} of the answers")
    if found.unread > found.n / 20:
        verdicts.append(f"{found.unread} of {found.n} replies hold no verdict")
    return tuple(verdicts)
