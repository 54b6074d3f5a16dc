"""The requests behind a chart: what differs between a selected box and the rest, and the worst and best of a bucket."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ragpulse_collector.analysis.selection import Window, duration_s, filter_of, instant, iso, window_of
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER
from ragpulse_collector.store.queries.documents import retrievals, shared_documents
from ragpulse_collector.store.queries.scores import MEASURES, sample_of
from ragpulse_collector.store.queries.traces import Filter, trace_rows
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg, two_proportion

__all__ = ["column_of", "exemplars", "explain"]

_COUNT = 5


def column_of(metric: str) -> str:
    """The column of `traces` that a traffic metric is made of; latency stands for those that only count."""
    errors = "coalesce(error, false)::INTEGER"
    columns = {"latency": "latency_ms", "ttft": "ttft_ms", "error": errors, "errors": errors}
    same = ("cost_usd", "input_tokens", "output_tokens")
    return metric if metric in same else columns.get(metric.partition("_")[0], "latency_ms")


def exemplars(store: Store, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now) -> dict[str, Any]:
    """Answer `GET exemplars`: five worst, median and best traces of one bucket (`name`, `t`, `step`, filters)."""
    now = clock()
    name = str(params.get("name") or "")
    at = instant(params.get("t"), now=now)
    if at is None:
        window = window_of({"width": 1, **params}, now=now).whole
    else:
        step = duration_s(params.get("step") or 3600)
        window = window_of({"from": at, "to": at + timedelta(seconds=step), "width": 1}, now=now).whole
    source, parameters, worst_is_high = _source(store, name, window, params)
    ends = store.read(
        f"SELECT arg_min(id, y, {_COUNT}), arg_max(id, y, {_COUNT}), median(y) FROM ({source})", parameters
    ).rows[0]
    low, high, middle = ends[0] or [], ends[1] or [], ends[2]
    near = (
        []
        if middle is None
        else store.read(
            f"SELECT id FROM ({source}) ORDER BY abs(y - $middle), id LIMIT {_COUNT}", {**parameters, "middle": middle}
        ).rows
    )
    ids = {
        "worst": high if worst_is_high else low,
        "median": [one for (one,) in near],
        "best": low if worst_is_high else high,
    }
    return {part: trace_rows(store, found) for part, found in ids.items()}


def _source(store: Store, name: str, window: Window, params: Mapping[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """A query for trace ids with what the metric is made of, its parameters, and whether high is worse."""
    keep = filter_of(params, skip=("name",))
    family, _, evaluator = name.partition(":")
    if not evaluator:
        column = column_of(name)
        sql = (
            f"SELECT trace_id AS id, {column} AS y FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql} AND {column} IS NOT NULL"
        )
        return sql, {**window.parameters, **keep.parameters}, True
    if family not in MEASURES:
        raise ValueError(f"no metric {name!r}")
    sample = sample_of(store, evaluator, window.parameters, keep)
    sql = (
        "SELECT replace(trace_id::VARCHAR, '-', '') AS id, normalized AS y"
        f" FROM ({sample.sql}) WHERE status = 'ok' AND normalized IS NOT NULL"
    )
    return sql, sample.parameters, False


_MOST_ROWS = 20_000
_COLUMNS, _ROWS = 60, 20
_ATTRIBUTES = (
    "service",
    "environment",
    "name",
    "model",
    "prompt_name",
    "prompt_version",
    "variant",
    "release",
    "error",
)
_COLUMNS_READ = ", ".join((*_ATTRIBUTES, "tags", "metadata"))
_SCRIPTS = ("Hiragana", "Katakana", "Hangul", "Han", "Cyrillic", "Arabic", "Hebrew", "Devanagari", "Thai", "Greek")
_SCRIPT = (
    "CASE WHEN strlen(query) = length(query) THEN 'Latin' "
    + " ".join(f"WHEN regexp_matches(query, '\\p{{{name}}}') THEN '{name}'" for name in _SCRIPTS)
    + " WHEN query IS NOT NULL THEN 'Latin' END"
)
"""What a question is written in: sure, where a guess at its language would not be."""
_LEAST = 5
"""An attribute value seen fewer times than this among the selected is noise."""
_SHOWN = 40
_WORST = 0.1
"""Where nothing passes or fails, this share counts as bad: the highest values of traffic, the lowest scores."""
_DIP = 4.0
"""A stretch of time is marked where its bad requests exceed the expected ones by so many standard deviations."""
_TESTED = 16
"""Findings that are looked at for whether an earlier one explains them."""
_CHANCE = 0.05
_Key = tuple[str, str]
_Members = dict[_Key, set[int]]


@dataclass(frozen=True, slots=True)
class _Row:
    """One request: when, its value, the weight it stands for, its attributes, and whether it is bad."""

    trace_id: str
    at: datetime
    value: float
    weight: float
    attributes: tuple[_Key, ...]
    bad: bool
    cluster: int
    """Whose request it is."""


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
    rows = _read(store, metric, window, keep)
    bars, box = _bars(rows, window), dict(params)
    dip = _dip(bars) if params.get("bad") else None
    if dip and not any(params.get(edge) for edge in ("sel_from", "sel_to")):
        box |= {"sel_from": dip[0], "sel_to": dip[1]}
    inside = _box(box, now)
    chosen = {at for at, row in enumerate(rows) if inside(row) and (row.bad or not params.get("bad"))}
    differ = bool(chosen) and len(chosen) < len(rows)
    held = _held(store, rows, chosen, window) if differ else {}
    return {
        "metric": metric,
        "n_selected": len(chosen),
        "n_baseline": len(rows) - len(chosen),
        "sampled": len(rows) >= _MOST_ROWS,
        "dip": dip and {"from": dip[0], "to": dip[1]},
        "bars": [{"t": iso(at), "n": n, "bad": bad} for at, n, bad in bars],
        "heatmap": _heatmap(rows, window),
        "attributes": _compare(rows, chosen, held, without=metric.partition("_")[0]) if differ else [],
    }


def _read(store: Store, metric: str, window: Window, keep: Filter) -> list[_Row]:
    family, _, evaluator = metric.partition(":")
    scored = bool(evaluator) and family in MEASURES
    if scored:
        sample = sample_of(
            store, evaluator, window.parameters, keep, columns=(*_ATTRIBUTES, "tags", "metadata", "query")
        )
        source, parameters = (
            f"SELECT trace_id, request_time AS start_time, {MEASURES[family]} AS y, pi, passing, cluster,"
            f" {_COLUMNS_READ}, query"
            f" FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0",
            sample.parameters,
        )
    else:
        source, parameters = (
            f"SELECT trace_id::UUID AS trace_id, start_time, {column_of(metric)} AS y,"
            f" coalesce(upstream_pi, 1) AS pi, NULL AS passing, {CLUSTER} AS cluster, {_COLUMNS_READ}, query"
            " FROM traces"
            f" WHERE start_time >= $first AND start_time < $last AND {keep.sql}",
            {**window.parameters, **keep.parameters},
        )
    rows = store.read(
        f"SELECT trace_id, start_time, y, pi, passing, {_COLUMNS_READ}, {_SCRIPT}, length(query), cluster"
        f" FROM ({source})"
        f" WHERE y IS NOT NULL USING SAMPLE reservoir({_MOST_ROWS} ROWS) REPEATABLE (1)",
        parameters,
    ).rows
    bad = _bad([(float(row[2]), row[4]) for row in rows], scored=scored)
    return [
        _Row(
            row[0].hex,
            row[1],
            float(row[2]),
            1.0 / row[3],
            tuple(_named(row[5:-1])),
            bad(float(row[2]), row[4]),
            row[-1],
        )
        for row in rows
    ]


def _bad(values: Sequence[tuple[float, bool | None]], *, scored: bool) -> Callable[[float, bool | None], bool]:
    """What counts as bad: an answer that does not pass, an error, the highest tenth, or the lowest tenth of scores."""
    if any(passing is not None for _, passing in values):
        return lambda _, passing: passing is False
    ordered = sorted((value for value, _ in values), reverse=not scored)
    if not ordered or ordered[0] == ordered[-1]:
        return lambda value, _: not scored and set(ordered) == {1.0} and value == 1.0
    limit = ordered[int(len(ordered) * _WORST)]
    if limit == ordered[-1]:  # most are alike: those that are not
        return lambda value, _: value < limit if scored else value > limit
    return lambda value, _: value <= limit if scored else value >= limit


def _named(values: Sequence[Any]) -> Iterator[_Key]:
    """Attribute and value of everything that is known of a request; lengths in doublings."""
    for name, value in zip(_ATTRIBUTES, values, strict=False):
        if value is not None:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)
    tags, metadata, script, length = values[-4:]
    yield from (("tag", tag) for tag in tags or ())
    yield from ((f"metadata.{key}", value) for key, value in (metadata or {}).items() if value is not None)
    if script:
        yield "query script", script
    if length:
        low = 2 ** int(math.log2(length))
        yield "query length", f"{low}..{2 * low - 1}"


def _bars(rows: Sequence[_Row], window: Window) -> list[tuple[datetime, int, int]]:
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


def _box(params: Mapping[str, Any], now: datetime) -> Callable[[_Row], bool]:
    first, last = (instant(params.get(name), now=now) for name in ("sel_from", "sel_to"))
    low, high = (_number(params, name) for name in ("sel_lo", "sel_hi"))

    def inside(row: _Row) -> bool:
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


def _held(store: Store, rows: Sequence[_Row], chosen: set[int], window: Window) -> _Members:
    """What a request may have several of, with the rows that have it: retrievers, how much they found, documents."""
    ids = [row.trace_id for row in rows]
    found: _Members = defaultdict(set)
    for place, name, n in retrievals(store, ids, window.parameters).rows:
        found["retriever", str(name)].add(place)
        if n is not None:
            found["contexts retrieved", str(n)].add(place)
    for doc, place in shared_documents(store, ids, sorted(chosen), window.parameters, least=_LEAST).rows:
        found["document", doc].add(place)
    return found


def _heatmap(rows: Sequence[_Row], window: Window) -> dict[str, Any]:
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


def _compare(rows: Sequence[_Row], chosen: set[int], held: _Members, *, without: str) -> list[dict[str, Any]]:
    """Every attribute of the chosen rows against the others; `without` is the one that the metric itself counts."""
    members: _Members = defaultdict(set, held)
    for at, row in enumerate(rows):
        for key in row.attributes:
            members[key].add(at)
    sides = _Side.of(rows, chosen), _Side.of(rows, set(range(len(rows))) - chosen)
    found = [
        {"attribute": key[0], "value": key[1], **_differs(rows, *sides, having)}
        for key, having in members.items()
        if key[0] != without and len(having & chosen) >= _LEAST
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
    def of(cls, rows: Sequence[_Row], places: set[int]) -> _Side:
        """Add up the weights."""
        weights, own = _by_user(rows, places), _by_user(rows, places, power=2)
        w, ww = math.fsum(weights.values()), math.fsum(own.values())
        squares = math.fsum(weight * weight for weight in weights.values())
        part = math.fsum(own[user] / weight for user, weight in weights.items())
        heaviest = max((rows[at].weight for at in places), default=0.0)
        largest = max(weights.values(), default=0.0)
        none = Moments(len(places), len(weights), w, 0, 0, ww, squares, 0, 0, 0, part, heaviest, largest, 0, 0, 0)
        return cls(places, weights, none)

    def share(self, rows: Sequence[_Row], inside: set[int]) -> tuple[float, float | None]:
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


def _by_user(rows: Sequence[_Row], places: Iterable[int], *, power: int = 1) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for at in places:
        sums[rows[at].cluster] += rows[at].weight ** power
    return sums


def _differs(rows: Sequence[_Row], chosen: _Side, others: _Side, having: set[int]) -> dict[str, Any]:
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


def _fold(found: Sequence[dict[str, Any]], rows: Sequence[_Row], sides: tuple[_Side, _Side], members: _Members) -> None:
    """Mark what is not more common any more among the rows that lack an earlier attribute."""
    kept: list[tuple[_Key, _Side, _Side]] = []
    for one in found:
        key = one["attribute"], one["value"]
        cause = next((cause for cause, a, b in kept if _by_chance(rows, a, b, members[key])), None)
        if cause:
            one["explained_by"] = {"attribute": cause[0], "value": cause[1]}
        else:
            chosen, others = (_Side.of(rows, side.places - members[key]) for side in sides)
            kept.append((key, chosen, others))


def _by_chance(rows: Sequence[_Row], chosen: _Side, others: _Side, having: set[int]) -> bool:
    if not others.places or len(chosen.places & having) < _LEAST:
        return True
    rest = _differs(rows, chosen, others, having)
    return rest["p"] > _CHANCE or _lift(rest) <= 1
