"""Delivery: what is counted, what is sent again, and how quickly an exit gives up."""

import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from waiting import eventually

import ragpulse
from ragpulse._export.batch import Destination, EncodedBatch
from ragpulse._export.spool import DiskSpool
from ragpulse._export.transport import Poster

from .conftest import Collector, serve


def _answer(status: int, body: bytes = b"", **headers: str) -> Any:
    def respond(handler: Any) -> bool:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    return respond


@ragpulse.rag
def answer(question: str) -> str:
    """The application."""
    return question


def test_partial_success_counts_the_rejected(pulse: Collector) -> None:
    """A 200 that says `rejected_spans` is not wholly a success."""
    body = ExportTraceServiceResponse()
    body.partial_success.rejected_spans = 2
    body.partial_success.error_message = "too old"
    pulse.respond = _answer(200, body.SerializeToString())
    for _ in range(3):
        answer("q")
    ragpulse.flush(timeout=60)
    stats = ragpulse.stats()
    assert (stats.exported, stats.rejected, stats.pending) == (1, 2, 0)
    assert "too old" in stats.last_error


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 413, 500])
def test_refusals_and_redirects_are_failures(pulse: Collector, status: int) -> None:
    """Only a 2xx is a delivery; a redirect is not followed."""
    pulse.respond = _answer(status, b"no", Location="http://127.0.0.1:9/v1/traces")
    answer("q")
    assert ragpulse.flush(timeout=60)
    stats = ragpulse.stats()
    assert (stats.exported, stats.rejected, stats.reasons) == (0, 1, {f"HTTP {status}": 1})
    assert len(pulse.requests) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_temporary_refusals_are_sent_again(pulse: Collector, status: int) -> None:
    """The same bytes go out again, and nothing is lost or doubled."""
    attempts: list[int] = []

    def first_refused(handler: Any) -> bool:
        attempts.append(1)
        return len(attempts) == 1 and bool(_answer(status, Retry_After="0")(handler))

    pulse.respond = first_refused
    answer("q")
    assert ragpulse.flush(timeout=60)
    assert (len(attempts), len(pulse.spans), ragpulse.stats().exported) == (2, 1, 1)


def test_retry_after_is_obeyed(pulse: Collector) -> None:
    """No request comes before the time the collector named."""
    times: list[float] = []

    def first_refused(handler: Any) -> bool:
        times.append(time.monotonic())
        return len(times) == 1 and bool(_answer(503, Retry_After="1")(handler))

    pulse.respond = first_refused
    answer("q")
    assert ragpulse.flush(timeout=60)
    assert times[1] - times[0] >= 1.0


def test_spans_of_an_outage_arrive_afterwards(collector: Collector) -> None:
    """The collector is away, comes back on its port, and gets everything once."""
    place = socket.socket()
    place.bind(("127.0.0.1", 0))  # not listening yet: whoever connects is refused
    ragpulse.configure(endpoint=f"http://127.0.0.1:{place.getsockname()[1]}")
    for number in range(50):
        answer(str(number))
    assert not ragpulse.flush(timeout=0.3)
    assert ragpulse.stats().pending == 50
    server = serve(collector, place)
    assert ragpulse.flush(timeout=60)
    ragpulse.shutdown()
    server.shutdown()
    server.server_close()
    assert collector.requests[0]["Content-Encoding"] == "gzip"  # what waits takes less room
    assert sorted(int(span.attributes["input.value"]) for span in collector.spans) == list(range(50))


def test_a_full_queue_drops_counts_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The queue is bounded by bytes; what does not fit is counted."""
    ragpulse.configure(endpoint="http://127.0.0.1:9")
    from ragpulse._runtime import PROCESS

    assert PROCESS.runtime is not None
    PROCESS.runtime.exporter._max_bytes = 10_000
    for _ in range(50):
        answer("x" * 1000)
    stats = ragpulse.stats()
    assert stats.dropped >= 40
    assert stats.reasons["queue full"] == stats.dropped
    assert caplog.text.count("queue full") == 1
    ragpulse.shutdown(timeout=0)


EXITING = """
import sys, ragpulse
ragpulse.configure(endpoint=sys.argv[1])
for number in range(1000):
    ragpulse.rag(lambda q: q)("x")
"""


@contextmanager
def _silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("collector_is", ["absent", "silent"])
def test_an_exit_without_a_collector_is_quick(collector_is: str) -> None:
    """With spans queued and nobody to take them the process still ends within seconds (of its own)."""

    def took(spans: int, port: int) -> float:
        program = EXITING.replace("1000", str(spans))
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", program, f"http://127.0.0.1:{port}"], check=True, timeout=60)
        return time.monotonic() - began

    def of_its_own() -> float:
        with _silent_port() as port:
            return took(1000, 9 if collector_is == "absent" else port) - took(0, 9)

    eventually(of_its_own, lambda seconds: seconds < 5.0)  # others can only make it longer


def test_sigterm_with_a_handler_that_exits_flushes(collector: Collector) -> None:
    """A service that ends by `sys.exit` in its SIGTERM handler loses nothing."""
    code = """
        import signal, sys, ragpulse
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        ragpulse.configure(endpoint=sys.argv[1])
        ragpulse.rag(lambda q: q)("x")
        print("ready", flush=True)
        signal.pause()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), collector.url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()
    assert len(collector.spans) == 1


