"""The table of the demo: efficiency and quality of each prompt version, and the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragpulse_collector.client import Client
from ragpulse_collector.demo.traffic import VERSIONS

EFFICIENCY = (
    ("requests", "requests", "{:.0f}"),
    ("errors", "errors", "{:.0f}"),
    ("latency_p50", "latency p50 ms", "{:.0f}"),
    ("latency_p95", "latency p95 ms", "{:.0f}"),
    ("input_tokens", "tokens in", "{:.0f}"),
    ("output_tokens", "tokens out", "{:.0f}"),
    ("cost_usd", "cost USD", "{:.5f}"),
)
QUALITY = ("groundedness", "context_utilization", "citation_check", "refusal", "faithfulness")
LABELS = {"refusal": "answered"}
"""Labels for evaluators whose names read as the opposite of a high value."""
Say = Callable[[str], object]


def print_report(client: Client, say: Say) -> None:
    """Print one column for each prompt version: efficiency, quality with interval, and the verdict."""
    say(f"{'':22}" + "".join(f"{'prompt ' + version:>28}" for version in VERSIONS))
    for name, label, form in EFFICIENCY:
        points = _by_version(client, name)
        say(f"{label:22}" + "".join(f"{_plain(points.get(version), form):>28}" for version in VERSIONS))
    for evaluator in QUALITY:
        points = _by_version(client, f"quality:{evaluator}")
        if any(points.get(version) for version in VERSIONS):
            label = LABELS.get(evaluator, evaluator)
            say(f"{label:22}" + "".join(f"{_estimate(points.get(version)):>28}" for version in VERSIONS))
    reasons = client.sql(
        "select cost_unknown_reason as r, count(*) as n from traces where cost_unknown_reason is not null group by 1"
    ).rows()
    for row in reasons:
        say(f"cost of {row['n']} requests unknown: {row['r']}")
    _print_verdict(client, say)


def _print_verdict(client: Client, say: Say) -> None:
    sides = {"a": f"prompt:{VERSIONS[0]}", "b": f"prompt:{VERSIONS[1]}", "evaluator": "groundedness"}
    answer = client.call("GET compare", sides)
    difference = answer["difference"]
    say(
        f"\ngroundedness, {VERSIONS[1]} against {VERSIONS[0]}: {answer['verdict']}, "
        f"difference {difference['value']:+.3f}{_interval(difference, '+.3f')}"
    )
    for mark in client.metrics("quality:groundedness", from_="-24h")["markers"]:
        say(f"{mark['text']} began {mark['t'][11:16]} UTC")
    for flip in answer["flips"][:1]:
        say(f"worst flip: {flip['query']!r}  {flip['a']:.2f} -> {flip['b']:.2f}  ({flip['explanation_b']})")


def _by_version(client: Client, name: str) -> dict[str, dict[str, Any]]:
    answer = client.metrics(name, from_="-24h", step="all", group_by=["prompt_version"])
    return {
        series["group"]["prompt_version"]: point
        for series in answer["series"]
        for point in series["points"]
        if point["value"] is not None
    }


def _plain(point: dict[str, Any] | None, form: str) -> str:
    return form.format(point["value"]) if point else "unknown"


def _estimate(point: dict[str, Any] | None) -> str:
    if not point:
        return "not measured"
    return f"{point['value']:.3f}{_interval(point, '.3f')} n={point['n']}"


def _interval(figures: dict[str, Any], form: str) -> str:
    """Format the interval; empty where too few users give none."""
    lo, hi = figures["lo"], figures["hi"]
    return "" if lo is None or hi is None else f" [{lo:{form}}, {hi:{form}}]"
