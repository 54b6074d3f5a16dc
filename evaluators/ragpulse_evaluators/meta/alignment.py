"""A judge aligned with people: examples and a task description chosen from labelled cases, shown on held-out ones."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragpulse_evaluators.case import Case
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator
from ragpulse_evaluators.meta.calibration import CalibrationReport, calibrate
from ragpulse_evaluators.result import EvaluationResult
from ragpulse_evaluators.runner import evaluate, run_or_await
from ragpulse_evaluators.statistics import mcnemar, wilcoxon

Labelled = tuple[Case | Mapping[str, Any], float | bool]
Marked = tuple[Case, float]


@dataclass(frozen=True, kw_only=True)
class AlignmentReport:
    """The gain of an alignment, on cases that it never saw."""

    before: CalibrationReport
    """The evaluator as it was, on the held-out cases."""
    after: CalibrationReport
    """The aligned one, on the same cases."""
    examples: tuple[Mapping[str, Any], ...]
    task: str | None
    n_train: int
    n_held_out: int
    train_agreement: float | None
    """Of the chosen examples, on the cases they were chosen by: too kind, shown for comparison only."""
    p: float | None
    """Of a paired test that the errors on held-out cases did not change."""

    @property
    def improved(self) -> bool:
        """True where the aligned judge agrees better with people on held-out cases."""
        return (_agreement(self.after) or 0.0) > (_agreement(self.before) or 0.0)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.__dict__["after"], name)

    def __str__(self) -> str:
        return f"held out ({self.n_held_out}): before {self.before}\nafter {self.after}"


def align(
    evaluator: Evaluator,
    labelled: Sequence[Labelled],
    seed: int = 0,
    *,
    shots: int = 4,
    candidates: int = 4,
    tasks: Sequence[str] = (),
    concurrency: int = 8,
    **options: Any,
) -> tuple[Evaluator, AlignmentReport]:
    """Choose in-context examples (and of `tasks` a task description) for a judge by labelled cases.

    Half of `labelled` (pairs of a case and a person's score, on the judge's scale) is held out, by `seed`. Of the other
    half, sets of `shots` examples are drawn, first from what the judge got wrong, and `candidates` of them tried; the
    one that agrees best with people on the rest is kept, the plain judge if none is better. Returns the aligned
    evaluator, which has its own version, and a report on the held-out half. Inside a running event loop await it.
    Raises `ConfigurationError` for an evaluator without a prompt to train, or fewer than eight labelled cases.
    """
    if not hasattr(evaluator, "trained"):
        raise ConfigurationError(f"{evaluator.name} has no examples or task to train")
    if len(labelled) < 8:
        raise ConfigurationError(f"alignment needs at least 8 labelled cases, got {len(labelled)}")
    pairs = [(case if isinstance(case, Case) else Case.model_validate(case), float(mark)) for case, mark in labelled]
    search = _Search(evaluator, shots, candidates, tasks, random.Random(seed), {"concurrency": concurrency, **options})
    return run_or_await(search.over(pairs))


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """A judge as it would be trained, and how well it agrees with people on the cases it was tried on."""

    judge: Evaluator
    agreement: float | None
    examples: tuple[Mapping[str, Any], ...] = ()
    task: str | None = None


@dataclass(frozen=True)
class _Search:
    """Tries sets of examples on one half of the labelled cases and shows the best on the other."""

    evaluator: Evaluator
    shots: int
    candidates: int
    tasks: Sequence[str]
    chooser: random.Random
    options: Mapping[str, Any]

    async def over(self, pairs: Sequence[Marked]) -> tuple[Evaluator, AlignmentReport]:
        """Split, search, compare."""
        shuffled = self.chooser.sample(pairs, len(pairs))
        train, held_out = shuffled[: len(pairs) // 2], shuffled[len(pairs) // 2 :]
        best = await self._best(train)
        before = await self._scores(self.evaluator, held_out)
        after = before if best.judge is self.evaluator else await self._scores(best.judge, held_out)
        return best.judge, AlignmentReport(
            before=_report(before, held_out),
            after=_report(after, held_out),
            examples=best.examples,
            task=best.task,
            n_train=len(train),
            n_held_out=len(held_out),
            train_agreement=best.agreement,
            p=_paired_p(before, after, held_out),
        )

    async def _best(self, train: Sequence[Marked]) -> _Choice:
        results = await self._scores(self.evaluator, train)
        best = _Choice(judge=self.evaluator, agreement=_agreement(_report(results, train)))
        for number in range(self.candidates):
            choice = await self._try(train, results, number)
            if choice.agreement is not None and (best.agreement is None or choice.agreement > best.agreement):
                best = choice
        return best

    async def _try(self, train: Sequence[Marked], results: Sequence[EvaluationResult], number: int) -> _Choice:
        indices = _draw(train, results, min(self.shots, len(train) // 2), self.chooser)
        examples = tuple(_example(*train[index]) for index in indices)
        task = self.tasks[number % len(self.tasks)] if self.tasks else None
        trainable: Any = self.evaluator
        judge: Evaluator = trainable.trained(examples=examples, task=task)
        rest = [pair for index, pair in enumerate(train) if index not in indices]
        agreement = _agreement(_report(await self._scores(judge, rest), rest))
        return _Choice(judge=judge, agreement=agreement, examples=examples, task=task)

    async def _scores(self, evaluator: Evaluator, pairs: Sequence[Marked]) -> list[EvaluationResult]:
        (results,) = (await evaluate([case for case, _ in pairs], [evaluator], **self.options)).values()
        return results


def _report(results: Sequence[EvaluationResult], pairs: Sequence[Marked]) -> CalibrationReport:
    return calibrate(results, [mark for _, mark in pairs])


def _agreement(report: CalibrationReport) -> float | None:
    """The objective of alignment: kappa where it is defined, else the rank correlation; 0 for a constant judge."""
    if report.kappa is not None:
        return report.kappa
    return 0.0 if report.constant else report.spearman


def _draw(
    pairs: Sequence[Marked], results: Sequence[EvaluationResult], shots: int, chooser: random.Random
) -> list[int]:
    """Indices of examples: half with the judge's largest errors, half with marks that those do not have."""
    order = sorted(range(len(pairs)), key=lambda index: (-_error(results[index], pairs[index][1]), chooser.random()))
    hard = chooser.sample(order[: max(shots, len(order) // 2)], (shots + 1) // 2)
    marks = {pairs[index][1] for index in hard}
    more = [index for index in order if index not in hard]
    chooser.shuffle(more)
    more.sort(key=lambda index: pairs[index][1] in marks)
    return hard + more[: shots - len(hard)]


def _error(result: EvaluationResult, mark: float) -> float:
    return math.inf if result.score is None else abs(result.score - mark)


def _example(case: Case, mark: float) -> dict[str, Any]:
    """A labelled case as the judge is shown it."""
    example: dict[str, Any] = {"query": case.query, "contexts": "\n".join(case.texts), "response": case.response}
    example |= {"reference": "\n".join(case.references), "score": int(mark) if mark.is_integer() else mark}
    return {key: value for key, value in example.items() if value not in (None, "")}


def _paired_p(
    before: Sequence[EvaluationResult], after: Sequence[EvaluationResult], pairs: Sequence[Marked]
) -> float | None:
    """McNemar's test where every error is a whole miss, else Wilcoxon's, on cases both could score."""
    errors = [
        (_error(first, mark), _error(second, mark))
        for first, second, (_, mark) in zip(before, after, pairs, strict=True)
        if first.score is not None and second.score is not None
    ]
    if all(error in (0.0, 1.0) for pair in errors for error in pair):
        test = mcnemar(sum(a < b for a, b in errors), sum(a > b for a, b in errors))
    else:
        test = wilcoxon([a - b for a, b in errors])
    return test.p if test else None
