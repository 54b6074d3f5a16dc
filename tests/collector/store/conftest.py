"""A small kit for tests of the store and the sampler: records in, SQL out."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lake_servers import trust_extensions
from spans import Span, batch_of

from ragpulse_collector.records import Batch, DecodeError, RawBody, Receipt
from ragpulse_collector.store import EmbeddedStore, Store
from ragpulse_collector.store.ingest.transaction import WriterTransaction

START = datetime(2026, 3, 1, 12, 0, 0)
START_NS = 1_772_366_400_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
OVER_A_LAKE = "RAGPULSE_TEST_LAKE" in os.environ
if OVER_A_LAKE:
    trust_extensions()


def decode(body: RawBody) -> Batch:
    """Bodies of these tests are pickled batches; anything else is malformed."""
    try:
        batch = pickle.loads(body.body)
    except Exception as error:
        raise DecodeError("not a batch") from error
    assert isinstance(batch, Batch)
    return batch


class Held:
    """Keeps the writer busy, so that what is submitted meanwhile forms one group."""

    def __init__(self, store: Store) -> None:
        self._go = threading.Event()
        self._running = threading.Event()
        self._future = store.write(self._wait)

    def _wait(self, _transaction: Any) -> None:
        self._running.set()
        self._go.wait(60)

    def __enter__(self) -> None:
        self._running.wait(60)

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._future.result(60)


class Kit:
    """Makes stores, bodies and spans with fixed ids and a clock that the test moves."""

    trace = TRACE
    start = START
    start_ns = START_NS

    def __init__(self, folder: Path) -> None:
        self.path = folder / "t.duckdb"
        self.now = START
        self._open: list[Any] = []

    def clock(self) -> datetime:
        """The test's present."""
        return self.now

    def later(self, seconds: float) -> datetime:
        """Move the clock and return it."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def store(self, **options: Any) -> Any:
        """Open the file of this test."""
        options = dict[str, Any]() | {"decode": decode, "clock": self.clock, "threads": 1} | options
        store = self._lake(options) if OVER_A_LAKE else EmbeddedStore(self.path, **options)
        self._open.append(store)
        return store

    def _lake(self, options: dict[str, Any]) -> Any:
        """The same over a lake in this test's folder; test_lake.py runs the contract so."""
        from ragpulse_collector.store.lake import LakeStore

        folder = self.path.parent
        catalog = folder / "catalog.ducklake"
        if not catalog.exists():
            catalog.write_bytes(_empty_lake())
            with duckdb.connect(catalog) as connection:
                connection.execute(
                    "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [f"{folder}/data/"]
                )
        return LakeStore(f"ducklake:{catalog}", data_path=f"{folder}/data/", **options)

    def span(self, number: int, parent: int | None = None, kind: Any = "other", **fields: Any) -> Span:
        """A span with id `number` that starts `number` ms after the start and takes 100 ms."""
        start = START_NS + number * 1_000_000
        given: dict[str, Any] = {
            "trace_id": TRACE,
            "start_ns": start,
            "end_ns": start + 100_000_000,
            "name": f"span {number}",
        }
        return Span(
            span_id=f"{number:016x}",
            parent_span_id=None if parent is None else f"{parent:016x}",
            kind=kind,
            **(given | fields),
        )

    def body(self, *spans: Span, **parts: Any) -> RawBody:
        """A request body that decodes to these records."""
        batch = batch_of(spans, **parts)
        return RawBody(signal="traces", content_type="application/x-protobuf", body=pickle.dumps(batch))

    def send(self, store: Store, *spans: Span, **parts: Any) -> Receipt:
        """Submit and wait until it is on disk."""
        return store.submit(self.body(*spans, **parts)).result(60)

    def held(self, store: Store) -> Held:
        """Keep the writer busy for as long as the block lasts."""
        return Held(store)

    def close(self) -> None:
        """Close every store of the test."""
        for store in self._open:
            store.close()


@cache
def _empty_lake() -> bytes:
    """The catalog of an empty lake, made once, as `empty_file`."""
    from ragpulse_collector.store.lake import LakeStore

    with tempfile.TemporaryDirectory() as folder:
        catalog = Path(folder) / "catalog.ducklake"
        LakeStore(f"ducklake:{catalog}", data_path=f"{folder}/data/", decode=decode).close()
        return catalog.read_bytes()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty store, made once: creating tables and views takes longer than most tests."""
    path = tmp_path_factory.mktemp("empty") / "t.duckdb"
    EmbeddedStore(path, decode=decode).close()
    return path


@pytest.fixture
def kit(tmp_path: Path, empty_file: Path) -> Iterator[Kit]:
    """The kit over this test's folder."""
    made = Kit(tmp_path)
    shutil.copy(empty_file, made.path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def module_kit(tmp_path_factory: pytest.TempPathFactory, empty_file: Path) -> Iterator[Kit]:
    """A kit for all tests of a module, where none of them writes."""
    made = Kit(tmp_path_factory.mktemp("kit"))
    shutil.copy(empty_file, made.path)
    yield made
    made.close()


@pytest.fixture
def rows() -> Callable[..., list[tuple[Any, ...]]]:
    """Read rows of a query."""
    return lambda store, sql, *parameters: store.read(sql, list(parameters)).rows


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that the writer runs in its transactions, as they come."""
    ran: list[str] = []
    execute = WriterTransaction.execute

    def noting(transaction: WriterTransaction, sql: str, parameters: Any = ()) -> Any:
        ran.append(sql)
        return execute(transaction, sql, parameters)

    monkeypatch.setattr(WriterTransaction, "execute", noting)
    return ran
