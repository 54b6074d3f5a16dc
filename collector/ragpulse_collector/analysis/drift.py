"""Was it the application or the judge? A frozen set of judged answers, judged again, tells how far the judge moved.

live move = live score now - live score when frozen        judge's move = mean(again - frozen) over the anchors
application's move = live move - judge's move
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.cases import Unit, cases_of
from ragpulse_collector.analysis.filters import Filter, filter_of
from ragpulse_collector.analysis.quality import current, estimates, point
from ragpulse_collector.analysis.window import Window, instant, iso, window_of
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Estimate, clustered_mean, wilson
from ragpulse_evaluators.statistics.distributions import student_quantile

__all__ = ["Anchor", "Anchors", "Check", "choose", "drift", "frozen", "keep_anchors", "keep_check", "watched"]

_MOST = 500
_ANCHORS, _CHECK = "anchors/", "drift/"
"""Keys of `raw.meta`, whose rows no retention deletes: anchors outlive their traces."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One judged answer as it was seen, with its verdict (0..1) and the chance with which it was drawn."""

    trace_id: str
    span_id: str
    case: dict[str, Any]
    value: float
    pi: float


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
        f"SELECT trace_id, span_id, request_time, normalized, pi FROM ({sample.sql}) s WHERE pi IS NOT NULL"
        " AND status = 'ok' AND normalized IS NOT NULL AND version = $line_version"
        " AND judge IS NOT DISTINCT FROM $line_judge ORDER BY md5(trace_id::VARCHAR || span_id::VARCHAR) LIMIT $wanted",
        {**sample.parameters, "line_version": line[0], "line_judge": line[1], "wanted": wanted},
    ).rows
    units = [Unit(trace.hex, f"{span:016x}", at) for trace, span, at, _, _ in rows]
    cases = cases_of(store, units)
    return [
        Anchor(unit.trace_id, unit.span_id, cases[unit].model_dump(mode="json"), value, pi)
        for unit, (_, _, _, value, pi) in zip(units, rows, strict=True)
        if unit in cases
    ]


def keep_anchors(tx: Transaction, anchors: Anchors) -> None:
    """Append a frozen set; the newest of an evaluator counts."""
    tx.append("meta", ("key", "value"), [(_ANCHORS + anchors.evaluator, json.dumps(asdict(anchors)))])


def keep_check(tx: Transaction, check: Check) -> None:
    """Append what judging the anchors again has found."""
    tx.append("meta", ("key", "value"), [(_CHECK + check.evaluator, json.dumps(asdict(check)))])


def frozen(store: Store, evaluator: str) -> Anchors:
    """Return the frozen set of an evaluator; raises LookupError where there is none."""
    found = _latest(store, _ANCHORS + evaluator, "frozen_at")
    if not found:
        raise LookupError(f"{evaluator} has no frozen set: POST drift/anchors chooses one")
    return Anchors(**{**found[0], "anchors": tuple(Anchor(**one) for one in found[0]["anchors"])})


def _latest(store: Store, key: str, by: str) -> list[dict[str, Any]]:
    rows = store.read("SELECT value FROM raw.meta WHERE key = $key", {"key": key}).rows
    return sorted((json.loads(value) for (value,) in rows), key=lambda one: str(one[by]), reverse=True)


