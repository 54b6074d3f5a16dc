"""The promise of `ragpulse serve`, over real processes: what it acknowledged survives a crash, once."""

from __future__ import annotations

import http.client
import itertools
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from loopback import LoopbackModel
from served import Served
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.app.collector import Collector
from ragpulse_collector.app.process import MAX_ALIKE, WINDOW_S
from ragpulse_collector.app.server import PortInUse, bind
from ragpulse_collector.client import Client, connect
from ragpulse_collector.settings import Settings

SENDERS = 4
TRACES = 20
"""A request's; each has three spans."""
START_NS = time.time_ns() - 60_000_000_000
"""A request sent again is the same request, its instants included."""


class Traffic:
    """Senders that each repeat nothing: every request holds traces of its own, kept here once acknowledged."""

    def __init__(self, url: str, numbers: Iterator[int]) -> None:
        self.acknowledged: list[int] = []
        self._url, self._numbers, self._lock = url, numbers, threading.Lock()
        self._stop, self.enough = threading.Event(), threading.Condition()
        self._threads = [threading.Thread(target=self._send) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, requests: int) -> None:
        """Return once so many requests are acknowledged, others being under way."""
        with self.enough:
            assert self.enough.wait_for(lambda: len(self.acknowledged) >= requests, timeout=60)

    def end(self) -> None:
        """Stop sending; requests under way are answered or fail."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=60)

    def _send(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                number = next(self._numbers)
            try:
                send(self._url, request(number))
            except (OSError, http.client.HTTPException):
                return  # killed, perhaps in the middle of its answer, or refused while it ends: not acknowledged
            with self.enough:
                self.acknowledged.append(number)
                self.enough.notify_all()


def request(number: int) -> list[dict[str, Any]]:
    """The spans of request `number`."""
    return [span for each in range(TRACES) for span in rag_trace(number * TRACES + each, start_ns=START_NS)]


def stored(client: Client) -> Counter[int]:
    """How often each request's spans are stored (in requests)."""
    rows = client.sql("select trace_id, span_id, count(*) as n from spans group by all").rows()
    assert {row["n"] for row in rows} <= {1}, "a span is stored twice"
    spans = Counter((int(row["trace_id"], 16) - 1) // TRACES for row in rows)
    assert {count % (TRACES * 3) for count in spans.values()} <= {0}, "a part of a request is stored"
    return spans


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_crash_while_receiving_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    """After kill -9 at a random moment every acknowledged span is there once, and sending again doubles none."""
    chance, numbers = random.Random(seed), itertools.count()
    db = tmp_path / "ragpulse.duckdb"
    with Served(db) as process:
        traffic = Traffic(process.url, numbers)
        traffic.wait_for(chance.randrange(3, 30))
        time.sleep(chance.random() * 0.05)  # anywhere between two commits
        process.kill()
        traffic.end()
    with Served(db) as process:
        assert set(traffic.acknowledged) <= set(stored(connect(process.url)))
        for number in range(next(numbers)):
            send(process.url, request(number))
        assert set(stored(connect(process.url)).values()) == {TRACES * 3}


def test_sigterm_under_load_loses_nothing_and_ends_well(tmp_path: Path) -> None:
    """What is under way is committed before the process ends with 0; nobody's batch is lost."""
    db = tmp_path / "ragpulse.duckdb"
    with Served(db) as process:
        traffic = Traffic(process.url, itertools.count())
        traffic.wait_for(20)
        code = process.terminate()
        traffic.end()
    assert code == 0
    assert "Traceback" not in process.errors
    with Served(db) as process:
        assert set(traffic.acknowledged) <= set(stored(connect(process.url)))


def judged(tmp_path: Path, model: LoopbackModel) -> list[str]:
    """Write a configuration with one judged rule; return the arguments that use it."""
    config = tmp_path / "ragpulse.toml"
    config.write_text(
        f'[collector]\nsettle_s = 0\n[judge]\nmodel = "{model.url}#judge"\nconcurrency = 2\n'
        '[[rule]]\nname = "all"\nevaluators = ["faithfulness"]\nrate = 1\n'
    )
    return ["--config", str(config)]


def test_a_crash_while_evaluating_loses_and_doubles_no_score(
    tmp_path: Path, loopback_model: Callable[[Callable[[str], str]], LoopbackModel]
) -> None:
    """Killed between two verdicts, started again: every trace is scored once; only calls in hand are repeated."""
    traces, answered, half = 30, itertools.count(1), threading.Event()

    def answer(prompt: str) -> str:
        if next(answered) >= traces // 2:
            half.set()
        return "YES"

    model = loopback_model(answer)
    arguments, db = judged(tmp_path, model), tmp_path / "ragpulse.duckdb"
    with Served(db, *arguments) as process:
        # Differing texts, for equal questions are asked once.
        send(process.url, [s for n in range(traces) for s in rag_trace(n, response=f"It is {n + 300} metres tall.")])
        assert half.wait(timeout=60)
        process.kill()
    with Served(db, *arguments) as process:
        client = connect(process.url)
        rows = until(client, "select trace_id, status from scores where evaluator = 'faithfulness'", traces)
        assert Counter(row["status"] for row in rows) == {"ok": traces}
        assert len({row["trace_id"] for row in rows}) == traces
    # Two questions are under way at once; for each, two more cases may wait for their reply's commit.
    assert traces <= len(model.asked) <= traces + 3 * 2


def test_a_judge_without_a_price_is_told_at_the_start(tmp_path: Path) -> None:
    """Its cap could not be kept, so it is never asked; with a price nothing is said."""
    config = tmp_path / "ragpulse.toml"
    for prices, told in (("", True), ("[prices.nameless]\ninput = 1.0\noutput = 2.0\n", False)):
        config.write_text(f'[judge]\nmodel = "http://judge.invalid/v1#nameless"\n{prices}')
        with Served(tmp_path / "p.duckdb", "--config", str(config)) as process:
            eventually(lambda process=process: "leaves this computer" in process.output)
            process.terminate()
        assert ("nothing is judged: the price of nameless is unknown: add it to [prices]" in process.output) is told


def test_the_start_names_the_configuration_and_the_code_it_runs(tmp_path: Path) -> None:
    """`ragpulse.toml` of the folder it starts in, with its path; the log says so again before the code runs."""
    (tmp_path / "own.py").write_text(
        "from ragpulse_evaluators import evaluator\n\n@evaluator\ndef one(response: str) -> bool:\n    return True\n"
    )
    (tmp_path / "ragpulse.toml").write_text('[evaluators]\nfiles = ["own.py"]\n')
    with Served(tmp_path / "ragpulse.duckdb") as process:
        eventually(lambda: "configuration:" in process.output)
        assert (
            f"configuration: {tmp_path / 'ragpulse.toml'} (it runs Python code: {tmp_path / 'own.py'})"
            in process.output
        )
        assert "one" in {one["name"] for one in connect(process.url).call("GET evaluators")["evaluators"]}
        told = f"{tmp_path / 'ragpulse.toml'} runs Python code in this process: {tmp_path / 'own.py'}"
        eventually(lambda: told in process.errors)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="elsewhere SQL runs in the collector itself")
