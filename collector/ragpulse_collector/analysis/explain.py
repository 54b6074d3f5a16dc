"""Finds what differs between selected requests of a chart and the rest."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.exemplars import MOST_ROWS, Key, Row, read
from ragpulse_collector.analysis.selection import Window, filter_of, instant, iso, window_of
from ragpulse_collector.refusals import Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.documents import retrievals, shared_documents
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg, fisher, two_proportion

LEAST = 5
"""The fewest selected requests with an attribute value."""
_SHOWN = 40
_TESTED = 16
"""How many findings are tested against earlier ones."""
_CHANCE = 0.05
_FEW = 100
"""Up to so many requests with a value its test is exact."""
Members = dict[Key, set[int]]


def members_of(store: Store, rows: Sequence[Row], chosen: set[int], window: Window) -> tuple[Members, int]:
    """Return the rows of each retriever, number of contexts and document: a request may have several of these.

    With the number of documents that were left out because fewer of the chosen rows have them.
    """
    ids = [row.trace_id for row in rows]
    members: Members = defaultdict(set)
    for index, name, n in retrievals(store, ids, window.parameters).rows:
        members["retriever", str(name)].add(index)
        if n is not None:
            members["contexts retrieved", str(n)].add(index)
    others = 0
    for doc, index, n in shared_documents(store, ids, sorted(chosen), window.parameters, least=LEAST).rows:
        members["document", doc].add(index)
        others = n
    return members, max(0, others - sum(1 for kind, _ in members if kind == "document"))


def compare_attributes(
    rows: Sequence[Row], chosen: set[int], shared: Members, *, without: str, left_out: int = 0
) -> list[dict[str, Any]]:
    """Compare every attribute of the chosen rows with the others, except `without`, which the metric itself counts.

    Values that few of the chosen rows have are not compared, but were looked at, like `left_out` more: they count.
    """
    members: Members = defaultdict(set, shared)
    for index, row in enumerate(rows):
        for key in row.attributes:
            members[key].add(index)
    sides = _Side.of(rows, chosen), _Side.of(rows, set(range(len(rows))) - chosen)
    looked_at = {key: owners for key, owners in members.items() if key[0] != without and len(owners) >= LEAST}
    findings = [
        {"attribute": key[0], "value": key[1], **_differs(rows, *sides, owners)}
        for key, owners in looked_at.items()
        if len(owners & chosen) >= LEAST
    ]
    by_chance = [1.0] * (len(looked_at) - len(findings) + left_out)
    adjusted = benjamini_hochberg([*(finding.pop("p") for finding in findings), *by_chance])
    for finding, p in zip(findings, adjusted, strict=False):
        finding["p_adjusted"] = p
    findings.sort(key=lambda finding: (finding["p_adjusted"] > _CHANCE, -_lift(finding), -finding["selected"]["share"]))
    _fold(
        [finding for finding in findings if finding["p_adjusted"] <= _CHANCE and _lift(finding) > 1][:_TESTED],
        rows,
        sides,
        members,
    )
    return [{"explained_by": None, **finding} for finding in findings[:_SHOWN]]


@dataclass(frozen=True, slots=True)
class _Side:
    """Some of the rows by index, with their sums in all and by user."""

    indexes: set[int]
    by_user: dict[int, float]
    """The weight of each user's rows."""
    zero: Moments
    """The sums for a share of 0."""

    @classmethod
    def of(cls, rows: Sequence[Row], indexes: set[int]) -> _Side:
        """Add up the weights of the rows."""
        weights, squares_by_user = _by_user(rows, indexes), _by_user(rows, indexes, power=2)
        w, ww = math.fsum(weights.values()), math.fsum(squares_by_user.values())
        squares = math.fsum(weight * weight for weight in weights.values())
        part = math.fsum(squares_by_user[user] / weight for user, weight in weights.items())
        heaviest = max((rows[index].weight for index in indexes), default=0.0)
        largest = max(weights.values(), default=0.0)
        none = Moments(len(indexes), len(weights), w, 0, 0, ww, squares, 0, 0, 0, part, heaviest, largest, 0, 0, 0)
        return cls(indexes, weights, none)

    def share(self, rows: Sequence[Row], inside: set[int]) -> tuple[float, float | None]:
        """Return the share of some of its rows, and the equivalent number of independent requests."""
        sums = _by_user(rows, inside)
        total = math.fsum(sums.values())
        pairs = [(weight, self.by_user[user]) for user, weight in sums.items()]
        moments = replace(
            self.zero, wy=total, wyy=total, cluster_ws=math.fsum(s * w for s, w in pairs),
            cluster_ss=math.fsum(s * s for s, _ in pairs), cluster_means=math.fsum(s * s / w for s, w in pairs),
            least=float(len(inside) == len(self.indexes)), most=float(bool(inside)),
        )  # fmt: skip
        return total / self.zero.w, moments.trials()


