"""Evaluators that kill or block: each ends as an `error` with its reason, and everything else goes on."""

from __future__ import annotations

import asyncio
import linecache
import os
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import LoopbackModel
from served import Served
from stored_units import T0, Units, given_up_jobs, open_store
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.catalog import Catalog
from ragpulse_collector.client import connect
from ragpulse_collector.evaluation import AttemptOptions, Worker
from ragpulse_collector.evaluation.attempts import RunningJobs
from ragpulse_collector.evaluation.budget import Caps, Ledger
from ragpulse_collector.settings import Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_evaluators import Case, evaluator
from ragpulse_evaluators.runner import Retry

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
    mutex = ctypes.create_string_buffer(256)
    while True:  # the second time it waits for itself, in C and with the interpreter's lock
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

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
ENDS = {
    "exits": "the evaluator ended its process with exit code 3",
    "leaves": "SystemExit: enough",
    "crashes": "the evaluator's process was ended by SIGSEGV",
    "grows": "beyond the memory limit of 1024 MB",
}
HANGS = {name: "no result within 1 s" for name in ("spins", "sleeps", "holds_the_lock")}
BAD = ENDS | HANGS
ONCE = ("leaves",)
"""What their own code raises is not tried again."""
LIMITS = {"time_limit_s": 60, "memory_limit_mb": 1024, "processes": 1}


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


