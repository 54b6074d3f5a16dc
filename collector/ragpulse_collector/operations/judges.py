"""Judges: whether one drifts, and its check on labelled answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ragpulse_collector.api.models import Filters, LastWeek
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import Count, Duration, EvaluatorName
from ragpulse_collector.evaluation import DriftWatch
from ragpulse_collector.evaluation.drift import DriftReport, Watched
from ragpulse_collector.evaluation.judge_checks import JudgeChecker, JudgeChecks, StartedCheck


@operation("GET drift")
def drift(
    watch: DriftWatch,
    /,
    choice: Filters,
    evaluator: EvaluatorName | None = None,
    back: Annotated[Duration | None, "Ignored: no live score is shown."] = None,
) -> DriftReport | Watched:
    """Did a judge move on its frozen answers?"""
    del choice, back
    return watch.report(evaluator) if evaluator else watch.watched()


@operation("POST drift/anchors", scope="admin")
def freeze(watch: DriftWatch, /, choice: LastWeek, evaluator: EvaluatorName, n: Count | None = None) -> DriftReport:
    """Store judged answers to watch a judge by."""
    return watch.freeze(evaluator, choice.query(watch.clock()), n=n)


@operation("POST drift/run", scope="admin")
def judge_again(watch: DriftWatch, /, evaluator: EvaluatorName) -> DriftReport:
    """Start a run that judges the frozen answers again, without the recorded calls."""
    return watch.run(evaluator)


@operation("GET judge/checks")
def checks(checker: JudgeChecker, /) -> JudgeChecks:
    """Reports of checks of judges, newest first, and how far a check is."""
    return checker.checks()


@operation("POST judge/check", scope="admin")
def start_check(
    checker: JudgeChecker,
    /,
    judge: Annotated[str | None, "Name or model of a configured judge; default: that of `[judge]`."] = None,
    max_usd: Annotated[float | None, Field(ge=0), "Stop before spending more than this."] = None,
) -> StartedCheck:
    """Check a judge on labelled answers, in the background, as `ragpulse judge check` does."""
    return checker.start(judge, max_usd)
