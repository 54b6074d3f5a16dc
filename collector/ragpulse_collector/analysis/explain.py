"""Finds what differs between selected requests of a chart and the rest."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from operator import mul, truediv
from typing import Annotated

from pydantic import Field

from ragpulse_collector.analysis.exemplars import (
    MOST_ROWS,
    VERDICT,
    ChartedRequest,
    Key,
    Members,
    requests_of,
    told_apart,
)
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.analysis.why.parts import AttributeValue, BeforeAfter
from ragpulse_collector.analysis.why.since import around, change_at
from ragpulse_collector.analysis.why.values import CONTEXTS, LOST, vanished
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import asked_again, retrievals, shared_documents
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg, fisher, two_proportion

LEAST = 5
"""The fewest selected requests with an attribute value."""
_SHOWN = 40
_TESTED = 16
"""How many findings are tested against earlier ones."""
_CHANCE = 0.05
_FEW = 100
"""Up to so many requests with a value its test is exact."""


def with_retrieved(
    store: Store, rows: Sequence[ChartedRequest], members: Members, chosen: set[int], window: Window, late: Set[int]
) -> int:
    """Add the rows of each retriever, number of contexts and document.

    Return the number of documents that were left out because fewer of the chosen rows have them. A document that no
    `late` row has is also a lost one, with all rows that ask a question for which it was found.
    """
    ids = [row.trace_id for row in rows]
    totals = Counter[int]()
    for index, name, n in retrievals(store, ids, window.parameters).rows:
        members.setdefault(("retriever", str(name)), set()).add(index)
        if n is not None:
            totals[index] += n
    for index, n in totals.items():
        members.setdefault((CONTEXTS, str(n)), set()).add(index)
    documents, others = defaultdict[str, set[int]](set), 0
    for doc, index, n in shared_documents(store, ids, [*chosen], [*late], window.parameters, least=LEAST).rows:
        documents[doc].add(index)
        others = n
    members |= {("document", name): owners for name, owners in documents.items()}
    if lost := late and vanished(rows, documents, late, others):
        members |= {(LOST, name): set(documents[name]) for name in lost}
        for name, index in asked_again(store, ids, lost, [*late], window.parameters).rows:
            members[LOST, name].add(index)
    return max(0, others - len(documents))


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Requests of one side that have an attribute: their number and weighted share."""

    n: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinction(AttributeValue):
    """How common an attribute is among the selected requests, and among the others."""

    selected: Occurrence
    baseline: Occurrence
    lift: float | None
    """Null where no other request has it."""
    p_adjusted: float
    explained_by: AttributeValue | None = None
    """An attribute without which this one is not more common."""

    @property
    def order(self) -> tuple[bool, float, float]:
        """Its place among all: those that may be chance last, then by lift."""
        return self.p_adjusted > _CHANCE, -_ratio(self.lift), -self.selected.share


@dataclass(frozen=True, slots=True)
class _Shares:
    """The shares of an attribute on both sides, and the p-value of their difference."""

    selected: Occurrence
    baseline: Occurrence
    p: float

    @property
    def lift(self) -> float | None:
        """The ratio of the shares; None where no other request has the attribute."""
        return self.selected.share / self.baseline.share if self.baseline.share else None


def _ratio(lift: float | None) -> float:
    return math.inf if lift is None else lift


def compare_attributes(
    rows: Sequence[ChartedRequest], chosen: set[int], others: set[int], members: Members, *, without: str,
    left_out: int = 0,
) -> list[Distinction]:  # fmt: skip
    """Compare every attribute of the chosen rows with the others, except `without`, which the metric itself counts.

    Values that few of the chosen rows have are not compared, but were looked at, like `left_out` more: they count.
    Documents are compared among requests with the same number of contexts: who retrieves more has more of every one.
    """
    counts = {index: n for (kind, n), owners in members.items() if kind == CONTEXTS for index in owners}
    sides, compared = (_Side.of(rows, chosen), _Side.of(rows, others)), chosen | others
    sizes = [Counter(map(counts.get, side.indexes)) for side in sides]
    apart = {without, VERDICT, LOST}
    looked_at = {
        key: owners for key, owners in members.items() if key[0] not in apart and len(owners & compared) >= LEAST
    }
    found = {
        key: _within(counts, sizes, sides, owners, plain) if key[0] == "document" else plain
        for key, owners in looked_at.items()
        if len(owners & chosen) >= LEAST
        for plain in [_shares(rows, *sides, owners)]
    }
    by_chance = [1.0] * (len(looked_at) - len(found) + left_out)
    adjusted = benjamini_hochberg([*(shares.p for shares in found.values()), *by_chance])
    distinctions = [
        Distinction(*key, selected=shares.selected, baseline=shares.baseline, lift=shares.lift, p_adjusted=p)
        for (key, shares), p in zip(found.items(), adjusted, strict=False)
    ]
    distinctions.sort(key=lambda distinction: distinction.order)
    lifted = [one for one in distinctions if one.p_adjusted <= _CHANCE and _ratio(one.lift) > 1][:_TESTED]
    causes = _causes(sorted(lifted, key=lambda one: one.attribute == "document"), rows, sides, members)
    return [replace(one, explained_by=causes.get((one.attribute, one.value))) for one in distinctions[:_SHOWN]]


