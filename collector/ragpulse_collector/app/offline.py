"""The operations over a closed file, for the command line's `--db`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragpulse_collector.api.operations import Operations
from ragpulse_collector.app.wiring import Components
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.store import FileReader, Prices, StoreError


@contextmanager
def offline(db: str, config: Path | None) -> Iterator[Operations]:
    """Provide the operations over a file that no collector has open; those that write are refused.

    Raises ValueError naming the fix where the file is absent, locked or of a newer version.
    """
    settings = load_settings(config).with_options("collector", {"db": db})
    if not Path(db).is_file():
        raise ValueError(f"there is no file {db}")
    try:
        store = FileReader(db)
    except StoreError as error:
        raise ValueError(str(error)) from error
    try:
        yield Components(
            store, settings, prices=Prices(settings.prices, settings.collector.price_table), counters=Counters()
        ).operations
    finally:
        store.close()


@contextmanager
def working_on(db: str, config: Path | None, *, loads: Iterable[str], judge: str | None) -> Iterator[Operations]:
    """Provide the operations of a collector over a closed file, for as long as the block runs.

    It has no port: files to load may not come over HTTP.
    """
    from ragpulse_collector.app.collector import Collector

    settings = load_settings(config).with_options("collector", {"db": db, "host": "127.0.0.1", "port": 0})
    settings = settings.with_options("judge", {"model": judge})
    collector = Collector(settings, loads=loads)
    try:
        collector.start(listen=False)
        yield collector.components.operations
    finally:
        collector.stop()