def test_sigterm_does_not_wait_for_a_query(tmp_path: Path) -> None:
    """A query that cannot be interrupted is ended with the collector, and whoever asked is told so."""
    stubborn = "select max(levenshtein(repeat('a', 1e6::int), repeat('b', 1e6::int) || i)) from range(9) r(i)"
    with Served(tmp_path / "ragpulse.duckdb") as process, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: connect(process.url).sql(stubborn).rows())
        eventually(lambda: children(process.process.pid))
        assert process.terminate() == 0
        with pytest.raises(Exception, match="store is closed"):
            asked.result(60)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@contextmanager
def no_room(process: Served) -> Iterator[None]:
    """Let no file of the process grow, as on a full disk."""
    pid, unlimited = process.process.pid, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited)


def refusal(url: str, number: int) -> urllib.error.HTTPError:
    """Send a request that must be refused."""
    with pytest.raises(urllib.error.HTTPError) as raised:
        send(url, request(number))
    return raised.value


def ready(url: str) -> int:
    """Ask whether writes reach the disk, past the second for which an answer holds."""
    time.sleep(1.1)
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
def test_a_full_disk_is_503_and_recovers_without_a_restart(tmp_path: Path) -> None:
    """While nothing can be written senders are told to come again in a second; then everything goes on, all there."""
    with Served(tmp_path / "ragpulse.duckdb") as process:
        send(process.url, request(0))
        with no_room(process):
            for number in (1, 2):
                with refusal(process.url, number) as refused:
                    assert (refused.code, refused.headers["retry-after"]) == (503, "1")
            assert ready(process.url) == 503
            assert connect(process.url).sql("select count(*) as n from spans").rows() == [{"n": TRACES * 3}]
        for number in (1, 2):
            send(process.url, request(number))
        assert set(stored(connect(process.url))) == {0, 1, 2}
        assert ready(process.url) == 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's prlimit")
