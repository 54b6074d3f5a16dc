"""The metrics of the traffic itself, all of them from one pass over the requests of a range."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.filters import Filter
from ragpulse_collector.analysis.window import Window, iso
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.traces import PROMPT_STARTS

__all__ = ["NAMES", "Traffic", "TrafficBucket", "prompt_markers", "traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """A metric of the traffic: SQL for its value, its unit, and whether an empty bucket is a true zero."""

    sql: str
    unit: str
    count: bool = False
    of: str | None = None
    """The column it adds up; the share of unknown values goes with every total."""


_SCALED = "sum(1 / coalesce(upstream_pi, 1))"
# The same aggregate, written the same, is computed once.
_LATENCY = "quantile_cont(latency_ms, [0.5, 0.95, 0.99])"
_TTFT = "quantile_cont(ttft_ms, [0.5, 0.95])"
NAMES: dict[str, Traffic] = {
    "requests": Traffic(_SCALED, "requests", count=True),
    "errors": Traffic("sum(CASE WHEN error THEN 1 / coalesce(upstream_pi, 1) ELSE 0 END)", "requests", count=True),
    "error_rate": Traffic("count(*) FILTER (error)", "share"),
    "latency_p50": Traffic(f"{_LATENCY}[1]", "ms"),
    "latency_p95": Traffic(f"{_LATENCY}[2]", "ms"),
    "latency_p99": Traffic(f"{_LATENCY}[3]", "ms"),
    "ttft_p50": Traffic(f"{_TTFT}[1]", "ms"),
    "ttft_p95": Traffic(f"{_TTFT}[2]", "ms"),
    "input_tokens": Traffic("sum(input_tokens / coalesce(upstream_pi, 1))", "tokens", of="input_tokens"),
    "output_tokens": Traffic("sum(output_tokens / coalesce(upstream_pi, 1))", "tokens", of="output_tokens"),
    "cost_usd": Traffic("sum(cost_usd / coalesce(upstream_pi, 1))", "USD", of="cost_usd"),
    "throughput": Traffic(_SCALED, "requests/s", count=True),
}
"""The metrics beside `quality:`, `score:` and `pass_rate:` of an evaluator."""

_TOTALS = {
    "n": "count(*)",
    "estimated": "bool_or(coalesce(upstream_pi, 1) < 1)",
    "cost": "sum(cost_usd)",
    "tokens": "sum(coalesce(input_tokens, 0) + coalesce(output_tokens, 0))",
    **{f"known_{one.of}": f"count({one.of})" for one in NAMES.values() if one.of},
}


@dataclass(frozen=True, slots=True)
class TrafficBucket:
    """The requests of one group in one bucket."""

    at: datetime
    group: tuple[Any, ...]
    values: dict[str, Any]
    """By the names of NAMES, beside n, estimated (scaled up), cost and tokens (not scaled), known_<column>."""

    def unknown_share(self, name: str) -> float:
        """The share of requests that do not say what the metric adds up."""
        of = NAMES[name].of
        return 0.0 if of is None else 1.0 - float(self.values[f"known_{of}"] / self.values["n"])


def traffic(store: Store, window: Window, keep: Filter, groups: tuple[str, ...]) -> list[TrafficBucket]:
    """Return every metric per group and bucket."""
    wanted = {name: metric.sql for name, metric in NAMES.items()} | _TOTALS
    rows = store.read(
        f"SELECT {window.bucket('start_time')} AS t, {', '.join(wanted.values())}{''.join(f', {g}' for g in groups)}"
        f" FROM traces WHERE start_time >= $first AND start_time < $last AND {keep.sql} GROUP BY ALL",
        {**window.parameters, **keep.parameters},
    ).rows
    end = 1 + len(wanted)
    return [TrafficBucket(row[0], tuple(row[end:]), dict(zip(wanted, row[1:end], strict=True))) for row in rows]


_MOST_MARKERS = 50


def prompt_markers(store: Store, window: Window) -> list[dict[str, Any]]:
    """Return `{"t", "kind", "text"}` for each prompt version that began inside the window, its first one apart."""
    rows = store.read(f"{PROMPT_STARTS} LIMIT {_MOST_MARKERS}", window.parameters).rows
    return [
        {"t": iso(at), "kind": "prompt_version", "text": f"prompt {name or ''} {version}".replace("  ", " ")}
        for name, version, at in rows
    ]
