"""A range in words: a sentence for each change, and the steady facts with their tone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ragpulse_dashboards.formats import by_unit, clock, counted, interval, metric_name, ms, percent, title, unit_of, usd
from ragpulse_dashboards.site import View

if TYPE_CHECKING:
    from ragpulse_collector.monitoring.targets import TargetState

__all__ = ["headline"]

_WORST: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "cost_usd": ("Most expensive", {"sort": "expensive"}),
    "error_rate": ("Failed requests", {"error": "true"}),
    "latency_p95": ("Slowest answers", {"sort": "slow"}),
}
"""Button and order of the list behind a change of traffic."""


def headline(view: View, overview: Mapping[str, Any], targets: Sequence[TargetState]) -> dict[str, Any]:
    """Return the sentences, the surest change first, the steady facts, and the worst change of a score."""
    changes = overview.get("changes", [])  # absent while only the traffic is read
    return {
        "sentences": [_sentence(view, change) for change in changes],
        "steady": _steady(view, overview, targets),
        "decline": next(
            (change for change in changes if change["metric"].startswith("quality:") and change["worse"]), None
        ),
    }


def _sentence(view: View, change: Mapping[str, Any]) -> dict[str, Any]:
    """`Groundedness fell 0.94 → 0.73 at 18:12 UTC, when prompt qa v2 began.`, and its links."""
    metric, before, after = change["metric"], change["before"]["value"], change["after"]["value"]
    evaluator = metric.partition(":")[2]
    unit = unit_of(metric) if evaluator else change["unit"]
    levels = " → ".join(f"{level:.2f}" if unit == "ratio" else by_unit(level, unit) for level in (before, after))
    cause = f", when {change['cause']} began" if change["cause"] else ""
    name = {"cost_usd": "cost per answer"}.get(metric, metric_name(metric))
    verb = "fell" if after < before else "rose"
    start = f"{change['t'][:19]}Z"  # forms show seconds only
    words, order = _WORST.get(metric) or ("Worst answers", {"evaluator": evaluator, "sort": "worst"})
    return {
        "text": f"{title(name)} {verb} {levels} at {clock(change['t'])} UTC{cause}.",
        "title": f"{change['sureness']:.1f} standard errors; {change['before']['n']:,} answers before,"
        f" {change['after']['n']:,} after",
        "tone": "bad" if change["worse"] else "good",
        "why": view.url("/explain", metric=metric, sel_from=start),
        "worst": view.url("/traces", from_=start, **order),
        "worst_words": words,
    }


def _steady(view: View, overview: Mapping[str, Any], targets: Sequence[TargetState]) -> list[dict[str, Any]]:
    """Return cost, errors, p95 and traffic, each with the tone of its target or its change."""
    unknown, errors = overview["cost_unknown_share"], overview["error_interval"]
    cost_url = view.url("/figures", from_=view.start, metric="cost_usd", title="Cost")
    range_of_errors = interval(errors[0], errors[1], "share") if errors else ""
    facts = [
        ("Cost", "cost_usd", usd(overview["cost_usd"]), f"unknown for {percent(unknown)}" if unknown else "", cost_url),
        ("Errors", "error_rate", percent(overview["error_rate"]), range_of_errors, view.url("/traces", error="true")),
        ("Latency p95", "latency_p95", ms(overview["latency_p95"]), "", view.url("/traces", sort="slow")),
        ("Traffic", "requests", counted(overview["n_traces"], "answer"), "", view.url("/traces")),
    ]
    worse = {change["metric"]: change["worse"] for change in overview.get("changes", [])}
    return [
        {"name": name, "value": value, "note": note, "url": url, "tone": _tone(metric, targets, worse)}
        for name, metric, value, note, url in facts
    ]


def _tone(metric: str, targets: Sequence[TargetState], worse: Mapping[str, bool]) -> str:
    states = {target.state for target in targets if target.metric == metric}
    return "bad" if "missed" in states else "warn" if worse.get(metric) or "undecided" in states else ""
