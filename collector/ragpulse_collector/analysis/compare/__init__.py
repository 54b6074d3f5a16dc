"""Compares evaluator versions, runs, prompts, models and variants; paired where the requests are the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from statistics import pvariance
from typing import Any, Literal

from ragpulse_collector.analysis.compare.sides import (
    ALPHA,
    WHOLE,
    Scored,
    Side,
    Units,
    compare_sides,
    dimension_of,
    effects,
    evaluator_of,
    more_needed,
    read,
    side_of,
)
from ragpulse_collector.analysis.quality import in_words, point, wording_change
from ragpulse_collector.analysis.selection import Window, filter_of, range_of
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.traces import Filter, public_name, trace_rows
from ragpulse_evaluators.statistics import Estimate, benjamini_hochberg, hajek, mcnemar, wilcoxon
from ragpulse_evaluators.statistics.comparison import ENOUGH_CLUSTERS

__all__ = ["compare", "more_needed"]


_OF_VERSIONS = {"better": "more lenient", "worse": "stricter"}
"""Verdicts on two versions or judges of an evaluator, which saw the same answers."""
_FLIPS = 20
_STRATA = 50
"""The most values of a dimension: those with the most answers."""


def compare(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET compare`: `a`, `b`, `evaluator`, `by`, `from` (default 7 days), filters; difference is b minus a.

    Versions, judges or runs over the same requests are paired, and shown over these: the interval is that of the mean
    difference, the test McNemar's (verdicts of 0 and 1) or Wilcoxon's. Groups (prompt, model, variant) are compared
    sequentially, so that looking every day does not raise false alarms. Answers of one user (else session, else trace)
    count as dependent. `by` (a dimension) adds the same for each of its values, with p-values adjusted for having
    looked at all of them (Benjamini-Hochberg). Raises Invalid for a side that cannot be read, NotFound where one
    has no scores.
    """
    window = range_of(params, now=clock(), back="7d")
    filters = filter_of(params)
    sides = [side_of(store, str(params.get(key) or "")) for key in ("a", "b")]
    by, evaluator = dimension_of(params.get("by")), evaluator_of(store, sides, params, window)
    a, b = (read(store, side, evaluator, window, filters, by) for side in sides)
    for side, units in zip(sides, (a, b), strict=True):
        if not units:
            raise NotFound(f"{side.name}: no scores of {evaluator} in this window")
    outcome = _comparison(a, b)
    strata = _strata(a, b) if by else []
    if all(side.column is None for side in sides):
        for comparison in (outcome, *strata):
            comparison["verdict"] = _OF_VERSIONS.get(comparison["verdict"], comparison["verdict"])
    also = _effects(store, sides, window, filters, by)
    before, after = (a, b) if outcome["paired"] else _same_questions(a, b)
    shared = before.keys() & after.keys()
    points = [{unit: side[unit] for unit in shared} for side in (a, b)] if outcome["paired"] else (a, b)
    return {
        "evaluator": evaluator,
        "a": {"name": sides[0].name, **_point(points[0].values())},
        "b": {"name": sides[1].name, **_point(points[1].values())},
        **outcome,
        "wording": _wording(points[0].values(), points[1].values()),
        "shared": len(shared),
        "flips": _flips(store, before, after, shared),
        "also": also.get(WHOLE, []),
        "by": by and public_name(by),
        "strata": [stratum | {"also": also.get(stratum["value"], [])} for stratum in strata],
    }


def _same_questions(a: Units, b: Units) -> tuple[Units, Units]:
    """Return the latest answers of both sides to the same questions, under the unit of b."""
    answers_a, answers_b = (
        {
            answer.question: answer
            for answer in sorted(side.values(), key=lambda answer: answer.time)
            if answer.question is not None
        }
        for side in (a, b)
    )
    shared = [(answers_a[question], answer) for question, answer in answers_b.items() if question in answers_a]
    return {after.unit: before for before, after in shared}, {after.unit: after for _, after in shared}


def _effects(
    store: Store, sides: Sequence[Side], window: Window, filters: Filter, by: str | None
) -> Mapping[str | None, list[dict[str, Any]]]:
    """Return latency, cost and acceptance of two groups of requests; nothing for versions of an evaluator."""
    groups = [(side.column, side.value) for side in sides if side.column and side.value]
    return effects(store, groups[0], groups[1], window, filters, by) if len(groups) == 2 else {}


def _comparison(a: Units, b: Units) -> dict[str, Any]:
    """Return difference, test and verdict of two sides: paired where they share half of the smaller one."""
    shared = a.keys() & b.keys()
    paired = len(shared) >= 2 and len(shared) >= 0.5 * min(len(a), len(b))
    outcome = _paired(a, b, sorted(shared)) if paired else _unpaired(list(a.values()), list(b.values()))
    return {
        "need_more_of": "answers",
        **outcome,
        "effect_size": _effect_size(outcome["difference"], a, b),
        "paired": paired,
    }


def _effect_size(difference: Mapping[str, float] | None, a: Units, b: Units) -> float | None:
    """Return the difference in standard deviations of an answer (Cohen 1988); None without any spread."""
    spread = math.sqrt(sum(pvariance([answer.value for answer in side.values()]) for side in (a, b)) / 2.0)
    return difference["value"] / spread if difference and spread > 1e-9 else None


