"""The sampler and a clock that was once ahead: nothing waits for that future, in the process and over a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ragpulse_collector.api.health import Undecided
from ragpulse_collector.api.status import Status
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.records import ScoreRecord
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.settings import Settings

AHEAD_S = 365 * 86_400.0


def send(kit: Any, store: Any, number: int) -> str:
    """Send a trace of one span; return its id."""
    trace_id = f"{number:032x}"
    kit.send(store, kit.span(number, kind="rag", trace_id=trace_id))
    return trace_id


def undecided(store: Any, kit: Any, monkeypatch: pytest.MonkeyPatch) -> Undecided:
    """What `GET status` says, at the test's present."""
    monkeypatch.setattr("ragpulse_collector.api.status.utc_now", kit.clock)
    return Status(store, Settings(), Counters())().undecided


def decided(rows: Any, store: Any) -> set[str]:
    """The traces that have a decision."""
    return {trace_id for (trace_id,) in rows(store, "SELECT DISTINCT trace_id FROM decisions")}


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("decided_ahead", [False, True])
def test_a_clock_that_was_ahead(
    kit: Any, rows: Any, monkeypatch: pytest.MonkeyPatch, restart: bool, decided_ahead: bool
) -> None:
    """Traces from before, from ahead (decided there or not) and from after are decided once the clock is right."""
    store = kit.store()
    sampler = Sampler(store)
    ids = {send(kit, store, 1)}
    sampler.decide(kit.later(3))
    kit.later(AHEAD_S)
    ids.add(send(kit, store, 2))
    if decided_ahead:
        assert sampler.decide(kit.later(3)) == 1
    kit.later(-AHEAD_S)
    if restart:
        store.close()
        store = kit.store()
        sampler = Sampler(store)
    ids.add(send(kit, store, 3))
    assert undecided(store, kit, monkeypatch).traces == (1 if decided_ahead else 2)
    sampler.decide(kit.later(1))
    kit.later(5)
    assert undecided(store, kit, monkeypatch).oldest_s >= 5.0
    sampler.decide(kit.clock())
    sampler.decide(kit.later(3))
    assert decided(rows, store) == ids
    assert undecided(store, kit, monkeypatch) == Undecided(traces=0, oldest_s=0.0)
    assert rows(store, "SELECT count(*) FROM raw.eval_jobs") == [(4 * len(ids),)]
    assert sampler.decide(kit.later(60)) == 0


def test_feedback_about_a_trace_decided_ahead(kit: Any, rows: Any) -> None:
    """A decision that was made in the future does not hide what people say about its trace now."""
    store = kit.store()
    sampler = Sampler(store)
    kit.later(AHEAD_S)
    trace_id = send(kit, store, 1)
    sampler.decide(kit.later(3))
    sampler.decide(kit.later(-AHEAD_S))
    kit.later(5)
    thumbs = ScoreRecord(trace_id=trace_id, span_id=None, time_ns=kit.start_ns, name="thumbs", score=1.0)
    kit.send(store, scores=[thumbs])
    sampler.decide(kit.later(3))
    assert rows(store, "SELECT feedback FROM traces") == [(1.0,)]


def test_what_was_received_before_the_recovery_is_found(kit: Any, rows: Any) -> None:
    """Traces that lie between the jump back and the next look, which has a mark in the future, are not lost."""
    store = kit.store()
    sampler = Sampler(store)
    kit.later(AHEAD_S)
    ahead = send(kit, store, 1)
    sampler.decide(kit.later(3))
    kit.later(-AHEAD_S)
    between = send(kit, store, 2)
    kit.later(600)
    sampler.decide(kit.clock())
    assert decided(rows, store) == {ahead, between}
    newest = rows(store, "SELECT max(received_at), max(decided_at) FROM raw.spans, raw.trace_facts")[0]
    assert max(newest) <= kit.now + timedelta(seconds=1)
