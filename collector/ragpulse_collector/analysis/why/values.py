"""Who moved a mean: versions, models and numbers of contexts first, documents last, each without the earlier ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple

from ragpulse_collector.analysis.exemplars import VERDICT, ChartedRequest, Key, told_apart
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.why.means import CHANCE, LEAST, is_sure
from ragpulse_collector.analysis.why.parts import AttributeValue, BeforeAfter, Explained
from ragpulse_evaluators.statistics import Interval, Uncertain, student_quantile

CONTEXTS = "contexts retrieved"
LOST = "lost document"
ORDER = (
    ("scored by",),
    ("prompt_version", "release", "variant", "index_version"),
    ("model",),
    (LOST,),
    ("top_k", CONTEXTS),
)
"""What is asked before all others: another judge is no other answer, who lost a document finds others instead, and who
retrieves more has more of every document."""
OUTCOMES = frozenset({"answer", "error", "finish_reason", VERDICT, LOST})
"""What a request came to, which causes nothing; and what is another attribute as well."""
_FEWEST = 5
_TESTED = 4
_ALSO = 3
"""Values of the same requests that are named."""
Owners = Mapping[Key, set[int]]


class _Sum(NamedTuple):
    """The number of some requests, their weight, and their weighted values."""

    n: int
    w: float
    wy: float

    @property
    def mean(self) -> float:
        return self.wy / self.w

    def minus(self, part: _Sum) -> _Sum:
        return _Sum(self.n - part.n, self.w - part.w, self.wy - part.wy)


class _Halves(NamedTuple):
    """Requests before and after, by index."""

    before: set[int]
    after: set[int]

    def without(self, owned: set[int]) -> _Halves:
        return _Halves(self.before - owned, self.after - owned)

    def sums(self, rows: Sequence[ChartedRequest], owned: set[int] | None = None) -> tuple[_Sum, _Sum]:
        before, after = (half if owned is None else half & owned for half in self)
        return _sum(rows, before), _sum(rows, after)


def _sum(rows: Sequence[ChartedRequest], indexes: Collection[int]) -> _Sum:
    weights = [rows[index].weight for index in indexes]
    return _Sum(len(indexes), math.fsum(weights), math.fsum(rows[i].value * rows[i].weight for i in indexes))


def vanished(
    rows: Sequence[ChartedRequest], documents: Mapping[str, set[int]], late: Set[int], looked_at: int
) -> list[str]:
    """Return the documents that no late row has, and so many users before that chance does not explain it."""
    chance = 1.0 - len(late) / len(rows)
    users = {name: {rows[index].cluster for index in owned} for name, owned in documents.items() if not owned & late}
    return [name for name, own in users.items() if chance ** len(own) * looked_at < CHANCE]


def values_change(rows: Sequence[ChartedRequest], owners: Owners, query: Query, at: datetime) -> BeforeAfter:
    """Return which attribute values move the mean of the rows.

    What a value explains is the change of all requests minus the change of those without it. The next value is looked
    for in the latter, so that the parts and the rest add up to the change. A value of all requests after the moment,
    and of not all before, explains what was left.
    """
    late = {index for index, row in enumerate(rows) if row.time >= at}
    whole = _Halves(set(range(len(rows))) - late, late)
    rows = told_apart(rows, *whole)
    move = _combined(rows, [(1, whole.after), (-1, whole.before)]) if all(whole) else None
    before, after = (one.mean if one.n else None for one in whole.sums(rows))
    return BeforeAfter(
        from_=query.window.first, at=at, to=query.window.last, before=before, after=after, change=move or Uncertain(),
        parts=_parts(rows, owners, whole, move) if move and is_sure(move.lo, move.hi) else (),
    )  # fmt: skip


def _parts(rows: Sequence[ChartedRequest], owners: Owners, whole: _Halves, move: Interval) -> list[Explained]:
    """Return one value after the other, each found among the requests without the earlier ones."""
    first = {name for names in ORDER for name in names}
    last = {name for name, _ in owners} - first - OUTCOMES
    left, parts = whole, list[Explained]()
    for names in (*ORDER, last):
        asked = {key: owned for key, owned in owners.items() if key[0] in names}
        while found := _surest(rows, left, asked, move.value):
            key, amount = found
            parts.append(_part(rows, whole, left, owners, key, amount))
            left = left.without(owners[key])
    return [*parts, *_by_time(rows, whole, left, owners, move.value)]


def _by_time(
    rows: Sequence[ChartedRequest], whole: _Halves, left: _Halves, owners: Owners, change: float
) -> Iterator[Explained]:
    """Yield the most retrieved lost document, with what is left of a fall, as far as its answers could become that bad.

    Only for questions that are not asked again: then the time alone speaks for it. Another document in its place speaks
    against it.
    """
    lost = [(name, owned) for (kind, name), owned in owners.items() if kind == LOST and not owned & whole.after]
    new = [len(owned) for (kind, _), owned in owners.items() if kind == "document" and not owned & whole.before]
    name, owned = max(lost, key=lambda one: len(one[1]), default=("", set()))
    if not owned or change > 0.0 or not all(left) or 2 * max(new, default=0) > len(owned):
        return
    fall = _combined(rows, [(1, left.after), (-1, left.before)])
    (before, _), (had, _) = left.sums(rows), left.sums(rows, owned)
    most = had.wy - had.w * min(rows[index].value for index in left.after)
    amount = max(fall.value, -most / before.w)
    if fall.hi < 0.0 and amount / change >= LEAST:
        yield Explained(attribute="document", value=name, before=had.w / before.w, after=0.0, amount=amount)


def _surest(rows: Sequence[ChartedRequest], left: _Halves, asked: Owners, change: float) -> tuple[Key, Interval] | None:
    """Return the value that explains the change of what is left most surely; None where none does.

    What only requests before have comes last: more often the value that followed it is new.
    """
    if not all(left):
        return None
    sums, guesses = left.sums(rows), list[tuple[bool, float, Key]]()
    for key, owned in asked.items():
        has = left.sums(rows, owned)
        if (guess := _guess(sums, has)) is not None:
            guesses.append((not has[1].n, -guess * math.copysign(1.0, change), key))
    for ended in (False, True):
        for *_, key in [guess for guess in sorted(guesses) if guess[0] is ended][:_TESTED]:
            amount = _combined(rows, _terms(left, asked[key]), looked_at=len(guesses))
            if amount.value / change >= LEAST and is_sure(amount.lo, amount.hi):
                return key, amount
    return None


def _guess(sums: Sequence[_Sum], has: Sequence[_Sum]) -> float | None:
    """Return what a value explains, over its standard error but for a factor that all values share.

    None where too few have it, or where all requests before have it: the value that followed says so.
    """
    rest = [half.minus(some) for half, some in zip(sums, has, strict=True)]
    if max(some.n for some in has) < _FEWEST or not rest[0].n:
        return None
    own, others = (sum(one.n for one in part) for part in (has, rest))
    left = rest[1].mean - rest[0].mean if rest[1].n else 0.0
    return (sums[1].mean - sums[0].mean - left) * math.sqrt(others / own)


def _terms(left: _Halves, owned: set[int]) -> list[tuple[int, set[int]]]:
    """Return the means that add up to what a value explains, each with its sign."""
    rest, whole = left.without(owned), [(1, left.after), (-1, left.before)]
    return [*whole, (-1, rest.after), (1, rest.before)] if rest.after else whole


def _combined(rows: Sequence[ChartedRequest], terms: Iterable[tuple[int, set[int]]], *, looked_at: int = 1) -> Interval:
    """Return a sum of means with its interval; requests of one user are dependent, also in several of the means."""
    value, by_user = 0.0, defaultdict[int, float](float)
    for sign, indexes in terms:
        one = _sum(rows, indexes)
        value += sign * one.mean
        for index in indexes:
            by_user[rows[index].cluster] += sign * rows[index].weight * (rows[index].value - one.mean) / one.w
    n = len(by_user)
    error = math.sqrt(math.fsum(part * part for part in by_user.values()) * n / max(1, n - 1))
    return Interval.around(value, student_quantile(1.0 - CHANCE / looked_at, max(1, n - 1)) * error)


def _part(
    rows: Sequence[ChartedRequest], whole: _Halves, left: _Halves, owners: Owners, key: Key, amount: Interval
) -> Explained:
    """Return a value with its shares of all requests, and what came with it in those that are left."""
    having = owners["document", key[1]] if key[0] == LOST else owners[key]
    shares = [some.w / half.w for some, half in zip(whole.sums(rows, having), whole.sums(rows), strict=True)]
    asked = left.before | left.after
    own = owners[key] & asked
    same = (other for other, owned in owners.items() if other[0] not in OUTCOMES and owned & asked == own)
    also = [AttributeValue(*other) for other in same if other != key][:_ALSO]
    return Explained(
        attribute=key[0].removeprefix("lost "), value=key[1], before=shares[0], after=shares[1], amount=amount.value,
        lo=amount.lo, hi=amount.hi, also=also,
    )  # fmt: skip
