"""Combines evaluators: failures of retrieval or generation, share and cost of good answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args

from ragpulse_collector.analysis.answers import GroupValue
from ragpulse_collector.analysis.quality import Bucket, current
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.analysis.selection import Window, grouping
from ragpulse_collector.analysis.traffic import adding, by_user
from ragpulse_collector.store import Store
from ragpulse_collector.store.estimates import CLUSTER_SUMS, MOMENTS
from ragpulse_collector.store.queries.decisions import NOT_DRAWN
from ragpulse_collector.store.queries.scores import evaluators_in, sample_of
from ragpulse_collector.store.queries.traces import Filter, public_name
from ragpulse_collector.store.views import UNCLEAR
from ragpulse_evaluators.statistics import Interval, Moments, Uncertain, minus

FAITHFUL = ("faithfulness", "statement_faithfulness", "groundedness")
"""Evaluators of whether an answer is supported, the most trusted first: read where the leading one has no verdict."""
RELEVANT = ("relevancy", "answer_relevancy", "refusal")
"""Evaluators of whether an answer answers the question."""


def cost_of_good(cost: Interval, answered: Interval, share: Interval) -> Uncertain | None:
    """Return the cost of a good answer with its interval; None where no answer is known to be good.

    `cost` is that of a request, failed ones too: these are no good answers, `answered` is the share of the others. The
    intervals are joined as logarithms, since errors of a quotient are relative.
    """
    if min(cost.value, answered.value, share.value) <= 0.0:
        return None
    log = minus(minus(_log(cost), _log(answered)), _log(share))
    hi = None if math.isinf(log.hi) else math.exp(log.hi)
    return Uncertain(value=math.exp(log.value), lo=math.exp(log.lo), hi=hi)


def _log(one: Interval) -> Interval:
    return Interval(*(math.log(end) if end > 0.0 else -math.inf for end in (one.value, one.lo, one.hi)))


def mean_cost(store: Store, window: Window, filters: Filter) -> Interval | None:
    """Return the cost of a request with its interval, of those whose cost is known; the requests of a user are alike.

    None where fewer than five users show how it varies.
    """
    source = adding("cost_usd", window.whole, filters, ())
    found = by_user(store, source, ("t",), {**window.parameters, **filters.parameters})
    return next((Interval.of(sums.estimate(bounds=None)) for sums in found.values()), None)


def first_of(store: Store, window: Window, names: tuple[str, ...]) -> str | None:
    """Return the first of these evaluators with a verdict in the window."""
    return _first(names, evaluators_in(store, window.parameters))


def _first(names: Sequence[str], available: Sequence[str]) -> str | None:
    return next((name for name in names if name in available), None)


def good_by(available: Sequence[str], lead: str) -> list[str]:
    """Return the available evaluators that a good answer passes: the one that leads, one of relevancy."""
    names = (_first((lead, *FAITHFUL), available), _first(RELEVANT, available))
    return [name for name in names if name is not None]


def good_share(store: Store, window: Window, filters: Filter, buckets: Sequence[Bucket], lead: str) -> Interval | None:
    """Return the estimated share of good answers, which pass both evaluators; the smaller pi counts.

    The interval holds whatever the unclear and missing verdicts are. `buckets` are those of all evaluators. None
    without an evaluator of whether an answer is supported.
    """
    names = good_by([bucket.evaluator for bucket in buckets], lead)
    if not names or names[0] not in (lead, *FAITHFUL):
        return None
    samples = [sample_of(store, name, window.parameters, filters, prefix=f"of_{name}_") for name in names]
    parameters = {name: value for sample in samples for name, value in sample.parameters.items()}
    a, *others = (
        f"(SELECT *, {_GOOD} AS good FROM ({sample.sql}) WHERE status = 'ok' AND pi > 0)" for sample in samples
    )
    good, pi, joined = "a.good", "a.pi", f"{a} a"
    for b in others:
        good, pi = "a.good AND b.good", "least(a.pi, b.pi)"
        joined += f" JOIN {b} b ON hash(b.trace_id, b.span_id) = hash(a.trace_id, a.span_id)"
    ((unclear, *sums),) = store.read(
        f"SELECT coalesce(sum(unclear), 0), {MOMENTS} FROM ("
        f"SELECT cluster, sum(1 / pi) FILTER (y IS NULL) AS unclear, {CLUSTER_SUMS.format(y='y')}"
        f" FROM (SELECT ({good})::INTEGER AS y, {pi} AS pi, a.cluster FROM {joined}) GROUP BY ALL)",
        parameters,
    ).rows
    moments = Moments.of(sums)
    share = Interval.of(moments.estimate()) if moments else None
    if moments is None or share is None:
        return None
    newest = [current(bucket for bucket in buckets if bucket.evaluator == name) for name in names]
    missing = unclear + max((bucket.missing.weight for bucket in newest if bucket), default=0.0)
    lost = missing / (missing + moments.w)
    return Interval(share.value, share.lo * (1.0 - lost), share.hi * (1.0 - lost) + lost)


_GOOD = f"CASE WHEN NOT {UNCLEAR} THEN coalesce(passing, normalized >= 0.5) END"


FailureKind = Literal["good", "retrieval", "generation", "refusal_right", "refusal_wrong", "unknown"]
SUFFICIENT = ("context_recall", "context_relevancy", "context_precision")
"""Evaluators of whether the contexts contain the answer, the most trusted first; all need a judge."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The evaluators whose verdicts decide where an answer failed; null where there is none."""

    faithful: str | None
    sufficient: str | None
    used: str | None
    answered: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCell:
    """The answers of a bucket and group by kind, weighted by 1/pi; `n` counts those with a verdict."""

    t: datetime
    group: Mapping[str, GroupValue]
    n: int
    good: float
    retrieval: float
    generation: float
    refusal_right: float
    refusal_wrong: float
    unknown: float


