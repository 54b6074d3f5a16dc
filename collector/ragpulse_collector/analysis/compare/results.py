"""The result of a replay: its figures, and the same answers as the evaluator in use scored them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ragpulse_collector.analysis.answers import extended, uncertain
from ragpulse_collector.analysis.compare.missing import held, reach_of_halves
from ragpulse_collector.analysis.compare.pairs import OF_VERSIONS, paired_verdict
from ragpulse_collector.analysis.compare.sides import Decided
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import latest_runs, shares
from ragpulse_collector.store.queries.runs.results import (
    RunSums,
    counterpart,
    pair_sums,
    run_sums,
)
from ragpulse_collector.store.queries.scored_traces import trace_rows
from ragpulse_collector.store.queries.scores import LABELS, sample_of
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.statistics import Moments, Uncertain

__all__ = ["ReplayResult", "replay_result"]

_BINS = 10
_LONGEST = 2_000
"""Characters of an answer in a disagreement."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The scores from `lo` up to `hi`."""

    lo: float
    hi: float
    n: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Units without a score: how they ended (skipped, invalid, error), and why."""

    status: str
    reason: str | None
    n: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One answer with both scores: `a` of the evaluator in use, `b` of the replay."""

    trace_id: str
    start_time: datetime
    query: str | None
    response: str | None
    a: float
    b: float
    a_passes: bool | None
    b_passes: bool | None
    a_explanation: str | None
    b_explanation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against(Decided):
    """The evaluator in use on the same answers; the difference is the replay minus it."""

    evaluator: str
    version: str
    judge: str | None
    shared: int
    """Answers with both scores."""
    a: float
    b: float
    agreement: Uncertain
    """The share of answers on whose pass or fail both agree."""
    both_pass: int
    both_fail: int
    only_a_fails: int
    only_b_fails: int
    largest: Sequence[Disagreement]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Figures):
    """The scores of a replay: mean with interval, distribution, what was left out, the evaluator in use beside it."""

    words: str
    passed: tuple[int, int] | None
    """The numbers of answers that passed, and that have pass or fail."""
    histogram: Sequence[Bin]
    left_out: Sequence[LeftOut]
    labels: int
    """Answers that people labelled for this evaluator ..."""
    people: Uncertain
    """... and the share of them on which the replay agrees with people."""
    against: Against | None
    """Null where nothing in use has scores from 0 to 1 of the same answers."""


def replay_result(store: Store, run_id: str, lead: str) -> ReplayResult:
    """Answer `GET replays/{id}/result`; `lead` is compared with where nothing else of the evaluator's name is in use.

    A stopped replay is a random sample: its first units in order of u. Raises NotFound.
    """
    run = latest_runs(store, run_id=run_id).get(run_id)
    if run is None:
        raise NotFound(f"no replay {run_id!r}")
    below = next((one.below for one in shares(store, run.evaluator, exploratory=True) if one.run_id == run_id), 2.0)
    sums = run_sums(store, run, below, LABELS)
    moments, people = Moments.of(sums.moments), Moments.of(sums.people)
    estimate = moments.estimate(bounds=(0.0, 1.0) if sums.bounded else None) if moments else None
    figures, passed = Figures.of(estimate, identified=sums.identified), (sums.passed, sums.called)
    other = counterpart(store, run, lead) if sums.bounded else None
    return extended(
        ReplayResult,
        figures,
        words=figures.in_words(passed=passed if sums.called else None),
        passed=passed if sums.called else None,
        histogram=_histogram(moments, sums) if moments else (),
        left_out=[LeftOut(*row) for row in sums.left_out or ()],
        labels=people.n if people else 0,
        people=uncertain(people.estimate() if people else None),
        against=other and _against(store, run_id, other, sums),
    )


def _histogram(moments: Moments, sums: RunSums) -> list[Bin]:
    low, high = (0.0, 1.0) if sums.bounded else (moments.least, moments.most)
    numbers, width = dict(sums.bins), (high - low) / _BINS
    return [Bin(low + i * width, low + (i + 1) * width, numbers.get(i, 0)) for i in range(_BINS)]


def _against(store: Store, run_id: str, other: tuple[str, str, str | None], sums: RunSums) -> Against | None:
    name, version, judge = other
    within = {"first": sums.first, "last": sums.last and sums.last + timedelta(microseconds=1)}
    sample = sample_of(store, name, within, Filter())
    used = (
        f"SELECT * FROM ({sample.sql}) WHERE pi IS NOT NULL AND version = $used_version"
        " AND judge IS NOT DISTINCT FROM $used_judge"
    )
    parameters = {**sample.parameters, "used_version": version, "used_judge": judge}
    pairs = pair_sums(store, run_id, used, parameters)
    moments = Moments.of(pairs.difference)
    if moments is None or pairs.a is None or pairs.b is None:
        return None
    agreement = Moments.of(pairs.agreement)
    rows = {row.trace_id: row for row in trace_rows(store, [pair.trace_id.hex for pair in pairs.largest])}
    # The answers of which one side failed to evaluate could move the difference.
    reach = reach_of_halves([(pairs.b_failed, pairs.a_there), (-pairs.a_failed, pairs.b_there)], pairs.known or 0.0)
    decided = held(paired_verdict(moments.estimate(bounds=(-1.0, 1.0))), reach)
    return extended(
        Against,
        replace(decided, verdict=OF_VERSIONS.get(decided.verdict, decided.verdict)),
        evaluator=name,
        version=version,
        judge=judge,
        shared=moments.n,
        a=pairs.a,
        b=pairs.b,
        agreement=uncertain(agreement.estimate() if agreement else None),
        both_pass=pairs.both_pass,
        both_fail=pairs.both_fail,
        only_a_fails=pairs.only_a_fails,
        only_b_fails=pairs.only_b_fails,
        largest=[
            Disagreement(row.trace_id, row.start_time, row.query, row.response and row.response[:_LONGEST], *pair[1:])
            for pair in pairs.largest
            if (row := rows.get(pair.trace_id.hex))
        ],
    )
