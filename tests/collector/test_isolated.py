"""Evaluators that kill or block: each ends as an `error` with its reason, and everything else goes on."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served
from stored_units import T0, Units, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.budget import Caps, Ledger
from ragpulse_collector.catalog import Catalog
from ragpulse_collector.client import connect
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.worker import Patience, Worker, dead_letters
from ragpulse_collector.worker.in_hand import InHand
from ragpulse_evaluators import Case, evaluator

USERS = '''
import asyncio, ctypes, os, signal, sys, time
from ragpulse_evaluators import Case, Evaluator, evaluator

@evaluator
def exits(response: str) -> bool:
    os._exit(3)

@evaluator
def leaves(response: str) -> bool:
    sys.exit("enough")

@evaluator
def spins(response: str) -> bool:
    while True:
        pass

@evaluator
def sleeps(response: str) -> bool:
    time.sleep(3600)

@evaluator
def holds_the_lock(response: str) -> bool:
    return (10 ** 10**9) % 7 == 0

@evaluator
def crashes(response: str) -> bool:
    ctypes.string_at(0)
    return True

@evaluator
def grows(response: str) -> bool:
    return len(bytearray(4 * 2**30)) > 0

@evaluator(version="3", threshold=0.5)
def says(response: str) -> float:
    print("printing breaks nothing")
    return 0.75

@evaluator
async def waits(response: str) -> dict:
    await asyncio.sleep(0)
    return {"score": 1.0, "label": "fine", "parts": {"letters": len(response)}}

class Longer(Evaluator):
    """Is the response longer than so much?"""
    name = "longer"
    needs = frozenset({"response"})

    def __init__(self, *, than: int = 3) -> None:
        super().__init__(than=than)

    def run(self, case: Case) -> bool:
        return len(case.response or "") > self.params["than"]
'''
BAD = {
    "exits": "the evaluator ended its process with exit code 3",
    "leaves": "SystemExit: enough",
    "spins": "no result within 3 s",
    "sleeps": "no result within 3 s",
    "holds_the_lock": "no result within 3 s",
    "crashes": "the evaluator's process was ended by SIGSEGV",
    "grows": "beyond the memory limit of 1024 MB",
}
LIMITS = {"time_limit_s": 3, "memory_limit_mb": 1024, "processes": 1}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of evaluators as a user may write them."""
    path = tmp_path / "my_evals.py"
    path.write_text(USERS)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An open store."""
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def work_off(store: EmbeddedStore, loaded: Path, names: tuple[str, ...], *, count: int = 1, **specs: Any) -> Worker:
    """Queue the evaluators on so many units and let a worker finish."""
    units = Units(store)
    for number in range(count):
        units.unit(number, response="The tower is 330 metres tall [1].")
        units.contexts(number, ["The tower is 330 metres tall."])
        for name in names:
            units.job(number, name)
    units.save()
    settings = Settings.model_validate({"evaluators": LIMITS} | specs)
    catalog = Catalog(settings, loads=[str(loaded)], isolate=True)
    patience = Patience(retry_first_s=0.001)
    worker = Worker(store, catalog.resolve, Ledger(store, Caps()), patience=patience, clock=lambda: T0)
    worker.start()
    try:
        assert worker.wait_idle(90)
    finally:
        worker.stop()
    return worker


def rows(store: EmbeddedStore, sql: str) -> list[tuple[Any, ...]]:
    """What a query finds."""
    return store.read(sql).rows


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_evaluator_ends_as_an_error(store: EmbeddedStore, users: Path, name: str) -> None:
    """Three attempts with the reason; the others of the same file and the built-in ones are scored."""
    work_off(store, users, (name, "says", "groundedness"))
    found = rows(store, "SELECT evaluator, status, attempt FROM raw.scores ORDER BY ALL")
    assert [row for row in found if row[0] == name] == [(name, "error", attempt) for attempt in (1, 2, 3)]
    assert {row[:2] for row in found if row[0] != name} == {("says", "ok"), ("groundedness", "ok")}
    (letter,) = dead_letters(store)
    assert (letter["evaluator"], letter["attempts"]) == (name, 3)
    assert BAD[name] in letter["error"]


def test_a_slow_evaluator_holds_up_no_other(store: EmbeddedStore, users: Path) -> None:
    """Hundreds of jobs that hang leave the others of the same file their turn, and a stop does not wait for them."""
    units = Units(store)
    for number in range(100):
        units.unit(number, response="yes")
        for name in ("sleeps", "says", "waits"):
            units.job(number, name)
    units.save()
    catalog = Catalog(Settings(), loads=[str(users)], isolate=True)
    worker = Worker(store, catalog.resolve, Ledger(store, Caps()), clock=lambda: T0)
    worker.start()
    eventually(lambda: worker.counts["ok"], lambda ok: ok == 200)
    worker.stop(timeout_s=0.1)
    assert rows(store, "SELECT DISTINCT evaluator FROM raw.scores ORDER BY 1") == [("says",), ("waits",)]
    assert worker.counts["error"] == 0


def test_results_are_as_in_process(store: EmbeddedStore, users: Path) -> None:
    """Version, threshold, label, parts; a class with its parameter as an evaluator of the configuration."""
    spec = {"evaluator": [{"name": "quite_long", "use": "longer", "than": 10}]}
    work_off(store, users, ("says", "waits", "longer", "quite_long"), **spec)
    columns = "evaluator, version, status, score, passing, label, parts"
    found = {row[0]: row[1:] for row in rows(store, f"SELECT {columns} FROM raw.scores")}
    plain = Catalog(Settings.model_validate(spec), loads=[str(users)])
    assert found["says"] == ("3", "ok", 0.75, True, None, None)
    assert found["waits"] == ("1", "ok", 1.0, None, "fine", '{"letters":33}')
    for name in ("longer", "quite_long"):
        assert found[name] == (plain.resolve(name).version, "ok", 1.0, True, None, None)


def test_a_file_that_is_gone_is_told(store: EmbeddedStore, users: Path, tmp_path: Path) -> None:
    """The reason names it, rather than an exit code."""
    catalog = Catalog(Settings(), loads=[str(users)], isolate=True)
    catalog.resolve("says")
    users.rename(tmp_path / "elsewhere.py")
    result = asyncio.run(catalog.resolve("says")(Case(response="yes")))
    assert (result.status, "my_evals.py is no file" in (result.explanation or "")) == ("error", True)


def test_what_a_former_process_had_in_hand(tmp_path: Path) -> None:
    """Jobs that were begun and not ended are left; a line that was cut off is none; a clean end leaves nothing."""
    path = tmp_path / "x.in-hand"
    first, second = "a" * 32, "b" * 32
    path.write_text(f"+{first}\n+{second}\n-{first}\n+{second[:7]}")
    assert InHand(path).left() == [second]
    noted = InHand(path)
    noted.clear()
    with noted.holding(first), noted.holding(second):
        assert InHand(path).left() == [first, second]
    assert InHand(path).left() == []


def test_a_crash_counts_and_a_clean_stop_does_not(store: EmbeddedStore, tmp_path: Path) -> None:
    """What is noted at the start is an attempt, also in process; what a stop cancels is none."""
    path, waiting = tmp_path / "x.in-hand", threading.Event()

    @evaluator
    async def pending(response: str) -> bool:
        waiting.set()
        await asyncio.sleep(3600)
        return True

    units = Units(store)
    units.unit(0, response="yes")
    job_id = units.job(0, "pending")
    units.save()
    path.write_text(f"+{job_id}\n")
    for _ in range(2):
        waiting.clear()
        worker = Worker(store, lambda *_, **__: pending, Ledger(store, Caps()), clock=lambda: T0, in_hand=path)
        worker.start()
        assert waiting.wait(60)
        assert InHand(path).left() == [job_id]
        worker.stop(timeout_s=0.1)
    told = [("error", 1, "the collector ended while this evaluator ran")]
    assert rows(store, "SELECT status, attempt, explanation FROM raw.scores") == told
    assert not path.exists()


def test_sys_exit_at_import_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    """The file is named, and the collector is not ended."""
    (tmp_path / "ends.py").write_text("raise SystemExit('no')")
    with pytest.raises(ValueError, match=r"ends\.py: SystemExit: no"):
        Catalog(loads=[str(tmp_path / "ends.py")], isolate=True).registry  # noqa: B018


CONFIGURATION = """
[collector]
settle_s = 0