def drift(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET drift`: the frozen set of `evaluator`, every check of it, and whose the last move is.

    The live score of the last `back` (default 7d, never before the freezing) is compared with that of as long before
    the freezing. Moves have 95 % intervals; `verdict` says whose move is sure. Raises LookupError without a set.
    """
    now, anchors = clock(), frozen(store, _evaluator(params))
    checks = [one for one in _checks(store, anchors.evaluator) if one.frozen_at == anchors.frozen_at]
    told: dict[str, Any] = {
        "evaluator": anchors.evaluator,
        "version": anchors.version,
        "judge": anchors.judge,
        "frozen_at": anchors.frozen_at,
        "n": len(anchors.anchors),
        "checks": [_told(anchors, check) for check in checks],
    }
    if not checks:
        unknown = {"live": None, "application": None, "judge_share": None}
        return told | unknown | {"verdict": "not checked yet", "state": "undecided"}
    before, after = _live(store, anchors, checks[0], params, now)
    live, judge = _difference(after, before), told["checks"][0]["judge_move"]
    application = _minus(live, judge)
    share = judge["value"] / live["value"] if judge and live and _sure(live) else None
    return told | {
        "live": {"before": point(before), "after": point(after), "move": live},
        "application": application,
        "judge_share": share,
        "verdict": _verdict(judge, application),
        "state": "undecided" if judge is None else "firing" if _sure(judge) else "ok",
    }


def watched(store: Store) -> list[str]:
    """Return the evaluators that have a frozen set, by name."""
    sql = "SELECT DISTINCT key FROM raw.meta WHERE starts_with(key, $prefix) ORDER BY key"
    return [str(key).removeprefix(_ANCHORS) for (key,) in store.read(sql, {"prefix": _ANCHORS}).rows]


def _checks(store: Store, evaluator: str) -> list[Check]:
    return [Check(**{**one, "values": tuple(one["values"])}) for one in _latest(store, _CHECK + evaluator, "at")]


def _told(anchors: Anchors, check: Check) -> dict[str, Any]:
    same = (check.version, check.judge) == (anchors.version, anchors.judge)
    return {
        "at": check.at,
        "version": check.version,
        "judge": check.judge,
        "same_version_and_judge": same,
        "judge_move": _judge_move(anchors, check),
        "failed": sum(value is None for value in check.values),
        "cost_usd": check.cost_usd,
    }


def _judge_move(anchors: Anchors, check: Check) -> dict[str, Any] | None:
    """The paired difference, weighted like the live score; where nothing changed, what a change could still hide."""
    pairs = [(one, again) for one, again in zip(anchors.anchors, check.values, strict=True) if again is not None]
    if len(pairs) < 2:
        return None
    differences = [again - one.value for one, again in pairs]
    changed = sum(difference != 0.0 for difference in differences)
    arm = clustered_mean(differences, [one.trace_id for one, _ in pairs], pi=[one.pi for one, _ in pairs])
    hidden = wilson(0, len(pairs))
    assert arm is not None
    assert hidden is not None
    half = student_quantile(0.975, len(pairs) - 1) * arm.se if arm.se else hidden.hi or 0.0
    return {**_around(arm.estimate, half), "n": len(pairs), "changed": changed}


def _around(value: float, half: float) -> dict[str, Any]:
    return {"value": value, "lo": max(-1.0, value - half), "hi": min(1.0, value + half)}


def _live(
    store: Store, anchors: Anchors, check: Check, params: Mapping[str, Any], now: datetime
) -> tuple[Estimate | None, Estimate | None]:
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
        found.append(own[0].estimate if own else None)
    return found[0], found[1]


def _difference(after: Estimate | None, before: Estimate | None) -> dict[str, Any] | None:
    if after is None or before is None:
        return None
    return _minus(point(after), point(before))


def _minus(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """a - b with the interval that their own intervals give (MOVER, Zou & Donner 2008)."""
    if a is None or b is None or None in (a["lo"], a["hi"], b["lo"], b["hi"]):
        return None
    value = a["value"] - b["value"]
    down = math.hypot(a["value"] - a["lo"], b["hi"] - b["value"])
    up = math.hypot(a["hi"] - a["value"], b["value"] - b["lo"])
    return {"value": value, "lo": value - down, "hi": value + up}


def _sure(move: Mapping[str, Any] | None) -> bool:
    return move is not None and (move["lo"] > 0.0 or move["hi"] < 0.0)


def _verdict(judge: Mapping[str, Any] | None, application: Mapping[str, Any] | None) -> str:
    who = [name for name, move in (("judge", judge), ("application", application)) if _sure(move)]
    return " and ".join(who) + " moved" if who else "no sure move"


def _evaluator(params: Mapping[str, Any]) -> str:
    name = str(params.get("evaluator") or "").partition("@")[0]
    if not name:
        raise ValueError("evaluator: name one")
    return name