def _raw_server(reply: Any) -> tuple[socket.socket, int]:
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                _read_request(connection)
                reply(connection)

    threading.Thread(target=run, daemon=True).start()
    return server, server.getsockname()[1]


def _read_request(connection: socket.socket) -> None:
    """To its body of one byte: a connection closed with something unread is reset, its answer lost."""
    heard = b""
    while not heard.partition(b"\r\n\r\n")[2] and (more := connection.recv(65536)):
        heard += more


def _poster(port: int, timeout: float) -> Poster:
    url = f"http://127.0.0.1:{port}/v1/traces"
    return Poster(url, Destination(traces_url=url, logs_url=url, headers={}, chosen_by="argument", timeout=timeout))


def _endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b"x" * 1_000_000)


def _endless_headers(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for _ in range(1_000_000):
        connection.sendall(b"X-Header: " + b"y" * 60_000 + b"\r\n")


def _dripping(connection: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X" * 1000:
        connection.sendall(bytes((byte,)))
        time.sleep(0.05)


def _redirecting(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 307 Elsewhere\r\nLocation: /v1/traces\r\nContent-Length: 1000000000\r\n\r\n")
    for _ in range(1000):
        connection.sendall(b"x" * 1_000_000)


def test_a_dripping_answer_ends_at_the_deadline() -> None:
    """However many bytes still come: the exporting thread is free again for the next attempt."""
    server, port = _raw_server(_dripping)
    poster = _poster(port, timeout=0.5)
    assert "TimeoutError" in poster.post(b"x", encoding=None).message  # and not all 50 s of it
    poster.close()
    server.close()


CLOSING = {
    "HTTP/1.0": ("HTTP/1.0", "Content-Length: 0\r\n", ""),
    "HTTP/1.0, a body without length": ("HTTP/1.0", "Content-Type: application/json\r\n", "{}"),
    "Connection: close": ("HTTP/1.1", "Connection: close\r\nContent-Length: 0\r\n", ""),
    "without a word": ("HTTP/1.1", "Content-Length: 0\r\n", ""),
}


@pytest.mark.parametrize("closing", CLOSING)
def test_a_server_that_closes_after_each_answer_gets_everything_once(pulse: Collector, closing: str) -> None:
    """Each batch has a connection of its own; the answer is read though the connection ends with it."""
    version, headers, body = CLOSING[closing]

    def accept_and_close(handler: Any) -> bool:
        pulse.take(handler.path, handler.sent)
        handler.wfile.write(f"{version} 200 OK\r\n{headers}\r\n".encode())
        handler.wfile.write(body.encode())
        handler.close_connection = True
        return True

    pulse.respond = accept_and_close
    for number in range(5):
        answer(str(number))
        assert ragpulse.flush(timeout=60)
    stats = ragpulse.stats()
    assert (stats.exported, stats.rejected, stats.reasons) == (5, 0, {})
    assert [span.attributes["input.value"] for span in pulse.spans] == list("01234")


@pytest.mark.parametrize("framed", [True, False])
def test_the_reason_of_a_closing_server_is_reported(framed: bool) -> None:
    """The reason stands in a body that comes after the connection is given up, with and without a length."""

    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.0 400 Bad\r\n" + (b"Content-Length: 7\r\n" if framed else b"") + b"\r\n")
        connection.sendall(b"too old")

    server, port = _raw_server(refuse)
    poster = _poster(port, timeout=60)
    answers = [poster.post(b"x", encoding=None) for _ in range(3)]
    assert [(one.status, one.message) for one in answers] == [(400, "too old")] * 3
    poster.close()
    server.close()


TROUBLED = """
import re, sys, time
import ragpulse, ragpulse._export.transport

def peak():  # of this program alone: getrusage also tells of the one that started it
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

ragpulse.configure(endpoint=sys.argv[1])
before, began = peak(), time.monotonic()
for number in range(3):
    ragpulse.rag(lambda question: question)("x" * 1000)
    ragpulse.flush(timeout=0.7)
ragpulse.shutdown(timeout=1)
print(peak() - before, time.monotonic() - began)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc")
@pytest.mark.parametrize("reply", [_endless, _endless_headers, _dripping, _redirecting])
def test_a_hostile_collector_costs_neither_memory_nor_time(reply: Any) -> None:
    """A gigabyte, endless headers, a byte at a time, redirects: a process grows by less than 5 MB (8 are allowed)."""
    server, port = _raw_server(reply)
    command = [sys.executable, "-c", TROUBLED, f"http://127.0.0.1:{port}"]

    def grown_and_took() -> list[float]:
        done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
        return list(map(float, done.stdout.split()))

    grown_kib, _ = eventually(grown_and_took, lambda stats: stats[1] < 20)  # others can only make it longer
    assert grown_kib < 5 * 1024
    server.close()


def test_the_spool_survives_a_restart_in_order(tmp_path: Path, collector: Collector) -> None:
    """Batches of an outage are on disk when the process dies, and the next process delivers them once."""
    code = """
        import os, sys, ragpulse
        ragpulse.configure(endpoint="http://127.0.0.1:9", spool_dir=sys.argv[1])
        for number in range(3):
            ragpulse.rag(lambda q: q)(str(number))
            while ragpulse.stats().spooled <= number:
                ragpulse.flush(timeout=0.1)
        os._exit(1)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], check=False, timeout=60)
    assert list(tmp_path.glob("*/*.otlp"))
    ragpulse.configure(endpoint=collector.url, spool_dir=tmp_path)
    answer("3")
    assert ragpulse.flush(timeout=60)
    ragpulse.shutdown()
    assert [span.attributes["input.value"] for span in collector.spans] == ["0", "1", "2", "3"]
    assert not list(tmp_path.glob("*/*.otlp"))


def test_a_damaged_spool_file_is_put_aside(tmp_path: Path, collector: Collector) -> None:
    """Half a file is not sent and does not stop the others."""
    folder = tmp_path / "00000000000000000001-1"
    folder.mkdir()
    (folder / "000000000001.otlp").write_bytes(b"traces 1 1 12345\nhalf")
    ragpulse.configure(endpoint=collector.url, spool_dir=tmp_path)
    answer("whole")
    assert ragpulse.flush(timeout=60)
    ragpulse.shutdown()
    assert [span.attributes["input.value"] for span in collector.spans] == ["whole"]
    assert list(folder.glob("*.damaged"))


def test_doctor_says_what_is_wrong_and_how_to_fix_it(pulse: Collector) -> None:
    """With a collector: it answers; without: what to start."""
    answer("q")
    ragpulse.flush(timeout=60)
    assert "collector: answers" in ragpulse.doctor()
    ragpulse.configure(endpoint="http://joe:hunter2@127.0.0.1:9")
    said = ragpulse.doctor(timeout=0.5)
    assert "fix: start the collector" in said
    assert "hunter2" not in said


def _spooled(folder: Path) -> DiskSpool:
    spool = DiskSpool(folder)
    assert spool.put(EncodedBatch("/v1/traces", b"a prompt", 1, False))
    return spool


def test_the_spool_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Batches hold prompts; the umask does not matter."""
    former = os.umask(0)
    try:
        _spooled(tmp_path / "deep" / "spool")
    finally:
        os.umask(former)
    paths = list((tmp_path / "deep" / "spool").rglob("*"))
    modes = {path.stat().st_mode & 0o777 for path in paths if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in (tmp_path / "deep" / "spool", *paths) if path.is_dir()}
    assert (modes, folders, len(paths)) == ({0o600}, {0o700}, 3)


def test_the_spool_follows_no_link_and_trusts_no_other_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as the spool itself nor as a folder or a file in it."""
    other = tmp_path / "other"
    _spooled(other)
    (tmp_path / "link").symlink_to(other)
    assert not DiskSpool(tmp_path / "link").put(EncodedBatch("/v1/traces", b"x", 1, False))
    (inner,) = other.iterdir()
    root = tmp_path / "root"
    root.mkdir()
    (root / "1-1").symlink_to(inner)  # a folder with a batch
    (root / "1-2").mkdir()
    (root / "1-2" / "1.otlp").symlink_to(next(inner.glob("*.otlp")))
    spool = DiskSpool(root)
    assert spool.head() is None
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert DiskSpool(other).head() is None  # its batch belongs to another user


def test_what_a_crash_cut_short_is_removed_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The whole batches of a process that has ended are adopted, in folders that earlier versions left readable."""
    folder = tmp_path / "00000000000000000001-1"
    folder.mkdir(mode=0o755)
    whole = DiskSpool(tmp_path / "elsewhere")
    whole.put(EncodedBatch("/v1/traces", b"whole", 1, False))
    (file,) = (tmp_path / "elsewhere").rglob("*.otlp")
    file.rename(folder / file.name)
    (folder / "000000000002.part").write_bytes(b"half")
    head = DiskSpool(tmp_path).head()
    assert (head is not None and head[1].body, list(tmp_path.rglob("*.part"))) == (b"whole", [])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "1 batches that a crash cut short were removed" in caplog.text


def test_a_batch_that_the_disk_refuses_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the batch stays in memory."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    spool = _spooled(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    assert not spool.put(EncodedBatch("/v1/traces", b"x", 1, False))
    assert list(tmp_path.rglob("*.part")) == []
