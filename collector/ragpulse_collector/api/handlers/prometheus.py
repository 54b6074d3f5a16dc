"""`/metrics`: the status, the quality estimates and the watched judges as Prometheus text, with few label values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import getitem
from typing import Any

MAX_LABEL_VALUES = 50
Sample = tuple[Mapping[str, Any], Any]
"""Labels and a value; null labels and null values are omitted."""
_FIGURES = (
    ("received_requests_total", "received.requests", "OTLP requests answered."),
    ("received_spans_total", "received.spans", "Spans accepted."),
    ("received_logs_total", "received.logs", "Log events kept."),
    ("received_bytes_total", "received.bytes", "Inflated bytes accepted."),
    ("rejected_spans_total", "rejected.spans", "Spans refused."),
    ("rejected_requests_total", "rejected.requests_by_code", "Requests refused, by status.", "code"),
    ("duplicate_spans_total", "duplicates", "Spans sent again."),
    ("late_spans_total", "late", "Spans after their unit was decided."),
    ("misdated_spans_total", "misdated", "Spans with a wrong clock."),
    ("evaluations_total", "evaluations.by_status", "Results, by status.", "status"),
    ("evaluations_dropped_total", "evaluations.dropped", "Not evaluated, by reason.", "reason"),
    ("uptime_seconds", "uptime_s", "Seconds since start."),
    ("queue_bytes", "queue.bytes", "Accepted, not yet on disk."),
    ("queue_bodies", "queue.bodies", "Requests waiting for the disk."),
    ("queue_oldest_seconds", "queue.oldest_s", "How long the oldest waits."),
    ("undecided_traces", "undecided.traces", "Traces without a decision yet."),
    ("undecided_oldest_seconds", "undecided.oldest_s", "Age of the oldest."),
    ("evaluations_pending", "evaluations.pending", "Jobs that have no result yet."),
    ("evaluations_due", "evaluations.pending", "The same, under its former name."),
    ("evaluations_oldest_seconds", "evaluations.oldest_s", "Age of the oldest."),
    ("database_bytes", "db.size_bytes", "Size of the file."),
    ("log_bytes", "db.wal_bytes", "Size of the write-ahead log."),
    ("disk_free_bytes", "disk.free_bytes", "Free space."),
    ("unknown_price_calls", "unknown_price.calls", "Calls of the last day without a price."),
    ("judge_spent_usd", "judge.spent_today_usd", "Spent today (UTC)."),
)
"""Metric, its path in the answer of `GET status`, its help, and for several values their label."""
_QUALITY = {
    "": ("value", "Estimate over the last day, 0..1."),
    "_lo": ("least", "Lower end of its interval, with all missing answers failed."),
    "_hi": ("most", "Upper end of its interval, with all missing answers passed."),
    "_n": ("n", "Scored units behind it."),
    "_users": ("users", "Users of these units."),
    "_missing_share": ("missing_share", "Share of the selected answers without a result."),
}
"""Suffix of a gauge → the figure of a headline and its help."""


def render(
    status: Mapping[str, Any], quality: list[Mapping[str, Any]], watched: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Return the exposition text of a status answer, the current quality estimates and the watched judges."""
    return "\n".join([*_status(status), *_quality(quality), *drift(watched)]) + "\n"


def _status(status: Mapping[str, Any]) -> Iterator[str]:
    for name, path, description, *label in _FIGURES:
        figure: Any = reduce(getitem, path.split("."), status)
        samples = [({label[0]: key}, value) for key, value in figure.items()] if label else [({}, figure)]
        yield from _family(name, description, samples)
    problems = [({"name": problem["name"]}, 1) for problem in status["problems"]]
    yield from _family("problem", "1: `GET status` has a problem of this name.", problems)
    spent = [({"rule": rule["name"]}, rule["spent_today_usd"]) for rule in status["judge"]["rules"]]
    yield from _family("rule_spent_usd", "Spent today (UTC) by rules with a budget of their own.", spent)
    yield from _query_times(status["queries"])


def _query_times(times: Mapping[str, Any]) -> Iterator[str]:
    name, total = "ragpulse_query_seconds", 0
    yield f"# HELP {name} Duration of queries of the store."
    yield f"# TYPE {name} histogram"
    for bound, count in zip((*times["bounds"], "+Inf"), times["counts"], strict=True):
        total += count
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {times['seconds']}"
    yield f"{name}_count {total}"


def _quality(quality: list[Mapping[str, Any]]) -> Iterator[str]:
    for suffix, (figure, description) in _QUALITY.items():
        samples = [({"evaluator": row["evaluator"], "service": row.get("service")}, row[figure]) for row in quality]
        yield from _family(f"quality{suffix}", description, samples)


def drift(watched: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how far each watched judge has moved on its stored answers (reports of `GET drift`)."""
    moves, significant = [], []
    for report in watched:
        move = next((check["judge_move"] for check in report["checks"]), None)
        if move is not None:
            labels = {"evaluator": report["evaluator"]}
            moves.append((labels, move["value"]))
            significant.append((labels, int(report["state"] == "firing")))
    yield from _family("judge_drift", "The judge's move on the stored answers.", moves)
    yield from _family("judge_drift_sure", "1: the move is significant.", significant)


def _family(name: str, description: str, samples: Iterable[Sample]) -> Iterator[str]:
    present = [(labels, value) for labels, value in samples if value is not None][:MAX_LABEL_VALUES]
    if not present:
        return
    yield f"# HELP ragpulse_{name} {description}"
    yield f"# TYPE ragpulse_{name} {'counter' if name.endswith('_total') else 'gauge'}"
    for labels, value in present:
        pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items() if text is not None)
        yield f"ragpulse_{name}{f'{{{pairs}}}' if pairs else ''} {value}"


def _escape(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
