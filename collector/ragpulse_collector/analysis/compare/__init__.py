"""Compares evaluator versions, runs, prompts, models and variants; paired where the requests are the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from statistics import pvariance
from typing import TypeVar

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.compare.missing import held, reach_of_pairs, reach_of_sides
from ragpulse_collector.analysis.compare.mix import change_of_mix, moves_without_groups, request_keys
from ragpulse_collector.analysis.compare.pairs import OF_VERSIONS, paired_verdict
from ragpulse_collector.analysis.compare.sides import (
    OPPOSITE,
    WHOLE,
    Compared,
    Decided,
    Effect,
    Scored,
    SideTest,
    SideUnits,
    Units,
    compare_sides,
    dimension_of,
    effects,
    evaluator_of,
    more_needed,
    side_of,
    units_of,
    unless_by_chance,
)
from ragpulse_collector.analysis.quality import Figures, wording_change
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scored_traces import trace_rows
from ragpulse_collector.store.queries.traces import public_name
from ragpulse_evaluators.statistics import Estimate, benjamini_hochberg, hajek, mcnemar, wilcoxon

__all__ = ["Comparison", "compare", "more_needed"]


_FLIPS = 20
_STRATA = 50
"""The most values of a dimension: those with the most answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFigures(Figures):
    """The answers of one side; rates are null where the evaluator has no pass or fail."""

    words: str
    fail_rate: float | None
    unclear_rate: float | None
    missing: int
    """Selected answers without a verdict: failed, or left out by the budget."""
    missing_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSide(SideFigures):
    """One side of a comparison."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStratum(Compared):
    """The comparison within one value of a dimension."""

    value: str | None
    a: SideFigures
    b: SideFigures
    also: Sequence[Effect] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A request whose score fell from a to b, or one of two requests with the same question."""

    trace_id: str
    start_time: datetime
    query: str | None
    a: float
    b: float
    explanation_a: str | None
    explanation_b: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Compared):
    """Two sides and whether they differ."""

    evaluator: str
    a: NamedSide
    b: NamedSide
    wording: str | None
    """That the evaluator decides another share of b than of a: the wording changed."""
    shared: int
    """Common answers of both sides; common questions where the requests differ."""
    flips: Sequence[Flip]
    also: Sequence[Effect]
    """Fail rate, latency, cost and acceptance."""
    by: str | None
    strata: Sequence[ComparedStratum]
    mix: str | None
    """That b got another mix of requests than a, and of what."""
    at_equal_mix: None = None
    """Always null."""


def compare(
    store: Store, query: Query, a: str, b: str, *, evaluator: str | None = None, by: str | None = None, lead: str = ""
) -> Comparison:
    """Answer `GET compare`: the difference is b minus a.

    Versions, judges or runs over the same requests are paired, and shown over these: the interval is that of the mean
    difference, the test McNemar's (verdicts of 0 and 1) or Wilcoxon's. Groups (prompt, model, variant) are compared
    sequentially, so that looking every day does not raise false alarms. Answers of one user (else session, else trace)
    count as dependent. Requests since the oldest one that waits for its verdict are left out. Answers whose evaluation
    failed or was dropped may be all good or all bad: a verdict holds for both (`least`, `most`). `by` (a dimension)
    adds the same for each of its values, with p-values adjusted for having looked at all of them (Benjamini-Hochberg).
    Where the mix of these values changed, the whole has a verdict only if its groups together move the same way; what
    only one side has may be the change itself, and hides no fall. Without `by`, `mix` names the key to look by.
    Raises Invalid for a side that cannot be read, NotFound where one has no scores.
    """
    sides = [side_of(store, text) for text in (a, b)]
    column, name = dimension_of(by), evaluator_of(store, sides, evaluator, query.window, lead)
    groups = all(side.column for side in sides)
    mix = [] if not groups else [column] if column else request_keys(store, query)
    read = [units_of(store, side, name, query, column, mix) for side in sides]
    for side, (found, _) in zip(sides, read, strict=True):
        if not found.scored:
            raise NotFound(f"{side.name}: no scores of {name} in this window")
    units = _settled([found for found, _ in read], min((time for _, time in read if time), default=None))
    outcome, strata = _compared(*units), _strata(*units) if column else []
    changed = change_of_mix(units, mix)
    if column and changed and moves_without_groups(outcome, strata):
        outcome = replace(outcome, verdict="undecided, see by group")
    if all(side.column is None for side in sides):
        outcome, strata = _of_versions(outcome), [_of_versions(stratum) for stratum in strata]
    asked = [(side.column, side.value) for side in sides if side.column and side.value]
    also = effects(store, asked[0], asked[1], query, column) if len(asked) == 2 else {}
    rate = _fail_rate(*units) if groups else None
    before, after = (side.scored for side in units) if outcome.paired else _same_questions(*units)
    shared = before.keys() & after.keys()
    shown = [[answer for unit, answer in side.scored.items() if unit in shared or not outcome.paired] for side in units]
    named = [
        extended(NamedSide, _figures(answers, of), name=side.name)
        for side, answers, of in zip(sides, shown, units, strict=True)
    ]
    return extended(
        Comparison,
        outcome,
        evaluator=name,
        a=named[0],
        b=named[1],
        wording=_wording(*shown),
        shared=len(shared),
        flips=_flips(store, before, after, shared),
        also=[*also.get(WHOLE, ()), *([rate] if rate else ())],
        by=column and public_name(column),
        mix=changed,
        strata=[replace(stratum, also=also.get(stratum.value, ())) for stratum in strata],
    )


