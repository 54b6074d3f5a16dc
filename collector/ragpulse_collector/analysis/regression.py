"""Compares two runs over the same questions, without an answer key: retrieval, answers, scores, latency, cost.

Pure: two sides of each question in, one report out; `cli/baseline.py` reads the sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragpulse_collector.analysis.compare import more_needed
from ragpulse_collector.analysis.quality import point
from ragpulse_collector.refusals import NotFound
from ragpulse_evaluators.ranking.metrics import jaccard, rank_biased_overlap
from ragpulse_evaluators.statistics import hajek, weighted_mean

__all__ = ["Answered", "Pair", "Score", "gates", "regression"]

_WORST = 20
_Z = 1.959964
_VERDICTS = ("below", "undecided", "above")


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluator's verdict (0..1) and the inclusion probability of the answer."""

    evaluator: str
    version: str | None
    judge: str | None
    normalized: float
    pi: float = 1.0

    @property
    def series(self) -> tuple[str, str, str]:
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
    def moves(self) -> dict[tuple[str, str, str], tuple[float, float, float]]:
        """Each evaluator's score before and after, and the probability that both were sampled."""
        before = {score.series: score for score in self.a.scores}
        return {
            score.series: (before[score.series].normalized, score.normalized, before[score.series].pi * score.pi)
            for score in self.b.scores
            if score.series in before
        }


def regression(pairs: Sequence[Pair], *, missing: int = 0, silent: int = 0, p: float = 0.9) -> dict[str, Any]:
    """Compare both sides of each question: means with 95 % intervals, differences b minus a, the most changed first.

    Jaccard and rank-biased overlap (parameter `p`) are of the retrieved ids, 1 the same; `identical` is a rate with
    Wilson's interval; differences are paired (Student), scores weighted by the probability that both sides were
    sampled. Where no score changed, the interval shows what could be hidden. `missing` questions had no second answer;
    `silent` of them left no trace.
    """
    return {
        "n": len(pairs),
        "missing": missing,
        "silent": silent,
        "failed": sum(pair.b.response is None for pair in pairs),
        "jaccard": _mean(pair.overlap(jaccard) for pair in pairs),
        "rbo": _mean(pair.overlap(lambda a, b: rank_biased_overlap(a, b, p=p)) for pair in pairs),
        "identical": _mean(float(pair.same_answer) for pair in pairs),
        "similarity": _mean(pair.similarity for pair in pairs),
        "scores": _scores(pairs),
        "latency_ms": _figure([(pair.a.latency_ms, pair.b.latency_ms) for pair in pairs]),
        "cost_usd": _figure([(pair.a.cost_usd, pair.b.cost_usd) for pair in pairs]),
        "worst": _worst(pairs, p),
    }


def gates(report: Mapping[str, Any], limits: Mapping[str, float], *, max_drop: float | None = None) -> dict[str, Any]:
    """Decide each limit on its interval: `above`, `below` or `undecided`, and the worst of them as `verdict`.

    A failed answer, or one without a trace, is `below` in any case. An undecided limit has `need`: about how many
    questions would decide it. `limits` are minima of `jaccard`, `rbo`, `identical`, `similarity`;
    `max_drop` is what every score may fall by. Raises NotFound for a limit on something unmeasured.
    """
    requests = [(name, report[name], limit) for name, limit in limits.items()]
    if max_drop is not None:
        requests += [(f"{score['evaluator']}, b - a", score["difference"], -max_drop) for score in report["scores"]]
        if not report["scores"]:
            raise NotFound("no evaluator scored both sides in one version: --max-drop has nothing to look at")
    unmeasured = [name for name, measured, _ in requests if measured is None]
    if unmeasured:
        raise NotFound(f"{', '.join(unmeasured)}: not measured on these questions")
    outcome = [_gate(name, measured, limit) for name, measured, limit in requests]
    verdict = min((gate["verdict"] for gate in outcome), key=_VERDICTS.index, default=None)
    return {"gates": outcome, "verdict": "below" if report["failed"] or report["silent"] else verdict}


def _gate(name: str, measured: Mapping[str, Any], limit: float) -> dict[str, Any]:
    verdict = _side(measured, limit)
    need = _needed(measured, limit) if verdict == "undecided" else None
    return {"metric": name, "min": limit, "verdict": verdict, "n": measured["n"], "need": need}


