"""Did the application move or the judge? A frozen set of judged answers, judged again, shows the judge's move.

live move = live score now - live score when frozen        judge's move = mean(again - frozen) over the anchors
application's move = live move - judge's move
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from ragpulse_collector.analysis.cases import Unit, cases_of
from ragpulse_collector.analysis.quality import Bucket, current, estimates, point
from ragpulse_collector.analysis.selection import Window, filter_of, instant, iso, range_of
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.datasets import ANCHORS, CHECKS, keep, kept, kept_under, rewrite
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_evaluators.statistics import Interval, hajek, minus

_MAX_ANCHORS = 500


@dataclass(frozen=True, slots=True)
class Anchor:
    """One judged answer with its verdict (0..1) and its inclusion probability."""

    trace_id: str
    span_id: str
    case: dict[str, Any]
    value: float
    pi: float
    user: str | None = None
    """The user, else the session; None in sets of older versions."""


@dataclass(frozen=True, slots=True)
class Anchors:
    """The frozen set of one evaluator."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: str
    anchors: tuple[Anchor, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """The anchors judged again: one value per anchor, None without a verdict."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: str
    """Names the frozen set."""
    at: str
    values: tuple[float | None, ...]
    cost_usd: float | None


def draw_anchors(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> Anchors:
    """Draw up to `n` (default 50) judged units of `evaluator` at random from `from` .. `to` (7 days).

    Of several versions and judges the latest is used. Raises NotFound where fewer than 10 units exist.
    """
    evaluator, limit = _evaluator(params), min(_MAX_ANCHORS, max(10, int(params.get("n") or 50)))
    window = range_of(params, now=clock(), back="7d")
    filters, store = filter_of(params), store.limited() if params.get("where") else store
    bucket = current(estimates(store, evaluator, window, filters))
    anchors = [] if bucket is None else _draw(store, evaluator, window, filters, bucket.series, limit)
    if bucket is None or len(anchors) < 10:
        raise NotFound(f"{evaluator} has {len(anchors)} verdicts in this window; a frozen set needs at least 10")
    return Anchors(evaluator, bucket.version or "", bucket.judge, iso(clock()) or "", tuple(anchors))


def _draw(
    store: Store,
    evaluator: str,
    window: Window,
    filters: Filter,
    version_and_judge: tuple[str | None, str | None],
    limit: int,
) -> list[Anchor]:
    sample = sample_of(store, evaluator, window.parameters, filters)
    rows = store.read(
        f"SELECT trace_id, span_id, request_time, normalized, pi, cluster FROM ({sample.sql}) s WHERE pi IS NOT NULL"
        " AND status = 'ok' AND normalized IS NOT NULL AND version = $line_version"
        " AND judge IS NOT DISTINCT FROM $line_judge ORDER BY md5(trace_id::VARCHAR || span_id::VARCHAR) LIMIT $wanted",
        {
            **sample.parameters,
            "line_version": version_and_judge[0],
            "line_judge": version_and_judge[1],
            "wanted": limit,
        },
    ).rows
    units = [Unit(trace.hex, f"{span:016x}", time) for trace, span, time, *_ in rows]
    cases = cases_of(store, units)
    return [
        Anchor(unit.trace_id, unit.span_id, cases[unit].model_dump(mode="json"), value, pi, str(user))
        for unit, (_, _, _, value, pi, user) in zip(units, rows, strict=True)
        if unit in cases
    ]


def store_anchors(tx: Transaction, anchors: Anchors) -> None:
    """Append a frozen set; the newest set of an evaluator counts."""
    keep(tx, ANCHORS + anchors.evaluator, asdict(anchors))


def store_check(tx: Transaction, check: Check) -> None:
    """Append the result of judging the anchors again."""
    keep(tx, CHECKS + check.evaluator, asdict(check))


def forget_anchors(tx: Transaction, trace_ids: Sequence[str]) -> int:
    """Remove the answers of these traces from every frozen set and its checks; returns how many."""
    forgotten, removed = set(trace_ids), 0
    for evaluator in kept_under(tx.execute, ANCHORS):
        kept_indexes = {}
        for content in kept(tx.execute, ANCHORS + evaluator):
            remaining = [
                index for index, anchor in enumerate(content["anchors"]) if anchor["trace_id"] not in forgotten
            ]
            if len(remaining) < len(content["anchors"]):
                kept_indexes[content["frozen_at"]] = remaining
                removed += len(content["anchors"]) - len(remaining)
        if kept_indexes:
            rewrite(tx, ANCHORS + evaluator, partial(_only, "anchors", kept_indexes))
            rewrite(tx, CHECKS + evaluator, partial(_only, "values", kept_indexes))
    return removed


def _only(name: str, kept_indexes: Mapping[str, Sequence[int]], content: dict[str, Any]) -> dict[str, Any]:
    """Return a frozen set or a check with only the answers at the kept indexes."""
    indexes = kept_indexes.get(content["frozen_at"])
    return content if indexes is None else content | {name: [content[name][index] for index in indexes]}


def load_anchors(store: Store, evaluator: str) -> Anchors:
    """Return the frozen set of an evaluator; raises NotFound where there is none."""
    sets = _latest(store, ANCHORS + evaluator, "frozen_at")
    if not sets:
        raise NotFound(f"{evaluator} has no frozen set: POST drift/anchors draws it")
    return Anchors(**{**sets[0], "anchors": tuple(Anchor(**anchor) for anchor in sets[0]["anchors"])})


def _latest(store: Store, key: str, by: str) -> list[dict[str, Any]]:
    return sorted(kept(store.read, key), key=lambda content: str(content[by]), reverse=True)


def drift(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET drift`: the frozen set of `evaluator`, its checks, and the parts of the last move.

    The live score of the last `back` (default 7d, never before the freezing) is compared with an equal range before the
    freezing. Moves have 95 % intervals; `verdict` names the sure moves. Raises NotFound without a set.
    """
    now, anchors = clock(), load_anchors(store, _evaluator(params))
    checks = [check for check in _checks(store, anchors.evaluator) if check.frozen_at == anchors.frozen_at]
    report: dict[str, Any] = {
        "evaluator": anchors.evaluator,
        "version": anchors.version,
        "judge": anchors.judge,
        "frozen_at": anchors.frozen_at,
        "n": len(anchors.anchors),
        "checks": [_report(anchors, check) for check in checks],
    }
    if not checks:
        unknown = {"live": None, "application": None, "judge_share": None}
        return report | unknown | {"verdict": "not checked yet", "state": "undecided"}
    before, after = _live(store, anchors, checks[0], params, now)
    live, judge = (
        _minus(*(bucket.interval if bucket else None for bucket in (after, before))),
        _judge_move(anchors, checks[0]),
    )
    application = _minus(live, judge)
    share = judge.value / live.value if judge and live and _is_sure(live) else None
    points = {
        name: point(bucket.estimate if bucket else None, identified=bool(bucket and bucket.identified))
        for name, bucket in (("before", before), ("after", after))
    }
    return report | {
        "live": {**points, "move": _json(live)},
        "application": _json(application),
        "judge_share": share,
        "verdict": _verdict(judge, application),
        "state": "undecided" if judge is None else "firing" if _is_sure(judge) else "ok",
    }


def anchored_evaluators(store: Store) -> list[str]:
    """Return the evaluators that have a frozen set, by name."""
    return kept_under(store.read, ANCHORS)


def _checks(store: Store, evaluator: str) -> list[Check]:
    return [
        Check(**{**content, "values": tuple(content["values"])}) for content in _latest(store, CHECKS + evaluator, "at")
    ]


def _report(anchors: Anchors, check: Check) -> dict[str, Any]:
    is_same = (check.version, check.judge) == (anchors.version, anchors.judge)
    return {
        "at": check.at,
        "version": check.version,
        "judge": check.judge,
        "same_version_and_judge": is_same,
        "judge_move": _judge_move_json(anchors, check),
        "failed": sum(value is None for value in check.values),
        "cost_usd": check.cost_usd,
    }


def _judge_move_json(anchors: Anchors, check: Check) -> dict[str, Any] | None:
    move, pairs = _judge_move(anchors, check), _pairs(anchors, check)
    changed = sum(score != anchor.value for anchor, score in pairs)
    return None if move is None else {**asdict(move), "n": len(pairs), "changed": changed}


def _pairs(anchors: Anchors, check: Check) -> list[tuple[Anchor, float]]:
    return [(anchor, score) for anchor, score in zip(anchors.anchors, check.values, strict=True) if score is not None]


def _judge_move(anchors: Anchors, check: Check) -> Interval | None:
    """Return the paired difference, weighted like the live score."""
    pairs = _pairs(anchors, check)
    estimate = hajek(
        [score - anchor.value for anchor, score in pairs],
        [anchor.pi for anchor, _ in pairs],
        clusters=[anchor.user or anchor.trace_id for anchor, _ in pairs],
        bounds=(-1.0, 1.0),
    )
    return Interval.of(estimate) if len(pairs) > 1 else None


def _json(move: Interval | None) -> dict[str, Any] | None:
    return None if move is None else asdict(move)


def _live(
    store: Store, anchors: Anchors, check: Check, params: Mapping[str, Any], now: datetime
) -> tuple[Bucket | None, Bucket | None]:
    frozen_at = instant(anchors.frozen_at, now=now) or now
    after = range_of({"from": f"-{params.get('back') or '7d'}"}, now=now)
    before = Window(frozen_at - (after.last - after.first), frozen_at, 0)
    after = Window(min(max(after.first, frozen_at), after.last), after.last, 0)
    filters, store = filter_of(params), store.limited() if params.get("where") else store
    parts = ((before, anchors.version, anchors.judge), (after, check.version, check.judge))
    buckets = []
    for window, version, judge in parts:
        matches = [
            bucket
            for bucket in estimates(store, anchors.evaluator, window, filters)
            if bucket.series == (version, judge)
        ]
        buckets.append(matches[0] if matches else None)
    return buckets[0], buckets[1]


def _minus(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else minus(a, b)


def _is_sure(move: Interval | None) -> bool:
    return move is not None and (move.lo > 0.0 or move.hi < 0.0)


def _verdict(judge: Interval | None, application: Interval | None) -> str:
    movers = [name for name, move in (("judge", judge), ("application", application)) if _is_sure(move)]
    return " and ".join(movers) + " moved" if movers else "no sure move"


def _evaluator(params: Mapping[str, Any]) -> str:
    name = str(params.get("evaluator") or "").partition("@")[0]
    if not name:
        raise Invalid("evaluator: a name is required")
    return name