@dataclass(frozen=True, slots=True)
class _Side:
    """Some of the rows by index, with their sums in all and by user."""

    indexes: set[int]
    by_user: dict[int, float]
    """The weight of each user's rows."""
    zero: Moments
    """The sums for a share of 0."""

    @classmethod
    def of(cls, rows: Sequence[ChartedRequest], indexes: set[int]) -> _Side:
        """Add up the weights of the rows."""
        weights, squares_by_user = _by_user(rows, indexes), _by_user(rows, indexes, power=2)
        w, ww = math.fsum(weights.values()), math.fsum(squares_by_user.values())
        squares = math.fsum(weight * weight for weight in weights.values())
        part = math.fsum(squares_by_user[user] / weight for user, weight in weights.items())
        heaviest = max((rows[index].weight for index in indexes), default=0.0)
        largest = max(weights.values(), default=0.0)
        none = Moments(len(indexes), len(weights), w, 0, 0, ww, squares, 0, 0, 0, part, heaviest, largest, 0, 0, 0)
        return cls(indexes, weights, none)

    def share(self, rows: Sequence[ChartedRequest], inside: set[int]) -> tuple[float, float | None]:
        """Return the share of some of its rows, and the equivalent number of independent requests."""
        sums = _by_user(rows, inside)
        total = math.fsum(sums.values())
        own, weights = [*sums.values()], [*map(self.by_user.__getitem__, sums)]
        squares = [*map(mul, own, own)]
        moments = replace(
            self.zero, wy=total, wyy=total, cluster_ws=math.fsum(map(mul, own, weights)),
            cluster_ss=math.fsum(squares), cluster_means=math.fsum(map(truediv, squares, weights)),
            least=float(len(inside) == len(self.indexes)), most=float(bool(inside)),
        )  # fmt: skip
        return total / self.zero.w, moments.trials()


def _by_user(rows: Sequence[ChartedRequest], indexes: Iterable[int], *, power: int = 1) -> dict[int, float]:
    sums: dict[int, float] = defaultdict(float)
    for row in (rows[index] for index in indexes):
        sums[row.cluster] += row.weight if power == 1 else row.weight**power
    return sums


def _shares(rows: Sequence[ChartedRequest], selected_side: _Side, other_side: _Side, owners: set[int]) -> _Shares:
    inside, outside = selected_side.indexes & owners, other_side.indexes & owners
    (share, size), (other_share, other_trials) = selected_side.share(rows, inside), other_side.share(rows, outside)
    p = 1.0
    if size is not None and other_trials is not None:
        p = p_of_shares(round(share * size), round(size), round(other_share * other_trials), round(other_trials))
    return _Shares(Occurrence(len(inside), share), Occurrence(len(outside), other_share), p)


def _within(
    counts: Mapping[int, str], sizes: Sequence[Mapping[str | None, int]], sides: Sequence[_Side], owners: set[int],
    plain: _Shares,
) -> _Shares:  # fmt: skip
    """Compare within each number of contexts; the others are weighted as if they had as many of each as the selected.

    `sizes` are the requests of each side by number; numbers that one side does not have are left out.
    """
    (selected, others), common = sizes, sizes[0].keys() & sizes[1].keys()
    n = sum(selected[count] for count in common)
    if not n:
        return replace(plain, p=1.0)
    inside, outside = (Counter(map(counts.get, side.indexes & owners)) for side in sides)
    share = sum(selected[count] * outside[count] / others[count] for count in common) / n
    alone = n * n / sum(selected[count] ** 2 / others[count] for count in common)
    p = p_of_shares(sum(inside[count] for count in common), n, round(share * alone), round(alone))
    return replace(plain, baseline=replace(plain.baseline, share=share), p=max(p, plain.p))


