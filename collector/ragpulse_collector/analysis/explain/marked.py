"""What differs between a marked stretch of a chart and the rest."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.explain.requests import MOST_ROWS, Key, Row, read
from ragpulse_collector.analysis.selection import Window, filter_of, instant, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import retrievals, shared_documents
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg, two_proportion

__all__ = ["Members", "compared", "explain", "held_of"]

LEAST = 5
"""An attribute value seen fewer times than this among the selected is noise."""
_SHOWN = 40
_TESTED = 16
"""Findings that are looked at for whether an earlier one explains them."""
_CHANCE = 0.05
Members = dict[Key, set[int]]


def held_of(store: Store, rows: Sequence[Row], chosen: set[int], window: Window) -> Members:
    """What a request may have several of, with the rows that have it: retrievers, how much they found, documents."""
    ids = [row.trace_id for row in rows]
    found: Members = defaultdict(set)
    for place, name, n in retrievals(store, ids, window.parameters).rows:
        found["retriever", str(name)].add(place)
        if n is not None:
            found["contexts retrieved", str(n)].add(place)
    for doc, place in shared_documents(store, ids, sorted(chosen), window.parameters, least=LEAST).rows:
        found["document", doc].add(place)
    return found


def compared(rows: Sequence[Row], chosen: set[int], held: Members, *, without: str) -> list[dict[str, Any]]:
    """Every attribute of the chosen rows against the others; `without` is the one that the metric itself counts."""
    members: Members = defaultdict(set, held)
    for at, row in enumerate(rows):
        for key in row.attributes:
            members[key].add(at)
    sides = _Side.of(rows, chosen), _Side.of(rows, set(range(len(rows))) - chosen)
    found = [
        {"attribute": key[0], "value": key[1], **_differs(rows, *sides, having)}
        for key, having in members.items()
        if key[0] != without and len(having & chosen) >= LEAST
    ]
    for one, adjusted in zip(found, benjamini_hochberg([one.pop("p") for one in found]), strict=True):
        one["p_adjusted"] = adjusted
    found.sort(key=lambda one: (one["p_adjusted"] > _CHANCE, -_lift(one), -one["selected"]["share"]))
    _fold([one for one in found if one["p_adjusted"] <= _CHANCE and _lift(one) > 1][:_TESTED], rows, sides, members)
    return [{"explained_by": None, **one} for one in found[:_SHOWN]]


@dataclass(frozen=True, slots=True)
class _Side:
    """Some of the rows by their places, and what they add up to in all and by user."""

    places: set[int]
    by_user: dict[int, float]
    """The weight of each user's rows."""
    none: Moments
    """The sums of a share of 0."""

    @classmethod
    def of(cls, rows: Sequence[Row], places: set[int]) -> _Side:
        """Add up the weights."""
        weights, own = _by_user(rows, places), _by_user(rows, places, power=2)
        w, ww = math.fsum(weights.values()), math.fsum(own.values())
        squares = math.fsum(weight * weight for weight in weights.values())
        part = math.fsum(own[user] / weight for user, weight in weights.items())
        heaviest = max((rows[at].weight for at in places), default=0.0)
        largest = max(weights.values(), default=0.0)
        none = Moments(len(places), len(weights), w, 0, 0, ww, squares, 0, 0, 0, part, heaviest, largest, 0, 0, 0)
        return cls(places, weights, none)

    def share(self, rows: Sequence[Row], inside: set[int]) -> tuple[float, float | None]:
        """The share that some of its rows have, and the number of independent requests that tell as much."""
        sums = _by_user(rows, inside)
        found = math.fsum(sums.values())
        pairs = [(weight, self.by_user[user]) for user, weight in sums.items()]
        seen = replace(
            self.none, wy=found, wyy=found, cluster_ws=math.fsum(s * w for s, w in pairs),
            cluster_ss=math.fsum(s * s for s, _ in pairs), cluster_means=math.fsum(s * s / w for s, w in pairs),
            least=float(len(inside) == len(self.places)), most=float(bool(inside)),
        )  # fmt: skip
        return found / self.none.w, seen.trials()


def _by_user(rows: Sequence[Row], places: Iterable[int], *, power: int = 1) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for at in places:
        sums[rows[at].cluster] += rows[at].weight ** power
    return sums


def _differs(rows: Sequence[Row], chosen: _Side, others: _Side, having: set[int]) -> dict[str, Any]:
    """Shares of an attribute on both sides, their ratio, and the p-value of the difference."""
    inside, outside = chosen.places & having, others.places & having
    (share, size), (other, rest) = chosen.share(rows, inside), others.share(rows, outside)
    test = None
    if size is not None and rest is not None:
        test = two_proportion(round(share * size), round(size), round(other * rest), round(rest))
    return {
        "selected": {"n": len(inside), "share": share},
        "baseline": {"n": len(outside), "share": other},
        "lift": share / other if other else None,
        "p": 1.0 if test is None or test.p is None else test.p,
    }


def _lift(one: Mapping[str, Any]) -> float:
    return math.inf if one["lift"] is None else float(one["lift"])


