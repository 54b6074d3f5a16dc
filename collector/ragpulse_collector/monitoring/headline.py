"""A range in words: what is urgent, what is missing, what changed; and the steady facts with their tone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from ragpulse_collector.analysis.changes import Shift
from ragpulse_collector.analysis.changes.news import usual_text
from ragpulse_collector.analysis.overview import Headline, RangeSummary
from ragpulse_collector.monitoring.listing import ShownMonitor
from ragpulse_collector.monitoring.targets import TargetState
from ragpulse_collector.words import few_errors
from ragpulse_collector.words.figures import (
    by_unit,
    counted,
    interval,
    metric_name,
    ms,
    percent,
    snippet,
    title,
    unit_of,
    usd,
)
from ragpulse_collector.words.times import zoned

__all__ = ["decline", "headline", "moved", "steady_facts"]

_WORST: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "cost_usd": ("Most expensive", {"sort": "expensive"}),
    "error_rate": ("Failed requests", {"error": "true"}),
    "latency_p95": ("Slowest answers", {"sort": "slow"}),
}
"""Button and order of the list behind a change of traffic."""
ERRORS: Final = "error_rate"
FAILING: Final = 0.05
"""Above this share failed requests are urgent where no target says otherwise ..."""
SOME: Final = 3
"""... and if they are at least so many."""
FEW: Final = 20
"""With up to this many answers the headline counts them."""
UNDECIDED: Final = "not decided yet"
"""Why new traces have no cost."""
BLUNT: Final = 0.1
"""Where only a larger change would be seen, nothing is said about smaller ones."""


class Place(Protocol):
    """The range that sentences are about, and where their links lead: a page's address, or nowhere."""

    @property
    def start(self) -> str:
        """`from`: ISO time or relative such as -24h."""
        ...

    @property
    def end(self) -> str:
        """`to`: empty means now."""
        ...

    @property
    def before(self) -> str:
        """The range to compare with, in words."""
        ...

    def url(self, path: str, /, **changes: Any) -> str:
        """Return a link to a path under this range."""
        ...


@dataclass(frozen=True)
class Statement:
    """A sentence about a range, and its links: words and address."""

    text: str
    tone: str = ""
    links: Sequence[tuple[str, str]] = ()
    title: str = ""


@dataclass(frozen=True)
class SteadyFact:
    """A figure of a range that is always shown."""

    name: str
    value: str
    note: str
    url: str
    tone: str


def decline(overview: RangeSummary) -> Shift | None:
    """Return the fall of the quality that leads: the share of used contexts, say, falls with the number of contexts."""
    metric = f"quality:{overview.lead}"
    return next((shift for shift in overview.changes if shift.metric == metric and shift.worse), None)


def headline(
    view: Place,
    overview: RangeSummary,
    targets: Sequence[TargetState] = (),
    monitors: Sequence[ShownMonitor] = (),
    *,
    complete: bool = True,
) -> list[Statement]:
    """Return what to know about a range, the most urgent first; with only the traffic read (not `complete`) a part.

    The order is fixed: firing alerts (of a range that ends now), errors, missed targets, few or unscored answers,
    changes against the range before, changes within, other questions than usual. That nothing changed is said only
    with the size that the scores would have shown.
    """
    urgent = [*_firing(view, monitors), *_errors(view, overview, targets), *_missed(view, targets)]
    missing = [*_few(view, overview), *(_unscored(view, overview) if complete else ())]
    statements = [*urgent, *missing, *_compared(view, overview), *_within(view, overview)]
    statements += _asked(view, overview)
    return statements or ([_unchanged(view, overview)] if complete else [])


def _firing(view: Place, monitors: Sequence[ShownMonitor]) -> Iterator[Statement]:
    alight = [monitor for monitor in monitors if monitor.state == "firing"]
    if alight and not view.end:
        many = f"{len(alight)} alerts are firing" if len(alight) > 1 else "An alert is firing"
        names = snippet(", ".join(monitor.name for monitor in alight))
        measured = snippet("; ".join(map(_alarmed, alight)))
        yield Statement(f"{many}: {names}. {title(measured)}.", "bad", [("Alerts", "/alerts")])


