"""Text search over what was asked and answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ragpulse_collector.store.protocol import Rows, Store
from ragpulse_collector.store.views import hex_span, hex_trace

_MAX_WORDS = 8


def search(
    store: Store,
    text: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 50,
    timeout_s: float | None = None,
) -> Rows:
    """Return spans whose query and response hold every word of `text`, newest first.

    Words are matched anywhere and in any case; words in "double quotes" stay together. Columns: trace_id, span_id,
    start_time, query, response. Raises TimeoutError.
    """
    wanted = words(text)
    if not wanted:
        return Rows(("trace_id", "span_id", "start_time", "query", "response"), [])
    parameters: dict[str, Any] = {f"word{i}": f"%{_escaped(word)}%" for i, word in enumerate(wanted)}
    conditions = [f"(query ILIKE ${name} ESCAPE '\\' OR response ILIKE ${name} ESCAPE '\\')" for name in parameters]
    for name, bound, sign in (("since", since, ">="), ("until", until, "<")):
        if bound is not None:
            conditions.append(f"start_time {sign} ${name}")
            parameters[name] = bound
    sql = f"""
        SELECT {hex_trace("trace_id")} AS trace_id, {hex_span("span_id")} AS span_id, start_time, query, response
        FROM raw.contents WHERE {" AND ".join(conditions)} ORDER BY start_time DESC LIMIT {int(limit)}"""
    return store.read(sql, parameters, timeout_s=timeout_s)


def words(text: str) -> list[str]:
    """Split a search text into at most eight words; quoted parts stay whole."""
    parts = text.split('"')
    found: list[str] = []
    for index, part in enumerate(parts):
        found += [part.strip()] if index % 2 else part.split()
    return [word for word in found if word][:_MAX_WORDS]


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
