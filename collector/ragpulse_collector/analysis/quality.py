"""An evaluator's estimates by group and bucket: what the series, the headline, the gate and the monitors read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ragpulse_collector.analysis.filters import Filter
from ragpulse_collector.analysis.window import Window, iso
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import MOMENTS
from ragpulse_collector.store.queries.decisions import dropped
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import facts_of
from ragpulse_evaluators.statistics import Estimate, Moments

__all__ = [
    "Bucket",
    "current",
    "estimates",
    "joined",
    "point",
    "version_markers",
]


def point(estimate: Estimate | None) -> dict[str, Any]:
    """The figures of an estimate as the API shows them; all null where nothing was measured."""
    if estimate is None:
        return {"value": None, "lo": None, "hi": None, "n": 0, "n_eff": 0.0, "thin": False}
    return {
        "value": estimate.estimate,
        "lo": estimate.lo,
        "hi": estimate.hi,
        "n": estimate.n,
        "n_eff": round(estimate.n_eff, 9),
        "thin": estimate.thin,
    }


_INVALID_SHARE = 0.05
"""Above this share of unreadable or failed verdicts a bucket shows bounds: long contexts fail more often."""
_FAILURES = ("skipped", "invalid", "error")
_SUMS = (
    "min(request_time), max(request_time), count(*), sum(1 / pi), coalesce(sum(CASE WHEN passing THEN 1 / pi END), 0),"
    " coalesce(sum(CASE WHEN passing IS NOT NULL THEN 1 / pi END), 0)"
)
"""Beside the moments, of the verdicts of one status: a key of the grouping costs a fifth of as many FILTERs."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """What one version of an evaluator says about one group in one bucket of request time."""

    evaluator: str
    group: tuple[Any, ...]
    version: str | None
    judge: str | None
    at: datetime
    moments: Moments | None
    """None where no verdict could be read."""
    counts: dict[str, int]
    """Verdicts that are no number: skipped, invalid, error."""
    online: dict[str, int]
    """Verdicts by status without those of replays."""
    missing: float
    """What the unreadable and failed ones weigh."""
    dropped: int
    """Selected units that a cap left out ..."""
    dropped_weight: float
    """... and what they weigh."""
    first: datetime | None
    """The earliest request with an online verdict ..."""
    last: datetime
    """... and the latest of all."""
    passed: float
    """What passing answers weigh ..."""
    called: float
    """... of those that the evaluator calls passing or not."""
    bounded: bool
    """Whether the measure lies in 0..1."""

    @cached_property
    def estimate(self) -> Estimate | None:
        """The mean and its interval; None where no verdict could be read."""
        return self.moments.estimate(bounds=(0.0, 1.0) if self.bounded else None) if self.moments else None

    @property
    def passing_rate(self) -> float | None:
        """The weighted share that passes, where the evaluator says what passing is."""
        return self.passed / self.called if self.called else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Where much is missing: the value if all of it failed, and if all of it passed."""
        failed = self.counts["invalid"] + self.counts["error"]
        n = self.moments.n if self.moments else 0
        away = self.missing + self.dropped_weight
        hatched = self.dropped > 0 or failed > _INVALID_SHARE * (n + failed)
        if not (hatched and self.bounded and away):
            return None
        wy, w = (self.moments.wy, self.moments.w) if self.moments else (0.0, 0.0)
        return wy / (w + away), (wy + away) / (w + away)

    def point(self) -> dict[str, Any]:
        """The point as the API shows it, without its time."""
        bounds = None if self.bounds is None else list(self.bounds)
        return point(self.estimate) | {"counts": self.counts, "dropped": self.dropped, "bounds": bounds}


