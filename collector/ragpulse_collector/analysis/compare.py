"""Is A better than B: evaluator versions, runs, prompts, models, variants; paired where the requests are the same.

Two groups of requests are also compared by latency, cost and people's acceptance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import pvariance
from typing import Any

from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.quality import in_words, point
from ragpulse_collector.analysis.selection import Window, dimensions, filter_of, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.runs import latest_runs
from ragpulse_collector.store.queries.scores import RUN_SCORES, evaluators_in, sample_of
from ragpulse_collector.store.queries.traces import Filter, public_name, trace_rows, with_columns
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import (
    Estimate,
    Interval,
    benjamini_hochberg,
    compare_arms,
    hajek,
    mcnemar,
    minus,
    needed_n,
    verdict,
    wilcoxon,
)
from ragpulse_evaluators.statistics.comparison import ENOUGH_CLUSTERS

__all__ = ["compare"]

Group = tuple[str, str]
"""A column of `traces` and its value."""
WHOLE = ""
"""Stands for all values together: no value of a dimension is empty text."""
_COLUMNS = {"latency_ms": ("latency", "ms"), "cost_usd": ("cost", "USD"), "feedback": ("acceptance", "score")}
_TAU = 0.1
"""The size of difference the sequential test is tuned for: of normalized scores, or as a share of the larger mean."""
_ALPHA = 0.05
_DIMENSIONS = {
    "prompt": "prompt_version",
    "model": "model",
    "variant": "variant",
    "service": "service",
    "release": "release",
}
_OF_VERSIONS = {"better": "more lenient", "worse": "stricter"}
"""Two versions of an evaluator saw the same answers: not these, but the evaluator differs."""
_FLIPS = 20
_STRATA = 50
"""So many values of a dimension are looked at, those with most answers."""


@dataclass(frozen=True, slots=True)
class _Scored:
    """One unit on one side."""

    unit: tuple[str, int]
    at: datetime
    value: float
    pi: float
    cluster: Any
    identified: bool
    explanation: str | None
    stratum: str | None
    question: int | None = None
    """A hash of its text."""


_Units = Mapping[tuple[str, int], _Scored]


@dataclass(frozen=True, slots=True)
class _Side:
    """What `NAME@x`, `prompt:v7`, `model:m`, `variant:v`, `run:ID` selects."""

    name: str
    evaluator: str | None = None
    version: str | None = None
    run_id: str | None = None
    column: str | None = None
    value: str | None = None


def compare(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET compare`: `a`, `b`, `evaluator`, `by`, `from` (default 7 days), filters; difference is b minus a.

    Two evaluator versions or runs over the same requests are paired: the interval is that of the mean difference, the
    test McNemar's (verdicts of 0 and 1) or Wilcoxon's. Groups of requests (prompt, model, variant) are compared
    sequentially, so that looking every day does not raise false alarms. Answers of one user (else session, else trace)
    count as dependent. `by` (a dimension) adds the same for each of its values, with p-values adjusted for having
    looked at all of them (Benjamini-Hochberg). Raises ValueError for a side that cannot be read, LookupError where one
    has no scores.
    """
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    keep = filter_of(params)
    sides = [_side(store, str(params.get(key) or "")) for key in ("a", "b")]
    evaluator, by = _evaluator(store, sides, params, window), _dimension(params.get("by"))
    a, b = (_read(store, side, evaluator, window, keep, by) for side in sides)
    for side, found in zip(sides, (a, b), strict=True):
        if not found:
            raise LookupError(f"{side.name}: no scores of {evaluator} in this window")
    outcome = _decided(a, b)
    if all(side.version for side in sides):
        outcome["verdict"] = _OF_VERSIONS.get(outcome["verdict"], outcome["verdict"])
    also = _effects(store, sides, window, keep, by)
    before, after = (a, b) if outcome["paired"] else _same_questions(a, b)
    both = before.keys() & after.keys()
    return {
        "evaluator": evaluator,
        "a": {"name": sides[0].name, **_point(a.values())},
        "b": {"name": sides[1].name, **_point(b.values())},
        **outcome,
        "shared": len(both),
        "flips": _flips(store, before, after, both),
        "also": also.get(WHOLE, []),
        "by": by and public_name(by),
        "strata": [one | {"also": also.get(one["value"], [])} for one in _strata(a, b)] if by else [],
    }


