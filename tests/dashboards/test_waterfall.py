"""Spans as waterfall rows."""

from dataclasses import replace
from datetime import datetime, timedelta

from ragpulse_collector.store.queries.trace_answers import SpanStep
from ragpulse_dashboards.pages.trace import path, waterfall

SPAN = SpanStep(
    span_id="", parent_span_id=None, start_time=datetime(2026, 1, 1), latency_ms=1.0, name=None, kind=None,
    status=None, error_type=None, contexts_state=None, input_tokens=None, output_tokens=None, cost_usd=None,
    ttft_ms=None, status_message=None,
    arguments=None, result=None,
)  # fmt: skip


def span(name: str, parent: str | None, offset_ms: int, took: float) -> SpanStep:
    """A span named like its id."""
    start = SPAN.start_time + timedelta(milliseconds=offset_ms)
    return replace(SPAN, span_id=name, parent_span_id=parent, start_time=start, latency_ms=took, name=name)


def test_rows_come_in_tree_order_with_their_place_in_time() -> None:
    """Children follow their parent, siblings by start; left and width are percent of the trace."""
    rows = waterfall([span("c", "a", 50, 50), span("a", None, 0, 100), span("b", "a", 10, 20)])
    assert [(row.span.name, row.depth, row.left, row.width) for row in rows] == [
        ("a", 0, 0.0, 100.0),
        ("b", 1, 10.0, 20.0),
        ("c", 1, 50.0, 50.0),
    ]


def test_orphans_and_loops_are_shown_once() -> None:
    """A span whose parent never arrived is a root; spans that are each other's parents do not hang the page."""
    rows = waterfall(
        [span("orphan", "gone", 0, 1), span("x", "y", 1, 1), span("y", "x", 2, 1), span("self", "self", 3, 1)]
    )
    assert sorted(str(row.span.name) for row in rows) == ["orphan", "self", "x", "y"]


def test_a_sliver_stays_visible_and_inside() -> None:
    """A span of no length at the very end is still drawn within the axis."""
    rows = waterfall([span("a", None, 0, 100), span("b", "a", 100, 0)])
    assert rows[1].width >= 0.4
    assert rows[1].left + rows[1].width <= 100


def test_nothing_yields_nothing() -> None:
    """No spans are no rows."""
    assert waterfall([]) == []


def test_only_so_many_rows_are_made() -> None:
    """A page shows the first rows at once and the rest on request."""
    spans = [replace(SPAN, span_id=f"{n:016x}") for n in range(30)]
    assert len(waterfall(spans, limit=10)) == 10
    assert len(waterfall(spans)) == 30


def test_a_call_with_the_same_arguments_is_marked() -> None:
    """From the second time on; other arguments, none, and long ones of which only the beginning is known are not."""
    calls = ["a", "b", "a", None, None, "a", "x" * 1000, "x" * 1000]
    spans = [replace(span(str(at), None, at, 1), name="search", arguments=text) for at, text in enumerate(calls)]
    assert [row.again for row in waterfall(spans)] == [0, 0, 1, 0, 0, 2, 0, 0]


def test_the_path_folds_what_repeats() -> None:
    """Steps in the order of time; runs of one, two or three steps are one, with the first that failed."""

    def made(names: str) -> list[SpanStep]:
        spans = [replace(span(str(at), None, at, 1), name=name.lower(), kind="tool") for at, name in enumerate(names)]
        return [replace(one, status="error") if name.isupper() else one for one, name in zip(spans, names, strict=True)]

    def shown(names: str) -> list[tuple[str, int, str | None]]:
        return [("".join(str(one.name) for one in step.spans), step.times, step.failed and step.failed.span_id)
                for step in path(made(names))]  # fmt: skip

    assert shown("abc") == [("a", 1, None), ("b", 1, None), ("c", 1, None)]
    assert shown("aaab") == [("a", 3, None), ("b", 1, None)]
    assert shown("pxyxYxyz") == [("p", 1, None), ("xy", 3, "4"), ("z", 1, None)]
    assert shown("abcabca") == [("abc", 2, None), ("a", 1, None)]
    assert len(shown("ab" * 100)) == 1
    assert shown("") == []