@pytest.mark.parametrize("fault", ["full disk", "file removed"])
def test_a_flood_of_refusals_does_not_flood_the_log(tmp_path: Path, fault: str) -> None:
    """Sixty refused groups: five lines in a window of ten seconds, and the reason is among them."""
    db, begun = tmp_path / "ragpulse.duckdb", time.monotonic()
    with Served(db) as process, ExitStack() as restored:
        send(process.url, request(0))
        if fault == "full disk":
            restored.enter_context(no_room(process))
        else:
            db.rename(tmp_path / "away")
            restored.callback((tmp_path / "away").rename, db)
        for number in range(1, 61):
            refusal(process.url, number).close()
        windows = 1 + int((time.monotonic() - begun) / WINDOW_S)
        assert 1 <= process.errors.count("was refused: ") <= MAX_ALIKE * windows


@contextmanager
def immutable(folder: Path) -> Iterator[None]:
    """Let no file of a folder be made or removed, not even by root."""
    if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", str(folder)], capture_output=True).returncode:
        pytest.skip("needs a file system and the right to make a folder immutable")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(folder)], check=True)


def test_a_read_only_folder_is_503_and_recovers_without_a_restart(tmp_path: Path) -> None:
    """The log cannot be made: senders come again, people read on; writable again, everything is taken once."""
    db = tmp_path / "ragpulse.duckdb"
    with Served(db) as process:
        send(process.url, request(0))
        assert process.terminate() == 0
    with Served(db, "--roles", "ingest") as process:
        with immutable(tmp_path):
            for number in (1, 2):
                with refusal(process.url, number) as refused:
                    assert (refused.code, refused.headers["retry-after"]) == (503, "1")
            assert ready(process.url) == 503
            assert set(stored(connect(process.url))) == {0}
        for number in (1, 2):
            send(process.url, request(number))
        assert set(stored(connect(process.url))) == {0, 1, 2}
        assert ready(process.url) == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def sent_until_refused(url: str) -> tuple[int, int, str | None]:
    """Send requests until one is refused; return its number, the code and when to come again."""
    for number in range(1000):
        try:
            send(url, request(number))
        except urllib.error.HTTPError as refused:
            with refused:
                return number, refused.code, refused.headers["retry-after"]
    raise AssertionError("the disk never filled up")


def test_a_disk_that_fills_up_loses_nothing_acknowledged(small_disk: Path) -> None:
    """Sent until the disk is full: 503 then; with room again the rest is taken, everything once."""
    filler = small_disk / "filler"
    filler.write_bytes(bytes(4 * 2**20))
    with Served(small_disk / "ragpulse.duckdb") as process:
        taken, *told = sent_until_refused(process.url)
        assert told == [503, "1"]
        filler.unlink()
        send(process.url, request(taken))
        assert set(stored(connect(process.url))) == set(range(taken + 1))