def _by_user(rows: Sequence[Row], indexes: Iterable[int], *, power: int = 1) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for index in indexes:
        sums[rows[index].cluster] += rows[index].weight ** power
    return sums


def _differs(rows: Sequence[Row], selected_side: _Side, other_side: _Side, owners: set[int]) -> dict[str, Any]:
    """Return the shares of an attribute on both sides, their ratio, and the p-value of the difference."""
    inside, outside = selected_side.indexes & owners, other_side.indexes & owners
    (share, size), (other_share, other_trials) = selected_side.share(rows, inside), other_side.share(rows, outside)
    p = 1.0
    if size is not None and other_trials is not None:
        p = _p_value(round(share * size), round(size), round(other_share * other_trials), round(other_trials))
    return {
        "selected": {"n": len(inside), "share": share},
        "baseline": {"n": len(outside), "share": other_share},
        "lift": share / other_share if other_share else None,
        "p": p,
    }


def _p_value(k1: int, n1: int, k2: int, n2: int) -> float:
    """Return the p-value of two shares: of few requests exact (Fisher), because the normal one is too small there."""
    test = two_proportion(k1, n1, k2, n2) if k1 + k2 > _FEW else fisher(k1, n1, k2, n2)
    return 1.0 if test is None or test.p is None else test.p


def _lift(finding: Mapping[str, Any]) -> float:
    return math.inf if finding["lift"] is None else float(finding["lift"])


def _fold(
    findings: Sequence[dict[str, Any]], rows: Sequence[Row], sides: tuple[_Side, _Side], members: Members
) -> None:
    """Mark findings that are no more common among the rows without an earlier attribute."""
    causes: list[tuple[Key, _Side, _Side]] = []
    for finding in findings:
        key = finding["attribute"], finding["value"]
        cause = next((cause for cause, a, b in causes if _by_chance(rows, a, b, members[key])), None)
        if cause:
            finding["explained_by"] = {"attribute": cause[0], "value": cause[1]}
        else:
            selected_side, other_side = (_Side.of(rows, side.indexes - members[key]) for side in sides)
            causes.append((key, selected_side, other_side))


def _by_chance(rows: Sequence[Row], selected_side: _Side, other_side: _Side, owners: set[int]) -> bool:
    if not other_side.indexes or len(selected_side.indexes & owners) < LEAST:
        return True
    difference = _differs(rows, selected_side, other_side, owners)
    return difference["p"] > _CHANCE or _lift(difference) <= 1


_COLUMNS, _ROWS = 60, 20
_DIP = 4.0
"""The excess of bad requests of a dip, in standard deviations."""


