"""Files of one answer: none is left, few are made at a time, and a stop does not wait for them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from served import Served
from stored_units import open_store

from ragpulse_collector.api import copies as copying
from ragpulse_collector.api.copies import Copies
from ragpulse_collector.api.models import TraceChoice
from ragpulse_collector.operations import data
from ragpulse_collector.refusals import Busy
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.protocol import CannotWrite
from ragpulse_collector.store.reading import outbox_folder


def _left(store: EmbeddedStore) -> list[Path]:
    return list(outbox_folder(store.path).rglob("*"))


MAKERS: dict[str, Callable[[EmbeddedStore, Copies], Any]] = {
    "snapshot": lambda store, copies: data.snapshot_file(store, copies),
    "export": lambda store, copies: data.export_archive(store, copies),
    "traces": lambda store, copies: data.traces_file(store, copies, str, Settings(), TraceChoice()),
}


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """An empty store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("name", MAKERS)
def test_a_copy_is_private_and_gone_after_it_was_sent(store: EmbeddedStore, name: str) -> None:
    """Only its owner reads the folder; sent, or dropped by a request that was cancelled, it is deleted."""
    copies = Copies(outbox_folder(store.path))
    sent = MAKERS[name](store, copies)
    assert (sent.path.stat().st_size > 0, sent.path.parent.stat().st_mode & 0o777) == (True, 0o700)
    sent.discard()
    MAKERS[name](store, copies)  # nobody takes it
    assert _left(store) == []


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), duckdb.IOException("no space")])
def test_a_full_disk_is_507_and_leaves_nothing(
    store: EmbeddedStore, name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is met: it is not the caller's mistake."""

    def full(*_: object) -> None:
        raise error

    monkeypatch.setattr("ragpulse_collector.store.reading._move", full)
    copies = Copies(outbox_folder(store.path))
    for _ in range(copying.MAX_COPIES + 1):  # a failure gives its place back
        with pytest.raises(CannotWrite) as raised:
            MAKERS[name](store, copies)
    assert (raised.value.status, _left(store)) == (507, [])


def test_few_copies_exist_at_a_time(store: EmbeddedStore) -> None:
    """One more is 503 until one was sent."""
    copies = Copies(outbox_folder(store.path))
    made = [MAKERS["snapshot"](store, copies) for _ in range(copying.MAX_COPIES)]
    with pytest.raises(Busy):
        MAKERS["traces"](store, copies)
    made.pop().discard()
    MAKERS["traces"](store, copies).discard()


def test_what_a_killed_process_left_is_removed_at_start(tmp_path: Path) -> None:
    """Only the process that owns the file removes it."""
    opened = open_store(tmp_path)
    opened.close()
    path = opened.path
    left = outbox_folder(path) / "answer-1" / "ragpulse.duckdb"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a copy")
    store = open_store(tmp_path)
    assert not left.exists()
    store.close()


def test_a_stop_ends_the_copies_that_are_being_made(tmp_path: Path) -> None:
    """Twenty-five are asked for: all are answered or cut, the process ends, and nothing is left."""
    with Served(tmp_path / "ragpulse.duckdb") as served, ThreadPoolExecutor(25) as pool:
        codes = [pool.submit(_status, f"{served.url}/api/v1/snapshot") for _ in range(25)]
        codes[0].result()
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(timeout=60)  # 4 s on an idle machine
    assert {code.result() for code in codes} <= {200, 503, 0}
    assert not list(tmp_path.rglob("answer-*"))


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=60).status_code
    except httpx.HTTPError:
        return 0