@pytest.mark.parametrize("fault", ["removed", "cut"])
def test_a_log_that_is_gone_while_nothing_arrives_loses_nothing(tmp_path: Path, fault: str) -> None:
    """The process sees it without a commit, and writes the file: a kill then loses nothing."""
    db, log = tmp_path / "ragpulse.duckdb", tmp_path / "ragpulse.duckdb.wal"
    with Served(db, "--roles", "ingest") as process:
        send(process.url, request(0))
        before = db.stat().st_mtime_ns
        log.unlink() if fault == "removed" else os.truncate(log, log.stat().st_size // 2)
        eventually(lambda: db.stat().st_mtime_ns, lambda time: time != before)
        assert ready(process.url) == 200  # the writer has finished what it began
        process.kill()
    with Served(db, "--roles", "ingest") as restarted:
        assert set(stored(connect(restarted.url))) == {0}


def test_a_stop_does_not_wait_for_a_long_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's library may take minutes to import, and no import can be interrupted."""
    begun = tmp_path / "begun"
    (tmp_path / "litellm.py").write_text(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)\n")
    (tmp_path / "ragpulse.toml").write_text(
        '[judge]\nmodel = "openai/m"\n[prices."openai/m"]\ninput = 1\noutput = 1\n[collector]\nsettle_s = 0\n'
        '[[rule]]\nname = "all"\nevaluators = ["relevancy"]\nrate = 1\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    with Served(tmp_path / "ragpulse.duckdb") as process:
        send(process.url, rag_trace(0))
        eventually(begun.exists)
        assert process.terminate() == 0  # within a minute: 4.1 s on an idle machine, ten minutes without the limit
    with Served(tmp_path / "ragpulse.duckdb", "--roles", "ingest") as restarted:
        assert connect(restarted.url).sql("select count(*) as n from traces").rows() == [{"n": 1}]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    command = [sys.executable, "-m", "ragpulse_collector", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_start_up_text_says_what_a_person_needs(tmp_path: Path) -> None:
    """Address, lines to paste, what is kept, what is evaluated and what leaves the computer are printed."""
    with Served(tmp_path / "ragpulse.duckdb") as process:
        for told in (process.url, "ragpulse.configure(", "30 days or 10 GB", "groundedness", "nothing (no judge"):
            assert told in process.output
        assert process.terminate() == 0


def test_nobody_else_on_the_computer_reads_the_file(tmp_path: Path) -> None:
    """Database and log are made for their owner alone: they hold what people asked."""
    with Served(tmp_path / "ragpulse.duckdb") as process:
        send(process.url, request(0))
        files = [path for path in tmp_path.iterdir() if path.name.startswith("ragpulse.duckdb")]
        assert files
        assert {path.stat().st_mode & 0o077 for path in files} == {0}


def test_a_taken_port_names_the_mend(tmp_path: Path) -> None:
    """One line, with the likely owner and the option that helps."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--db", str(tmp_path / "x.duckdb"), "--port", str(port))
    assert done.returncode == 1
    assert f"--port {port + 1}" in done.stderr
    assert "OpenTelemetry Collector" in done.stderr
    assert "Traceback" not in done.stderr


MISTAKES = {
    "[[rule]]\nname = 'a'\nevaluators = ['refusal']\nrate = 1\nwhere = 'nope = 3'\n": r":5: rule 'a': where 'nope = 3'",
    "[[target]]\nmetric = 'requests'\nmin = 1\n[[target]]\nmetric = 'latencyp95'\nmax = 3\n":
        r":4: target 'latencyp95': no metric 'latencyp95'; did you mean 'latency_p95'",
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_the_file_is_one_line(tmp_path: Path, mistake: str) -> None:
    """With file and line, and nothing from the libraries below: no traceback, no list of leaked objects."""
    config = tmp_path / "ragpulse.toml"
    config.write_text(mistake)
    db = str(tmp_path / "x.duckdb")
    done = run("serve", "--config", str(config), "--db", db, "--port", "0", "--no-grpc")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.search(re.escape(str(config)) + MISTAKES[mistake], done.stderr)


def test_a_grpc_port_in_use_is_one_line(tmp_path: Path) -> None:
    """The C library's own log line says the same once more."""
    pytest.importorskip("grpc")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--db", str(tmp_path / "x.duckdb"), "--port", "0", "--grpc-port", port)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert re.search(rf"cannot listen on 127\.0\.0\.1:{port}.*choose another port with --grpc-port", done.stderr)


def test_a_port_is_taken_from_the_moment_it_is_bound() -> None:
    """Of two collectors that start together the second hears it at once, not when it has begun to serve."""
    with bind("127.0.0.1", 0) as first, pytest.raises(PortInUse, match="--port"):
        bind("127.0.0.1", first.getsockname()[1])


@pytest.mark.parametrize("asked", [True, False])
def test_a_grpc_port_that_is_taken_meanwhile(tmp_path: Path, asked: bool) -> None:
    """Asked for, the start ends and names the fix; the usual port being taken, it goes on without."""
    pytest.importorskip("grpc")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings().with_options("collector", {"db": str(tmp_path / "x.duckdb"), "port": 0})
        if asked:
            collector = Collector(settings.with_options("collector", {"grpc_port": port}))
            with pytest.raises(OSError, match="--grpc-port"):
                collector.start()
            return
        collector = Collector(settings, default_grpc_port=port)
        collector.start()
        try:
            assert collector.grpc_port is None
            send(collector.url, request(0))
        finally:
            collector.stop()


def test_a_second_collector_on_one_file_is_refused(tmp_path: Path) -> None:
    """The second says that the file is in use, and the first goes on."""
    db = tmp_path / "ragpulse.duckdb"
    with Served(db) as process:
        done = run("serve", "--db", str(db), "--port", "0", "--grpc-port", "0")
        assert done.returncode == 1
        assert "in use by a running collector" in done.stderr
        assert "Traceback" not in done.stderr
        send(process.url, request(0))


@pytest.mark.parametrize("place", ["absent/ragpulse.duckdb", "text.duckdb", "cases.jsonl", "/proc/x.duckdb"])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, place: str) -> None:
    """An absent folder, one that takes no files, a file that is no database: the start ends with one line.

    DuckDB would open a file of JSON lines, and store nothing in it.
    """
    (tmp_path / "text.duckdb").write_text("this is no database" * 1000)
    (tmp_path / "cases.jsonl").write_text('{"query": "q"}\n')
    done = run("serve", "--db", str(tmp_path / place), "--port", "0", "--grpc-port", "0")
    assert done.returncode == 1
    assert place in done.stderr
    assert "Traceback" not in done.stderr
