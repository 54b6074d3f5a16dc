"""Scores that name a response and no trace: joined to the span that gave it, in either order."""

from __future__ import annotations

from typing import Any

import pytest

from ragpulse_collector.records import ScoreRecord
from ragpulse_collector.sampling import Sampler


def score(kit: Any, response: str = "r-1") -> ScoreRecord:
    """A tool's verdict on a response."""
    return ScoreRecord(
        trace_id=None,
        span_id=None,
        time_ns=kit.start_ns,
        name="relevance",
        score=0.5,
        source="code",
        response_id=response,
    )


@pytest.mark.parametrize("first", ["score", "span", "together"])
def test_a_score_finds_its_span(kit: Any, rows: Any, first: str) -> None:
    """Before, after or beside the score; another response's span is left alone."""
    store = kit.store()
    spans = [
        kit.span(1, kind="rag"),
        kit.span(2, 1, "llm", response_id="r-1"),
        kit.span(3, 1, "llm", response_id="r-2"),
    ]
    if first == "together":
        kit.send(store, *spans, scores=[score(kit)])
    elif first == "score":
        kit.send(store, scores=[score(kit)])
        kit.send(store, *spans)
    else:
        kit.send(store, *spans)
        kit.send(store, scores=[score(kit)])
    Sampler(store, settle_s=0).decide(kit.later(3))
    assert rows(store, "SELECT span_id, evaluator, score FROM scores") == [(f"{2:016x}", "relevance", 0.5)]


def test_a_score_waits_across_a_restart_and_a_decision(kit: Any, rows: Any) -> None:
    """What waits is on disk, holds no decision up, and is decided when its span has come."""
    store = kit.store()
    kit.send(store, scores=[score(kit)])
    kit.send(store, kit.span(1, kind="rag"))
    assert Sampler(store, settle_s=0).decide(kit.later(3)) == 1
    store.close()
    kit.later(1)
    again = kit.store()
    kit.send(again, kit.span(2, 1, "llm", response_id="r-1"))
    Sampler(again, settle_s=0).decide(kit.later(60))
    assert rows(again, "SELECT span_id FROM scores WHERE evaluator = 'relevance'") == [(f"{2:016x}",)]
    assert rows(again, "SELECT count(*) FROM raw.feedback WHERE trace_id IS NULL") == [(0,)]


def test_many_scores_find_their_spans_together(kit: Any, rows: Any, statements: list[str]) -> None:
    """As many statements for 2,000 responses of one body as for one."""
    store = kit.store()
    ran = []
    for first, count in ((1, 1), (1000, 2_000)):
        numbers = range(first, first + count)
        kit.send(store, scores=[score(kit, f"r-{number}") for number in numbers])
        statements.clear()
        kit.send(store, *(kit.span(number, kind="llm", response_id=f"r-{number}") for number in numbers))
        ran.append(len(statements))
    assert ran[1] <= ran[0]
    joined = "SELECT count(*) FROM raw.feedback f JOIN raw.spans s USING (trace_id, span_id, response_id)"
    assert rows(store, joined) == [(2001,)]
