"""Spans as waterfall rows."""

from ragpulse_dashboards.pages.trace import waterfall


def span(name: str, parent: str | None, offset_ms: int, took: float) -> dict[str, object]:
    """A span named like its id."""
    return {
        "span_id": name,
        "parent_span_id": parent,
        "start_time": f"2026-01-01T00:00:00.{offset_ms:03}Z",
        "latency_ms": took,
        "name": name,
    }


def test_rows_come_in_tree_order_with_their_place_in_time() -> None:
    """Children follow their parent, siblings by start; left and width are percent of the trace."""
    rows = waterfall([span("c", "a", 50, 50), span("a", None, 0, 100), span("b", "a", 10, 20)])
    assert [(row.span["name"], row.depth, row.left, row.width) for row in rows] == [
        ("a", 0, 0.0, 100.0),
        ("b", 1, 10.0, 20.0),
        ("c", 1, 50.0, 50.0),
    ]


def test_orphans_and_loops_are_shown_once() -> None:
    """A span whose parent never arrived is a root; spans that are each other's parents do not hang the page."""
    rows = waterfall(
        [span("orphan", "gone", 0, 1), span("x", "y", 1, 1), span("y", "x", 2, 1), span("self", "self", 3, 1)]
    )
    assert sorted(str(row.span["name"]) for row in rows) == ["orphan", "self", "x", "y"]


def test_a_sliver_stays_visible_and_inside() -> None:
    """A span of no length at the very end is still drawn within the axis."""
    rows = waterfall([span("a", None, 0, 100), span("b", "a", 100, 0)])
    assert rows[1].width >= 0.4
    assert rows[1].left + rows[1].width <= 100


def test_nothing_yields_nothing() -> None:
    """No spans, or spans without a readable time, are no rows."""
    assert waterfall([]) == []
    assert waterfall([{"span_id": "a", "start_time": None}]) == []


def test_only_so_many_rows_are_made() -> None:
    """A page shows the first rows at once and the rest on request."""
    spans = [
        {"span_id": f"{n:016x}", "parent_span_id": None, "start_time": "2026-11-21T10:00:00Z", "latency_ms": 1.0}
        for n in range(30)
    ]
    assert len(waterfall(spans, limit=10)) == 10
    assert len(waterfall(spans)) == 30