def _same_questions(a: _Units, b: _Units) -> tuple[_Units, _Units]:
    """The latest answers of both sides to the questions that both were asked, under the unit of b."""
    asked, again = (
        {one.question: one for one in sorted(side.values(), key=lambda one: one.at) if one.question is not None}
        for side in (a, b)
    )
    shared = [(asked[question], one) for question, one in again.items() if question in asked]
    return {after.unit: before for before, after in shared}, {after.unit: after for _, after in shared}


def _effects(
    store: Store, sides: Sequence[_Side], window: Window, keep: Filter, by: str | None
) -> Mapping[str | None, list[dict[str, Any]]]:
    """Latency, cost and acceptance of two groups of requests; versions of an evaluator have none."""
    groups = [(side.column, side.value) for side in sides if side.column and side.value]
    return effects(store, groups[0], groups[1], window, keep, by) if len(groups) == 2 else {}


def _decided(a: _Units, b: _Units) -> dict[str, Any]:
    """Difference, test and verdict of two sides: paired where at least half of the smaller one is shared."""
    shared = a.keys() & b.keys()
    paired = len(shared) >= 2 and len(shared) >= 0.5 * min(len(a), len(b))
    outcome = _paired(a, b, sorted(shared)) if paired else _unpaired(list(a.values()), list(b.values()))
    return {
        "need_more_of": "answers",
        **outcome,
        "effect_size": _effect_size(outcome["difference"], a, b),
        "paired": paired,
    }


def _effect_size(difference: Mapping[str, float] | None, a: _Units, b: _Units) -> float | None:
    """The difference in standard deviations of one answer (Cohen 1988); None where all answers of a side are alike."""
    spread = math.sqrt(sum(pvariance([one.value for one in side.values()]) for side in (a, b)) / 2.0)
    return difference["value"] / spread if difference and spread > 1e-9 else None


def _strata(a: _Units, b: _Units) -> list[dict[str, Any]]:
    """The same question within each value, the largest first; a verdict stands only on its adjusted p-value."""
    values = {one.stratum for side in (a, b) for one in side.values()}
    found = [_stratum(value, _within(a, value), _within(b, value)) for value in values]
    found.sort(key=lambda one: (-one["a"]["n"] - one["b"]["n"], str(one["value"])))
    found = found[:_STRATA]
    adjusted = benjamini_hochberg([1.0 if one["test"] is None else one["test"]["p"] for one in found])
    for one, p in zip(found, adjusted, strict=True):
        if one["test"] is not None:
            one["test"]["p_adjusted"] = p
        if p > _ALPHA and one["verdict"] in ("better", "worse"):
            one["verdict"] = "not enough data"
    return found


def _stratum(value: str | None, a: _Units, b: _Units) -> dict[str, Any]:
    sides = {"value": value, "a": _point(a.values()), "b": _point(b.values())}
    if a and b:
        return sides | _decided(a, b)
    nothing = {"difference": None, "effect_size": None, "test": None, "paired": False}
    return sides | nothing | {"verdict": "not enough data", "need_more": None, "need_more_of": "answers"}


def _within(side: _Units, value: str | None) -> dict[tuple[str, int], _Scored]:
    return {unit: one for unit, one in side.items() if one.stratum == value}


def _dimension(by: Any) -> str | None:
    names = dimensions({"group_by": by})
    if len(names) > 1:
        raise ValueError("by: one dimension at a time")
    if names == ("tag",):
        raise ValueError("by: a trace may have several tags; compare tag:A with tag:B, or filter by tag")
    return names[0] if names else None