[evaluators]
time_limit_s = 3
memory_limit_mb = 1024

[[rule]]
name = "all"
rate = 1.0
evaluators = [{names}]
"""


def configured(folder: Path, *names: str) -> str:
    """Write the configuration; return its path."""
    path = folder / "ragpulse.toml"
    path.write_text(CONFIGURATION.format(names=", ".join(f'"{name}"' for name in names)))
    return str(path)


def test_a_served_collector_with_every_bad_evaluator(tmp_path: Path, users: Path) -> None:
    """`ragpulse serve --load`: groundedness scores, each bad one is an error after three attempts, and it stops."""
    config = configured(tmp_path, *BAD, "says", "groundedness")
    with Served(tmp_path / "t.duckdb", "--config", config, "--load", str(users)) as served:
        client = connect(served.url)
        send(served.url, rag_trace(0))
        until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'")
        until(client, "select 1 from scores where evaluator = 'says' and status = 'ok'")
        attempts = until(client, "select evaluator, explanation from scores where status = 'error'", 3 * len(BAD))
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda pending: pending == 0)
        send(served.url, rag_trace(1))
        until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'", 2)
        assert served.terminate() == 0
    told = sorted((row["evaluator"], BAD[row["evaluator"]] in row["explanation"]) for row in attempts)
    assert told == sorted([(name, True) for name in BAD] * 3)


KILLS = textwrap.dedent(
    """
    import os, signal
    from ragpulse_evaluators import evaluator

    @evaluator
    def kills(response: str) -> bool:
        os.kill(os.getppid(), signal.SIGKILL)
    """
)


def test_a_job_in_hand_when_the_collector_is_killed_is_an_attempt(tmp_path: Path) -> None:
    """An evaluator that kills the collector itself does so three times; then its job is an error, and all goes on."""
    (tmp_path / "kills.py").write_text(KILLS)
    config = configured(tmp_path, "kills", "groundedness")
    arguments = ("--config", config, "--load", str(tmp_path / "kills.py"))
    with Served(tmp_path / "t.duckdb", *arguments) as served:
        send(served.url, rag_trace(0))
        served.process.wait(timeout=60)
    for _ in range(2):
        with Served(tmp_path / "t.duckdb", *arguments) as served:
            served.process.wait(timeout=60)
    with Served(tmp_path / "t.duckdb", *arguments) as served:
        client = connect(served.url)
        found = until(client, "select explanation from scores where evaluator = 'kills' and status = 'error'", 3)
        assert {row["explanation"] for row in found} == {"the collector ended while this evaluator ran"}
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda pending: pending == 0)
        until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'")
        assert served.terminate() == 0
    assert not (tmp_path / "t.duckdb.in-hand").exists()
