"""Did the application move or the judge? A frozen set of judged answers, judged again, shows the judge's move.

live move = live score now - live score when frozen        judge's move = mean(again - frozen) over the anchors
application's move = live move - judge's move
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from pydantic import TypeAdapter

from ragpulse_collector.analysis.answers import extended
from ragpulse_collector.analysis.quality import Bucket, Figures, current, estimates
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, iso
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import Store, Transaction
from ragpulse_collector.store.protocol import Read
from ragpulse_collector.store.queries.datasets import ANCHORS, CHECKS, keep, kept, kept_under, rewrite
from ragpulse_collector.store.queries.scores import sample_of
from ragpulse_collector.units.cases import Unit, cases_of
from ragpulse_evaluators import Case
from ragpulse_evaluators.statistics import Interval, hajek, minus

_MAX_ANCHORS, _MIN_ANCHORS, _DEFAULT_ANCHORS = 500, 10, 50
BACK = timedelta(days=7)
"""The range of the live score."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One judged answer with its verdict (0..1) and its inclusion probability."""

    trace_id: str
    span_id: str
    case: Case
    value: float
    pi: float
    user: str | None = None
    """The user, else the session; None in sets of older versions."""


@dataclass(frozen=True, slots=True)
class AnchorSet:
    """The frozen answers of one evaluator."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: str
    anchors: tuple[Anchor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The anchors judged again: one value per anchor, None without a verdict. Rows of older versions may lack some."""

    evaluator: str
    version: str = ""
    judge: str | None = None
    frozen_at: str
    """Names the frozen set."""
    at: str
    values: tuple[float | None, ...]
    cost_usd: float | None = None


_SETS, _CHECKS = TypeAdapter(AnchorSet), TypeAdapter(Recheck)


def draw_anchors(store: Store, query: Query, evaluator: str, *, n: int | None = None) -> AnchorSet:
    """Draw up to `n` (default 50) judged units of an evaluator at random.

    Of several versions and judges the latest is used. Raises NotFound where fewer than 10 units exist.
    """
    evaluator, limit = evaluator.partition("@")[0], min(_MAX_ANCHORS, max(_MIN_ANCHORS, n or _DEFAULT_ANCHORS))
    store = query.reader(store)
    bucket = current(estimates(store, evaluator, query.window, query.filters))
    anchors = [] if bucket is None else _draw(store, query, bucket, limit)
    if bucket is None or len(anchors) < _MIN_ANCHORS:
        raise NotFound(f"{evaluator} has {len(anchors)} verdicts in this window; a frozen set needs at least 10")
    return AnchorSet(evaluator, bucket.version or "", bucket.judge, iso(query.now) or "", tuple(anchors))


def _draw(store: Store, query: Query, bucket: Bucket, limit: int) -> list[Anchor]:
    sample = sample_of(store, bucket.evaluator, query.window.parameters, query.filters)
    rows = store.read(
        f"SELECT trace_id, span_id, request_time, normalized, pi, cluster FROM ({sample.sql}) s WHERE pi IS NOT NULL"
        " AND status = 'ok' AND normalized IS NOT NULL AND version = $line_version"
        " AND judge IS NOT DISTINCT FROM $line_judge ORDER BY md5(trace_id::VARCHAR || span_id::VARCHAR) LIMIT $wanted",
        {**sample.parameters, "line_version": bucket.version, "line_judge": bucket.judge, "wanted": limit},
    ).rows
    units = [Unit(trace.hex, f"{span:016x}", time) for trace, span, time, *_ in rows]
    cases = cases_of(store, units)
    return [
        Anchor(unit.trace_id, unit.span_id, cases[unit], value, pi, str(user))
        for unit, (_, _, _, value, pi, user) in zip(units, rows, strict=True)
        if unit in cases
    ]


def store_anchors(tx: Transaction, anchors: AnchorSet) -> None:
    """Append a frozen set; the newest set of an evaluator counts."""
    keep(tx, ANCHORS + anchors.evaluator, _SETS.dump_json(anchors).decode())


def store_check(tx: Transaction, check: Recheck) -> None:
    """Append the result of judging the anchors again."""
    keep(tx, CHECKS + check.evaluator, _CHECKS.dump_json(check).decode())


def forget_anchors(tx: Transaction, trace_ids: Sequence[str]) -> int:
    """Remove the answers of these traces from every frozen set and its checks; returns how many."""
    forgotten, removed = set(trace_ids), 0
    for evaluator in kept_under(tx.execute, ANCHORS):
        remaining: dict[str, Sequence[int]] = {}
        for stored in _sets(tx.execute, evaluator):
            indexes = [number for number, each in enumerate(stored.anchors) if each.trace_id not in forgotten]
            if len(indexes) < len(stored.anchors):
                remaining[stored.frozen_at] = indexes
                removed += len(stored.anchors) - len(indexes)
        if remaining:
            rewrite(tx, ANCHORS + evaluator, partial(_set_of, remaining))
            rewrite(tx, CHECKS + evaluator, partial(_check_of, remaining))
    return removed


def _set_of(remaining: Mapping[str, Sequence[int]], text: str) -> str:
    """Return a frozen set with only the anchors that remain."""
    stored = _SETS.validate_json(text)
    indexes = remaining.get(stored.frozen_at, range(len(stored.anchors)))
    changed = replace(stored, anchors=tuple(stored.anchors[index] for index in indexes))
    return _SETS.dump_json(changed).decode()


def _check_of(remaining: Mapping[str, Sequence[int]], text: str) -> str:
    """Return a check with only the values of the anchors that remain."""
    stored = _CHECKS.validate_json(text)
    indexes = remaining.get(stored.frozen_at, range(len(stored.values)))
    changed = replace(stored, values=tuple(stored.values[index] for index in indexes))
    return _CHECKS.dump_json(changed).decode()


