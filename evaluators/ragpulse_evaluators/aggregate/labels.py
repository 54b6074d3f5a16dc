"""Metrics over a set of cases; of answers that are labels: accuracy, precision, recall, F1 and ROC AUC."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import MissingField, Unreadable
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.registry import Entry
from ragpulse_evaluators.result import EvaluationResult, Outcome
from ragpulse_evaluators.statistics import roc_auc
from ragpulse_evaluators.statistics.weighted import wilson_bounds
from ragpulse_evaluators.text.matching import normalize_answer

Average = Literal["macro", "micro"]
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
        right = sum(answer == label for answer, label in _pairs(cases))
        return Outcome(score=right / len(cases), ci95=wilson_interval(right, len(cases)))


def wilson_interval(k: int, n: int) -> tuple[float, float] | None:
    """The ends of Wilson's interval for k of n; None where n is 0."""
    return None if n == 0 else wilson_bounds(k / n, n, 0.95)


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


_SOURCE = "scikit-learn's definitions"

ENTRIES: tuple[Entry, ...] = (
    Entry.of(Accuracy, source=_SOURCE, description="Which share of the answers is the right label?"),
    Entry.of(Precision, source=_SOURCE, options='positive="spam"'),
    Entry.of(Recall, source=_SOURCE, options='positive="spam"'),
    Entry.of(F1, source=_SOURCE, options='positive="spam"'),
    Entry.of(
        RocAuc,
        source=_SOURCE,
        description="Do positive cases get higher numbers than negative ones?",
        options='positive="grounded"',
    ),
)
