"""Latency, cost, throughput and pass rate of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from ragpulse_evaluators.aggregate.labels import SetEvaluator, wilson_interval
from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import Outcome

_LESS = Scale(hi=None, reverse=True)
_MORE = Scale(hi=None)


class _Figure(Evaluator):
    """A figure of the run as it is; with a `target` it passes within, where `normalized` is 1, above it target/figure.

    Without a target there is no `normalized`: seconds and dollars have no natural best.
    """

    scale = _LESS
    parser = "figure"
    immediate = True

    def __init__(self, *, target: Annotated[float, Field(gt=0)] | None = None, threshold: float | None = None) -> None:
        super().__init__(threshold=target if threshold is None else threshold, target=target)
        self._target = target

    def run(self, case: Case) -> Outcome:
        """Read the figure; a negative one is invalid."""
        (field,) = self.needs
        figure = float(getattr(case, field))
        if figure < 0:
            raise Unreadable(f"{field} is {figure:g}")
        target = self._target
        normalized = None if target is None else 1.0 if figure <= target else target / figure
        return Outcome(score=figure, normalized=normalized)


class Latency(_Figure):
    """How many seconds did the answer take?"""

    name = "latency"
    needs = frozenset({"latency_s"})


class Cost(_Figure):
    """How many USD did the answer cost?"""

    name = "cost"
    needs = frozenset({"cost_usd"})


class Throughput(SetEvaluator):
    """Requests per second over the window in which they ran.

    The window is `window_s`; else from the first start to the last end where each case's metadata has `start_time`
    (ISO 8601 or seconds); else the sum of latencies, as if one request ran after another. With a `target`,
    `normalized` is the share of it reached.
    """

    name = "throughput"
    needs = frozenset({"latency_s"})
    scale = _MORE

    def __init__(
        self, *, window_s: float | None = None, target: float | None = None, threshold: float | None = None
    ) -> None:
        super().__init__(threshold=target if threshold is None else threshold, window_s=window_s, target=target)
        if window_s:
            self.needs = frozenset()
        self._window_s, self._target = window_s, target

    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Divide the requests by the window."""
        window, description = self._window(cases)
        if window <= 0:
            raise Unreadable("the requests took no time")
        rate = len(cases) / window
        reached = None if self._target is None else min(1.0, rate / self._target)
        return Outcome(
            score=rate, normalized=reached, explanation=f"{len(cases)} requests in {window:g} s, {description}"
        )

    def _window(self, cases: Sequence[Case]) -> tuple[float, str]:
        if self._window_s is not None:
            return self._window_s, "the window given"
        starts = [case.metadata.get("start_time") for case in cases]
        if all(start is not None for start in starts):
            times = [_seconds(start) for start in starts]
            ends = [start + (case.latency_s or 0.0) for start, case in zip(times, cases, strict=True)]
            return max(ends) - min(times), "first start to last end"
        return sum(case.latency_s or 0.0 for case in cases), "one after another"


def _seconds(moment: Any) -> float:
    if isinstance(moment, int | float):
        return float(moment)
    if isinstance(moment, datetime):
        return moment.timestamp()
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        raise Unreadable(f"start_time {str(moment)[:40]!r} is no time") from None


class PassRate(SetEvaluator):
    """The share of cases that pass the evaluator `of`, with Wilson's interval; unjudged cases are counted apart.

    `of` is a name or an evaluator; parameters for it go in `params`. Skipped, invalid and failed results are parts.
    """

    name = "pass_rate"
    needs = frozenset({"response", "reference"})
    parser = "pass rate"

    def __init__(
        self,
        *,
        of: str | Evaluator = "exact_match",
        params: dict[str, Any] | None = None,
        threshold: float | None = None,
        resolve: Callable[..., Evaluator],
    ) -> None:
        self._of = of if isinstance(of, Evaluator) else resolve(of, **(params or {}))
        super().__init__(threshold=threshold, of=f"{self._of.name}@{self._of.version}")
        self.judge, self.cost_class = self._of.judge, self._of.cost_class
        self.wants_judge = self._of.wants_judge
        self.needs = self._of.needs

    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Evaluate each and count."""
        results = await asyncio.gather(*(self._of(case) for case in cases))
        verdicts = [result.passing for result in results if result.status == "ok" and result.passing is not None]
        if not verdicts:
            raise Unreadable(f"{self._of.name} gave no verdict; does it have a threshold?")
        counts = {status: sum(r.status == status for r in results) for status in ("invalid", "error")}
        return Outcome(
            score=sum(verdicts) / len(verdicts),
            ci95=wilson_interval(sum(verdicts), len(verdicts)),
            parts={"passed": sum(verdicts), "judged": len(verdicts), **counts},
        )


_SOURCE = "Prompt Evaluation (S3)"

ENTRIES: tuple[Entry, ...] = (
    Entry.of(Latency, source=_SOURCE, options="target=2.0"),
    Entry.of(Cost, source=_SOURCE, options="target=0.01"),
    Entry.of(
        Throughput,
        source=_SOURCE,
        description="How many requests per second were served?",
        options="target=5.0",
    ),
    Entry.of(
        PassRate,
        source=_SOURCE,
        description="Which share of the cases passes another evaluator?",
        options='of="exact_match"',
    ),
)
