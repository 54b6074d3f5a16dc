"""Spans as waterfall rows: tree order, depth, and place on the trace's time line in percent."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from ragpulse_dashboards.formats import parse_time

__all__ = ["FIRST_ROWS", "MAX_ROWS", "SpanRow", "waterfall"]

FIRST_ROWS: Final = 200
"""What a trace's page shows at once; with a thousand rows it takes half as long again."""
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


_Timed = tuple[Mapping[str, Any], datetime]


def waterfall(spans: Sequence[Mapping[str, Any]], *, most: int = MAX_ROWS) -> list[SpanRow]:
    """Rows in tree order; spans whose parent never arrived are roots, loops are shown once, `most` rows at most."""
    timed = [(span, start) for span in spans if (start := parse_time(span.get("start_time"))) is not None]
    if not timed:
        return []
    first = min(start for _, start in timed)
    total = max(_offset_ms(first, start) + float(span.get("latency_ms") or 0) for span, start in timed) or 1.0
    rows = []
    for span, start, depth in islice(_tree_order(timed), most):
        left = min(_offset_ms(first, start) / total * 100, 99.6)
        width = min(max(float(span.get("latency_ms") or 0) / total * 100, 0.4), 100 - left)
        rows.append(SpanRow(span, min(depth, MAX_DEPTH), round(left, 2), round(width, 2)))
    return rows


def _offset_ms(first: datetime, start: datetime) -> float:
    return (start - first).total_seconds() * 1000


def _tree_order(timed: Sequence[_Timed]) -> Iterator[tuple[Mapping[str, Any], datetime, int]]:
    """Spans with their depth; a parent comes before its children, siblings as they began."""
    known = {span.get("span_id") for span, _ in timed}
    children: dict[Any, list[_Timed]] = {}
    for span, start in sorted(timed, key=lambda item: item[1]):
        parent = span.get("parent_span_id")
        own = parent if parent in known and parent != span.get("span_id") else None
        children.setdefault(own, []).append((span, start))
    seen = set()
    stack = [(span, start, 0) for span, start in reversed(children.get(None, []))]
    while stack:
        span, start, depth = stack.pop()
        if span.get("span_id") not in seen:
            seen.add(span.get("span_id"))
            yield span, start, depth
            stack += [(child, begun, depth + 1) for child, begun in reversed(children.get(span.get("span_id"), []))]
    yield from ((span, start, 0) for span, start in timed if span.get("span_id") not in seen)
