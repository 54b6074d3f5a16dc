"""Marks on a time axis: where an evaluator's version, its judge or a prompt began."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ragpulse_collector.metrics.quality import Bucket
from ragpulse_collector.metrics.window import Window, iso
from ragpulse_collector.store import Store

__all__ = ["prompts", "versions"]

_MOST = 50


def prompts(store: Store, window: Window) -> list[dict[str, Any]]:
    """Return `{"t", "kind", "text"}` for each prompt version that began inside the window, its first one apart."""
    rows = store.read(
        "SELECT prompt_name, prompt_version, min(start_time) AS t FROM raw.trace_facts"
        " WHERE latest AND prompt_version IS NOT NULL AND start_time >= $first AND start_time < $last"
        " GROUP BY prompt_name, prompt_version QUALIFY row_number() OVER (PARTITION BY prompt_name ORDER BY t) > 1"
        f" ORDER BY t LIMIT {_MOST}",
        window.parameters,
    ).rows
    return [
        {"t": iso(at), "kind": "prompt_version", "text": f"prompt {name or ''} {version}".replace("  ", " ")}
        for name, version, at in rows
    ]


def versions(evaluator: str, buckets: Sequence[Bucket]) -> list[dict[str, Any]]:
    """The same for the versions and judges of an evaluator, from its buckets: online verdicts only, the first apart."""
    began: dict[tuple[str | None, str | None], datetime] = {}
    for one in buckets:
        if one.first is not None:
            line = (one.version, one.judge)
            began[line] = min(began.get(line, one.first), one.first)
    ordered = sorted(began.items(), key=lambda item: item[1])[1 : _MOST + 1]
    return [
        {"t": iso(at), "kind": "version", "text": f"{evaluator} {version}{f' judged by {judge}' if judge else ''}"}
        for (version, judge), at in ordered
    ]
