"""Was it the application or the judge? A frozen set of judged answers, judged again, tells how far the judge moved.

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
from ragpulse_collector.analysis.selection import Window, filter_of, instant, iso, window_of
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.datasets import ANCHORS, CHECKS, keep, kept, kept_under, rewrite
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.queries.traces import Filter
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Interval, hajek, minus

_MOST = 500


@dataclass(frozen=True, slots=True)
class Anchor:
    """One judged answer as it was seen, with its verdict (0..1) and the chance with which it was drawn."""

    trace_id: str
    span_id: str
    case: dict[str, Any]
    value: float
    pi: float
    user: str | None = None
    """Whose answer it is: the user's, else the session's; None in sets that were frozen before it was kept."""


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
    """The anchors judged again; one value an anchor, None where no verdict came of it."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: str
    """Which set it is about."""
    at: str
    values: tuple[float | None, ...]
    cost_usd: float | None


def choose(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> Anchors:
    """Draw up to `n` (default 50) judged units of `evaluator`, at random among those in `from` .. `to` (7 days).

    Of several versions and judges the one with the latest request. Raises LookupError where fewer than 10 are there.
    """
    evaluator, wanted = _evaluator(params), min(_MOST, max(10, int(params.get("n") or 50)))
    window = window_of({"width": 1, **params}, now=clock(), back="7d").whole
    keep, store = filter_of(params), store.limited() if params.get("where") else store
    bucket = current(estimates(store, evaluator, window, keep))
    drawn = [] if bucket is None else _drawn(store, evaluator, window, keep, (bucket.version, bucket.judge), wanted)
    if bucket is None or len(drawn) < 10:
        raise LookupError(f"{evaluator} has {len(drawn)} verdicts in this window; a frozen set needs at least 10")
    return Anchors(evaluator, bucket.version or "", bucket.judge, iso(clock()) or "", tuple(drawn))


def _drawn(
    store: Store, evaluator: str, window: Window, keep: Filter, line: tuple[str | None, str | None], wanted: int
) -> list[Anchor]:
    sample = sample_of(store, evaluator, window.parameters, keep)
    rows = store.read(
        f"SELECT trace_id, span_id, request_time, normalized, pi, cluster FROM ({sample.sql}) s WHERE pi IS NOT NULL"
        " AND status = 'ok' AND normalized IS NOT NULL AND version = $line_version"
        " AND judge IS NOT DISTINCT FROM $line_judge ORDER BY md5(trace_id::VARCHAR || span_id::VARCHAR) LIMIT $wanted",
        {**sample.parameters, "line_version": line[0], "line_judge": line[1], "wanted": wanted},
    ).rows
    units = [Unit(trace.hex, f"{span:016x}", at) for trace, span, at, *_ in rows]
    cases = cases_of(store, units)
    return [
        Anchor(unit.trace_id, unit.span_id, cases[unit].model_dump(mode="json"), value, pi, str(user))
        for unit, (_, _, _, value, pi, user) in zip(units, rows, strict=True)
        if unit in cases
    ]


def keep_anchors(tx: Transaction, anchors: Anchors) -> None:
    """Append a frozen set; the newest of an evaluator counts."""
    keep(tx, ANCHORS + anchors.evaluator, asdict(anchors))


def keep_check(tx: Transaction, check: Check) -> None:
    """Append what judging the anchors again has found."""
    keep(tx, CHECKS + check.evaluator, asdict(check))


def forget_anchors(tx: Transaction, trace_ids: Sequence[str]) -> int:
    """Remove the answers of these traces from every frozen set and from its checks; returns how many went."""
    gone, removed = set(trace_ids), 0
    for evaluator in kept_under(tx.execute, ANCHORS):
        places = {}
        for content in kept(tx.execute, ANCHORS + evaluator):
            left = [place for place, one in enumerate(content["anchors"]) if one["trace_id"] not in gone]
            if len(left) < len(content["anchors"]):
                places[content["frozen_at"]] = left
                removed += len(content["anchors"]) - len(left)
        if places:
            rewrite(tx, ANCHORS + evaluator, partial(_only, "anchors", places))
            rewrite(tx, CHECKS + evaluator, partial(_only, "values", places))
    return removed


def _only(name: str, places: Mapping[str, Sequence[int]], content: dict[str, Any]) -> dict[str, Any]:
    """Return a frozen set or a check with the answers at the places that are left of its set."""
    left = places.get(content["frozen_at"])
    return content if left is None else content | {name: [content[name][place] for place in left]}


def frozen(store: Store, evaluator: str) -> Anchors:
    """Return the frozen set of an evaluator; raises LookupError where there is none."""
    found = _latest(store, ANCHORS + evaluator, "frozen_at")
    if not found:
        raise LookupError(f"{evaluator} has no frozen set: POST drift/anchors chooses one")
    return Anchors(**{**found[0], "anchors": tuple(Anchor(**one) for one in found[0]["anchors"])})


def _latest(store: Store, key: str, by: str) -> list[dict[str, Any]]:
    return sorted(kept(store.read, key), key=lambda one: str(one[by]), reverse=True)


def drift(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET drift`: the frozen set of `evaluator`, every check of it, and whose the last move is.

    The live score of the last `back` (default 7d, never before the freezing) is compared with that of as long before
    the freezing. Moves have 95 % intervals; `verdict` says whose move is sure. Raises LookupError without a set.
    """
    now, anchors = clock(), frozen(store, _evaluator(params))
    checks = [one for one in _checks(store, anchors.evaluator) if one.frozen_at == anchors.frozen_at]
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
    live, judge = _minus(*(one.interval if one else None for one in (after, before))), _judge_move(anchors, checks[0])
    application = _minus(live, judge)
    share = judge.value / live.value if judge and live and _sure(live) else None
    shown = {
        name: point(one.estimate if one else None, identified=bool(one and one.identified))
        for name, one in (("before", before), ("after", after))
    }
    return report | {
        "live": {**shown, "move": _shown(live)},
        "application": _shown(application),
        "judge_share": share,
        "verdict": _verdict(judge, application),
        "state": "undecided" if judge is None else "firing" if _sure(judge) else "ok",
    }


def watched(store: Store) -> list[str]:
    """Return the evaluators that have a frozen set, by name."""
    return kept_under(store.read, ANCHORS)


def _checks(store: Store, evaluator: str) -> list[Check]:
    return [Check(**{**one, "values": tuple(one["values"])}) for one in _latest(store, CHECKS + evaluator, "at")]


def _report(anchors: Anchors, check: Check) -> dict[str, Any]:
    same = (check.version, check.judge) == (anchors.version, anchors.judge)
    return {
        "at": check.at,
        "version": check.version,
        "judge": check.judge,
        "same_version_and_judge": same,
        "judge_move": _told(anchors, check),
        "failed": sum(value is None for value in check.values),
        "cost_usd": check.cost_usd,
    }


def _told(anchors: Anchors, check: Check) -> dict[str, Any] | None:
    move, pairs = _judge_move(anchors, check), _pairs(anchors, check)
    changed = sum(again != one.value for one, again in pairs)
    return None if move is None else {**asdict(move), "n": len(pairs), "changed": changed}


def _pairs(anchors: Anchors, check: Check) -> list[tuple[Anchor, float]]:
    return [(one, again) for one, again in zip(anchors.anchors, check.values, strict=True) if again is not None]


def _judge_move(anchors: Anchors, check: Check) -> Interval | None:
    """The paired difference, weighted like the live score; where nothing changed, what a change could still hide."""
    pairs = _pairs(anchors, check)
    found = hajek(
        [again - one.value for one, again in pairs],
        [one.pi for one, _ in pairs],
        clusters=[one.user or one.trace_id for one, _ in pairs],
        bounds=(-1.0, 1.0),
    )
    return Interval.of(found) if len(pairs) > 1 else None


def _shown(move: Interval | None) -> dict[str, Any] | None:
    return None if move is None else asdict(move)


def _live(
    store: Store, anchors: Anchors, check: Check, params: Mapping[str, Any], now: datetime
) -> tuple[Bucket | None, Bucket | None]:
    at = instant(anchors.frozen_at, now=now) or now
    after = window_of({"from": f"-{params.get('back') or '7d'}", "width": 1}, now=now).whole
    before = Window(at - (after.last - after.first), at, 0)
    after = Window(min(max(after.first, at), after.last), after.last, 0)
    keep, store = filter_of(params), store.limited() if params.get("where") else store
    lines = ((before, anchors.version, anchors.judge), (after, check.version, check.judge))
    found = []
    for window, version, judge in lines:
        own = [
            one
            for one in estimates(store, anchors.evaluator, window, keep)
            if (one.version, one.judge) == (version, judge)
        ]
        found.append(own[0] if own else None)
    return found[0], found[1]


def _minus(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else minus(a, b)


def _sure(move: Interval | None) -> bool:
    return move is not None and (move.lo > 0.0 or move.hi < 0.0)


def _verdict(judge: Interval | None, application: Interval | None) -> str:
    who = [name for name, move in (("judge", judge), ("application", application)) if _sure(move)]
    return " and ".join(who) + " moved" if who else "no sure move"


def _evaluator(params: Mapping[str, Any]) -> str:
    name = str(params.get("evaluator") or "").partition("@")[0]
    if not name:
        raise ValueError("evaluator: name one")
    return name