def _sets(read: Read, evaluator: str) -> list[AnchorSet]:
    return [_SETS.validate_json(text) for text in kept(read, ANCHORS + evaluator)]


def load_anchors(store: Store, evaluator: str) -> AnchorSet:
    """Return the frozen set of an evaluator; raises NotFound where there is none."""
    sets = _sets(store.read, evaluator)
    if not sets:
        raise NotFound(f"{evaluator} has no frozen set: POST drift/anchors draws it")
    return max(sets, key=lambda stored: stored.frozen_at)


def anchored_evaluators(store: Store) -> list[str]:
    """Return the evaluators that have a frozen set, by name."""
    return kept_under(store.read, ANCHORS)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMove(Interval):
    """How far a judge moved on the anchors."""

    n: int
    """Anchors with a verdict again."""
    changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """One time that the anchors were judged again."""

    at: datetime
    version: str
    judge: str | None
    same_version_and_judge: bool
    judge_move: JudgeMove | None
    failed: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class LiveMove:
    """The live score before the freezing and now."""

    before: Figures
    after: Figures
    move: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Whether a judge moved on its stored answers, and whether the application did."""

    evaluator: str
    version: str
    judge: str | None
    frozen_at: datetime
    n: int
    checks: Sequence[CheckReport]
    """The newest first."""
    live: LiveMove | None = None
    application: Interval | None = None
    judge_share: float | None = None
    verdict: str = "not checked yet"
    state: Literal["ok", "firing", "undecided"] = "undecided"
    next_check: datetime | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """The reports of all evaluators with stored answers."""

    watched: Sequence[DriftReport]
    every: str | None


def drift(store: Store, query: Query, evaluator: str, *, back: timedelta = BACK) -> DriftReport:
    """Answer `GET drift`: the frozen set of an evaluator, its checks, and the parts of the last move.

    The live score of the last `back` (never before the freezing) is compared with an equal range before the freezing.
    Moves have 95 % intervals; `verdict` names the sure moves. Raises NotFound without a set.
    """
    anchors = load_anchors(store, evaluator.partition("@")[0])
    checks = [check for check in _checks(store, anchors.evaluator) if check.frozen_at == anchors.frozen_at]
    report = DriftReport(
        evaluator=anchors.evaluator,
        version=anchors.version,
        judge=anchors.judge,
        frozen_at=_time(anchors.frozen_at),
        n=len(anchors.anchors),
        checks=[_report(anchors, check) for check in checks],
    )
    if not checks:
        return report
    before, after = _live(query.reader(store), anchors, checks[0], query, back)
    live = _minus(*(bucket.interval if bucket else None for bucket in (after, before)))
    judge = report.checks[0].judge_move
    application = _minus(live, judge)
    return replace(
        report,
        live=LiveMove(_figures(before), _figures(after), live),
        application=application,
        judge_share=judge.value / live.value if judge and live and _is_sure(live) else None,
        verdict=_verdict(judge, application),
        state="undecided" if judge is None else "firing" if _is_sure(judge) else "ok",
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z"))


def _figures(bucket: Bucket | None) -> Figures:
    return Figures.of(bucket.estimate if bucket else None, identified=bucket.identified if bucket else 0)


def _checks(store: Store, evaluator: str) -> list[Recheck]:
    stored = map(_CHECKS.validate_json, kept(store.read, CHECKS + evaluator))
    return sorted(stored, key=lambda check: check.at, reverse=True)


def _report(anchors: AnchorSet, check: Recheck) -> CheckReport:
    return CheckReport(
        at=_time(check.at),
        version=check.version,
        judge=check.judge,
        same_version_and_judge=(check.version, check.judge) == (anchors.version, anchors.judge),
        judge_move=_judge_move(anchors, check),
        failed=sum(value is None for value in check.values),
        cost_usd=check.cost_usd,
    )


def _judge_move(anchors: AnchorSet, check: Recheck) -> JudgeMove | None:
    """Return the paired difference, weighted like the live score."""
    judged = zip(anchors.anchors, check.values, strict=True)
    pairs = [(anchor, score) for anchor, score in judged if score is not None]
    estimate = hajek(
        [score - anchor.value for anchor, score in pairs],
        [anchor.pi for anchor, _ in pairs],
        clusters=[anchor.user or anchor.trace_id for anchor, _ in pairs],
        bounds=(-1.0, 1.0),
    )
    move = Interval.of(estimate) if len(pairs) > 1 else None
    changed = sum(score != anchor.value for anchor, score in pairs)
    return None if move is None else extended(JudgeMove, move, n=len(pairs), changed=changed)


def _live(
    store: Store, anchors: AnchorSet, check: Recheck, query: Query, back: timedelta
) -> tuple[Bucket | None, Bucket | None]:
    frozen_at, now = _time(anchors.frozen_at), query.now
    before = Window(frozen_at - back, frozen_at, 0)
    after = Window(min(max(now - back, frozen_at), now), now, 0)

    def bucket_of(window: Window, version: str, judge: str | None) -> Bucket | None:
        buckets = estimates(store, anchors.evaluator, window, query.filters)
        return next((bucket for bucket in buckets if bucket.series == (version, judge)), None)

    return bucket_of(before, anchors.version, anchors.judge), bucket_of(after, check.version, check.judge)


def _minus(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else minus(a, b)


def _is_sure(move: Interval | None) -> bool:
    return move is not None and (move.lo > 0.0 or move.hi < 0.0)


def _verdict(judge: Interval | None, application: Interval | None) -> str:
    movers = [name for name, move in (("judge", judge), ("application", application)) if _is_sure(move)]
    return " and ".join(movers) + " moved" if movers else "no sure move"
