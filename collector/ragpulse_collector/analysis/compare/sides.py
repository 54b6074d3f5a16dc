"""The two sides of a comparison: what a name selects, its scored units; tests of quality, latency, cost, acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from ragpulse_collector.analysis.answers import extended, uncertain
from ragpulse_collector.analysis.attribution import FAITHFUL, first_of
from ragpulse_collector.analysis.quality import Missing
from ragpulse_collector.analysis.query import Query, columns_of
from ragpulse_collector.analysis.selection import SEVERAL, Window
from ragpulse_collector.analysis.traffic import ACCEPTED, adding, by_user
from ragpulse_collector.refusals import Invalid, NotFound, nearest
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.decisions import without_verdict
from ragpulse_collector.store.queries.runs import latest_runs
from ragpulse_collector.store.queries.scores import MEASURES, RUN_SCORES, evaluators_in, sample_of
from ragpulse_collector.store.queries.traces import Filter, facts_of
from ragpulse_evaluators.statistics import (
    Estimate,
    Interval,
    Uncertain,
    benjamini_hochberg,
    compare_arms,
    minus,
    needed_n,
)
from ragpulse_evaluators.statistics.comparison import ENOUGH_CLUSTERS

DIMENSIONS = {
    "prompt": "prompt_version",
    "model": "model",
    "variant": "variant",
    "service": "service",
    "release": "release",
    "index": "index_version",
}


@dataclass(frozen=True, slots=True)
class Scored:
    """One unit on one side."""

    unit: tuple[str, int]
    mix: tuple[str | None, ...]
    """What the request brought: values of its metadata."""
    time: datetime
    value: float
    pi: float
    cluster: int
    identified: int
    explanation: str | None
    failed: int | None
    """1 where the evaluator fails it, None where it has no pass or fail."""
    unclear: int | None
    stratum: str | None
    question: int | None
    """A hash of its text."""


Unit = tuple[str, int]
Units = Mapping[Unit, Scored]


@dataclass(frozen=True, slots=True)
class Unscored:
    """A selected unit without a verdict: its evaluation failed, or the budget left it out."""

    time: datetime
    pi: float
    stratum: str | None


@dataclass(frozen=True, slots=True)
class SideUnits:
    """The units of a side; a verdict on two sides has to hold whatever the missing verdicts are."""

    scored: Units
    failed: Mapping[Unit, Unscored]
    dropped: Mapping[Unit, Unscored]

    @property
    def missing(self) -> Missing:
        """The missing verdicts with their weight."""
        lost = (*self.failed.values(), *self.dropped.values())
        return Missing(len(self.dropped), len(self.failed), weight=sum(1.0 / unit.pi for unit in lost))

    @property
    def missing_share(self) -> float:
        """The share of the side's traffic that has no verdict."""
        lost = self.missing.weight
        return lost / (lost + sum(1.0 / unit.pi for unit in self.scored.values())) if lost else 0.0

    def within(self, stratum: str | None) -> SideUnits:
        """Return the units of one value of the dimension."""
        return self._where(lambda unit: unit.stratum == stratum)

    def before(self, time: datetime) -> SideUnits:
        """Return the units of earlier requests."""
        return self._where(lambda unit: unit.time < time)

    def _where(self, keep: Callable[[Scored | Unscored], bool]) -> SideUnits:
        return SideUnits(
            {key: unit for key, unit in self.scored.items() if keep(unit)},
            {key: unit for key, unit in self.failed.items() if keep(unit)},
            {key: unit for key, unit in self.dropped.items() if keep(unit)},
        )