def explain(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET explain`: `metric`, `from`, `to`, the box `sel_from sel_to sel_lo sel_hi`, `bad`, filters.

    `bad` selects failing answers, failed requests, or the highest tenth of a number; without a box those of the worst
    period, if there is one (`dip`). Attributes are in order of lift, those that may be chance last; `explained_by`
    names an earlier attribute without which an attribute is not more common. Shares are weighted by 1/pi
    where the metric is sampled. p is that of a two-proportion test (of few requests Fisher's) on effective numbers, in
    which requests of one user are dependent and few users prove nothing; it is adjusted for all values that so many
    requests have that they could be found (Benjamini-Hochberg). Over 20,000 requests a random sample is read.
    """
    now = clock()
    window, filters = window_of({"width": _COLUMNS, **params}, now=now), filter_of(params, skip=("name",))
    metric = str(params.get("metric") or params.get("name") or "latency_p50")
    rows = read(store, metric, window, filters)
    bars, box = _bars(rows, window), dict(params)
    dip = _dip(bars) if params.get("bad") else None
    if dip and not any(params.get(edge) for edge in ("sel_from", "sel_to")):
        box |= {"sel_from": dip[0], "sel_to": dip[1]}
    inside = _box(box, now)
    selected = {index for index, row in enumerate(rows) if inside(row) and (row.bad or not params.get("bad"))}
    differ = bool(selected) and len(selected) < len(rows)
    members, left_out = members_of(store, rows, selected, window) if differ else ({}, 0)
    without = metric.partition("_")[0]
    return {
        "metric": metric,
        "n_selected": len(selected),
        "n_baseline": len(rows) - len(selected),
        "sampled": len(rows) >= MOST_ROWS,
        "dip": dip and {"from": dip[0], "to": dip[1]},
        "bars": [{"t": iso(start), "n": n, "bad": bad} for start, n, bad in bars],
        "heatmap": _heatmap(rows, window),
        "attributes": compare_attributes(rows, selected, members, without=without, left_out=left_out) if differ else [],
    }


def _bars(rows: Sequence[Row], window: Window) -> list[tuple[datetime, int, int]]:
    """Return start, requests and bad requests of each time bucket."""
    starts, counts = list(window.starts()), [[0, 0] for _ in window.starts()]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        count = counts[min(len(starts) - 1, max(0, (row.time - starts[0]) // step))]
        count[0] += 1
        count[1] += row.bad
    return [(start, n, bad) for start, (n, bad) in zip(starts, counts, strict=True)]


def _dip(bars: Sequence[tuple[datetime, int, int]]) -> tuple[str | None, str | None] | None:
    """Return the period whose bad requests exceed the overall share most surely, or None."""
    total, bad = sum(n for _, n, _ in bars), sum(n_bad for _, _, n_bad in bars)
    if len(bars) < 2 or not 0 < bad < total:
        return None
    share, best = bad / total, (_DIP, 0, 0)
    for first in range(len(bars)):
        n = more = 0
        for last in range(first, len(bars)):
            n, more = n + bars[last][1], more + bars[last][2]
            if 0 < n < total:
                surplus = (more - n * share) / math.sqrt(n * share * (1 - share) * (1 - n / total))
                best = max(best, (surplus, first, last + 1))
    _, first, last = best
    if not last:
        return None
    return iso(bars[first][0]), iso(bars[min(last, len(bars) - 1)][0] if last < len(bars) else _end(bars))


def _end(bars: Sequence[tuple[datetime, int, int]]) -> datetime:
    return bars[-1][0] + (bars[-1][0] - bars[-2][0])


def _box(params: Mapping[str, Any], now: datetime) -> Callable[[Row], bool]:
    first, last = (instant(params.get(name), now=now) for name in ("sel_from", "sel_to"))
    low, high = (_number(params, name) for name in ("sel_lo", "sel_hi"))

    def inside(row: Row) -> bool:
        in_time = (first is None or row.time >= first) and (last is None or row.time < last)
        return in_time and (low is None or row.value >= low) and (high is None or row.value <= high)

    return inside


def _number(params: Mapping[str, Any], name: str) -> float | None:
    value = params.get(name)
    if value in (None, ""):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Invalid(f"{name} must be a number, not {value!r}") from None


def _heatmap(rows: Sequence[Row], window: Window) -> dict[str, Any]:
    """Return counts per time bucket and value bin; the last bin also holds values above the 99th percentile."""
    starts = list(window.starts())
    if not rows:
        return {"x": [iso(start) for start in starts], "y": [], "cells": []}
    values = sorted(row.value for row in rows)
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.99))]
    width = (high - low) / _ROWS or 1.0
    cells = [[0] * _ROWS for _ in starts]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        x = min(len(starts) - 1, max(0, (row.time - starts[0]) // step))
        cells[x][min(_ROWS - 1, max(0, int((row.value - low) / width)))] += 1
    return {"x": [iso(start) for start in starts], "y": [low + width * index for index in range(_ROWS)], "cells": cells}
