"""What memory vouches for, so that the table need not be asked whether a span was stored before."""

from __future__ import annotations

from typing import Any

from ragpulse_collector.store.ingest.batches import RecentSpans

SECOND = 10**9


def test_spans_after_all_that_was_forgotten_are_covered() -> None:
    """However late they come: what starts after everything that is stored and not remembered was never stored."""
    recent = RecentSpans(generation=2, since_ns=100 * SECOND)
    assert not recent.covers(50 * SECOND, 51 * SECOND)
    recent.begin(40 * SECOND)
    assert recent.covers(50 * SECOND, 51 * SECOND)
    assert not recent.covers(40 * SECOND, 51 * SECOND)


def test_what_is_dropped_is_forgotten() -> None:
    """Two generations are remembered; then the first one's times are doubtful."""
    recent = RecentSpans(generation=1, since_ns=100 * SECOND)
    recent.begin(0)
    for key, newest in ((1, 50), (2, 60), (3, 70)):
        assert recent.covers(10 * SECOND, 11 * SECOND) == (key < 3)
        recent.add([key], newest_ns=newest * SECOND, now_ns=(100 + key) * SECOND)
    assert not recent.covers(60 * SECOND, 61 * SECOND)
    assert recent.covers(61 * SECOND, 62 * SECOND)
    assert [key in recent for key in (1, 2, 3)] == [False, False, True]


def test_a_span_within_the_newest_microsecond_is_looked_up(kit: Any) -> None:
    """The table keeps microseconds: a span re-sent across a restart is a duplicate all the same."""
    span = kit.span(1, start_ns=kit.start_ns + 999, end_ns=kit.start_ns + 1000)
    store = kit.store()
    kit.send(store, span)
    store.close()
    assert kit.send(kit.store(), span).duplicates == 1


def test_as_many_are_remembered_as_were_asked_for_and_hardly_more() -> None:
    """However small the commits, what is kept is bounded, and the last ones are always among it."""
    recent = RecentSpans(generation=1000, since_ns=0)
    recent.begin(0)
    for key in range(5000):
        recent.add([key] if key % 2 else [], newest_ns=key, now_ns=key)
    known = [key for key in range(5000) if key in recent]
    assert known == list(range(5001 - 2 * len(known), 5000, 2))
    assert 1000 <= len(known) < 1020