def _side(store: Store, text: str) -> _Side:
    kind, colon, value = text.partition(":")
    if colon and kind == "run":
        run = latest_runs(store, run_id=value).get(value)
        if run is None:
            raise LookupError(f"no replay {value!r}")
        return _Side(text, evaluator=run.evaluator.partition("@")[0], run_id=value)
    if colon and kind in _DIMENSIONS:
        return _Side(text, column=_DIMENSIONS[kind], value=value)
    if colon and (kind == "tag" or kind.startswith("metadata.")):
        return _Side(text, column=dimensions({"group_by": [kind]})[0], value=value)
    name, at, version = text.partition("@")
    if not at or not name or not version:
        raise ValueError(
            f"{text!r}: write NAME@VERSION, prompt:v7, model:..., variant:..., service:..., "
            "release:..., tag:..., metadata.KEY:... or run:ID"
        )
    return _Side(text, evaluator=name, version=version)


def _evaluator(store: Store, sides: Sequence[_Side], params: Mapping[str, Any], window: Window) -> str:
    named = {side.evaluator for side in sides if side.evaluator}
    if len(named) > 1:
        raise ValueError(f"the sides are different evaluators: {', '.join(sorted(named))}")
    chosen = params.get("evaluator") or next(iter(named), None) or first_of(store, window, FAITHFUL)
    chosen = chosen or next(iter(evaluators_in(store, window.parameters)), None)
    if chosen is None:
        raise LookupError("nothing was scored in this window: start a replay, or look further back")
    return str(chosen).partition("@")[0]


def _read(
    store: Store, side: _Side, evaluator: str, window: Window, keep: Filter, by: str | None
) -> dict[tuple[str, int], _Scored]:
    """The side's units; of several versions or judges the one with the latest request."""
    columns = dict.fromkeys((*_DIMENSIONS.values(), "query", *filter(None, (by, side.column))))
    sample = sample_of(store, evaluator, window.parameters, keep, columns=tuple(columns))
    conditions, extra = ["status = 'ok'", "normalized IS NOT NULL"], dict(sample.parameters)
    if side.version is not None:
        conditions.append("(starts_with(s.version, $side) OR s.label_version = $side)")
        extra["side"] = side.version
    if side.column is not None:
        conditions.append(f"s.{side.column} = $side")
        extra["side"] = side.value
    source = f"({sample.sql}) s"
    if side.run_id is not None:
        source += f" SEMI JOIN ({RUN_SCORES}) i ON i.score_key = s.score_key"
        extra["run"] = side.run_id
    rows = store.read(
        "SELECT trace_id, span_id, request_time, normalized, coalesce(pi, 1.0),"
        " cluster, identified, explanation,"
        f" {f'{by}::VARCHAR' if by else 'NULL'}, CASE WHEN query IS NOT NULL THEN hash(query) END, version, judge"
        f" FROM {source} WHERE {' AND '.join(conditions)}",
        extra,
    ).rows
    newest = max(rows, key=lambda row: (row[2], str(row[10])), default=None)
    return {
        (row[0].hex, row[1]): _Scored((row[0].hex, row[1]), *row[2:10])
        for row in rows
        if newest is not None and row[10:] == newest[10:]
    }


def _estimate(scored: Sequence[_Scored]) -> Estimate | None:
    return hajek([one.value for one in scored], [one.pi for one in scored], clusters=[one.cluster for one in scored])


def _point(scored: Iterable[_Scored]) -> dict[str, Any]:
    found = list(scored)
    figures = point(_estimate(found), identified=any(one.identified for one in found))
    return figures | {"words": in_words(figures)}