def _alarmed(monitor: ShownMonitor) -> str:
    """Return `cost $1.20, limit > $1.00`: the metric, its value, the limit."""
    unit, condition = unit_of(monitor.metric), monitor.condition
    is_limit = condition[:1] in ("<", ">")
    limit = f"limit {condition[0]} {by_unit(float(condition[1:]), unit)}" if is_limit else condition
    value = "" if monitor.value is None else f" {by_unit(monitor.value, unit)}"
    return f"{metric_name(monitor.metric)}{value}, {limit}"


def _errors(view: Place, overview: RangeSummary, targets: Sequence[TargetState]) -> Iterator[Statement]:
    """Return the level of errors where it is too high, then that they surely rose."""
    change, now, shift = overview.error_change, overview.error_rate, _risen_errors(overview)
    yield from (_miss(view, target) for target in targets if target.metric == ERRORS and target.state == "missed")
    if _is_failing(overview, targets):
        few = few_errors(overview.n_errors, overview.n_traces)
        text = (
            f"{overview.n_errors} of {counted(overview.n_traces, 'request')}" if few else f"{percent(now)} of requests"
        )
        links = [_why(view, ERRORS, shift.t.replace(microsecond=0) if shift else None), *_links(view, ERRORS)]
        yield Statement(f"{text} fail.", "bad", links)
    if shift:
        yield _shifted(view, shift)
    elif change and now is not None and change.value is not None and change.lo is not None and change.lo > 0:
        yield from _against(view, overview, ERRORS, now - change.value, now)


def _is_failing(overview: RangeSummary, targets: Sequence[TargetState]) -> bool:
    """Whether more requests fail than anybody accepts; a target for all of them says what is accepted."""
    some = overview.n_errors is None or overview.n_errors >= SOME
    accepted = any(target.metric == ERRORS and not target.where for target in targets)
    return some and (overview.error_rate or 0.0) > FAILING and not accepted


def _risen_errors(overview: RangeSummary) -> Shift | None:
    return next((shift for shift in overview.changes if shift.metric == ERRORS and shift.worse), None)


def _missed(view: Place, targets: Sequence[TargetState]) -> Iterator[Statement]:
    return (_miss(view, target) for target in targets if target.state == "missed" and target.metric != ERRORS)


def _miss(view: Place, target: TargetState) -> Statement:
    """`Groundedness misses its target: 0.861, at least 0.900.`"""
    unit = unit_of(target.metric)
    words, limit = ("at most", target.max) if target.min is None else ("at least", target.min)
    where = f" where {snippet(target.where, 40)}" if target.where else ""
    figures = f"{by_unit(target.value, unit)}, {words} {by_unit(limit, unit)}{where}"
    links = [
        _why(view, target.metric, where=target.where or ""),
        *_links(view, target.metric),
    ]
    return Statement(f"{_named(target.metric)} misses its target: {figures}.", "bad", links)


def _few(view: Place, overview: RangeSummary) -> Iterator[Statement]:
    n = overview.n_traces
    if not n:
        yield Statement("No answer in this range.")
    elif n <= FEW:
        yield Statement(f"{counted(n, 'answer')} so far.", links=[("Show", view.url("/traces"))])


def _unscored(view: Place, overview: RangeSummary) -> Iterator[Statement]:
    """Say that more than half of the answers have no score of the evaluator that leads, and why.

    Skipped answers need none. Where the leading evaluator fits no answer, the one with the most scores is asked.
    """
    rows = [row for row in overview.coverage if row.selected > row.skipped]
    row = max(rows, key=lambda row: (row.evaluator == overview.lead, row.scored), default=None)
    if row is None:
        return
    fitting, failed = row.selected - row.skipped, row.invalid + row.error + row.dropped
    pending = fitting - row.scored - failed
    if 2 * row.scored >= fitting:
        return
    if pending >= failed:
        yield Statement(f"{pending:,} of {fitting:,} answers are not scored yet.", "warn", [("Health", "/health")])
    else:
        reason = max(("invalid", "error", "dropped"), key=lambda name: getattr(row, name))
        url = view.url("/traces", evaluator=row.evaluator, outcome=reason)
        yield Statement(f"{failed:,} of {fitting:,} answers could not be scored.", "warn", [("Show", url)])


