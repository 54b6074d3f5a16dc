"""`GET evaluators`: the registry with what each costs; and what a client may not bring along: files, addresses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from ragpulse_collector.api.models import Replay
from ragpulse_collector.api.params import Params
from ragpulse_collector.sampling import Rule
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.scores import labelled_evaluators, results_of_day


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
    labelled = labelled_evaluators(store)
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
    for name, status, count, cost, elapsed in results_of_day(store):
        stats = found.setdefault(
            name, {"ok": 0, "skipped": 0, "invalid": 0, "error": 0, "cost_usd": 0.0, "mean_latency_ms": None}
        )
        stats[status] = count
        stats["cost_usd"] += cost or 0.0
        if status == "ok":
            stats["mean_latency_ms"] = elapsed
    return found


FILES = ("loads", "prompts")
_ADDRESS = re.compile(r"://|\bhttps?:", re.IGNORECASE)


def names_only(params: Replay) -> None:
    """Refuse a replay that brings files or a judge's address along; raises ValueError with the fix.

    Whoever may ask for a replay must not thereby make the collector read a file, run code or call a host of their
    choice: evaluators are registered from Python, judges' addresses come from the configuration.
    """
    for name in FILES:
        if getattr(params, name):
            raise ValueError(
                f"{name}: files are not taken over HTTP; `ragpulse replay --load FILE --url ...` runs them in its own"
                " process and sends the results, `ragpulse serve --load FILE` (or [evaluators] files in ragpulse.toml)"
                " makes the collector know them"
            )
    if _ADDRESS.search(params.judge or ""):
        raise ValueError("judge: name a model; its address belongs in ragpulse.toml: [judge] api_base")