NeededUnit = Literal["answers", "users", "verdicts"]
SideVerdict = Literal[
    "better", "worse", "more lenient", "stricter", "no difference", "not enough data", "undecided, see by group"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The difference b minus a with its verdict."""

    difference: Uncertain | None
    verdict: SideVerdict
    least: float | None = None
    """The interval that decides: the difference with all missing verdicts against b, and for it."""
    most: float | None = None
    need_more: int | None = None
    """About how many more answers or users would decide."""
    need_more_of: NeededUnit = "answers"


@dataclass(frozen=True, slots=True)
class SideTest:
    """The test of a difference; `p_adjusted` where several were looked at."""

    name: str
    p: float
    p_adjusted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect(Decided):
    """A difference of another figure: latency, cost, acceptance."""

    metric: str
    unit: str
    a: float
    b: float
    p: float
    p_adjusted: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared(Decided):
    """A difference of quality with its test; `effect_size` is in standard deviations of an answer (Cohen 1988)."""

    test: SideTest | None = None
    effect_size: float | None = None
    """Null without any spread."""
    paired: bool = False


AnyDecided = TypeVar("AnyDecided", bound=Decided)


@dataclass(frozen=True, slots=True)
class Side:
    """What `NAME@x`, `judge:j`, `run:ID`, `prompt:v7`, `model:m`, `variant:v` selects."""

    name: str
    evaluator: str | None = None
    version: str | None = None
    judge: str | None = None
    run_id: str | None = None
    column: str | None = None
    value: str | None = None


def dimension_of(by: str | None) -> str | None:
    """Return the column that splits the comparison; raises Invalid for several."""
    names = columns_of((by or "").split(","))
    if len(names) > 1:
        raise Invalid("by: one dimension at a time")
    if names and names[0] in SEVERAL:
        name = names[0]
        raise Invalid(f"by: a trace may have several {name}s; compare {name}:A with {name}:B, or filter by {name}")
    return names[0] if names else None


def side_of(store: Store, text: str) -> Side:
    """Read the name of a side; raises Invalid, NotFound."""
    kind, colon, value = text.partition(":")
    if colon and kind == "run":
        run = latest_runs(store, run_id=value).get(value)
        if run is None:
            raise NotFound(f"no replay {value!r}")
        return Side(text, evaluator=run.evaluator.partition("@")[0], run_id=value)
    if value and kind == "judge":
        return Side(text, judge=value)
    if colon and kind in DIMENSIONS:
        return Side(text, column=DIMENSIONS[kind], value=value)
    if colon and (kind in SEVERAL or kind.startswith(("metadata.", "label."))):
        return Side(text, column=columns_of([kind])[0], value=value)
    name, at_sign, version = text.partition("@")
    if not at_sign or not name or not version:
        slip = nearest(kind, (*DIMENSIONS, "judge", "run", "tag")) if colon else ""
        raise Invalid(
            f"{text!r}: write NAME@VERSION, judge:..., run:ID, prompt:v7, model:..., variant:..., service:..., "
            f"release:..., tag:..., metadata.KEY:... or label.NAME:...{slip}"
        )
    return Side(text, evaluator=name, version=version)


def evaluator_of(store: Store, sides: Sequence[Side], requested: str | None, window: Window, lead: str) -> str:
    """Return the evaluator to compare by: the requested one, else the one that leads, else any."""
    evaluators = {side.evaluator for side in sides if side.evaluator}
    if len(evaluators) > 1:
        raise Invalid(f"the sides are different evaluators: {', '.join(sorted(evaluators))}")
    evaluator = requested or next(iter(evaluators), None) or first_of(store, window, (lead, *FAITHFUL))
    evaluator = evaluator or next(iter(evaluators_in(store, window.parameters)), None)
    if evaluator is None:
        raise NotFound("nothing was scored in this window: start a replay, or look further back")
    return evaluator.partition("@")[0]


def units_of(
    store: Store, side: Side, evaluator: str, query: Query, by: str | None, mix: Sequence[str] = ()
) -> tuple[SideUnits, datetime | None]:
    """Return the side's units, and the oldest request that waits for its verdict; of several versions the latest.

    `mix` are the columns of what a request brought.
    """
    columns = dict.fromkeys((*DIMENSIONS.values(), "query", *mix, *filter(None, (by, side.column))))
    within = query.window.parameters
    # Groups of requests are compared by the scores in use: an exploratory version may have scored one of them only.
    exploratory = side.column is None or evaluator not in evaluators_in(store, within)
    sample = sample_of(store, evaluator, within, query.filters, columns=tuple(columns), exploratory=exploratory)
    conditions, extra = ["status <> 'skipped'", "pi IS NOT NULL"], dict(sample.parameters)
    if side.version is not None:
        conditions.append("(starts_with(s.version, $side) OR s.label_version = $side)")
        extra["side"] = side.version
    if side.judge is not None:
        conditions.append("(s.judge = $side OR starts_with(s.judge, $side || ' '))")  # parameters follow the name
        extra["side"] = side.judge
    if side.column is not None:
        conditions.append(f"s.{side.column} = $side")
        extra["side"] = side.value
    source = f"({sample.sql}) s"
    if side.run_id is not None:
        source += f" SEMI JOIN ({RUN_SCORES}) i ON i.score_key = s.score_key"
        extra["run"] = side.run_id
    rows = store.read(
        "SELECT trace_id, span_id, request_time, normalized, pi,"
        f" cluster, identified, explanation, {MEASURES['fail_rate']}, {MEASURES['unclear_rate']},"
        f" {f'{by}::VARCHAR' if by else 'NULL'}, CASE WHEN query IS NOT NULL THEN hash(query) END,"
        f" status = 'ok' AND coalesce(abs(normalized) < {_LARGEST}, false), status,"
        f" version, judge{''.join(f', s.{one}' for one in mix)}"
        f" FROM {source} WHERE {' AND '.join(conditions)}",
        extra,
    ).rows
    newest = max((row for row in rows if row[12]), key=lambda row: (row[2], str(row[14:16])), default=None)
    rows = [row for row in rows if newest is not None and row[14:16] == newest[14:16]]
    scored = {(row[0].hex, row[1]): Scored((row[0].hex, row[1]), row[16:], *row[2:12]) for row in rows if row[12]}
    lost = (row for row in rows if row[13] in ("invalid", "error"))
    failed = {(row[0].hex, row[1]): Unscored(row[2], row[4], row[10]) for row in lost}
    dropped, waiting = _unseen(store, side, evaluator, query, by) if side.column else ({}, None)
    return SideUnits(scored, failed, dropped), waiting


def _unseen(
    store: Store, side: Side, evaluator: str, query: Query, by: str | None
) -> tuple[Mapping[Unit, Unscored], datetime | None]:
    """Return what a budget left out of a group's selected units, and the oldest request that waits for its verdict."""
    group = query.filters & Filter(f"{side.column} = $side", {"side": side.value})
    columns = dict.fromkeys(filter(None, (side.column, by, "upstream_pi")))
    rows = store.read(
        f"SELECT d.trace_id, d.span_id, d.request_time, d.pi, {f't.{by}::VARCHAR' if by else 'NULL'}, d.sampled"
        f" FROM ({without_verdict(evaluator)}) d JOIN ({facts_of(group, tuple(columns))}) t ON t.trace_id = d.trace_id"
        # Pacing leaves out units with u above pi: they were never selected. A cap drops selected units.
        " WHERE d.sampled OR d.u * coalesce(t.upstream_pi, 1) < d.pi",
        {"evaluator": evaluator, **query.window.parameters, **group.parameters},
    ).rows
    dropped = {(row[0].hex, row[1]): Unscored(*row[2:5]) for row in rows if not row[5]}
    return dropped, min((row[2] for row in rows if row[5]), default=None)


_LARGEST = 1e100
"""A value beyond is no measurement, as infinite ones are none: its square is beyond what a number holds."""
TAU = 0.1
"""The difference that the sequential test is tuned for: of normalized scores, or as a share of the larger mean."""
ALPHA = 0.05


def more_needed(mean: float, half: float, n: int) -> int | None:
    """Return about how many more answers would decide, at the measured difference (at least 0.01)."""
    return max(1, math.ceil(n * (half / max(abs(mean), 0.01)) ** 2) - n) if half else None


Group = tuple[str, str]
"""A column of `traces` and its value."""
WHOLE = ""
"""Stands for all values together: no dimension has an empty value."""
_COLUMNS = {"latency_ms": ("latency", "ms"), "cost_usd": ("cost", "USD"), ACCEPTED: ("acceptance", "score")}
OPPOSITE: dict[SideVerdict, SideVerdict] = {"better": "worse", "worse": "better"}


def effects(
    store: Store, a_is: Group, b_is: Group, query: Query, by: str | None
) -> Mapping[str | None, Sequence[Effect]]:
    """Compare latency, cost and acceptance of two groups of requests, in all (key WHOLE) and by values of `by`.

    Tests are clustered by user; the verdict of a value uses p-values adjusted for all values (Benjamini-Hochberg).
    """
    found = []
    for column in _COLUMNS:
        a, b = (_arms(store, column, side, query, by) for side in (a_is, b_is))
        found += [(stratum, _effect(column, a[stratum], b[stratum])) for stratum in a.keys() & b.keys()]
    parts = [(stratum, effect) for stratum, effect in found if stratum != WHOLE]
    adjusted = benjamini_hochberg([effect.p for _, effect in parts])
    by_stratum: dict[str | None, list[Effect]] = {}
    for stratum, effect in found:
        if stratum == WHOLE:
            by_stratum.setdefault(stratum, []).append(effect)
    for (stratum, effect), p in zip(parts, adjusted, strict=True):
        by_stratum.setdefault(stratum, []).append(replace(unless_by_chance(effect, p), p_adjusted=p))
    return by_stratum


def unless_by_chance(found: AnyDecided, p_adjusted: float) -> AnyDecided:
    """Return a comparison of many without its verdict where the difference may be by chance."""
    if p_adjusted > ALPHA and found.verdict in ("better", "worse"):
        return replace(found, verdict="not enough data")
    return found


def _arms(store: Store, column: str, side: Group, query: Query, by: str | None) -> Mapping[str | None, Estimate]:
    """Return one side's mean of a column, clustered by user, in all and by stratum."""
    columns, is_side = tuple(filter(None, (by, side[0]))), f"{side[0]} = $side AND abs(y) < {_LARGEST}"
    requests = adding(column, query.window.whole, query.filters, columns, condition=is_side)
    source, found = f"SELECT *, {by or 'NULL'}::VARCHAR AS stratum FROM ({requests})", dict[str | None, Estimate]()
    for key in ("t", "stratum") if by else ("t",):
        for (stratum,), sums in by_user(store, source, (key,), {**query.parameters, "side": side[1]}).items():
            found[WHOLE if key == "t" else None if stratum is None else str(stratum)] = sums.estimate()
    return found


def _effect(column: str, a: Estimate, b: Estimate) -> Effect:
    metric, unit = _COLUMNS[column]
    decided, test = compare_sides(a, b, scale=max(abs(a.estimate), abs(b.estimate), 1e-9), bounded=False)
    if column != ACCEPTED:  # lower is better
        decided = replace(decided, verdict=OPPOSITE.get(decided.verdict, decided.verdict))
    return extended(Effect, decided, metric=metric, unit=unit, a=a.estimate, b=b.estimate, p=test.p)


def compare_sides(a: Estimate, b: Estimate, *, scale: float, bounded: bool) -> tuple[Decided, SideTest]:
    """Return the difference b minus a, its test, the verdict, and how many more answers or users would decide.

    The test is sequential. Where the values of each side are constant, it is the exact permutation test of users.
    `scale` is the size of the values, `bounded` says that they lie in 0..1. Below 30 users a side there is no verdict.
    """
    sequence = compare_arms(b, a, tau=TAU * scale)
    value = b.estimate - a.estimate
    difference = Uncertain(value=value)
    more: int | None = None
    if sequence is not None:
        name, p = "sequential, by user", sequence.p
        difference = uncertain(sequence)
        more = more_needed(value / scale, (sequence.hi - sequence.lo) / 2.0 / scale, a.n + b.n)
    else:
        name, p = "exact, by user", min(1.0, 2.0 / math.comb(a.clusters + b.clusters, a.clusters)) if value else 1.0
        before, after = Interval.of(a), Interval.of(b)
        if bounded and before and after:
            difference = minus(after, before)
            more = needed_n(0.95, 0.05) - min(a.n, b.n)
    missing_users = max(0, ENOUGH_CLUSTERS - min(a.clusters, b.clusters))
    verdict: SideVerdict = "not enough data"
    if not (missing_users or a.thin or b.thin):
        if p <= ALPHA:
            verdict = "better" if value > 0.0 else "worse"
        elif max(abs(end or 0.0) for end in (difference.lo, difference.hi)) < 0.05 * scale:
            verdict = "no difference"
    decided = Decided(difference=difference, verdict=verdict)
    if verdict == "not enough data":
        of: NeededUnit = "users" if missing_users else "answers"
        decided = replace(decided, need_more=missing_users or max(1, more or 1), need_more_of=of)
    return decided, SideTest(name, p)
