"""What a change did to the same questions, without an answer key: retrieved lists, answers, scores, latency, cost.

Pure: two sides of each question in, one report out. Where the sides come from is the caller's (`cli/frozen.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ragpulse_collector.analysis.compare import more_needed
from ragpulse_collector.analysis.quality import point
from ragpulse_evaluators.ranking.metrics import jaccard, rank_biased_overlap
from ragpulse_evaluators.statistics import hajek, weighted_mean

__all__ = ["Answered", "Pair", "Score", "gates", "regression"]

_WORST = 20
_Z = 1.959964
_VERDICTS = ("below", "undecided", "above")


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluator's verdict (0..1) and the chance with which the answer was drawn for it."""

    evaluator: str
    version: str | None
    judge: str | None
    normalized: float
    pi: float = 1.0

    @property
    def series(self) -> tuple[str, str, str]:
        """Only verdicts of one version and judge are compared."""
        return (self.evaluator, self.version or "", self.judge or "")


@dataclass(frozen=True, slots=True)
class Answered:
    """One question and what the application did with it; `response` is None where it failed."""

    query: str
    response: str | None
    trace_id: str
    at: str
    retrieved: Sequence[str] | None
    """Ids (hashes of the text where the client sends none) in rank order; None where no retriever was seen."""
    latency_ms: float | None = None
    cost_usd: float | None = None
    scores: Sequence[Score] = field(default=())


@dataclass(frozen=True, slots=True)
class Pair:
    """One question before (a) and after (b), with how alike the two answers are (0..1, None where unknown)."""

    a: Answered
    b: Answered
    similarity: float | None

    def overlap(self, measure: Callable[[Sequence[str], Sequence[str]], float]) -> float | None:
        """Compare what was retrieved; None where neither side had a retriever."""
        if self.a.retrieved is None and self.b.retrieved is None:
            return None
        return measure(self.a.retrieved or (), self.b.retrieved or ())

    @property
    def same_answer(self) -> bool:
        """Whether both said the same, white space aside."""
        return (self.a.response or "").split() == (self.b.response or "").split()

    @property
    def moves(self) -> dict[tuple[str, str, str], tuple[float, float, float]]:
        """Each evaluator's score before and after and the chance that both were drawn."""
        before = {one.series: one for one in self.a.scores}
        return {
            one.series: (before[one.series].normalized, one.normalized, before[one.series].pi * one.pi)
            for one in self.b.scores
            if one.series in before
        }


def regression(pairs: Sequence[Pair], *, missing: int = 0, silent: int = 0, p: float = 0.9) -> dict[str, Any]:
    """Compare both sides of each question: means with 95 % intervals, differences b minus a, the most changed first.

    Jaccard and rank-biased overlap (parameter `p`) are of the retrieved ids, 1 the same; `identical` is a rate with
    Wilson's interval; differences are paired (Student), scores weighted by the chance that both sides were drawn. Where
    no score changed, the interval is what a change could still hide. `missing` questions had no second answer;
    `silent` of them were asked and left no trace.
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

    A failed answer, or one that left no trace, is `below` whatever else was asked. An undecided limit has `need`:
    about how many questions would decide it. `limits` are minima of `jaccard`, `rbo`, `identical`, `similarity`;
    `max_drop` is what every score may fall by. Raises LookupError where a limit was asked of something unmeasured.
    """
    asked = [(name, report[name], limit) for name, limit in limits.items()]
    if max_drop is not None:
        asked += [(f"{one['evaluator']}, b - a", one["difference"], -max_drop) for one in report["scores"]]
        if not report["scores"]:
            raise LookupError("no evaluator scored both sides in one version: --max-drop has nothing to look at")
    unmeasured = [name for name, measured, _ in asked if measured is None]
    if unmeasured:
        raise LookupError(f"{', '.join(unmeasured)}: not measured on these questions")
    outcome = [_gate(name, measured, limit) for name, measured, limit in asked]
    verdict = min((one["verdict"] for one in outcome), key=_VERDICTS.index, default=None)
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
    away = abs(float(measured["value"]) - limit)
    if measured["lo"] is None or away < 1e-9:
        return None
    if measured.get("unchanged"):
        return math.ceil(_Z * _Z * (1.0 / away - 1.0))
    half, n = float(measured["hi"] - measured["lo"]) / 2.0, int(measured["n"])
    return n + (more_needed(away, half, n) or 1)


def _side(measured: Mapping[str, Any], limit: float) -> str:
    lo, hi = measured["lo"], measured["hi"]
    return "above" if lo is not None and lo >= limit else "below" if hi is not None and hi < limit else "undecided"


def _mean(values: Any) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    return point(hajek(known, [1.0] * len(known))) if known else None


def _scores(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for pair in pairs:
        for series, move in pair.moves.items():
            found.setdefault(series, []).append(move)
    return [
        {"evaluator": name, "version": version, "judge": judge or None, **_moved(moves)}
        for (name, version, judge), moves in sorted(found.items())
    ]


def _moved(moves: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    weights = [1.0 / pi for _, _, pi in moves]
    before = weighted_mean([a for a, _, _ in moves], weights)
    after = weighted_mean([b for _, b, _ in moves], weights)
    difference = _difference([b - a for a, b, _ in moves], [pi for _, _, pi in moves], bounds=(-1.0, 1.0))
    return {"a": before, "b": after, "difference": difference, "changed": sum(a != b for a, b, _ in moves)}


def _figure(values: Sequence[tuple[float | None, float | None]]) -> dict[str, Any] | None:
    known = [(a, b) for a, b in values if a is not None and b is not None]
    if not known:
        return None
    before, after = (sum(side) / len(known) for side in zip(*known, strict=True))
    return {"a": before, "b": after, "difference": _difference([b - a for a, b in known], [1.0] * len(known))}


def _difference(
    values: Sequence[float], pi: Sequence[float], *, bounds: tuple[float, float] | None = None
) -> dict[str, Any]:
    """A mean difference with its interval; on a bounded scale with what a change could still hide."""
    found = hajek(values, pi, bounds=bounds)
    assert found is not None
    return {"value": found.estimate, "lo": found.lo, "hi": found.hi, "n": found.n, "unchanged": not any(values)}


def _worst(pairs: Sequence[Pair], p: float) -> list[dict[str, Any]]:
    """The questions that changed most, by the largest of: overlap lost, likeness of the answer lost, a score's fall."""
    outcome = [_outcome(pair, p) for pair in pairs]
    changed = [one for one in outcome if one["change"] > 1e-9]
    return sorted(changed, key=lambda one: (-one["change"], one["query"]))[:_WORST]


def _outcome(pair: Pair, p: float) -> dict[str, Any]:
    rbo = pair.overlap(lambda a, b: rank_biased_overlap(a, b, p=p))
    falls = {series[0]: after - before for series, (before, after, _) in pair.moves.items() if after != before}
    lost = [1.0 - one for one in (rbo, pair.similarity) if one is not None]
    return {
        "query": pair.a.query,
        "change": max([*lost, *(-fall for fall in falls.values())], default=0.0),
        "jaccard": pair.overlap(jaccard),
        "rbo": rbo,
        "similarity": pair.similarity,
        "scores": falls,
        "trace_a": pair.a.trace_id,
        "trace_b": pair.b.trace_id,
        "response_a": pair.a.response,
        "response_b": pair.b.response,
        "lost": [one for one in pair.a.retrieved or () if one not in set(pair.b.retrieved or ())],
        "gained": [one for one in pair.b.retrieved or () if one not in set(pair.a.retrieved or ())],
    }