def _compared(view: Place, overview: RangeSummary) -> Iterator[Statement]:
    """Return what surely moved against the range before: what leads first, then what got worse."""
    for row in sorted(moved(overview), key=lambda row: (row.evaluator != overview.lead, row.verdict != "worse")):
        metric, shift = f"quality:{row.evaluator}", _shift_of(overview, row)
        if shift:
            yield _shifted(view, shift)
        elif row.value is not None and row.previous and row.previous.value is not None:
            yield from _against(view, overview, metric, row.previous.value, row.value)


def moved(overview: RangeSummary) -> list[Headline]:
    """Return what is better or worse than in the range before, and not as usual."""
    rows = [row for row in overview.quality if row.verdict in ("worse", "better")]
    usual = {row.evaluator: overview.usual.get(f"quality:{row.evaluator}") for row in rows}
    return [row for row in rows if (level := usual[row.evaluator]) is None or level.sure]


def _shift_of(overview: RangeSummary, row: Headline) -> Shift | None:
    """Return the change within the range that is the same movement: it knows the time."""
    same = (shift for shift in overview.changes if shift.metric == f"quality:{row.evaluator}")
    return next((shift for shift in same if shift.worse == (row.verdict == "worse")), None)


def _within(view: Place, overview: RangeSummary) -> list[Statement]:
    said = [_risen_errors(overview), *(_shift_of(overview, row) for row in moved(overview))]
    return [_shifted(view, shift) for shift in overview.changes if shift not in said]


def _asked(view: Place, overview: RangeSummary) -> Iterator[Statement]:
    """`11 % of the questions belong to no known topic, usually 3.0 %.`"""
    for drift in overview.drift[:1]:
        topic = "belong to no known topic" if drift.topic == "other" else f"are about {snippet(drift.topic, 60)}"
        text = f"{percent(drift.share)} of the questions {topic}, usually {percent(drift.usual)}."
        yield Statement(
            text, "warn", [("Show", view.url("/traces", topic=drift.topic)), ("Topics", view.url("/topics"))]
        )


def _unchanged(view: Place, overview: RangeSummary) -> Statement:
    """Say the largest change that the interval of the difference allows; or the level, without a comparison."""
    rows = sorted(overview.quality, key=lambda row: row.evaluator != overview.lead)
    row = next((row for row in rows if row.difference), None)
    if row is None or row.difference is None or row.difference.lo is None or row.difference.hi is None:
        first = next((row for row in rows if row.value is not None), None)
        level = (
            f"{_named(name := f'quality:{first.evaluator}')} is {by_unit(first.value, unit_of(name))}. "
            if first
            else ""
        )
        return Statement(f"{level}Nothing to compare with: the range before has no scores.")
    if (usual := overview.usual.get(metric := f"quality:{row.evaluator}")) and usual.against:
        now = by_unit(usual.after, unit_of(metric))
        return Statement(f"{_named(metric)} is {now}, usually {usual_text(metric, usual)}.")
    largest = math.ceil(100 * max(-row.difference.lo, row.difference.hi) - 1e-9) / 100
    size = percent(largest) if unit_of(metric) == "share" else f"{largest:.2f}"
    if largest > BLUNT:
        return Statement(f"{_named(metric)}: too few scores to see a change below {size}.")
    return Statement(f"{_named(metric)}: no change above {size} against {view.before}.")


def _against(view: Place, overview: RangeSummary, metric: str, before: float, after: float) -> Iterator[Statement]:
    """Return what a range differs in from what is usual, or else from the range before."""
    against = view.before
    if usual := overview.usual.get(metric):
        if not usual.sure:
            return
        before, after, against = usual.before, usual.after, usual.against or view.before
    worse = (after > before) == (metric == ERRORS)
    text = f"{_named(metric)} {levels(metric, before, after)} against {against}."
    yield Statement(text, "bad" if worse else "good", [_why(view, metric), *_links(view, metric)])


