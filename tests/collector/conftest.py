"""Fixtures shared by the collector's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from stored_units import create_empty
from waiting import until

if TYPE_CHECKING:
    from ragpulse_collector.client import Client


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="module")
def demo_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a collector that holds the demo's traffic, evaluated, for all tests of a module, which only read."""
    from ragpulse_collector.app import Collector
    from ragpulse_collector.client import connect
    from ragpulse_collector.settings import Settings

    db = tmp_path_factory.mktemp("demo") / "demo.duckdb"
    create_empty(db)
    settings = Settings().with_options("collector", {"db": str(db), "port": 0, "settle_s": 0.0})
    running = Collector(settings)
    running.start()
    try:
        client = connect(running.url)
        until(client, "select 1 from scores", 4 * client.call("POST demo")["traces"])
        yield client
    finally:
        running.stop()