def _settled(units: list[SideUnits], waiting: datetime | None) -> list[SideUnits]:
    """Return the units of requests before the oldest that waits; all of them where that would leave less than half.

    Then few evaluations wait for long: they are left out, as if their verdicts were like the others.
    """
    if waiting is None:
        return units
    settled = [side.before(waiting) for side in units]
    enough = all(2 * len(kept.scored) >= len(side.scored) for kept, side in zip(settled, units, strict=True))
    return settled if enough else units


AnyCompared = TypeVar("AnyCompared", bound=Compared)


def _of_versions(compared: AnyCompared) -> AnyCompared:
    return replace(compared, verdict=OF_VERSIONS.get(compared.verdict, compared.verdict))


def _same_questions(a: SideUnits, b: SideUnits) -> tuple[Units, Units]:
    """Return the latest answers of both sides to the same questions, under the unit of b."""
    answers_a, answers_b = (
        {
            answer.question: answer
            for answer in sorted(side.scored.values(), key=lambda answer: answer.time)
            if answer.question is not None
        }
        for side in (a, b)
    )
    shared = [(answers_a[question], answer) for question, answer in answers_b.items() if question in answers_a]
    return {after.unit: before for before, after in shared}, {after.unit: after for _, after in shared}


def _compared(a: SideUnits, b: SideUnits) -> Compared:
    """Return difference, test and verdict of two sides: paired where they share half of the smaller one."""
    before, after = a.scored, b.scored
    shared = before.keys() & after.keys()
    paired = len(shared) >= 2 and len(shared) >= 0.5 * min(len(before), len(after))
    if paired:
        decided, test = _paired(before, after, sorted(shared))
        reach = reach_of_pairs(a, b)
    else:
        decided, test = _unpaired(list(before.values()), list(after.values()))
        reach = reach_of_sides(a, b)
    spread = math.sqrt(sum(pvariance([answer.value for answer in side.values()]) for side in (before, after)) / 2.0)
    moved = decided.difference.value if decided.difference else None
    size = moved / spread if moved is not None and spread > 1e-9 else None
    return extended(Compared, held(decided, reach), test=test, effect_size=size, paired=paired)


def _fail_rate(a: SideUnits, b: SideUnits) -> Effect | None:
    """Compare how many answers fail; None where the evaluator has no pass or fail."""
    sides = [
        replace(
            side,
            scored={
                key: replace(one, value=float(one.failed or 0))
                for key, one in side.scored.items()
                if one.unclear is not None
            },
        )
        for side in (a, b)
    ]
    means = [_estimate(list(side.scored.values())) for side in sides]
    if means[0] is None or means[1] is None:
        return None
    found = _compared(*sides)
    verdict = OPPOSITE.get(found.verdict, found.verdict)  # lower is better
    decided = Decided(**{one.name: getattr(found, one.name) for one in fields(Decided)})
    return extended(
        Effect, replace(decided, verdict=verdict), metric="fail_rate", unit="share",
        a=means[0].estimate, b=means[1].estimate, p=found.test.p if found.test else 1.0,
    )  # fmt: skip


def _strata(a: SideUnits, b: SideUnits) -> list[ComparedStratum]:
    """Return the comparison within each value, the largest first; verdicts use adjusted p-values."""
    values = {answer.stratum for side in (a, b) for answer in side.scored.values()}
    strata = [_stratum(value, a.within(value), b.within(value)) for value in values]
    strata.sort(key=lambda stratum: (-stratum.a.n - stratum.b.n, str(stratum.value)))
    strata = strata[:_STRATA]
    adjusted = benjamini_hochberg([1.0 if stratum.test is None else stratum.test.p for stratum in strata])
    return [
        replace(unless_by_chance(stratum, p), test=stratum.test and replace(stratum.test, p_adjusted=p))
        for stratum, p in zip(strata, adjusted, strict=True)
    ]


