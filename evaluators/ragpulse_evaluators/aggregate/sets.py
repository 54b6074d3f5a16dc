"""Metrics over a set of cases; of answers that are labels: accuracy, precision, recall, F1 and ROC AUC.

The others are figures of the runs: latency and cost of each, throughput and pass rate of all.
"""

from __future__ import annotations

import asyncio
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, Unreadable
from ragpulse_evaluators.evaluator import Evaluator, Scale
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import EvaluationResult, Outcome
from ragpulse_evaluators.statistics import roc_auc
from ragpulse_evaluators.statistics.weighted import wilson_bounds
from ragpulse_evaluators.text.matching import normalize_answer

Average = Literal["macro", "micro"]
_LESS = Scale(hi=None, reverse=True)
_MORE = Scale(hi=None)
_YES = frozenset({"yes", "true", "1", "positive", "pass", "sim", "是", "对"})
_NO = frozenset({"no", "false", "0", "negative", "fail", "não", "nao", "否", "错"})


def _pairs(cases: Sequence[Case]) -> list[tuple[str, str]]:
    """Answer and reference label of each case, normalised; the first reference counts."""
    return [(normalize_answer(case.response or ""), normalize_answer(case.references[0])) for case in cases]


class SetEvaluator(Evaluator):
    """Base of metrics over a set: subclasses write `measure`, which sees the cases that have every needed field.

    The number of cases left out is `parts["skipped"]`; where none is left the result is skipped.
    """

    takes_all = True
    parser = "set"

    @abstractmethod
    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Score a set of at least one usable case."""

    async def run(self, case: Case) -> Outcome:
        """Score a set of one."""
        return await self.measure([case])

    async def over(self, cases: Sequence[Case]) -> EvaluationResult:
        """Score the set; raises nothing but cancellation."""
        usable = [case for case in cases if not any(case.lacks(field) for field in self.needs)]
        counts = {"cases": len(usable), "skipped": len(cases) - len(usable)}
        try:
            if not usable:
                raise MissingField(*sorted(self.needs))
            outcome = await self.measure(usable)
            result = self._settle(Case(), replace(outcome, parts={**outcome.parts, **counts}), [])
        except Exception as error:  # noqa: BLE001 - the boundary: an evaluator's failure is a value, never an exception
            result = self._failure(Case(), [], error)
        return result.model_copy(update={"case": None})


class Accuracy(SetEvaluator):
    """The share of answers that are the reference label, with Wilson's interval."""

    name = "accuracy"
    needs = frozenset({"response", "reference"})

    def __init__(self, *, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold)

    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Count."""
        share = sum(answer == label for answer, label in _pairs(cases)) / len(cases)
        return Outcome(score=share, ci95=wilson_bounds(share, len(cases), 0.95))


class _LabelRate(SetEvaluator):
    """Precision, recall or F1 of answers that are labels.

    Of one class where `positive` names it, or where all labels are a yes or a no ("pass", "1", "true", "是", ...);
    else the mean over classes (`average="macro"`) or over cases ("micro"), as scikit-learn has them, an absent class
    counting 0. Parts: f1, and the value of each class.
    """

    needs = frozenset({"response", "reference"})

    def __init__(
        self, *, positive: str | None = None, average: Average = "macro", threshold: float | None = None
    ) -> None:
        super().__init__(threshold=threshold, positive=positive, average=average)
        self._positive = None if positive is None else frozenset({normalize_answer(positive)})
        self._average = average

    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Count by class."""
        pairs = _pairs(cases)
        labels = {label for pair in pairs for label in pair}
        positive = self._positive or (_YES if labels <= _YES | _NO else None)
        if positive is not None:
            rates = _Rates([(answer in positive, label in positive) for answer, label in pairs])
            return Outcome(score=getattr(rates, self.name), parts={"f1": rates.f1})
        rates_of = {name: _Rates([(a == name, b == name) for a, b in pairs]) for name in sorted(labels)}
        by_class = {name: getattr(rates, self.name) for name, rates in rates_of.items()}
        if self._average == "micro":
            share = sum(answer == label for answer, label in pairs) / len(pairs)
            return Outcome(score=share, parts={"f1": share, "classes": by_class})
        f1 = math.fsum(rates.f1 for rates in rates_of.values()) / len(rates_of)
        return Outcome(score=math.fsum(by_class.values()) / len(by_class), parts={"f1": f1, "classes": by_class})


class Precision(_LabelRate):
    """Of the answers that gave a label, how many were right?"""

    name = "precision"


class Recall(_LabelRate):
    """Of the cases that have a label, how many answers gave it?"""

    name = "recall"


class F1(_LabelRate):
    """How well do answers and right labels agree, by the harmonic mean of precision and recall?"""

    name = "f1"


class _Rates:
    """Precision, recall and F1 of yes/no pairs (answer, label)."""

    def __init__(self, pairs: Sequence[tuple[bool, bool]]) -> None:
        hits = sum(answer and label for answer, label in pairs)
        answers, labels = (sum(flags) for flags in zip(*pairs, strict=True))
        self.precision = hits / answers if answers else 0.0
        self.recall = hits / labels if labels else 0.0
        self.f1 = 2.0 * hits / (answers + labels) if hits else 0.0


class RocAuc(SetEvaluator):
    """The probability that a positive case got a higher number than a negative one.

    Answers are numbers, references are labels. A positive reference is `positive`, or a yes ("1", "true", "pass",
    "是", ...).
    """

    name = "roc_auc"
    needs = frozenset({"response", "reference"})

    def __init__(self, *, positive: str | None = None, threshold: float | None = None) -> None:
        super().__init__(threshold=threshold, positive=positive)
        self._positive = _YES if positive is None else frozenset({normalize_answer(positive)})

    async def measure(self, cases: Sequence[Case]) -> Outcome:
        """Rank the numbers."""
        labels = [normalize_answer(case.references[0]) in self._positive for case in cases]
        area = roc_auc([_number(case.response or "") for case in cases], labels)
        if area is None:
            raise Unreadable("ROC AUC needs positive and negative references")
        return Outcome(score=area)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise Unreadable(f"{text[:40]!r} is not a number") from None
    if not math.isfinite(value):
        raise Unreadable(f"{text[:40]!r} is not a finite number")
    return value


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


class CostOfAnswer(_Figure):
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
        share = sum(verdicts) / len(verdicts)
        return Outcome(
            score=share,
            ci95=wilson_bounds(share, len(verdicts), 0.95),
            parts={"passed": sum(verdicts), "judged": len(verdicts), **counts},
        )


_LABELS = "scikit-learn's definitions"
_FIGURES = "Prompt Evaluation (S3)"

ENTRIES = (
    Entry.of(Accuracy, source=_LABELS, description="Which share of the answers is the right label?"),
    Entry.of(Precision, source=_LABELS, options='positive="spam"'),
    Entry.of(Recall, source=_LABELS, options='positive="spam"'),
    Entry.of(F1, source=_LABELS, options='positive="spam"'),
    Entry.of(
        RocAuc,
        source=_LABELS,
        description="Do positive cases get higher numbers than negative ones?",
        options='positive="grounded"',
    ),
    Entry.of(Latency, source=_FIGURES, options="target=2.0"),
    Entry.of(CostOfAnswer, source=_FIGURES, options="target=0.01"),
    Entry.of(
        Throughput,
        source=_FIGURES,
        description="How many requests per second were served?",
        options="target=5.0",
    ),
    Entry.of(
        PassRate,
        source=_FIGURES,
        description="Which share of the cases passes another evaluator?",
        options='of="exact_match"',
    ),
)
