"""An evaluator's estimates by group and bucket: what the series, the headline, the gate and the monitors all read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.estimate import MOMENTS, Moments, point
from ragpulse_collector.metrics.filters import Filter
from ragpulse_collector.metrics.units import MEASURES, sample_of
from ragpulse_collector.metrics.window import Window
from ragpulse_collector.store import Store
from ragpulse_evaluators.statistics import Estimate

__all__ = ["Bucket", "current", "estimates", "evaluators_in"]

_INVALID_SHARE = 0.05
"""Above this share of unreadable or failed verdicts a bucket shows bounds: long contexts fail more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What one version of an evaluator says about one group in one bucket of request time."""

    group: tuple[Any, ...]
    version: str | None
    judge: str | None
    at: datetime
    estimate: Estimate | None
    """None where no verdict could be read."""
    counts: dict[str, int]
    """Verdicts that are no number: skipped, invalid, error."""
    dropped: int
    """Selected units that a cap left out."""
    bounds: tuple[float, float] | None
    """Where much is missing: the value if all of it failed, and if all of it passed."""
    last: datetime
    """The latest request in it."""
    passing_rate: float | None
    """The weighted share that passes, where the evaluator says what passing is."""

    def point(self) -> dict[str, Any]:
        """The point as the API shows it, without its time."""
        bounds = None if self.bounds is None else list(self.bounds)
        return point(self.estimate) | {"counts": self.counts, "dropped": self.dropped, "bounds": bounds}


def estimates(
    store: Store,
    evaluator: str,
    window: Window,
    keep: Filter,
    *,
    groups: tuple[str, ...] = (),
    family: str = "quality",
) -> list[Bucket]:
    """Estimate `quality` (normalized), `score` (native) or `pass_rate` per group, version, judge and bucket."""
    sample = sample_of(store, evaluator, window, keep, columns=groups)
    y = f"(CASE WHEN status = 'ok' THEN {MEASURES[family]} END)"
    rows = store.read(
        f"SELECT version, judge, {window.bucket('request_time')} AS t, max(request_time), {MOMENTS.format(y=y)},"
        " count(*) FILTER (status = 'skipped'), count(*) FILTER (status = 'invalid'),"
        " count(*) FILTER (status = 'error'),"
        " coalesce(sum(1 / pi) FILTER (status IN ('invalid', 'error')), 0),"
        " sum(passing::INTEGER / pi) FILTER (status = 'ok')"
        " / sum(1 / pi) FILTER (status = 'ok' AND passing IS NOT NULL)"
        f"{''.join(f', {group}' for group in groups)}"
        f" FROM ({sample.sql}) WHERE pi IS NOT NULL GROUP BY ALL",
        sample.parameters,
    ).rows
    lost = _dropped(store, evaluator, window, keep, groups)
    bounded = family != "score"
    found = [_bucket(row, lost.get((row[2], *row[19:]), (0, 0.0)), bounded=bounded) for row in rows]
    return sorted(found, key=lambda one: (one.at, str(one.group), one.last, str(one.version)))


def current(buckets: Sequence[Bucket]) -> Bucket | None:
    """The bucket of the version in force: the one with the latest request, the larger of equals."""
    measured = [one for one in buckets if one.estimate is not None]
    return max(measured, key=lambda one: (one.last, one.estimate.n if one.estimate else 0), default=None)


def evaluators_in(store: Store, window: Window) -> list[str]:
    """The evaluators that gave a verdict in the window, by name."""
    rows = store.read(
        "SELECT DISTINCT evaluator FROM raw.scores WHERE source IN ('online', 'replay')"
        " AND request_time >= $first AND request_time < $last ORDER BY 1",
        window.parameters,
    ).rows
    return [name for (name,) in rows]


def _bucket(row: Sequence[Any], lost: tuple[int, float], *, bounded: bool) -> Bucket:
    version, judge, at, last = row[:4]
    moments = Moments.of(row[4:14])
    skipped, invalid, error, missing = row[14:18]
    n = moments.n if moments else 0
    hatched = lost[0] > 0 or invalid + error > _INVALID_SHARE * (n + invalid + error)
    away = missing + lost[1]
    bounds = None
    if hatched and bounded and away:
        wy, w = (moments.wy, moments.w) if moments else (0.0, 0.0)
        bounds = (wy / (w + away), (wy + away) / (w + away))
    return Bucket(
        group=tuple(row[19:]),
        version=version,
        judge=judge,
        at=at,
        estimate=moments.estimate(bounds=(0.0, 1.0) if bounded else None) if moments else None,
        counts={"skipped": skipped, "invalid": invalid, "error": error},
        dropped=lost[0],
        bounds=bounds,
        last=last,
        passing_rate=row[18],
    )


def _dropped(
    store: Store, evaluator: str, window: Window, keep: Filter, groups: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[int, float]]:
    """Selected units that a cap left out, by bucket and group: how many, and what they weigh."""
    left_out = (
        "raw.decisions d WHERE d.latest AND d.evaluator = $evaluator AND d.reason = 'budget' AND NOT d.sampled"
        " AND d.pi > 0 AND d.request_time >= $first AND d.request_time < $last"
    )
    parameters = {"evaluator": evaluator, **window.parameters}
    if not store.read(f"SELECT 1 FROM {left_out} LIMIT 1", parameters).rows:
        return {}
    rows = store.read(
        f"SELECT {window.bucket('d.request_time')} AS t{''.join(f', t.{group}' for group in groups)}, count(*),"
        f" sum(1 / d.pi) FROM (SELECT * FROM {left_out}) d"
        f" JOIN (SELECT * FROM raw.trace_facts WHERE latest AND {keep.sql}) t ON t.trace_id = d.trace_id"
        # Pacing leaves out units whose u lies above pi: they were never selected. A cap drops selected ones.
        " WHERE d.u * coalesce(t.upstream_pi, 1) < d.pi GROUP BY ALL",
        {**parameters, **keep.parameters},
    ).rows
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows if row[-2]}