def joined(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Return one bucket per evaluator, version, judge and group: what the whole range says, from its parts."""
    lines: dict[tuple[Any, ...], list[Bucket]] = {}
    for one in buckets:
        lines.setdefault((one.evaluator, one.version, one.judge, one.group), []).append(one)
    return [_joined(line) for line in lines.values()]


def _joined(line: Sequence[Bucket]) -> Bucket:
    return Bucket(
        evaluator=line[0].evaluator,
        group=line[0].group,
        version=line[0].version,
        judge=line[0].judge,
        at=min(one.at for one in line),
        moments=Moments.joined(one.moments for one in line if one.moments is not None),
        counts=_added(one.counts for one in line),
        online=_added(one.online for one in line),
        missing=sum(one.missing for one in line),
        dropped=sum(one.dropped for one in line),
        dropped_weight=sum(one.dropped_weight for one in line),
        first=min((one.first for one in line if one.first is not None), default=None),
        last=max(one.last for one in line),
        passed=sum(one.passed for one in line),
        called=sum(one.called for one in line),
        bounded=line[0].bounded,
    )


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in parts:
        total.update(one)
    return {**dict.fromkeys(_FAILURES, 0), **total}


def estimates(
    store: Store,
    evaluator: str | None,
    window: Window,
    keep: Filter,
    *,
    groups: tuple[str, ...] = (),
    family: str = "quality",
) -> list[Bucket]:
    """Estimate `quality` (normalized), `score` (native) or `pass_rate` per group, version, judge and bucket.

    For one evaluator, or for all of them (None) in one pass.
    """
    sample = sample_of(store, evaluator, window.parameters, keep, columns=groups)
    y = f"(CASE WHEN status = 'ok' THEN {MEASURES[family]} END)"
    keys = f"evaluator, {window.bucket('request_time')} AS t{''.join(f', {group}' for group in groups)}, version, judge"
    rows = store.read(
        f"SELECT {keys}, source, status, {_SUMS}, {MOMENTS.format(y=y)}"
        f" FROM ({sample.sql}) WHERE pi IS NOT NULL GROUP BY ALL",
        sample.parameters,
    ).rows
    lost = _dropped(store, evaluator, window, keep, groups)
    lines: dict[tuple[Any, ...], list[_Part]] = {}
    place = 4 + len(groups)
    for row in rows:
        moments = Moments.of(row[place + 8 :])
        lines.setdefault(row[:place], []).append(_Part(*[*row[place : place + 8], moments]))
    found = [_bucket(key, parts, lost.get(key[:-2], (0, 0.0)), family != "score") for key, parts in lines.items()]
    return sorted(found, key=lambda one: (one.evaluator, one.at, str(one.group), one.last, str(one.version)))


def current(buckets: Iterable[Bucket]) -> Bucket | None:
    """The bucket of the version in force: the one with the latest request, the larger of equals."""
    measured = [one for one in buckets if one.moments is not None]
    return max(measured, key=lambda one: (one.last, one.moments.n if one.moments else 0), default=None)


@dataclass(frozen=True, slots=True)
class _Part:
    """The verdicts of one source and status in a bucket."""

    source: str
    status: str
    first: datetime
    last: datetime
    n: int
    weight: float
    passed: float
    called: float
    moments: Moments | None


def _bucket(key: tuple[Any, ...], parts: Sequence[_Part], lost: tuple[int, float], bounded: bool) -> Bucket:
    evaluator, at, *group, version, judge = key
    answers = [one for one in parts if one.status == "ok"]
    return Bucket(
        evaluator=evaluator,
        group=tuple(group),
        version=version,
        judge=judge,
        at=at,
        moments=Moments.joined(one.moments for one in answers if one.moments is not None),
        counts=_added({one.status: one.n} for one in parts if one.status in _FAILURES),
        online=_added({one.status: one.n} for one in parts if one.source == "online"),
        missing=sum(one.weight for one in parts if one.status in ("invalid", "error")),
        dropped=lost[0],
        dropped_weight=lost[1],
        first=min((one.first for one in answers if one.source == "online"), default=None),
        last=max(one.last for one in parts),
        passed=sum(one.passed for one in answers),
        called=sum(one.called for one in answers),
        bounded=bounded,
    )


def _dropped(
    store: Store, evaluator: str | None, window: Window, keep: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[int, float]]:
    """Selected units that a cap left out, by evaluator, bucket and group: how many, and what they weigh."""
    left_out = dropped(evaluator)
    parameters = {**({} if evaluator is None else {"evaluator": evaluator}), **window.parameters}
    if not store.read(f"SELECT 1 FROM ({left_out}) LIMIT 1", parameters).rows:
        return {}
    rows = store.read(
        f"SELECT d.evaluator, {window.bucket('d.request_time')} AS t{''.join(f', t.{group}' for group in groups)},"
        f" count(*), sum(1 / d.pi) FROM ({left_out}) d"
        f" JOIN ({facts_of(keep, (*groups, 'upstream_pi'))}) t ON t.trace_id = d.trace_id"
        # Pacing leaves out units whose u lies above pi: they were never selected. A cap drops selected ones.
        " WHERE d.u * coalesce(t.upstream_pi, 1) < d.pi GROUP BY ALL",
        {**parameters, **keep.parameters},
    ).rows
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows if row[-2]}


_MOST_MARKERS = 50


def version_markers(evaluator: str, buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """The same for the versions and judges of an evaluator, from its buckets: online verdicts only, the first apart."""
    began: dict[tuple[str | None, str | None], datetime] = {}
    for one in buckets:
        if one.first is not None:
            line = (one.version, one.judge)
            began[line] = min(began.get(line, one.first), one.first)
    ordered = sorted(began.items(), key=lambda item: item[1])[1 : _MOST_MARKERS + 1]
    return [
        {"t": iso(at), "kind": "version", "text": f"{evaluator} {version}{f' judged by {judge}' if judge else ''}"}
        for (version, judge), at in ordered
    ]
