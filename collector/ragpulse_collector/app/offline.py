"""The operations over a closed file, for the command line's `--db`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ragpulse_collector.api.operations import Operations
from ragpulse_collector.app.wiring import Components
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.records import RawBody, Receipt
from ragpulse_collector.store import FileReader, Prices, Refused, StoreError, Transaction
from ragpulse_collector.store.ingest.queue import Backlog
from ragpulse_dashboards import ApiError

_NEEDS_COLLECTOR = "this changes something: start `ragpulse serve` and leave --db away"
T = TypeVar("T")
Ask = Callable[[str, Mapping[str, Any]], Any]


class ClosedFile(FileReader):
    """A file that is only read: whatever would write says how to get a collector."""

    def submit(self, body: RawBody) -> Future[Receipt]:
        """Refuse."""
        raise Refused("a closed file takes no spans: start `ragpulse serve`")

    def write(self, work: Callable[[Transaction], T]) -> Future[T]:
        """Refuse."""
        raise Refused(_NEEDS_COLLECTOR)

    def backlog(self) -> Backlog:
        """Nothing waits."""
        return Backlog()

    def check_files(self) -> None:
        """Refuse."""
        raise Refused(_NEEDS_COLLECTOR)


@contextmanager
def offline(db: str, config: Path | None) -> Iterator[Operations]:
    """Give the operations over a file that no collector has open; those that write are refused.

    Raises ValueError naming the fix where the file is absent, locked or of a newer version.
    """
    settings = load_settings(config).with_options("collector", {"db": db})
    if not Path(db).is_file():
        raise ValueError(f"there is no file {db}")
    try:
        store = ClosedFile(db)
    except StoreError as error:
        raise ValueError(str(error)) from error
    try:
        yield Components(
            store, settings, prices=Prices(settings.prices, settings.collector.price_table), counters=Counters()
        ).operations
    finally:
        store.close()


@contextmanager
def working_on(db: str, config: Path | None, *, loads: Iterable[str], judge: str | None) -> Iterator[Ask]:
    """Open a closed file with a collector that nobody else can ask, for as long as the block runs.

    Asked in this process, because files to load may not come over HTTP. Asking raises ValueError where it is refused.
    """
    from ragpulse_collector.app.collector import Collector

    settings = load_settings(config).with_options("collector", {"db": db, "host": "127.0.0.1", "port": 0})
    settings = settings.with_options("judge", {"model": judge})
    collector = Collector(settings, loads=loads)
    collector.start(listen=False)

    def ask(operation: str, params: Mapping[str, Any]) -> Any:
        given = {key: value for key, value in params.items() if value is not None}
        try:
            return asyncio.run(collector.components.operations.call(operation, given))
        except ApiError as error:
            raise ValueError(error.message) from error

    try:
        yield ask
    finally:
        collector.stop()