def _fold(found: Sequence[dict[str, Any]], rows: Sequence[Row], sides: tuple[_Side, _Side], members: Members) -> None:
    """Mark what is not more common any more among the rows that lack an earlier attribute."""
    kept: list[tuple[Key, _Side, _Side]] = []
    for one in found:
        key = one["attribute"], one["value"]
        cause = next((cause for cause, a, b in kept if _by_chance(rows, a, b, members[key])), None)
        if cause:
            one["explained_by"] = {"attribute": cause[0], "value": cause[1]}
        else:
            chosen, others = (_Side.of(rows, side.places - members[key]) for side in sides)
            kept.append((key, chosen, others))


def _by_chance(rows: Sequence[Row], chosen: _Side, others: _Side, having: set[int]) -> bool:
    if not others.places or len(chosen.places & having) < LEAST:
        return True
    rest = _differs(rows, chosen, others, having)
    return rest["p"] > _CHANCE or _lift(rest) <= 1


_COLUMNS, _ROWS = 60, 20
_DIP = 4.0
"""A stretch of time is marked where its bad requests exceed the expected ones by so many standard deviations."""


def explain(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET explain`: `metric`, `from`, `to`, the box `sel_from sel_to sel_lo sel_hi`, `bad`, filters.

    `bad` selects failing answers, failed requests, or the highest tenth of a number; without a box it is that of the
    worst stretch of time, where there is one (`dip`). Attributes are in the order of lift, those that may be chance
    last; `explained_by` names an earlier one without which an attribute is not more common. Shares are weighted by 1/pi
    where the metric is sampled. p is that of a two-proportion test on effective numbers, in which requests of one user
    are dependent and few users prove nothing; it is adjusted for the many values looked at (Benjamini-Hochberg). Over
    20,000 requests a random sample is read.
    """
    now = clock()
    window, keep = window_of({"width": _COLUMNS, **params}, now=now), filter_of(params, skip=("name",))
    metric = str(params.get("metric") or params.get("name") or "latency_p50")
    rows = read(store, metric, window, keep)
    bars, box = _bars(rows, window), dict(params)
    dip = _dip(bars) if params.get("bad") else None
    if dip and not any(params.get(edge) for edge in ("sel_from", "sel_to")):
        box |= {"sel_from": dip[0], "sel_to": dip[1]}
    inside = _box(box, now)
    chosen = {at for at, row in enumerate(rows) if inside(row) and (row.bad or not params.get("bad"))}
    differ = bool(chosen) and len(chosen) < len(rows)
    held = held_of(store, rows, chosen, window) if differ else {}
    return {
        "metric": metric,
        "n_selected": len(chosen),
        "n_baseline": len(rows) - len(chosen),
        "sampled": len(rows) >= MOST_ROWS,
        "dip": dip and {"from": dip[0], "to": dip[1]},
        "bars": [{"t": iso(at), "n": n, "bad": bad} for at, n, bad in bars],
        "heatmap": _heatmap(rows, window),
        "attributes": compared(rows, chosen, held, without=metric.partition("_")[0]) if differ else [],
    }


def _bars(rows: Sequence[Row], window: Window) -> list[tuple[datetime, int, int]]:
    """Start, requests and bad ones of each time bucket."""
    starts, counts = list(window.starts()), [[0, 0] for _ in window.starts()]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        count = counts[min(len(starts) - 1, max(0, (row.at - starts[0]) // step))]
        count[0] += 1
        count[1] += row.bad
    return [(at, n, bad) for at, (n, bad) in zip(starts, counts, strict=True)]


def _dip(bars: Sequence[tuple[datetime, int, int]]) -> tuple[str | None, str | None] | None:
    """The stretch of buckets whose bad requests exceed the overall share most surely; None where none does."""
    total, bad = sum(n for _, n, _ in bars), sum(one for _, _, one in bars)
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
        in_time = (first is None or row.at >= first) and (last is None or row.at < last)
        return in_time and (low is None or row.value >= low) and (high is None or row.value <= high)

    return inside


def _number(params: Mapping[str, Any], name: str) -> float | None:
    value = params.get(name)
    if value in (None, ""):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None


def _heatmap(rows: Sequence[Row], window: Window) -> dict[str, Any]:
    """Counts per time bucket and value bin; the last value bin also holds what lies beyond the 99th percentile."""
    starts = list(window.starts())
    if not rows:
        return {"x": [iso(at) for at in starts], "y": [], "cells": []}
    values = sorted(row.value for row in rows)
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.99))]
    width = (high - low) / _ROWS or 1.0
    cells = [[0] * _ROWS for _ in starts]
    step = timedelta(seconds=window.step_s)
    for row in rows:
        x = min(len(starts) - 1, max(0, (row.at - starts[0]) // step))
        cells[x][min(_ROWS - 1, max(0, int((row.value - low) / width)))] += 1
    return {"x": [iso(at) for at in starts], "y": [low + width * index for index in range(_ROWS)], "cells": cells}
