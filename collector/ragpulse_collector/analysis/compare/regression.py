"""Compares two runs over the same questions, without an answer key: retrieval, answers, scores, latency, cost.

Pure: two sides of each question in, one report out; `cli/baseline.py` reads the sides.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.compare import more_needed
from ragpulse_collector.analysis.compare.missing import ends_of, reach_of_halves
from ragpulse_collector.analysis.limits import Limit, Verdict
from ragpulse_collector.analysis.quality import Figures
from ragpulse_collector.refusals import NotFound
from ragpulse_evaluators.ranking.metrics import jaccard, rank_biased_overlap
from ragpulse_evaluators.statistics import Uncertain, hajek, weighted_mean

__all__ = ["Answered", "Pair", "Score", "gates", "regression"]

_WORST = 20
_Z = 1.959964


Series = tuple[str, str, str]
"""Evaluator, version and judge."""


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluator's verdict (0..1) and the inclusion probability of the answer."""

    evaluator: str
    version: str | None
    judge: str | None
    normalized: float | None
    """None where the evaluation failed, or a budget left the selected answer out."""
    pi: float = 1.0

    @property
    def series(self) -> Series:
        """The key of comparable verdicts: evaluator, version and judge."""
        return (self.evaluator, self.version or "", self.judge or "")


@dataclass(frozen=True, slots=True)
class Answered:
    """One question with the application's answer; `response` is None where it failed."""

    query: str
    response: str | None
    trace_id: str
    at: str
    retrieved: Sequence[str] | None
    """Ids (hashes of the text where the client sends none) in rank order; None where no retriever was seen."""
    latency_ms: float | None = None
    cost_usd: float | None = None
    scores: Sequence[Score] = field(default=())
    reference: str | Sequence[str] | None = None
    """The expected answer, of a dataset that has one."""

    @property
    def verdicts(self) -> dict[Series, tuple[float, float]]:
        """Each verdict with its probability."""
        return {one.series: (one.normalized, one.pi) for one in self.scores if one.normalized is not None}

    @property
    def lost(self) -> dict[str, float]:
        """The evaluators whose verdict is missing, with the probability that it was asked for."""
        return {one.evaluator: one.pi for one in self.scores if one.normalized is None}