def _shifted(view: Place, shift: Shift) -> Statement:
    """`Groundedness fell 0.94 → 0.73 at 18:12 UTC, when prompt qa v2 began.`, and its links."""
    before, after, start = shift.before, shift.after, shift.t.replace(microsecond=0)  # forms show seconds only
    cause = f", when {shift.cause} began" if shift.cause else ""
    usually = f", usually {shift.usually}" if shift.usually else ""
    moving = f"{_named(shift.metric)} {levels(shift.metric, before.value, after.value)}"
    return Statement(
        text=f"{moving} at {zoned(shift.t)}{cause}{usually}.",
        tone="bad" if shift.worse else "good",
        links=[_why(view, shift.metric, start), *_links(view, shift.metric, start)],
        title=f"{shift.sureness:.1f} standard errors; {before.n:,} answers before, {after.n:,} after",
    )


def _why(view: Place, metric: str, at: datetime | None = None, where: str = "") -> tuple[str, str]:
    """Return the link to what moved a metric since a moment, by default the start of the range."""
    narrowed = {"where": where} if where else {}
    return "Why?", view.url("/explain", group_by=None, metric=metric, at=at or view.start, **narrowed)


def _named(metric: str) -> str:
    return title({"cost_usd": "cost per answer"}.get(metric, metric_name(metric)))


def levels(metric: str, before: float, after: float) -> str:
    """Return `fell 0.94 → 0.73`, with as many digits as show the difference."""
    unit = unit_of(metric)
    short = [f"{level:.2f}" for level in (before, after)]
    shown = short if unit == "ratio" and short[0] != short[1] else [by_unit(level, unit) for level in (before, after)]
    return f"{'fell' if after < before else 'rose'} {' → '.join(shown)}"


def _links(view: Place, metric: str, since: datetime | None = None) -> list[tuple[str, str]]:
    """Return the list of traces behind a metric."""
    words, order = _WORST.get(metric) or ("Worst answers", {"evaluator": metric.partition(":")[2], "sort": "worst"})
    return [(words, view.url("/traces", **({"from_": since} if since else {}), **order))]


def steady_facts(view: Place, overview: RangeSummary, targets: Sequence[TargetState]) -> list[SteadyFact]:
    """Return cost, errors, p95 and traffic, each with the tone of its target or its change."""
    errors = overview.error_interval
    cost_url = view.url("/figures", from_=view.start, metric="cost_usd", title="Cost")
    range_of_errors = interval(*errors, "share") if errors else ""
    estimated = "estimated: sampled upstream" if overview.estimated else ""
    few = few_errors(overview.n_errors, overview.n_traces)
    facts = [
        ("Cost", "cost_usd", usd(overview.cost_usd), _unpriced(overview), cost_url),
        (
            "Errors",
            "error_rate",
            few or percent(overview.error_rate),
            range_of_errors,
            view.url("/traces", error="true"),
        ),
        ("Latency p95", "latency_p95", ms(overview.latency_p95), "", view.url("/traces", sort="slow")),
        ("Traffic", "requests", counted(overview.n_traces, "answer"), estimated, view.url("/traces")),
    ]
    worse = {shift.metric: shift.worse for shift in overview.changes}
    failing = {ERRORS} if _is_failing(overview, targets) else ()
    return [
        SteadyFact(name, value, note, url, "bad" if metric in failing else _tone(metric, targets, worse))
        for name, metric, value, note, url in facts
    ]


def _unpriced(overview: RangeSummary) -> str:
    """Return how many costs are missing, and why: those of new answers come with the last of their spans."""
    if not overview.cost_unknown_share:
        return ""
    share, reason = percent(overview.cost_unknown_share), overview.cost_unknown_reason
    if reason == UNDECIDED:
        return f"being added up for {share}: a cost is known once all spans of its answer are in"
    return f"unknown for {share}" + (f": {snippet(reason, 80)}" if reason else "")


def _tone(metric: str, targets: Sequence[TargetState], worse: Mapping[str, bool]) -> str:
    states = {target.state for target in targets if target.metric == metric}
    return "bad" if "missed" in states else "warn" if worse.get(metric) or "undecided" in states else ""
