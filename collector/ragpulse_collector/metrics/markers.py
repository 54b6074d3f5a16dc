"""Marks on a time axis: where an evaluator's version, its judge or a prompt began."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.metrics.window import Window, iso
from ragpulse_collector.store import Store

__all__ = ["markers"]


def markers(store: Store, window: Window, evaluator: str | None = None) -> list[dict[str, Any]]:
    """Return `{"t", "kind", "text"}` for each beginning inside the window, but not for what was there before it."""
    found = _prompts(store, window)
    if evaluator is not None:
        found += _versions(store, window, evaluator)
    return sorted(found, key=lambda marker: str(marker["t"]))


def _prompts(store: Store, window: Window) -> list[dict[str, Any]]:
    rows = store.read(
        "SELECT prompt_name, prompt_version, min(start_time) AS t FROM raw.trace_facts"
        " WHERE latest AND prompt_version IS NOT NULL AND start_time >= $first AND start_time < $last"
        " GROUP BY prompt_name, prompt_version QUALIFY row_number() OVER (PARTITION BY prompt_name ORDER BY t) > 1"
        " ORDER BY t LIMIT 50",
        window.parameters,
    ).rows
    return [
        {"t": iso(at), "kind": "prompt_version", "text": f"prompt {name or ''} {version}".replace("  ", " ")}
        for name, version, at in rows
    ]


def _versions(store: Store, window: Window, evaluator: str) -> list[dict[str, Any]]:
    rows = store.read(
        "SELECT version, judge, min(request_time) AS t FROM raw.scores WHERE evaluator = $evaluator"
        " AND source = 'online' AND status = 'ok' AND request_time >= $first AND request_time < $last"
        " GROUP BY version, judge QUALIFY row_number() OVER (ORDER BY t) > 1 ORDER BY t LIMIT 50",
        {"evaluator": evaluator, **window.parameters},
    ).rows
    return [
        {"t": iso(at), "kind": "version", "text": f"{evaluator} {version}{f' judged by {judge}' if judge else ''}"}
        for version, judge, at in rows
    ]