@dataclass(frozen=True, slots=True)
class Pair:
    """One question before (a) and after (b), with the similarity of the answers (0..1, None where unknown)."""

    a: Answered
    b: Answered
    similarity: float | None

    def overlap(self, measure: Callable[[Sequence[str], Sequence[str]], float]) -> float | None:
        """Compare the retrieved ids; None where neither side had a retriever."""
        if self.a.retrieved is None and self.b.retrieved is None:
            return None
        return measure(self.a.retrieved or (), self.b.retrieved or ())

    @property
    def same_answer(self) -> bool:
        """Whether both answers are equal, apart from white space."""
        return (self.a.response or "").split() == (self.b.response or "").split()

    @property
    def moves(self) -> dict[Series, tuple[float, float, float]]:
        """Each evaluator's score before and after, and the probability that both were sampled."""
        before, after = self.a.verdicts, self.b.verdicts
        return {
            series: (before[series][0], after[series][0], before[series][1] * after[series][1])
            for series in after
            if series in before
        }

    @property
    def halves(self) -> list[tuple[Series, tuple[float, float]]]:
        """Each verdict whose other side is missing: its weight (negative where a is missing) and its value."""
        return [
            (series, (sign / (pi * other.lost[series[0]]), value))
            for one, other, sign in ((self.a, self.b, 1.0), (self.b, self.a, -1.0))
            for series, (value, pi) in one.verdicts.items()
            if series not in other.verdicts and series[0] in other.lost
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference(Uncertain):
    """A mean difference b minus a; on a bounded scale its interval includes what could be hidden."""

    value: float
    n: int
    unchanged: bool
    """Whether no question changed."""
    least: float | None = None
    """The interval that decides: with all missing verdicts against b, and for it; null where none is missing."""
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A figure before (a) and after (b)."""

    a: float
    b: float
    difference: PairedDifference


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedScore(Moved):
    """An evaluator's mean score before and after, and the numbers of answers with another and with one verdict."""

    evaluator: str
    version: str | None
    judge: str | None
    changed: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAnswer:
    """A question by the largest of: overlap lost, similarity lost, a score's fall (`change`)."""

    query: str
    change: float
    jaccard: float | None
    rbo: float | None
    similarity: float | None
    scores: Mapping[str, float]
    """Changed scores, by evaluator: after minus before."""
    trace_a: str
    trace_b: str
    response_a: str | None
    response_b: str | None
    lost: Sequence[str]
    gained: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Two runs over the same questions: means with 95 % intervals, differences, the most changed answers first."""

    n: int
    missing: int
    """Questions without a second answer."""
    silent: int
    """Those of them that left no trace."""
    failed: int
    jaccard: Figures | None
    rbo: Figures | None
    identical: Figures | None
    similarity: Figures | None
    scores: Sequence[MovedScore]
    unscored: Mapping[str, int]
    """The missing verdicts of evaluators that have none on both sides of any question."""
    latency_ms: Moved | None
    cost_usd: Moved | None
    worst: Sequence[ChangedAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A limit and whether the interval lies wholly on one side of it."""

    metric: str
    min: float
    verdict: Verdict
    n: int
    need: int | None
    """About how many questions would decide it."""
    missing: int = 0
    """The missing verdicts that leave it undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedRegression(Regression):
    """Two runs with the decisions on limits."""

    gates: Sequence[Gate]
    verdict: Verdict | None
    """The worst of them."""


def regression(pairs: Sequence[Pair], *, missing: int = 0, silent: int = 0, p: float = 0.9) -> Regression:
    """Compare both sides of each question.

    Jaccard and rank-biased overlap (parameter `p`) are of the retrieved ids, 1 the same; `identical` is a rate with
    Wilson's interval; differences are paired (Student), scores weighted by the probability that both sides were
    sampled. Where no score changed, the interval shows what could be hidden.
    """
    return Regression(
        n=len(pairs),
        missing=missing,
        silent=silent,
        failed=sum(pair.b.response is None for pair in pairs),
        jaccard=_mean(pair.overlap(jaccard) for pair in pairs),
        rbo=_mean(pair.overlap(lambda a, b: rank_biased_overlap(a, b, p=p)) for pair in pairs),
        identical=_mean(float(pair.same_answer) for pair in pairs),
        similarity=_mean(pair.similarity for pair in pairs),
        scores=_scores(pairs),
        unscored=_unscored(pairs),
        latency_ms=_figure([(pair.a.latency_ms, pair.b.latency_ms) for pair in pairs]),
        cost_usd=_figure([(pair.a.cost_usd, pair.b.cost_usd) for pair in pairs]),
        worst=_worst(pairs, p),
    )


def gates(report: Regression, limits: Mapping[str, float], *, max_drop: float | None = None) -> GatedRegression:
    """Decide each limit on its interval, and the worst of them as `verdict`.

    A failed answer, or one without a trace, is `below` in any case. A limit on scores holds for the best and the worst
    that missing verdicts may be. `limits` are minima of `jaccard`, `rbo`,
    `identical`, `similarity`; `max_drop` is what every score may fall by. Raises NotFound for a limit on something
    unmeasured.
    """
    requests: list[tuple[str, _Measured | None, float, int]] = [
        (name, getattr(report, name), limit, 0) for name, limit in limits.items()
    ]
    if max_drop is not None:
        requests += [(f"{each.evaluator}, b - a", each.difference, -max_drop, each.missing) for each in report.scores]
        if not (report.scores or report.unscored):
            raise NotFound("no evaluator scored both sides in one version: --max-drop has nothing to look at")
    unmeasured = [name for name, measured, *_ in requests if measured is None]
    if unmeasured:
        raise NotFound(f"{', '.join(unmeasured)}: not measured on these questions")
    decided = [
        _gate(name, measured, limit, missing) for name, measured, limit, missing in requests if measured is not None
    ]
    if max_drop is not None:
        decided += [
            Gate(metric=f"{name}, b - a", min=-max_drop, verdict="undecided", n=0, need=None, missing=missing)
            for name, missing in report.unscored.items()
        ]
    verdict = min((gate.verdict for gate in decided), key=get_args(Verdict).index, default=None)
    return extended(
        GatedRegression, report, gates=decided, verdict="below" if report.failed or report.silent else verdict
    )


_Measured = Figures | PairedDifference


def _gate(name: str, measured: _Measured, limit: float, missing: int) -> Gate:
    side = Limit(min=limit).verdict
    alone = verdict = side(measured.lo, measured.hi)
    if isinstance(measured, PairedDifference) and measured.least is not None:
        verdict = side(measured.least, measured.most)
    need = _needed(measured, limit) if alone == "undecided" else None
    return Gate(
        metric=name, min=limit, verdict=verdict, n=measured.n, need=need, missing=missing if alone != verdict else 0
    )


def _needed(measured: _Measured, limit: float) -> int | None:
    """Return about how many questions would decide a limit; None where the value lies on it, or nothing is known.

    The width of an interval falls with the root of n. Where nothing changed, `n` unchanged questions hide at most
    Wilson's upper end of 0 in n, z^2 / (n + z^2).
    """
    distance = abs((measured.value or 0.0) - limit)
    if measured.lo is None or measured.hi is None or distance < 1e-9:
        return None
    if isinstance(measured, PairedDifference) and measured.unchanged:
        return math.ceil(_Z * _Z * (1.0 / distance - 1.0))
    return measured.n + (more_needed(distance, (measured.hi - measured.lo) / 2.0, measured.n) or 1)


def _mean(values: Iterable[float | None]) -> Figures | None:
    known = [value for value in values if value is not None]
    return Figures.of(hajek(known, [1.0] * len(known))) if known else None


def _scores(pairs: Sequence[Pair]) -> list[MovedScore]:
    by_series: dict[Series, list[tuple[float, float, float]]] = defaultdict(list)
    for pair in pairs:
        for series, move in pair.moves.items():
            by_series[series].append(move)
    halves = _halves(pairs)
    return [
        _moved_score(series, moves, halves[series[0]].get(series, [])) for series, moves in sorted(by_series.items())
    ]


def _halves(pairs: Sequence[Pair]) -> dict[str, dict[Series, list[tuple[float, float]]]]:
    """Return the verdicts whose other side is missing, by evaluator and series."""
    found: dict[str, dict[Series, list[tuple[float, float]]]] = defaultdict(dict)
    for pair in pairs:
        for series, half in pair.halves:
            found[series[0]].setdefault(series, []).append(half)
    return found


def _unscored(pairs: Sequence[Pair]) -> dict[str, int]:
    scored = {series[0] for pair in pairs for series in pair.moves}
    counts = {name: sum(map(len, by_series.values())) for name, by_series in sorted(_halves(pairs).items())}
    return {name: count for name, count in counts.items() if name not in scored}


def _moved_score(
    series: Series, moves: Sequence[tuple[float, float, float]], halves: Sequence[tuple[float, float]]
) -> MovedScore:
    pi = [pi for _, _, pi in moves]
    weights = [1.0 / one for one in pi]
    difference = _difference([b - a for a, b, _ in moves], pi, bounds=(-1.0, 1.0))
    least, most = ends_of(difference, reach_of_halves(halves, math.fsum(weights))) or (None, None)
    evaluator, version, judge = series
    return MovedScore(
        evaluator=evaluator,
        version=version,
        judge=judge or None,
        a=weighted_mean([a for a, _, _ in moves], weights),
        b=weighted_mean([b for _, b, _ in moves], weights),
        difference=replace(difference, least=least, most=most),
        changed=sum(a != b for a, b, _ in moves),
        missing=len(halves),
    )


def _figure(values: Sequence[tuple[float | None, float | None]]) -> Moved | None:
    pairs = [(a, b) for a, b in values if a is not None and b is not None]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return Moved(a=before, b=after, difference=_difference([b - a for a, b in pairs], [1.0] * len(pairs)))


def _difference(
    values: Sequence[float], pi: Sequence[float], *, bounds: tuple[float, float] | None = None
) -> PairedDifference:
    estimate = hajek(values, pi, bounds=bounds)
    assert estimate is not None
    return PairedDifference(
        value=estimate.estimate, lo=estimate.lo, hi=estimate.hi, n=estimate.n, unchanged=not any(values)
    )


def _worst(pairs: Sequence[Pair], p: float) -> list[ChangedAnswer]:
    """Return the most changed questions."""
    changed = [answer for answer in (_changed(pair, p) for pair in pairs) if answer.change > 1e-9]
    return sorted(changed, key=lambda answer: (-answer.change, answer.query))[:_WORST]


def _changed(pair: Pair, p: float) -> ChangedAnswer:
    rbo = pair.overlap(lambda a, b: rank_biased_overlap(a, b, p=p))
    falls = {series[0]: after - before for series, (before, after, _) in pair.moves.items() if after != before}
    losses = [1.0 - likeness for likeness in (rbo, pair.similarity) if likeness is not None]
    before, after = pair.a.retrieved or (), pair.b.retrieved or ()
    return ChangedAnswer(
        query=pair.a.query,
        change=max([*losses, *(-fall for fall in falls.values())], default=0.0),
        jaccard=pair.overlap(jaccard),
        rbo=rbo,
        similarity=pair.similarity,
        scores=falls,
        trace_a=pair.a.trace_id,
        trace_b=pair.b.trace_id,
        response_a=pair.a.response,
        response_b=pair.b.response,
        lost=[doc_id for doc_id in before if doc_id not in set(after)],
        gained=[doc_id for doc_id in after if doc_id not in set(before)],
    )