@dataclass(frozen=True, slots=True)
class FailureAttribution:
    """Failures by retrieval and by generation."""

    evaluators: Roles
    cells: Sequence[FailureCell]
    other_groups: int
    """Groups beyond the largest, which are one: `(other)`."""


def failure_attribution(store: Store, query: Query, lead: str = "") -> FailureAttribution:
    """Answer `GET blame`: per bucket and group the estimated number of answers of each kind (weighted by 1/pi).

    good: contexts sufficient, answer supported. retrieval: contexts insufficient. generation: sufficient, yet the
    answer is not supported. A refusal is right where the contexts were insufficient. Without a verdict on the
    contexts, an unsupported answer counts as generation if it used any context, else as retrieval.
    """
    groups, other_groups = grouping(store, query.window, query.filters, query.groups)
    roles = Roles(
        faithful=first_of(store, query.window, (lead, *FAITHFUL)),
        sufficient=first_of(store, query.window, SUFFICIENT),
        used=first_of(store, query.window, ("context_utilization",)),
        answered=first_of(store, query.window, ("refusal",)),
    )
    by_place: dict[tuple[datetime, tuple[GroupValue, ...]], list[_Pattern]] = defaultdict(list)
    for pattern in _patterns(store, query, groups, roles):
        by_place[pattern.start, pattern.group].append(pattern)
    names = [public_name(group) for group in groups]
    cells = [
        _cell(start, dict(zip(names, group, strict=True)), by_place[start, group])
        for start, group in sorted(by_place, key=lambda key: (key[0], str(key[1])))
    ]
    return FailureAttribution(roles, cells, other_groups)


def _cell(start: datetime, group: Mapping[str, GroupValue], patterns: Sequence[_Pattern]) -> FailureCell:
    weights = dict.fromkeys(get_args(FailureKind), 0.0)
    for pattern in patterns:
        weights[pattern.kind] += pattern.weight
    return FailureCell(t=start, group=group, n=sum(pattern.n for pattern in patterns), **weights)


def verdict_on(
    *, faithful: bool | None, sufficient: bool | None, used: bool | None, answered: bool | None
) -> FailureKind:
    """Return the kind of an answer from its verdicts; None stands for a missing verdict."""
    if answered is False:
        return "unknown" if sufficient is None else "refusal_wrong" if sufficient else "refusal_right"
    if sufficient is False:
        return "retrieval"
    if faithful is None:
        return "unknown"
    if faithful:
        return "good"
    return "retrieval" if sufficient is None and used is False else "generation"


@dataclass(frozen=True, slots=True)
class _Pattern:
    """The units of a bucket and group with the same verdicts, and their weight (by the smallest pi)."""

    start: datetime
    n: int
    weight: float
    faithful: bool | None
    sufficient: bool | None
    used: bool | None
    answered: bool | None
    group: tuple[GroupValue, ...]

    @property
    def kind(self) -> FailureKind:
        """The kind of these answers."""
        return verdict_on(faithful=self.faithful, sufficient=self.sufficient, used=self.used, answered=self.answered)


def _patterns(store: Store, query: Query, groups: tuple[str, ...], roles: Roles) -> list[_Pattern]:
    names = {role.name: getattr(roles, role.name) for role in fields(roles)}
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    group_sql = "".join(f", {group}" for group in groups)
    for role, name in names.items():
        if name is not None:
            sample = sample_of(store, name, query.window.parameters, query.filters, columns=groups, prefix=f"{role}_")
            passed = "normalized > 0" if role == "used" else "coalesce(passing, normalized >= 0.5)"
            parts.append(
                f"SELECT hash(trace_id, span_id) AS unit, request_time, pi, status, evaluator, '{role}' AS role,"
                f" CASE WHEN status = 'ok' AND NOT {UNCLEAR} THEN {passed} END AS ok{group_sql}"
                f" FROM ({sample.sql}) WHERE pi > 0"
            )
            parameters |= sample.parameters
    if not parts:
        return []
    verdicts = ", ".join(f"bool_or(ok) FILTER (role = '{role}') AS {role}" for role in names)
    units = (
        f"WITH verdicts AS ({' UNION ALL '.join(parts)})"
        f" SELECT any_value(request_time) AS request_time, min(pi) AS pi, {verdicts}{group_sql}"
        f" FROM verdicts ANTI JOIN (FROM ({NOT_DRAWN}) ANTI JOIN verdicts USING (unit, evaluator)) USING (unit)"
        f" GROUP BY unit{group_sql}"
        " HAVING (count(ok) > 0 OR bool_or(status <> 'skipped'))"  # what is unclear or failed is an answer, too
        + (" AND bool_or(role = 'faithful')" if roles.faithful else "")  # the others are in the weights of these
    )
    rows = store.read(
        f"SELECT {query.window.bucket('request_time')},"
        f" count(*) FILTER (coalesce({', '.join(names)}) IS NOT NULL), sum(1 / pi), {', '.join(names)}{group_sql}"
        f" FROM ({units}) GROUP BY ALL",
        {**parameters, "names": [name for name in names.values() if name]},
    ).rows
    return [
        _Pattern(start, n, weight, faithful, sufficient, used, answered, tuple(group))
        for start, n, weight, faithful, sufficient, used, answered, *group in rows
    ]
