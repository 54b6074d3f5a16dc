"""What one process at a time does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from threading import Event, Timer
from typing import TYPE_CHECKING

import pytest
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.app import wiring
from ragpulse_collector.app.wiring import retention_cutoff
from ragpulse_collector.client import connect
from ragpulse_collector.monitoring.digest import Digests

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


def test_on_a_lake_retention_takes_whole_days() -> None:
    """Nothing goes early, and no day's file is left that was deleted in part; a file is cut to the second."""
    now = datetime(2026, 3, 31, 17, 45, 12)
    assert retention_cutoff(now, days=30, whole_days=False) == datetime(2026, 3, 1, 17, 45, 12)
    assert retention_cutoff(now, days=30, whole_days=True) == datetime(2026, 3, 1)


def test_decisions_go_on_while_a_digest_is_made(
    shared_collector: Callable[..., Collector], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest takes seconds: units are decided meanwhile, and a stop waits for it to end."""
    began, ends = Event(), Event()

    def check(_: Digests) -> bool:
        began.set()
        return ends.wait(60)

    monkeypatch.setattr(wiring, "MONITOR_EVERY_S", 0.05)
    monkeypatch.setattr(Digests, "check", check)
    collector = shared_collector()
    assert began.wait(60)
    send(collector.url, rag_trace(1))
    until(connect(collector.url), "SELECT * FROM traces WHERE decided", 1)
    assert not ends.is_set()
    Timer(0.1, ends.set).start()
    collector.stop()
    assert ends.is_set()