def _strata(a: Units, b: Units) -> list[dict[str, Any]]:
    """Return the comparison within each value, the largest first; verdicts use adjusted p-values."""
    values = {stratum.stratum for side in (a, b) for stratum in side.values()}
    strata = [_stratum(value, _within(a, value), _within(b, value)) for value in values]
    strata.sort(key=lambda stratum: (-stratum["a"]["n"] - stratum["b"]["n"], str(stratum["value"])))
    strata = strata[:_STRATA]
    adjusted = benjamini_hochberg([1.0 if stratum["test"] is None else stratum["test"]["p"] for stratum in strata])
    for stratum, p in zip(strata, adjusted, strict=True):
        if stratum["test"] is not None:
            stratum["test"]["p_adjusted"] = p
        if p > ALPHA and stratum["verdict"] in ("better", "worse"):
            stratum["verdict"] = "not enough data"
    return strata


def _stratum(value: str | None, a: Units, b: Units) -> dict[str, Any]:
    sides = {"value": value, "a": _point(a.values()), "b": _point(b.values())}
    if a and b:
        return sides | _comparison(a, b)
    nothing = {"difference": None, "effect_size": None, "test": None, "paired": False}
    return sides | nothing | {"verdict": "not enough data", "need_more": None, "need_more_of": "answers"}


def _within(side: Units, value: str | None) -> dict[tuple[str, int], Scored]:
    return {unit: answer for unit, answer in side.items() if answer.stratum == value}


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


def _point(scored: Iterable[Scored]) -> dict[str, Any]:
    answers = list(scored)
    figures = point(_estimate(answers), identified=any(answer.identified for answer in answers))
    rates = {"fail_rate": _rate(answers, "failed"), "unclear_rate": _rate(answers, "unclear")}
    return figures | {"words": in_words(figures)} | rates


def _rate(answers: Sequence[Scored], name: Literal["failed", "unclear"]) -> float | None:
    """Return the weighted share of answers that fail or are unclear; None where the evaluator has no pass or fail."""
    decided = [(getattr(answer, name), 1.0 / answer.pi) for answer in answers if answer.unclear is not None]
    return sum(flag * weight for flag, weight in decided) / sum(weight for _, weight in decided) if decided else None


def _wording(a: Iterable[Scored], b: Iterable[Scored]) -> str | None:
    """Tell that the evaluator decides another share of b than of a."""
    shares = []
    for side in (list(b), list(a)):
        unclear = _rate(side, "unclear")
        if unclear is None:
            return None
        shares.append((1.0 - unclear, len({answer.cluster for answer in side})))
    return wording_change(*shares)


def _paired(a: Units, b: Units, shared: Sequence[tuple[str, int]]) -> dict[str, Any]:
    differences = [b[unit].value - a[unit].value for unit in shared]
    pi = [min(a[unit].pi, b[unit].pi) for unit in shared]
    estimate = hajek(differences, pi, clusters=[a[unit].cluster for unit in shared], bounds=(-1.0, 1.0))
    assert estimate is not None
    if {value for unit in shared for value in (a[unit].value, b[unit].value)} <= {0.0, 1.0}:
        name, test = "McNemar", mcnemar(sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    else:
        name, test = "Wilcoxon signed rank", wilcoxon(differences)
    half = (estimate.hi - estimate.lo) / 2.0 if estimate.lo is not None and estimate.hi is not None else None
    call = "not enough data" if half is None or half >= 0.05 else "no difference"
    # The interval decides: it counts users; the test counts answers.
    if half is not None and ((estimate.lo or 0.0) > 0 or (estimate.hi or 0.0) < 0):
        call = "better" if estimate.estimate > 0 else "worse"
    outcome = {
        "difference": {"value": estimate.estimate, "lo": estimate.lo, "hi": estimate.hi},
        "test": {"name": name, "p": 1.0 if test is None else test.p},
        "verdict": call,
    }
    if half is None:
        return outcome | {"need_more": max(1, ENOUGH_CLUSTERS - estimate.clusters), "need_more_of": "users"}
    more = more_needed(estimate.estimate, half, len(shared)) if call == "not enough data" else None
    return outcome | {"need_more": more}


def _unpaired(a: Sequence[Scored], b: Sequence[Scored]) -> dict[str, Any]:
    before, after = _estimate(a), _estimate(b)
    assert before is not None
    assert after is not None
    bounded = _bounds([*a, *b]) is not None
    scale = 1.0 if bounded else max(abs(answer.value) for answer in (*a, *b))
    return compare_sides(before, after, scale=scale, bounded=bounded)


def _flips(store: Store, a: Units, b: Units, shared: Any) -> list[dict[str, Any]]:
    """Return the requests whose scores fell most from a to b, the worst first."""
    changed = [unit for unit in shared if b[unit].value != a[unit].value]
    worst = sorted(changed, key=lambda unit: (b[unit].value - a[unit].value, unit))[:_FLIPS]
    rows = {row.trace_id: row for row in trace_rows(store, [unit[0] for unit in worst])}
    return [
        {
            "trace_id": unit[0],
            "start_time": rows[unit[0]].start_time,
            "query": rows[unit[0]].query,
            "a": a[unit].value,
            "b": b[unit].value,
            "explanation_a": a[unit].explanation,
            "explanation_b": b[unit].explanation,
        }
        for unit in worst
        if unit[0] in rows
    ]
