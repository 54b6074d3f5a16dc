"""A judge on labelled answers: does it tell right from wrong, twice the same, whatever stands first, at what cost?

About 400 questions: `faithfulness` on sixty pairs that differ in one fact (twice) and on the unit tests of
`meta_evaluate`, `pairwise` on the pairs in both orders. Recorded answers are not asked for again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, quantiles
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import BudgetExceeded, JudgeError
from ragpulse_evaluators.judged.session import Verdict as Reply
from ragpulse_evaluators.judges.protocol import Judge, JudgeQuestion, JudgeWrapper
from ragpulse_evaluators.judges.wrappers import CachedJudge, Gate, GatedJudge, JudgeCache
from ragpulse_evaluators.meta.calibration import Consistency, PositionBias, position_bias, self_consistency
from ragpulse_evaluators.meta.evaluation import builtin_tests
from ragpulse_evaluators.meta.pairs import Detection, builtin_pairs, detection
from ragpulse_evaluators.result import EvaluationResult, JudgeCall
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
    server: Mapping[str, Any]
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
    waits: int
    """How often the server asked to wait (its rate limit)."""
    verdicts: tuple[str, ...]
    """In words, the most important first."""


class _Watched(JudgeWrapper):
    """Counts what the server says beside its answers."""

    waits = 0
    failure: JudgeError | None = None

    async def replies_to(self, question: JudgeQuestion) -> list[JudgeCall]:
        """Ask; note a failure."""
        try:
            return await question.put_to(self._inner)
        except JudgeError as error:
            self.waits, self.failure = self.waits + (error.retry_after_s is not None), error
            raise


async def check_judge(
    judge: Judge, cache: JudgeCache, *, concurrency: int = 4, progress: Progress = False
) -> JudgeCheck:
    """Ask the judge; raises the `JudgeError` of a judge that cannot be asked."""
    watched = _Watched(judge)
    gated = GatedJudge(watched, Gate(concurrency))
    first, second = CachedJudge(gated, cache), CachedJudge(gated, cache, id=f"{judge.id} (second run)")
    server = await _server(watched, judge)
    pairs = builtin_pairs()
    right = [truth for _ in pairs for truth in (True, False)]
    cases = [case for pair in pairs for case in pair.cases]
    tests = [
        (test.case, _MODES[test.mode]) for test in builtin_tests() if test.mode in _MODES and test.language == "en"
    ]
    options: dict[str, Any] = {"concurrency": concurrency, "progress": progress}
    results = await _ask("faithfulness", [*cases, *(case for case, _ in tests)], first, options)
    again = await _ask("faithfulness", cases, second, options)
    chosen = await _ask("pairwise", [pair.choice for pair in pairs], first, options)
    everything = [*results, *again, *chosen]
    asked = any(result.status == "ok" for result in everything)
    if watched.failure and (isinstance(watched.failure, BudgetExceeded) or not asked):
        raise watched.failure
    found = detection(results, [*right, *(truth for _, truth in tests)])
    twice = self_consistency([[_vote(r) for r in run] for run in (results[: len(cases)], again)], threshold=0.5)
    position = position_bias([result for result in chosen if result.status == "ok"])
    costs = [call.cost_usd for result in everything for call in result.calls if not call.cached]
    times = [call.elapsed_s for result in everything for call in result.calls]
    return JudgeCheck(
        judge=judge.id,
        server=server,
        questions=sum(len(result.calls) for result in everything),
        detection=found,
        consistency=twice,
        position=position,
        usd_per_1000_answers=_per_thousand(costs),
        latency_s=fmean(times) if times else None,
        latency_p95_s=quantiles(times, n=20)[-1] if len(times) > 1 else None,
        waits=watched.waits,
        verdicts=_verdicts(found, twice, position),
    )


async def _ask(name: str, cases: Sequence[Case], judge: Judge, options: Mapping[str, Any]) -> list[EvaluationResult]:
    (results,) = (await evaluate(cases, name, judge=judge, **options)).values()
    return results


async def _server(watched: Judge, judge: Judge) -> dict[str, Any]:
    """Put one question that asks for everything; the judge notes what the server rejects."""
    content = (
        'Does "the shop opens at nine" say when the shop opens? Answer with JSON: {"reason": "...", "verdict": "YES"}'
    )
    calls = await watched.ask([{"role": "user", "content": content}], n=2, schema=Reply, logprobs=True)
    return {**getattr(judge, "accepted", {}), "logprobs": any(call.logprobs for call in calls)}


def _vote(result: EvaluationResult) -> float | None:
    return None if result.passing is None else float(result.passing)


def _per_thousand(costs: Sequence[float | None]) -> float | None:
    """Return USD for 1,000 answers at one question each."""
    known = [cost for cost in costs if cost is not None]
    return 1000 * fmean(known) if costs and len(known) == len(costs) else None


def _verdicts(found: Detection, twice: Consistency, position: PositionBias | None) -> tuple[str, ...]:
    """Say what the figures mean."""
    verdicts = [found.verdict]
    if found.verdict == "better than guessing" and (found.kappa or 0.0) >= _KAPPA:
        verdicts = ["good: it tells right answers from wrong ones"]
    if position and position.p is not None and position.p < _SURE:
        side = "first" if position.first_preferred > position.second_preferred else "second"
        verdicts.append(f"biased by position: it prefers the {side} answer, so compare in both orders only")
    if (twice.flip_rate or 0.0) > _FLIPS:
        verdicts.append(f"unsteady: two runs disagree on {twice.flip_rate:.0%} of the answers")
    if found.unread > found.n / 20:
        verdicts.append(f"{found.unread} of {found.n} replies hold no verdict")
    return tuple(verdicts)