def _stratum(value: str | None, a: SideUnits, b: SideUnits) -> ComparedStratum:
    both = a.scored and b.scored
    compared = _compared(a, b) if both else Compared(difference=None, verdict="not enough data")
    figures = [_figures(list(side.scored.values()), side) for side in (a, b)]
    return extended(ComparedStratum, compared, value=value, a=figures[0], b=figures[1])


def _estimate(scored: Sequence[Scored]) -> Estimate | None:
    return hajek(
        [answer.value for answer in scored],
        [answer.pi for answer in scored],
        clusters=[answer.cluster for answer in scored],
        bounds=_bounds(scored),
    )


def _bounds(scored: Iterable[Scored]) -> tuple[float, float] | None:
    """Return the bounds of the values; people's scores may lie outside 0..1."""
    return (0.0, 1.0) if all(0.0 <= answer.value <= 1.0 for answer in scored) else None


def _figures(scored: Collection[Scored], side: SideUnits) -> SideFigures:
    figures = Figures.of(_estimate(list(scored)), identified=max((answer.identified for answer in scored), default=0))
    fail_rate = _rate((answer.failed, answer) for answer in scored)
    unclear_rate = _rate((answer.unclear, answer) for answer in scored)
    missing = side.missing
    return extended(
        SideFigures,
        figures,
        words=figures.in_words(note=missing.note),
        fail_rate=fail_rate,
        unclear_rate=unclear_rate,
        missing=missing.n,
        missing_share=side.missing_share,
    )


def _rate(flagged: Iterable[tuple[int | None, Scored]]) -> float | None:
    """Return the weighted share of answers with a flag; None where the evaluator has no pass or fail."""
    decided = [(flag or 0, 1.0 / answer.pi) for flag, answer in flagged if answer.unclear is not None]
    return sum(flag * weight for flag, weight in decided) / sum(weight for _, weight in decided) if decided else None


def _wording(a: Collection[Scored], b: Collection[Scored]) -> str | None:
    """Tell that the evaluator decides another share of b than of a."""
    shares = []
    for side in (b, a):
        unclear = _rate((answer.unclear, answer) for answer in side)
        if unclear is None:
            return None
        shares.append((1.0 - unclear, len({answer.cluster for answer in side})))
    return wording_change(*shares)


def _paired(a: Units, b: Units, shared: Sequence[tuple[str, int]]) -> tuple[Decided, SideTest]:
    differences = [b[unit].value - a[unit].value for unit in shared]
    pi = [min(a[unit].pi, b[unit].pi) for unit in shared]
    estimate = hajek(differences, pi, clusters=[a[unit].cluster for unit in shared], bounds=(-1.0, 1.0))
    assert estimate is not None
    if {value for unit in shared for value in (a[unit].value, b[unit].value)} <= {0.0, 1.0}:
        name, test = "McNemar", mcnemar(sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    else:
        name, test = "Wilcoxon signed rank", wilcoxon(differences)
    return paired_verdict(estimate), SideTest(name, 1.0 if test is None else test.p)


def _unpaired(a: Sequence[Scored], b: Sequence[Scored]) -> tuple[Decided, SideTest]:
    before, after = _estimate(a), _estimate(b)
    assert before is not None
    assert after is not None
    bounded = _bounds([*a, *b]) is not None
    scale = 1.0 if bounded else max(abs(answer.value) for answer in (*a, *b))
    return compare_sides(before, after, scale=scale, bounded=bounded)


def _flips(store: Store, a: Units, b: Units, shared: Iterable[tuple[str, int]]) -> list[Flip]:
    """Return the requests whose scores fell most from a to b, the worst first."""
    changed = [unit for unit in shared if b[unit].value != a[unit].value]
    worst = sorted(changed, key=lambda unit: (b[unit].value - a[unit].value, unit))[:_FLIPS]
    rows = {row.trace_id: row for row in trace_rows(store, [unit[0] for unit in worst])}
    return [
        Flip(
            trace_id=unit[0],
            start_time=rows[unit[0]].start_time,
            query=rows[unit[0]].query,
            a=a[unit].value,
            b=b[unit].value,
            explanation_a=a[unit].explanation,
            explanation_b=b[unit].explanation,
        )
        for unit in worst
        if unit[0] in rows
    ]