def _needed(measured: Mapping[str, Any], limit: float) -> int | None:
    """Return about how many questions would decide a limit; None where the value lies on it, or nothing is known.

    The width of an interval falls with the root of n. Where nothing changed, `n` unchanged questions hide at most
    Wilson's upper end of 0 in n, z^2 / (n + z^2).
    """
    distance = abs(float(measured["value"]) - limit)
    if measured["lo"] is None or distance < 1e-9:
        return None
    if measured.get("unchanged"):
        return math.ceil(_Z * _Z * (1.0 / distance - 1.0))
    half, n = float(measured["hi"] - measured["lo"]) / 2.0, int(measured["n"])
    return n + (more_needed(distance, half, n) or 1)


def _side(measured: Mapping[str, Any], limit: float) -> str:
    lo, hi = measured["lo"], measured["hi"]
    return "above" if lo is not None and lo >= limit else "below" if hi is not None and hi < limit else "undecided"


def _mean(values: Any) -> dict[str, Any] | None:
    values = [value for value in values if value is not None]
    return point(hajek(values, [1.0] * len(values))) if values else None


def _scores(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    by_series: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for pair in pairs:
        for series, move in pair.moves.items():
            by_series.setdefault(series, []).append(move)
    return [
        {"evaluator": name, "version": version, "judge": judge or None, **_moved(moves)}
        for (name, version, judge), moves in sorted(by_series.items())
    ]


def _moved(moves: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    weights = [1.0 / pi for _, _, pi in moves]
    before = weighted_mean([a for a, _, _ in moves], weights)
    after = weighted_mean([b for _, b, _ in moves], weights)
    difference = _difference([b - a for a, b, _ in moves], [pi for _, _, pi in moves], bounds=(-1.0, 1.0))
    return {"a": before, "b": after, "difference": difference, "changed": sum(a != b for a, b, _ in moves)}


def _figure(values: Sequence[tuple[float | None, float | None]]) -> dict[str, Any] | None:
    pairs = [(a, b) for a, b in values if a is not None and b is not None]
    if not pairs:
        return None
    before, after = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return {"a": before, "b": after, "difference": _difference([b - a for a, b in pairs], [1.0] * len(pairs))}


def _difference(
    values: Sequence[float], pi: Sequence[float], *, bounds: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return a mean difference with its interval; on a bounded scale it includes what could be hidden."""
    estimate = hajek(values, pi, bounds=bounds)
    assert estimate is not None
    return {
        "value": estimate.estimate,
        "lo": estimate.lo,
        "hi": estimate.hi,
        "n": estimate.n,
        "unchanged": not any(values),
    }


def _worst(pairs: Sequence[Pair], p: float) -> list[dict[str, Any]]:
    """Return the most changed questions, by the largest of: overlap lost, similarity lost, a score's fall."""
    outcome = [_outcome(pair, p) for pair in pairs]
    changed = [outcome_row for outcome_row in outcome if outcome_row["change"] > 1e-9]
    return sorted(changed, key=lambda outcome_row: (-outcome_row["change"], outcome_row["query"]))[:_WORST]


def _outcome(pair: Pair, p: float) -> dict[str, Any]:
    rbo = pair.overlap(lambda a, b: rank_biased_overlap(a, b, p=p))
    falls = {series[0]: after - before for series, (before, after, _) in pair.moves.items() if after != before}
    losses = [1.0 - likeness for likeness in (rbo, pair.similarity) if likeness is not None]
    return {
        "query": pair.a.query,
        "change": max([*losses, *(-fall for fall in falls.values())], default=0.0),
        "jaccard": pair.overlap(jaccard),
        "rbo": rbo,
        "similarity": pair.similarity,
        "scores": falls,
        "trace_a": pair.a.trace_id,
        "trace_b": pair.b.trace_id,
        "response_a": pair.a.response,
        "response_b": pair.b.response,
        "lost": [doc_id for doc_id in pair.a.retrieved or () if doc_id not in set(pair.b.retrieved or ())],
        "gained": [doc_id for doc_id in pair.b.retrieved or () if doc_id not in set(pair.a.retrieved or ())],
    }
