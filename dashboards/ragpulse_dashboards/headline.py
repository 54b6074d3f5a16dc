"""A range in words: a sentence for each change, and the steady facts with their tone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ragpulse_dashboards.formats import (
    by_unit,
    clock,
    counted,
    interval,
    metric_name,
    ms,
    percent,
    title,
    unit_of,
    usd,
)
from ragpulse_dashboards.site import View
from ragpulse_dashboards.words import few_errors

if TYPE_CHECKING:
    from ragpulse_collector.analysis.changes import Shift
    from ragpulse_collector.analysis.overview import RangeSummary
    from ragpulse_collector.monitoring.targets import TargetState

__all__ = ["decline", "sentences", "steady_facts"]

_WORST: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "cost_usd": ("Most expensive", {"sort": "expensive"}),
    "error_rate": ("Failed requests", {"error": "true"}),
    "latency_p95": ("Slowest answers", {"sort": "slow"}),
}
"""Button and order of the list behind a change of traffic."""


@dataclass(frozen=True)
class ChangeSentence:
    """A change in words, and its links."""

    text: str
    title: str
    tone: str
    why: str
    worst: str
    worst_words: str


@dataclass(frozen=True)
class SteadyFact:
    """A figure of a range that is always shown."""

    name: str
    value: str
    note: str
    url: str
    tone: str


def decline(overview: RangeSummary) -> Shift | None:
    """Return the surest change of a score for the worse."""
    return next((shift for shift in overview.changes if shift.metric.startswith("quality:") and shift.worse), None)


def sentences(view: View, overview: RangeSummary) -> list[ChangeSentence]:
    """Return a sentence for each change, the surest first."""
    return [_sentence(view, shift) for shift in overview.changes]


def _sentence(view: View, shift: Shift) -> ChangeSentence:
    """`Groundedness fell 0.94 → 0.73 at 18:12 UTC, when prompt qa v2 began.`, and its links."""
    metric, before, after = shift.metric, shift.before, shift.after
    evaluator = metric.partition(":")[2]
    unit = unit_of(metric) if evaluator else shift.unit
    levels = (f"{level.value:.2f}" if unit == "ratio" else by_unit(level.value, unit) for level in (before, after))
    cause = f", when {shift.cause} began" if shift.cause else ""
    name = {"cost_usd": "cost per answer"}.get(metric, metric_name(metric))
    verb = "fell" if after.value < before.value else "rose"
    start = shift.t.replace(microsecond=0)  # forms show seconds only
    words, order = _WORST.get(metric) or ("Worst answers", {"evaluator": evaluator, "sort": "worst"})
    return ChangeSentence(
        text=f"{title(name)} {verb} {' → '.join(levels)} at {clock(shift.t)} UTC{cause}.",
        title=f"{shift.sureness:.1f} standard errors; {before.n:,} answers before, {after.n:,} after",
        tone="bad" if shift.worse else "good",
        why=view.url("/explain", metric=metric, sel_from=start),
        worst=view.url("/traces", from_=start, **order),
        worst_words=words,
    )


def steady_facts(view: View, overview: RangeSummary, targets: Sequence[TargetState]) -> list[SteadyFact]:
    """Return cost, errors, p95 and traffic, each with the tone of its target or its change."""
    unknown, errors = overview.cost_unknown_share, overview.error_interval
    cost_url = view.url("/figures", from_=view.start, metric="cost_usd", title="Cost")
    range_of_errors = interval(*errors, "share") if errors else ""
    estimated = "estimated: sampled upstream" if overview.estimated else ""
    few = few_errors(overview.n_errors, overview.n_traces)
    facts = [
        ("Cost", "cost_usd", usd(overview.cost_usd), f"unknown for {percent(unknown)}" if unknown else "", cost_url),
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
    return [
        SteadyFact(name, value, note, url, _tone(metric, targets, worse)) for name, metric, value, note, url in facts
    ]


def _tone(metric: str, targets: Sequence[TargetState], worse: Mapping[str, bool]) -> str:
    states = {target.state for target in targets if target.metric == metric}
    return "bad" if "missed" in states else "warn" if worse.get(metric) or "undecided" in states else ""
