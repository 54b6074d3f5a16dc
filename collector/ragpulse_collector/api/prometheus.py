"""`/metrics`: the collector's own counters as Prometheus text, with a bounded set of labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MAX_LABEL_VALUES = 50


def render(
    status: Mapping[str, Any], quality: list[Mapping[str, Any]], watched: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Return the exposition text of a status answer, the current quality estimates and the watched judges."""
    return "\n".join([*_counters(status), *_gauges(status), *_quality(quality), *drift(watched)]) + "\n"


def _counters(status: Mapping[str, Any]) -> Iterator[str]:
    received, rejected = status["received"], status["rejected"]
    yield from _family("ragpulse_received_requests_total", "counter", "OTLP requests answered.", received["requests"])
    yield from _family("ragpulse_received_spans_total", "counter", "Spans accepted.", received["spans"])
    yield from _family("ragpulse_received_logs_total", "counter", "Log events kept.", received["logs"])
    yield from _family("ragpulse_received_bytes_total", "counter", "Inflated bytes accepted.", received["bytes"])
    yield from _family("ragpulse_rejected_spans_total", "counter", "Spans refused.", rejected["spans"])
    codes = rejected["requests_by_code"]
    yield from _labelled("ragpulse_rejected_requests_total", "counter", "Requests refused, by status.", "code", codes)
    yield from _family("ragpulse_duplicate_spans_total", "counter", "Spans sent again.", status["duplicates"])
    yield from _family("ragpulse_late_spans_total", "counter", "Spans after their unit was decided.", status["late"])
    evaluations = status["evaluations"]
    by_status = evaluations["by_status"]
    yield from _labelled("ragpulse_evaluations_total", "counter", "Results, by status.", "status", by_status)
    dropped = evaluations["dropped"]
    yield from _labelled(
        "ragpulse_evaluations_dropped_total", "counter", "Not evaluated, by reason.", "reason", dropped
    )


def _gauges(status: Mapping[str, Any]) -> Iterator[str]:
    yield from _family("ragpulse_uptime_seconds", "gauge", "Seconds since start.", status["uptime_s"])
    queue = status["queue"]
    yield from _family("ragpulse_queue_bytes", "gauge", "Accepted, not yet on disk.", queue["bytes"])
    yield from _family("ragpulse_queue_bodies", "gauge", "Requests waiting for the disk.", queue["bodies"])
    yield from _family("ragpulse_queue_oldest_seconds", "gauge", "How long the oldest waits.", queue["oldest_s"])
    undecided = status["undecided"]
    yield from _family("ragpulse_undecided_traces", "gauge", "Traces without a decision yet.", undecided["traces"])
    yield from _family("ragpulse_undecided_oldest_seconds", "gauge", "Age of the oldest.", undecided["oldest_s"])
    evaluations = status["evaluations"]
    yield from _family("ragpulse_evaluations_pending", "gauge", "Jobs that have no result yet.", evaluations["pending"])
    yield from _family("ragpulse_evaluations_due", "gauge", "The same, under its former name.", evaluations["pending"])
    yield from _family("ragpulse_evaluations_oldest_seconds", "gauge", "Age of the oldest.", evaluations["oldest_s"])
    yield from _family("ragpulse_database_bytes", "gauge", "Size of the file.", status["db"]["size_bytes"])
    yield from _family("ragpulse_judge_spent_usd", "gauge", "Spent today (UTC).", status["judge"]["spent_today_usd"])


def _quality(quality: list[Mapping[str, Any]]) -> Iterator[str]:
    values = {entry["evaluator"]: entry["value"] for entry in quality}
    yield from _labelled("ragpulse_quality", "gauge", "Estimate over the last day, 0..1.", "evaluator", values)
    n = {entry["evaluator"]: entry["n"] for entry in quality}
    yield from _labelled("ragpulse_quality_n", "gauge", "Scored units behind it.", "evaluator", n)


def drift(watched: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Tell how far each watched judge has moved since its answers were frozen (reports of `GET drift`)."""
    moves, sure = {}, {}
    for report in watched:
        move = next((check["judge_move"] for check in report["checks"]), None)
        if move is not None:
            moves[report["evaluator"]], sure[report["evaluator"]] = move["value"], int(report["state"] == "firing")
    yield from _labelled("ragpulse_judge_drift", "gauge", "Judge's move on frozen answers.", "evaluator", moves)
    yield from _labelled("ragpulse_judge_drift_sure", "gauge", "1: the move is sure.", "evaluator", sure)


def _family(name: str, kind: str, description: str, value: Any) -> Iterator[str]:
    if value is not None:
        yield f"# HELP {name} {description}"
        yield f"# TYPE {name} {kind}"
        yield f"{name} {value}"


def _labelled(name: str, kind: str, description: str, label: str, values: Mapping[str, Any]) -> Iterator[str]:
    known = {key: value for key, value in list(values.items())[:MAX_LABEL_VALUES] if value is not None}
    if not known:
        return
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    for key, value in known.items():
        text = str(key).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        yield f'{name}{{{label}="{text}"}} {value}'