def _paired(a: _Units, b: _Units, shared: Sequence[tuple[str, int]]) -> dict[str, Any]:
    differences = [b[unit].value - a[unit].value for unit in shared]
    pi = [min(a[unit].pi, b[unit].pi) for unit in shared]
    found = hajek(differences, pi, clusters=[a[unit].cluster for unit in shared], bounds=(-1.0, 1.0))
    assert found is not None
    if {one for unit in shared for one in (a[unit].value, b[unit].value)} <= {0.0, 1.0}:
        name, test = "McNemar", mcnemar(sum(d > 0 for d in differences), sum(d < 0 for d in differences))
    else:
        name, test = "Wilcoxon signed rank", wilcoxon(differences)
    half = (found.hi - found.lo) / 2.0 if found.lo is not None and found.hi is not None else None
    call = "not enough data" if half is None or half >= 0.05 else "no difference"
    # The interval decides: it counts users, where the test counts answers.
    if half is not None and ((found.lo or 0.0) > 0 or (found.hi or 0.0) < 0):
        call = "better" if found.estimate > 0 else "worse"
    outcome = {
        "difference": {"value": found.estimate, "lo": found.lo, "hi": found.hi},
        "test": {"name": name, "p": 1.0 if test is None else test.p},
        "verdict": call,
    }
    if half is None:
        return outcome | {"need_more": max(1, ENOUGH_CLUSTERS - found.clusters), "need_more_of": "users"}
    more = more_needed(found.estimate, half, len(shared)) if call == "not enough data" else None
    return outcome | {"need_more": more}


def _unpaired(a: Sequence[_Scored], b: Sequence[_Scored]) -> dict[str, Any]:
    arms = [_estimate(side) for side in (b, a)]
    found = compare_arms(arms[0], arms[1], tau=_TAU)
    outcome = verdict(arms, found)
    if found is None:
        return _without_spread(a, b)
    call = {"undecided": "not enough data"}.get(outcome, outcome)
    if call == "not enough data" and max(abs(found.lo), abs(found.hi)) < 0.05:
        call = "no difference"
    short = max(0, ENOUGH_CLUSTERS - min(arm.clusters for arm in arms if arm is not None))
    more = more_needed(found.difference, (found.hi - found.lo) / 2.0, len(a) + len(b))
    return {
        "difference": {"value": found.difference, "lo": found.lo, "hi": found.hi},
        "test": {"name": "mSPRT, clustered", "p": found.p},
        "verdict": call,
        **needed(call, short, more),
    }


def _without_spread(a: Sequence[_Scored], b: Sequence[_Scored]) -> dict[str, Any]:
    """Both sides are constant: what their own intervals leave room for is all that can be said."""
    one, other = (Interval.of(_estimate(side)) for side in (b, a))
    shown = None if one is None or other is None else asdict(minus(one, other))
    need = max(1, needed_n(0.95, 0.05) - min(len(a), len(b)))
    return {"difference": shown, "test": None, "verdict": "not enough data", "need_more": need}


def _flips(store: Store, a: _Units, b: _Units, shared: Any) -> list[dict[str, Any]]:
    """The requests that fell most from a to b, the worst first."""
    changed = [unit for unit in shared if b[unit].value != a[unit].value]
    worst = sorted(changed, key=lambda unit: (b[unit].value - a[unit].value, unit))[:_FLIPS]
    rows = {row["trace_id"]: row for row in trace_rows(store, [unit[0] for unit in worst])}
    return [
        {
            "trace_id": unit[0],
            "start_time": rows[unit[0]]["start_time"],
            "query": rows[unit[0]]["query"],
            "a": a[unit].value,
            "b": b[unit].value,
            "explanation_a": a[unit].explanation,
            "explanation_b": b[unit].explanation,
        }
        for unit in worst
        if unit[0] in rows
    ]


