"""A limit on a figure: the one rule by which `check`, `evaluate` and `regress` decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.quality import Figures, Measured
from ragpulse_collector.analysis.quality.buckets import FAILURES
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store.queries.scores import refuse_share
from ragpulse_collector.words import called
from ragpulse_evaluators import EvaluationResult, Evaluator
from ragpulse_evaluators.statistics import Interval, hajek

__all__ = ["Decision", "Limit", "Measure", "Verdict", "decided", "of_results"]

Measure = Literal["quality", "pass_rate", "fail_rate", "unclear_rate"]
"""What a limit may be set on, of an evaluator."""

Verdict = Literal["below", "undecided", "above"]
"""Where an interval lies; from the worst to the best for a minimum."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Limit:
    """The least or the greatest acceptable value; one of the two is None."""

    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, least: float | None, most: float | None) -> Limit:
        """Return the limit that is given; raises Invalid for none, for both, and outside 0 to 1."""
        if (least is None) == (most is None):
            raise Invalid("give min or max, a number between 0 and 1")
        limit = cls(least, most)
        if not 0 <= limit.value <= 1:
            bound = "min" if most is None else "max"
            raise Invalid(f"{bound} lies between 0 and 1: it is compared with the normalized score")
        return limit

    def __str__(self) -> str:
        return f">= {self.min:g}" if self.max is None else f"<= {self.max:g}"

    @property
    def value(self) -> float:
        """The one that is given."""
        value = self.max if self.min is None else self.min
        assert value is not None
        return value

    def verdict(self, lo: float | None, hi: float | None) -> Verdict:
        """Return the side of the limit on which the whole interval lies; a value on the limit keeps it."""
        edge = self.value + (_ROUNDING if self.min is None else -_ROUNDING)
        if lo is not None and lo > edge:
            return "above"
        return "below" if hi is not None and hi < edge else "undecided"

    def status(self, verdict: Verdict) -> int:
        """Return the exit status of a verdict: 0 where the limit is kept, 1 where it is not, 3 undecided."""
        return 3 if verdict == "undecided" else int(verdict != ("above" if self.max is None else "below"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Measured):
    """A measure of an evaluator, held to a limit."""

    evaluator: str
    version: str | None
    judge: str | None
    measure: Measure
    min: float | None
    max: float | None
    verdict: Verdict
    markdown: str


def decided(found: Measured, limit: Limit, about: tuple[str, str | None, str | None], measure: Measure) -> Decision:
    """Hold a figure to a limit: `undecided` where its interval, or what the missing verdicts may be, contains it.

    `about` is an evaluator with its version and judge.
    """
    verdict, (evaluator, version, judge) = limit.verdict(found.least, found.most), about
    return extended(
        Decision,
        found,
        evaluator=evaluator,
        version=version,
        judge=judge,
        measure=measure,
        min=limit.min,
        max=limit.max,
        verdict=verdict,
        markdown="| evaluator | measure | 95 % interval | limit | verdict |\n|---|---|---|---|---|\n"
        f"| {called(evaluator)} {version or ''} | {measure} | {found.words} | {limit} | **{verdict}** |",
    )


def _value(result: EvaluationResult, measure: Measure) -> float | None:
    if measure == "quality":
        return result.normalized
    if measure == "pass_rate" or (result.passing is None and not result.unclear):
        return result.passing
    return result.unclear if measure == "unclear_rate" else result.passing is False


def of_results(evaluator: Evaluator, results: Sequence[EvaluationResult], measure: Measure, limit: Limit) -> Decision:
    """Hold results in memory to a limit, as stored ones: those that are missing may be anything.

    An answer with nothing to score is left out. Raises Invalid where the evaluator does not have the measure.
    """
    scored = [result for result in results if result.status == "ok"]
    values = [float(value) for result in scored if (value := _value(result, measure)) is not None]
    counts = Counter[str](result.status for result in results)
    n, lost = len(values), sum(result.missing for result in results)
    figures = Figures.of(hajek(values, [1.0] * n))
    if (scored and not values) or (evaluator.takes_all and measure != "quality"):
        what = "score from 0 to 1" if measure == "quality" else "pass or fail"
        raise Invalid(f"{measure}:{evaluator.name}: {evaluator.name} has no {what}; give it a target or a threshold")
    if measure == "pass_rate":
        unclear = sum(result.unclear for result in scored)
        refuse_share(f"pass_rate:{evaluator.name}", unclear / max(1, len(scored)))
        lost += unclear
    if evaluator.takes_all and scored:  # one result of the whole set, with its own interval if it has one
        parts, (lo, hi) = scored[0].parts, scored[0].ci95 or (None, None)
        n = parts.get("judged", parts.get("cases", n))
        lost = sum(parts.get(status, 0) for status in FAILURES)
        figures = replace(figures, n=n, lo=lo, hi=hi, reason=f"{evaluator.name} has no interval, nor")
    share, known = lost / max(1, n + lost), Interval.of(figures)
    found = extended(
        Measured,
        figures,
        counts={status: counts[status] for status in FAILURES},
        missing=lost,
        missing_share=share,
        asked=float(n + lost),
        least=known and known.lo * (1.0 - share),
        most=known and known.hi * (1.0 - share) + share,
        words=figures.in_words(asked=float(n + lost), note=f"{lost:,} missing" if lost else None),
    )
    about = (evaluator.name, str(evaluator.version), evaluator.judge_id)
    return decided(found, limit, about, measure)
