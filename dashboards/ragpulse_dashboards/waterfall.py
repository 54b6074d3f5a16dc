"""Spans as waterfall rows: tree order, depth, and position on the trace's time axis in percent."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from ragpulse_dashboards.formats import parse_time

__all__ = ["FIRST_ROWS", "MAX_ROWS", "SpanRow", "time_axis", "waterfall"]

FIRST_ROWS: Final = 200
"""Rows of a trace's page at first; a thousand rows make it half as slow again."""
MAX_ROWS: Final = 2000
MAX_DEPTH: Final = 12


class SpanRow(NamedTuple):
    """One bar."""

    span: Mapping[str, Any]
    depth: int
    """Capped, so that a deep chain stays on the page."""
    left: float
    """Start, percent of the trace."""
    width: float
    """Duration, percent of the trace; at least a visible sliver."""
    tick: float | None
    """The first token, percent of the trace."""


_Timed = tuple[Mapping[str, Any], datetime]


def waterfall(spans: Sequence[Mapping[str, Any]], *, limit: int = MAX_ROWS) -> list[SpanRow]:
    """Return rows in tree order; spans whose parent never arrived are roots, a loop appears once."""
    timed = _timed(spans)
    if not timed:
        return []
    first, total = _extent(timed)
    rows = []
    for span, start, depth in islice(_tree_order(timed), limit):
        left = min(_offset_ms(first, start) / total * 100, 99.6)
        width = min(max((span.get("latency_ms") or 0) / total * 100, 0.4), 100 - left)
        token = span.get("ttft_ms")
        tick = None if token is None else round(min(left + token / total * 100, 99.8), 2)
        rows.append(SpanRow(span, min(depth, MAX_DEPTH), round(left, 2), round(width, 2), tick))
    return rows


def time_axis(spans: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return milliseconds at the start, the quarters and the end of the trace."""
    timed = _timed(spans)
    return [_extent(timed)[1] * quarter / 4 for quarter in range(5)] if timed else []


def _timed(spans: Sequence[Mapping[str, Any]]) -> list[_Timed]:
    return [(span, start) for span in spans if (start := parse_time(span["start_time"])) is not None]


def _extent(timed: Sequence[_Timed]) -> tuple[datetime, float]:
    """Return the start of the trace and its length in milliseconds."""
    first = min(start for _, start in timed)
    return first, max(_offset_ms(first, start) + (span.get("latency_ms") or 0) for span, start in timed) or 1.0


def _offset_ms(first: datetime, start: datetime) -> float:
    return (start - first).total_seconds() * 1000


def _tree_order(timed: Sequence[_Timed]) -> Iterator[tuple[Mapping[str, Any], datetime, int]]:
    """Yield spans with their depth; a parent comes before its children, siblings by start time."""
    ids = {span.get("span_id") for span, _ in timed}
    children: dict[Any, list[_Timed]] = {}
    for span, start in sorted(timed, key=lambda item: item[1]):
        parent = span.get("parent_span_id")
        known = parent in ids and parent != span.get("span_id")
        children.setdefault(parent if known else None, []).append((span, start))
    seen = set()
    stack = [(span, start, 0) for span, start in reversed(children.get(None, []))]
    while stack:
        span, start, depth = stack.pop()
        if span.get("span_id") not in seen:
            seen.add(span.get("span_id"))
            yield span, start, depth
            stack += [(child, begun, depth + 1) for child, begun in reversed(children.get(span.get("span_id"), []))]
    yield from ((span, start, 0) for span, start in timed if span.get("span_id") not in seen)
