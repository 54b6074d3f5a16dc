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
from ragpulse_evaluators.runner import evaluate
from ragpulse_evaluators.statistics import mcnemar, wilcoxon

__all__ = ("AlignmentReport", "align")

Labelled = tuple[Case | Mapping[str, Any], float | bool]


@dataclass(frozen=True, kw_only=True)
class AlignmentReport:
    """What alignment gained, on cases that it never saw."""

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


async def align(
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
    evaluator, which has its own version, and a report on the held-out half. Raises `ConfigurationError` for an
    evaluator without a prompt to train, or fewer than eight labelled cases.
    """
    if not hasattr(evaluator, "trained"):
        raise ConfigurationError(f"{evaluator.name} has no examples or task to train")
    if len(labelled) < 8:
        raise ConfigurationError(f"alignment needs at least 8 labelled cases, got {len(labelled)}")
    pairs = [(case if isinstance(case, Case) else Case.model_validate(case), float(mark)) for case, mark in labelled]
    chooser = random.Random(seed)
    chooser.shuffle(pairs)
    train, held_out = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    run = _Run(concurrency, options)
    first = await run.scores(evaluator, train)
    best, task = evaluator, None
    examples: tuple[Mapping[str, Any], ...] = ()
    best_agreement = _agreement(run.report(first, train))
    for number in range(candidates):
        shown = _draw(train, first, min(shots, len(train) // 2), chooser)
        described = tasks[number % len(tasks)] if tasks else None
        rest = [pair for index, pair in enumerate(train) if index not in shown]
        blocks = tuple(_example(*train[index]) for index in shown)
        tried: Evaluator = evaluator.trained(examples=blocks, task=described)
        agreement = _agreement(run.report(await run.scores(tried, rest), rest))
        if agreement is not None and (best_agreement is None or agreement > best_agreement):
            best, best_agreement, examples, task = tried, agreement, blocks, described
    plain = await run.scores(evaluator, held_out)
    aligned = plain if best is evaluator else await run.scores(best, held_out)
    report = AlignmentReport(
        before=run.report(plain, held_out),
        after=run.report(aligned, held_out),
        examples=examples,
        task=task,
        n_train=len(train),
        n_held_out=len(held_out),
        train_agreement=best_agreement,
        p=_paired_p(plain, aligned, held_out),
    )
    return best, report


class _Run:
    """Scores cases and compares with people."""

    def __init__(self, concurrency: int, options: Mapping[str, Any]) -> None:
        self._options = {"concurrency": concurrency, **options}

    async def scores(self, evaluator: Evaluator, pairs: Sequence[tuple[Case, float]]) -> list[EvaluationResult]:
        found = await evaluate([case for case, _ in pairs], [evaluator], **self._options)
        return next(iter(found.values()))

    @staticmethod
    def report(results: Sequence[EvaluationResult], pairs: Sequence[tuple[Case, float]]) -> CalibrationReport:
        return calibrate(results, [mark for _, mark in pairs])


def _agreement(report: CalibrationReport) -> float | None:
    """What alignment maximises: kappa where it is defined, else the rank correlation; 0 for a constant judge."""
    if report.kappa is not None:
        return report.kappa
    return 0.0 if report.constant else report.spearman


def _draw(
    pairs: Sequence[tuple[Case, float]], results: Sequence[EvaluationResult], shots: int, chooser: random.Random
) -> list[int]:
    """Half of the examples from what the judge got most wrong, the others of marks not yet shown."""
    order = sorted(range(len(pairs)), key=lambda index: (-_error(results[index], pairs[index][1]), chooser.random()))
    hard = order[: max(shots, len(order) // 2)]
    chosen = chooser.sample(hard, (shots + 1) // 2)
    marks = {pairs[index][1] for index in chosen}
    others = [index for index in order if index not in chosen]
    chooser.shuffle(others)
    others.sort(key=lambda index: pairs[index][1] in marks)
    return chosen + others[: shots - len(chosen)]


def _error(result: EvaluationResult, mark: float) -> float:
    return math.inf if result.score is None else abs(result.score - mark)


def _example(case: Case, mark: float) -> dict[str, Any]:
    """A labelled case as the judge is shown it."""
    shown: dict[str, Any] = {"query": case.query, "contexts": "\n".join(case.texts), "response": case.response}
    shown |= {"reference": "\n".join(case.references), "score": int(mark) if mark.is_integer() else mark}
    return {key: value for key, value in shown.items() if value not in (None, "")}


def _paired_p(
    before: Sequence[EvaluationResult], after: Sequence[EvaluationResult], pairs: Sequence[tuple[Case, float]]
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