def work_off(
    store: EmbeddedStore, loaded: Path, names: tuple[str, ...], time_s: float = 60, *, unit: int = 0, **specs: Any
) -> Worker:
    """Queue the evaluators on a unit and let a worker finish."""
    units = Units(store)
    units.unit(unit, response="The tower is 330 metres tall [1].")
    units.contexts(unit, ["The tower is 330 metres tall."])
    for name in names:
        units.job(unit, name)
    units.save()
    settings = Settings.model_validate({"evaluators": LIMITS | {"time_limit_s": time_s}} | specs)
    catalog = Catalog(settings, loads=[str(loaded)], isolate=True)
    options = AttemptOptions(retry=Retry(first_s=0.001))
    worker = Worker(store, catalog.resolve, Ledger(store, Caps()), options=options, clock=lambda: T0)
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
def test_a_bad_evaluator_ends_as_an_error(
    store: EmbeddedStore, users: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What ended its process or hung is tried three times, what the code raises once; one log line says why."""
    hangs = name in HANGS  # beside it a good one might be too slow on a busy machine
    work_off(store, users, (name, "groundedness", *(() if hangs else ("says",))), 1 if hangs else 60)
    found = rows(store, "SELECT evaluator, status, attempt FROM raw.scores ORDER BY ALL")
    attempts = (3,) if name in ONCE else (1, 2, 3)
    assert [row for row in found if row[0] == name] == [(name, "error", attempt) for attempt in attempts]
    assert {row[:2] for row in found if row[0] != name} == {
        ("groundedness", "ok"),
        *([] if hangs else [("says", "ok")]),
    }
    ((attempt, reason),) = given_up_jobs(store)
    assert attempt == 3
    assert BAD[name] in reason
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith(f"evaluator {name} (version 1) failed on trace ")
    assert BAD[name] in line
    assert "Traceback" in line


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


def test_what_users_return_is_stored(store: EmbeddedStore, tmp_path: Path) -> None:
    """Scalars of numpy, tuples, helpers beside the file; a lone surrogate is replaced and kills nothing."""
    (tmp_path / "helpers_of_mine.py").write_text("from dataclasses import dataclass\n@dataclass\nclass Verdict:\n"
                                                 "    score: float\n    reason: str\n")  # fmt: skip
    path = tmp_path / "own.py"
    path.write_text(
        "import numpy\nfrom helpers_of_mine import Verdict\nfrom ragpulse_evaluators import evaluator\n"
        "@evaluator\ndef numpys(response):\n    return numpy.bool_(False)\n"
        "@evaluator\ndef pair(response):\n    return 0.4, 'why\\ud800'\n"
        "@evaluator\ndef dataclass(response):\n    return Verdict(0.5, 'why')\n"
    )
    work_off(store, path, ("numpys", "pair", "dataclass"))
    found = rows(store, "SELECT evaluator, status, score, passing, explanation FROM raw.scores ORDER BY 1")
    assert found == [
        ("dataclass", "ok", 0.5, None, "why"),
        ("numpys", "ok", 0.0, False, None),
        ("pair", "ok", 0.4, None, "why\ufffd"),
    ]


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
    assert RunningJobs(path).interrupted() == [second]
    noted = RunningJobs(path)
    noted.clear()
    with noted.entry(first), noted.entry(second):
        assert RunningJobs(path).interrupted() == [first, second]
    assert RunningJobs(path).interrupted() == []


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
        worker = Worker(store, lambda *_, **__: pending, Ledger(store, Caps()), clock=lambda: T0, running_jobs=path)
        worker.start()
        assert waiting.wait(60)
        assert RunningJobs(path).interrupted() == [job_id]
        worker.stop(timeout_s=0.1)
    expected = [("error", 1, "the collector ended while this evaluator ran")]
    assert rows(store, "SELECT status, attempt, explanation FROM raw.scores") == expected
    assert not path.exists()


def test_sys_exit_at_import_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    """The file is named, and the collector is not ended."""
    (tmp_path / "ends.py").write_text("raise SystemExit('no')")
    with pytest.raises(ValueError, match=r"ends\.py:1: SystemExit: no"):
        Catalog(loads=[str(tmp_path / "ends.py")], isolate=True).registry  # noqa: B018


CONFIGURATION = """
offline = false
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


SERVED = ("exits", "leaves", "grows", "sleeps")
"""One of each kind: ended, raised, out of memory, hanging. `test_a_bad_evaluator_ends_as_an_error` has them all."""


def test_a_served_collector_with_bad_evaluators_of_each_kind(tmp_path: Path, users: Path) -> None:
    """`ragpulse serve --load`: groundedness scores, each bad one ends as an error with one log line, and it stops."""
    config = configured(tmp_path, *SERVED, "says", "groundedness")
    count = 3 * (len(SERVED) - len(ONCE)) + len(ONCE)
    with Served(tmp_path / "t.duckdb", "--config", config, "--load", str(users)) as served:
        client = connect(served.url)
        send(served.url, rag_trace(0))
        until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'")
        until(client, "select 1 from scores where evaluator = 'says' and status = 'ok'")
        attempts = until(client, "select evaluator, explanation from scores where status = 'error'", count)
        eventually(lambda: client.call("GET status")["evaluations"]["pending"], lambda pending: pending == 0)
        send(served.url, rag_trace(1))
        until(client, "select 1 from scores where evaluator = 'groundedness' and status = 'ok'", 2)
        assert served.terminate() == 0
    wanted = BAD | dict.fromkeys(HANGS, "no result within 3 s")
    named = sorted((row["evaluator"], wanted[row["evaluator"]] in row["explanation"]) for row in attempts)
    assert named == sorted((name, True) for name in SERVED for _ in range(1 if name in ONCE else 3))
    for name in SERVED:
        assert served.errors.count(f"evaluator {name} (version 1) failed") == 1, served.errors


JUDGING = """
import os
from ragpulse_evaluators import Case, Evaluator, Outcome
from ragpulse_evaluators.adapters import adapt

class Asking(Evaluator):
    name = "asking"
    needs = frozenset({"response"})
    wants_judge = True
    cost_class = "1 call"

    def __init__(self, *, judge=None) -> None:
        super().__init__()
        self.judge = judge

    async def run(self, case: Case) -> Outcome:
        (call,) = await self.judge.ask([{"role": "user", "content": f"asked of {case.response}"}])
        return Outcome(score=float(call.completion), label=str(os.getpid()))

class Theirs:
    def __init__(self, model: str) -> None:
        self.model = model

    async def aevaluate(self, query=None, response=None, contexts=None, **kwargs) -> "Theirs":
        self.score, self.passing, self.feedback = 1.0, True, str(os.getpid())
        return self

theirs = adapt(Theirs("their-model"), name="theirs")
"""


def test_a_served_collector_scores_with_everything_of_a_user(
    tmp_path: Path, users: Path, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """A function, a class that asks the judge from its own process, a YAML criterion and an adapted metric."""
    model = loopback_model(lambda prompt: "0.5" if "asked of" in prompt else "polite")
    (tmp_path / "judging.py").write_text(JUDGING)
    (tmp_path / "tone.yaml").write_text(
        "prompt: 'Polite? {completion}'\nchoice_strings: [polite, rude]\nchoice_scores: {polite: 1, rude: 0}\n"
    )
    names = ("says", "asking", "tone", "theirs")
    config = Path(configured(tmp_path, *names))
    config.write_text(f'{config.read_text()}[judge]\nmodel = "{model.url}#judge"\n')
    files = [str(path) for path in (users, tmp_path / "judging.py", tmp_path / "tone.yaml")]
    loads = [argument for path in files for argument in ("--load", path)]
    with Served(tmp_path / "t.duckdb", "--config", str(config), *loads) as served:
        client = connect(served.url)
        send(served.url, rag_trace(0))
        query = "select evaluator, status, score, label, judge, explanation from scores order by evaluator"
        found = {row["evaluator"]: row for row in until(client, query, len(names))}
        assert served.terminate() == 0
    scored = {name: (row["status"], row["score"]) for name, row in found.items()}
    assert scored == {"says": ("ok", 0.75), "asking": ("ok", 0.5), "tone": ("ok", 1.0), "theirs": ("ok", 1.0)}, found
    judges = {name: row["judge"] for name, row in found.items() if row["judge"]}
    ours = f"judge temperature=0.0 at {model.url.removeprefix('http://')}"
    assert judges == {"asking": ours, "tone": ours, "theirs": "their-model"}
    assert str(served.process.pid) not in (found["asking"]["label"], found["theirs"]["explanation"])


def test_a_changed_function_of_the_same_version_is_logged(
    store: EmbeddedStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The digest of its source stands beside the scores; a new version, or the same code, is no news."""
    path = tmp_path / "own.py"
    for unit, (version, number) in enumerate((("1", 1), ("1", 1), ("1", 2), ("2", 3))):
        text = f"@evaluator(version='{version}')\ndef own(response: str) -> float:\n    return {number}.0\n"
        path.write_text(f"from ragpulse_evaluators import evaluator\n{text}")
        os.utime(path, (unit, unit))  # compiled code of an equally long file of the same second would be taken for it
        linecache.checkcache()
        work_off(store, path, ("own",), unit=unit)
    stored = rows(store, "SELECT version, count(DISTINCT label_version) FROM raw.scores GROUP BY 1 ORDER BY 1")
    assert stored == [("1", 2), ("2", 1)]
    (line,) = [message for message in caplog.messages if "changed" in message]
    assert line.startswith("the code of evaluator own changed, but not its version 1 (source ")


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