def p_of_shares(k1: int, n1: int, k2: int, n2: int) -> float:
    """Return the p-value of two shares: of few requests exact (Fisher), because the normal one is too small there."""
    test = two_proportion(k1, n1, k2, n2) if k1 + k2 > _FEW else fisher(k1, n1, k2, n2)
    return 1.0 if test is None or test.p is None else test.p


def _causes(
    distinctions: Sequence[Distinction], rows: Sequence[ChartedRequest], sides: tuple[_Side, _Side], members: Members
) -> dict[Key, AttributeValue]:
    """Return the earlier attribute of each that is no more common among the rows with that one, and without it."""
    causes: list[tuple[Key, list[tuple[_Side, _Side]]]] = []
    explained: dict[Key, AttributeValue] = {}
    for distinction in distinctions:
        key = distinction.attribute, distinction.value
        explaining = (cause for cause, parts in causes if all(_by_chance(rows, *part, members[key]) for part in parts))
        if cause := next(explaining, None):
            explained[key] = AttributeValue(*cause)
        else:
            causes.append((key, [_restricted(rows, sides, members[key], inside=inside) for inside in (False, True)]))
    return explained


def _restricted(
    rows: Sequence[ChartedRequest], sides: tuple[_Side, _Side], owners: set[int], *, inside: bool
) -> tuple[_Side, _Side]:
    first, second = (_Side.of(rows, side.indexes & owners if inside else side.indexes - owners) for side in sides)
    return first, second


def _by_chance(rows: Sequence[ChartedRequest], selected_side: _Side, other_side: _Side, owners: set[int]) -> bool:
    if not other_side.indexes or len(selected_side.indexes & owners) < LEAST:
        return True
    shares = _shares(rows, selected_side, other_side, owners)
    return shares.p > _CHANCE or _ratio(shares.lift) <= 1


_ROWS = 20
_DIP = 4.0
"""The excess of bad requests of a dip, in standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """The selected region of a chart: a range of time and of values; None: without this limit."""

    first: datetime | None = None
    last: datetime | None = None
    low: float | None = None
    high: float | None = None

    def __contains__(self, row: ChartedRequest) -> bool:
        in_time = (self.first is None or row.time >= self.first) and (self.last is None or row.time < self.last)
        return in_time and (self.low is None or row.value >= self.low) and (self.high is None or row.value <= self.high)


@dataclass(frozen=True, slots=True)
class Dip:
    """A period with more bad requests than chance explains."""

    from_: Annotated[datetime, Field(alias="from")]
    to: datetime


@dataclass(frozen=True, slots=True)
class Bar:
    """The requests of a time bucket that are good or bad, and how many are bad."""

    t: datetime
    n: int
    bad: int


@dataclass(frozen=True, slots=True)
class HeatCounts:
    """Counts by time bucket (`x`) and value bin (`y`): `cells[x][y]`."""

    x: Sequence[datetime]
    y: Sequence[float]
    cells: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The attributes that are more common in a selection than outside."""

    metric: str
    n_selected: int
    n_baseline: int
    """All that are not selected; of bad ones only those that are good, at `at` since then."""
    sampled: bool
    n_unclear: int = 0
    """Answers in the box that are not selected: the evaluator could not decide, or they decline to answer."""
    n_refused: int = 0
    dip: Dip | None
    """The period that `bad` selected."""
    bars: Sequence[Bar]
    heatmap: HeatCounts
    attributes: Sequence[Distinction]
    change: BeforeAfter | None = None
    """What moved the metric since `at`; null without it, or where nothing is known before it."""


