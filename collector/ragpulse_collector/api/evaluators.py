"""`GET evaluators`: the registry, with what each evaluator does online and what it cost in the last day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ragpulse_collector.api.params import Params
from ragpulse_collector.sampling import Rule
from ragpulse_collector.store import Store

_STATS = """
    SELECT evaluator, status, count(*), sum(cost_usd), avg(elapsed_ms) FROM raw.scores
    WHERE created_at > now()::TIMESTAMP - INTERVAL 1 DAY GROUP BY 1, 2"""


def evaluators(
    store: Store,
    params: Params,
    *,
    describe: Callable[[], list[dict[str, Any]]],
    rules: Callable[[], Sequence[Rule]],
    calibration: Callable[[str], dict[str, Any] | None],
) -> dict[str, Any]:
    """Answer the operation."""
    del params
    online: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rule in rules():
        for name in rule.evaluators:
            online[name].append({"rule": rule.name, "rate": rule.rate})
    stats = _stats(store)
    labelled = {row[0] for row in store.read("SELECT DISTINCT evaluator FROM raw.labels").rows}
    return {
        "evaluators": [
            entry
            | {
                "online": online.get(entry["name"], []),
                "stats_24h": stats.get(entry["name"]),
                "calibration": calibration(entry["name"]) if entry["name"] in labelled else None,
            }
            for entry in describe()
        ]
    }


def _stats(store: Store) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, status, count, cost, elapsed in store.read(_STATS).rows:
        stats = found.setdefault(
            name, {"ok": 0, "skipped": 0, "invalid": 0, "error": 0, "cost_usd": 0.0, "mean_latency_ms": None}
        )
        stats[status] = count
        stats["cost_usd"] += cost or 0.0
        if status == "ok":
            stats["mean_latency_ms"] = elapsed
    return found
