"""What chosen requests have in common that the others lack, by tests that count users."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragpulse_collector.analysis.explain.requests import Key, Row
from ragpulse_collector.analysis.selection import Window
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.documents import retrievals, shared_documents
from ragpulse_evaluators.statistics import Moments, benjamini_hochberg, two_proportion

__all__ = ["Members", "compared", "held_of"]

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