def explain(
    store: Store, query: Query, metric: str, box: Box, *, bad: bool = False, at: datetime | None = None
) -> Explanation:
    """Answer `GET explain`: what differs in a box of the chart; with `at` after a moment, against an equal time before.

    `bad` selects failing answers, failed requests, or the highest tenth of a number, against good ones, unclear ones
    apart; without times in the box those of the worst period, if there is one (`dip`). After a moment failed requests
    are compared with others after it: before it they would say what changed, not what fails. Attributes are in order of
    lift, those that may be chance last; `explained_by` names an earlier attribute without which an attribute is not
    more common. Shares are weighted by 1/pi where the metric is sampled. p is that of a two-proportion test (of few
    requests Fisher's) on effective numbers, in which requests of one user are dependent and few of many users prove
    nothing (of fewer than five in all each request stands alone). It is adjusted for all values that so many requests
    have that they could be found (Benjamini-Hochberg). Over 20,000 requests a random sample is read.
    """
    span = around(store, query, at) if at else None
    query, box = span or query, replace(box, first=at) if at else box
    window, (rows, members) = query.window, requests_of(store, metric, query)
    bars = _bars(rows, window)
    weights = [row.requests for row in _decided(rows)]
    # A charted request stands for so many, by its squares: the others tell nothing (Kish).
    dip = _dip(bars, math.fsum(weight**2 for weight in weights) / (math.fsum(weights) or 1.0)) if bad else None
    if dip and box.first is None and box.last is None:
        box = replace(box, first=dip.from_, last=dip.to)
    inside = {index for index, row in enumerate(rows) if row in box}
    bad = bad or bool(span and metric.startswith("error"))
    selected = {index for index in inside if rows[index].bad or not bad}
    others = set(range(len(rows))) - selected
    rows = told_apart(rows, range(len(rows)))
    if bad:
        others = {index for index in (inside if span else others) if rows[index].bad is False}
    differ = bool(selected and others)
    failing = {index for index in selected if rows[index].bad} if span else selected
    late = {index for index, row in enumerate(rows) if span and at and row.time >= at}
    left_out = with_retrieved(store, rows, members, failing or selected, window, late) if differ else 0
    without = metric.partition("_")[0]
    return Explanation(
        metric=metric,
        n_selected=len(selected),
        n_baseline=len(others),
        sampled=len(rows) >= MOST_ROWS,
        n_unclear=len((inside - selected) & members.get((VERDICT, "unclear"), set())),
        n_refused=len((inside - selected) & members.get(("answer", "refused"), set())),
        dip=dip,
        bars=bars,
        heatmap=_heatmap(rows, window),
        attributes=compare_attributes(rows, selected, others, members, without=without, left_out=left_out)
        if differ
        else (),
        change=change_at(store, query, metric, at, rows, members) if at and span else None,
    )


def _decided(rows: Sequence[ChartedRequest]) -> Iterator[ChartedRequest]:
    return (row for row in rows if row.bad is not None)


def _bars(rows: Sequence[ChartedRequest], window: Window) -> list[Bar]:
    """Return start, requests and bad requests of each time bucket."""
    starts = window.starts()
    counts = [[0.0, 0.0] for _ in starts]
    for row in _decided(rows):
        count = counts[max(0, bisect_right(starts, row.time) - 1)]
        count[0] += row.requests
        count[1] += bool(row.bad) * row.requests
    return [Bar(start, round(n), round(bad)) for start, (n, bad) in zip(starts, counts, strict=True)]


def _dip(bars: Sequence[Bar], weight: float) -> Dip | None:
    """Return the period whose bad requests exceed the overall share most surely, or None."""
    total, bad = sum(bar.n for bar in bars), sum(bar.bad for bar in bars)
    if len(bars) < 2 or not 0 < bad < total:
        return None
    share, best = bad / total, (_DIP, 0, 0)
    for first in range(len(bars)):
        n = more = 0
        for last in range(first, len(bars)):
            n, more = n + bars[last].n, more + bars[last].bad
            if 0 < n < total:
                surplus = (more - n * share) / math.sqrt(n * share * (1 - share) * (1 - n / total) * weight)
                best = max(best, (surplus, first, last + 1))
    _, first, last = best
    if not last:
        return None
    return Dip(bars[first].t, bars[last].t if last < len(bars) else bars[-1].t + (bars[-1].t - bars[-2].t))


def _heatmap(rows: Sequence[ChartedRequest], window: Window) -> HeatCounts:
    """Return counts per time bucket and value bin; the last bin also holds values above the 99th percentile."""
    starts = window.starts()
    if not rows:
        return HeatCounts(starts, (), ())
    values = sorted(row.value for row in rows)
    low, high = values[0], values[min(len(values) - 1, int(len(values) * 0.99))]
    bins = _ROWS if high > low else 1
    width = (high - low) / bins or 1.0
    cells = [[0.0] * bins for _ in starts]
    for row in rows:
        x = max(0, bisect_right(starts, row.time) - 1)
        cells[x][min(bins - 1, max(0, int((row.value - low) / width)))] += row.requests
    return HeatCounts(starts, [low + width * index for index in range(bins)], [list(map(round, row)) for row in cells])