def effects(
    store: Store, a_is: Group, b_is: Group, window: Window, keep: Filter, by: str | None
) -> dict[str | None, list[dict[str, Any]]]:
    """Compare latency, cost and acceptance of two groups of requests, in all (key WHOLE) and by values of `by`.

    The sequential test of quality on their own scales, clustered by user; values rest on p-values adjusted for all that
    were looked at (Benjamini-Hochberg).
    """
    found: dict[str | None, list[dict[str, Any]]] = {}
    for column, (name, _) in _COLUMNS.items():
        a, b = (_arms(store, column, side, window, keep, by) for side in (a_is, b_is))
        for stratum in a.keys() & b.keys():
            one = _also_one(name, a[stratum], b[stratum], lower_is_better=column != "feedback")
            found.setdefault(stratum, []).append(one)
    parts = [one for stratum, outcome in found.items() if stratum != WHOLE for one in outcome]
    for one, p in zip(parts, benjamini_hochberg([one["p"] for one in parts]), strict=True):
        one["p_adjusted"] = p
        if p > _ALPHA and one["verdict"] in ("better", "worse"):
            one["verdict"] = "not enough data"
    return found


def _arms(
    store: Store, column: str, side: Group, window: Window, keep: Filter, by: str | None
) -> dict[str | None, Estimate]:
    """One side's mean of a column, clustered by user, in all and by stratum."""
    rows = store.read(
        f"SELECT {f'{by}::VARCHAR' if by else 'NULL'}, {column}, coalesce(user_id, session_id, trace_id)"
        f" FROM {with_columns('traces', filter(None, (by, side[0])))}"
        f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} AND {side[0]} = $side"
        f" AND {column} IS NOT NULL",
        {**window.parameters, **keep.parameters, "side": side[1]},
    ).rows
    parts: dict[str | None, list[tuple[float, str]]] = {WHOLE: [(float(row[1]), row[2]) for row in rows]}
    for stratum, value, cluster in rows if by else ():
        parts.setdefault(stratum, []).append((float(value), cluster))
    found = {
        key: hajek([value for value, _ in part], [1.0] * len(part), clusters=[cluster for _, cluster in part])
        for key, part in parts.items()
    }
    return {key: arm for key, arm in found.items() if arm is not None}


def _also_one(name: str, a: Estimate, b: Estimate, *, lower_is_better: bool) -> dict[str, Any]:
    scale = max(abs(a.estimate), abs(b.estimate), 1e-9)
    found = compare_arms(b, a, tau=_TAU * scale)
    outcome = verdict([b, a], found)
    if lower_is_better and outcome in ("better", "worse"):
        outcome = "worse" if outcome == "better" else "better"
    call = "not enough data" if outcome == "undecided" else str(outcome)
    if found is not None and call == "not enough data" and max(abs(found.lo), abs(found.hi)) < 0.05 * scale:
        call = "no difference"
    short = max(0, ENOUGH_CLUSTERS - min(a.clusters, b.clusters))
    half = 0.0 if found is None else (found.hi - found.lo) / 2.0
    more = None if found is None else more_needed(found.difference / scale, half / scale, a.n + b.n)
    return {
        "metric": name,
        "unit": next(unit for told_as, unit in _COLUMNS.values() if told_as == name),
        "a": a.estimate,
        "b": b.estimate,
        "difference": None if found is None else {"value": found.difference, "lo": found.lo, "hi": found.hi},
        "p": 1.0 if found is None else found.p,
        "verdict": call,
        **needed(call, short, more),
    }


def needed(call: str, short: int, more: int | None) -> dict[str, Any]:
    """How many more decide it, and of what: an arm with too few users has no verdict, however many answers it has."""
    if call != "not enough data":
        return {"need_more": None, "need_more_of": "answers"}
    return (
        {"need_more": short, "need_more_of": "users"} if short else {"need_more": more or 1, "need_more_of": "answers"}
    )


def more_needed(mean: float, half: float, n: int) -> int | None:
    """About how many more would decide it, if the difference is what it looks like (at least 0.01)."""
    return max(1, math.ceil(n * (half / max(abs(mean), 0.01)) ** 2) - n) if half else None
