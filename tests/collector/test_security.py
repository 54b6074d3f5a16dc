"""One test per published class of attack (design: reliability.md 6) that the guard's tests do not hold."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import itertools
import json
import re
import resource
import socket
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from healthy import HEALTHY
from jinja2 import TemplateError
from packaging.requirements import Requirement
from served import Served
from traffic import rag_trace, send
from waiting import eventually, until

import ragpulse_collector
import ragpulse_dashboards
import ragpulse_evaluators
from ragpulse_collector.analysis.quality import Measured
from ragpulse_collector.api.health import Fault, Rejected, RuleMoney
from ragpulse_collector.api.operations import Operation
from ragpulse_collector.api.status import ExportedQuality, render
from ragpulse_collector.app.server import BoundedProtocol
from ragpulse_collector.client import Client, ClientError, connect

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
TRACE = f"{1:032x}"
MIB = 2**20


def ask(url: str, method: str, target: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """Send one request as it is written, path included; return status and body."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        content = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, target, content, kind | (headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")


# --- server-side requests, files and code named by a client


class Sentinel:
    """A listening socket that only counts who comes."""

    def __init__(self) -> None:
        self.visits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._count, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _count(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()


@pytest.fixture
def sentinel() -> Iterator[Sentinel]:
    """Listen, and count."""
    listening = Sentinel()
    yield listening
    listening.close()


USUAL: dict[str, dict[str, Any]] = {
    "POST replays": {"evaluators": ["faithfulness"], "since": "7d"},
    "POST evaluate": {"trace_id": TRACE, "evaluators": ["faithfulness"]},
    "POST rules": {"name": "probe", "evaluators": ["faithfulness"], "rate": 1},
    "PUT rules/{name}": {"evaluators": ["faithfulness"], "rate": 1},
    "POST scores": {"trace_id": TRACE, "name": "thumbs", "score": 1},
    "POST labels": {"trace_id": TRACE, "evaluator": "faithfulness", "passing": True},
    "POST sql": {"query": "select 1"},
}
WRONG_KINDS: tuple[Any, ...] = (7, [[]], {"a": 1}, "\x00")
URL_FIELDS = ("url", "api_base", "base_url", "endpoint", "webhook", "slack", "model", "judge", "loads", "prompts", "db")


def hostile_requests(operation: Operation, address: str, tried: frozenset[str]) -> Iterator[dict[str, Any]]:
    """The operation's usual parameters with addresses among them: one at a time where work is started.

    Elsewhere each parameter that was not `tried` is one of the addresses, and all together are each of them.
    """
    usual = USUAL.get(f"{operation.method} {operation.path}", {})
    names = [name for name in operation.params.names() if name not in operation.in_path]
    values = (f"http://{address}/v1#model", f"huggingface/HTTP://{address}/v1", [f"http://{address}/x.py"])
    for value in values:
        if "evaluators" in usual:
            yield from (usual | {name: value} for name in (*URL_FIELDS, *names))
        yield dict.fromkeys(names, value)
    alone = [name for name in names if name not in tried]
    yield from (usual | {name: value} for name, value in zip(alone, itertools.cycle(values), strict=False))


def test_no_json_value_is_a_500(collector: Start) -> None:
    """Numbers, lists and objects where something else is meant: refused or ignored, never a failure."""
    running = collector()
    send(running.url, rag_trace(0))
    for operation in running.components.operations:
        if operation.method not in ("POST", "PUT"):
            continue
        target = "/api/v1/" + re.sub(r"\{[^}]+\}", "probe", operation.path)
        usual = USUAL.get(f"{operation.method} {operation.path}", {})
        dry = {"dry_run": True} if "dry_run" in operation.params.names() else {}
        for name in operation.params.names():
            for value in WRONG_KINDS:
                status, body = ask(running.url, operation.method, target, usual | dry | {name: value})
                assert status < 500 or status == 503, (operation.path, name, value, body)  # 503 is busy


def test_no_request_makes_the_collector_call_an_address(collector: Start, sentinel: Sentinel) -> None:
    """Every parameter of every operation as a URL: nobody is called, nothing fails with 500."""
    running = collector()
    send(running.url, rag_trace(0))
    operations = running.components.operations
    filters = frozenset(next(one for one in operations if one.path == "traces").params.names())
    for operation in operations:
        target = "/api/v1/" + re.sub(r"\{[^}]+\}", "probe", operation.path)
        is_first = operation.path in ("traces", "overview") or operation.method != "GET"
        tried = frozenset[str]() if is_first else filters  # one code reads the filters of all
        for params in hostile_requests(operation, sentinel.address, tried):
            if operation.method in ("POST", "PUT"):
                status, body = ask(running.url, operation.method, target, params)
            else:
                status, body = ask(running.url, operation.method, f"{target}?{urlencode(params, doseq=True)}")
            assert status < 500 or status == 503, (operation.method, operation.path, params, body)  # 503 is busy
    settled(connect(running.url))
    assert sentinel.visits == 0


def settled(client: Client) -> None:
    """Wait until the traces are decided and no evaluation is due: a judge that could be called has been called."""
    until(client, "select 1 from traces where decided")
    eventually(lambda: client.call("GET status")["evaluations"], lambda evaluations: not evaluations["pending"])


def test_pages_pass_no_address_either(collector: Start, sentinel: Sentinel) -> None:
    """The form of the replay page is held to the same names as the API."""
    running = collector()
    send(running.url, rag_trace(0))
    form = urlencode({"evaluators": "faithfulness", "judge": f"http://{sentinel.address}/v1#m", "since": "7d"})
    parts = urlsplit(running.url)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": running.url}
    with closing(http.client.HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("POST", "/replays", form, headers)
        assert connection.getresponse().status == 400
    assert sentinel.visits == 0


@pytest.mark.parametrize("name", ["loads", "prompts"])
def test_files_are_not_taken_over_http(collector: Start, tmp_path: Path, name: str) -> None:
    """A Python file named in a replay, in body or query, is not run; the answer names the fix."""
    running = collector()
    send(running.url, rag_trace(0))
    marker, evil = tmp_path / "ran", tmp_path / "evil.py"
    evil.write_text(f"open({str(marker)!r}, 'w')\n")
    usual = {"evaluators": ["refusal"], "since": "7d"}
    for target, body in (("/api/v1/replays", {**usual, name: [str(evil)]}), (f"/api/v1/replays?{name}={evil}", usual)):
        status, told = ask(running.url, "POST", target, body)
        assert (status, "ragpulse replay --load" in told) == (400, True)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["os:system", "evil.py", "/tmp/evil.py", "../evil", "evil:evaluator", "__import__('os')"]
)
def test_evaluators_can_only_be_named(collector: Start, name: str) -> None:
    """What is no registered name is refused, whichever operation names it."""
    client = connect(collector().url)
    for operation in ("POST replays", "POST evaluate", "POST rules"):
        with pytest.raises(ClientError) as raised:
            client.call(operation, USUAL[operation] | {"evaluators": [name]})
        assert raised.value.status in (400, 404)


def test_the_command_line_still_loads_files_over_a_closed_file(
    collector: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`replay --db --load` runs an evaluator of one's own, in this process."""
    from ragpulse_collector.cli import run

    running = collector()
    send(running.url, rag_trace(0))
    settled(connect(running.url))
    running.stop()
    own = tmp_path / "own.py"
    own.write_text(
        "from ragpulse_evaluators import evaluator\n\n\n"
        "@evaluator\ndef shouting(case):\n    return float(case.response.isupper())\n"
    )
    arguments = ["replay", "-e", "shouting", "--load", str(own), "--db", str(tmp_path / "ragpulse.duckdb"), "--json"]
    assert run(arguments) == 0
    (done,) = json.loads(capsys.readouterr().out)["replays"]
    assert (done["status"], done["ok"]) == ("done", 1)


# --- templates

PACKAGES = (ragpulse_collector, ragpulse_dashboards, ragpulse_evaluators)
ESCAPES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''|attr('__class__') }}",
    "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(x) }}",
    "{{ x['__class__'] }}",
    "{{ self.__init__.__globals__ }}",
)


def test_one_sandboxed_environment_per_package() -> None:
    """No template is compiled outside the one sandbox of its package."""
    for package in PACKAGES:
        made = []
        for source in sorted(Path(package.__path__[0]).rglob("*.py")):
            text = source.read_text()
            made += re.findall(r"\b\w*Environment\(", text)
            assert not re.search(r"\bTemplate\(", text), source
        assert set(made) <= {"SandboxedEnvironment(", "ImmutableSandboxedEnvironment("}, package
        assert len(made) <= 1, (package, made)


@pytest.mark.parametrize("escape", ESCAPES)
def test_the_sandbox_holds(escape: str) -> None:
    """Known escapes end in an error or in nothing when a prompt file tries them."""
    from ragpulse_evaluators.judged.base import _environment

    def render() -> str:
        try:
            return _environment().from_string(escape).render(x="text")
        except TemplateError:  # SecurityError and UndefinedError are both
            return "refused"

    assert render() in ("", "refused")


def test_span_data_is_never_a_template(collector: Start) -> None:
    """Braces in a query, a name and a document are shown as they are."""
    running = collector()
    text = "{{ 7*7 }} {% raise %} ${7*7} #{7*7}"
    send(running.url, rag_trace(0, query=text, response=text))
    settled(connect(running.url))
    status, page = ask(running.url, "GET", f"/traces/{TRACE}")
    assert status == 200
    assert "{{ 7*7 }}" in page
    assert "49 {% raise" not in page


# --- hostile names and values

KEYS = (
    "__proto__", "constructor", "prototype", "toString", "a.b", "a", "a.b.c", "", " ", "$lifted", "$json", "$.x", "'",
    '"; drop table raw.spans; --', "'); delete from raw.spans; --", "a\x00b", "\u202e", "\ud7ff", "é", "x" * MIB,
)  # fmt: skip


def test_any_attribute_key_is_data(collector: Start) -> None:
    """Keys that mean something to JavaScript, SQL, JSON or a path come back as they were sent, and change nothing."""
    running = collector()
    spans = rag_trace(0)
    spans[0]["attributes"] += [{"key": key, "value": {"stringValue": f"v{n}"}} for n, key in enumerate(KEYS)]
    send(running.url, spans)
    client = connect(running.url)
    told = client.call(f"GET traces/{TRACE}")["spans"][0]["attributes"]
    assert {key: told.get(key) for key in KEYS} == {key: f"v{n}" for n, key in enumerate(KEYS)}
    assert client.sql("select count(*) as n from spans").rows() == [{"n": 3}]
    assert ask(running.url, "GET", f"/traces/{TRACE}")[0] == 200


TRAVERSALS = (
    "../../settings.py", "..%2f..%2fsettings.py", "%2e%2e/%2e%2e/settings.py", "%252e%252e%252fsettings.py",
    "..;/settings.py", "..\\..\\settings.py", "%5c..%5csettings.py", "css%00/../../settings.py", "/etc/passwd",
    "%2fetc%2fpasswd", "....//settings.py", "css/../../../settings.py", ".", "..", "%c0%ae%c0%ae/settings.py",
)  # fmt: skip


@pytest.mark.parametrize("place", ["/static/0/", "/api/v1/", "/api/v1/traces/", "/traces/", "/replays/", "/"])
def test_no_path_leads_out(collector: Start, place: str) -> None:
    """Whatever is written into a path, no file comes back: 4xx, or a page of ours."""
    running = collector()
    for path in TRAVERSALS:
        status, body = ask(running.url, "GET", place + path)
        assert status < 500, path
        assert "import annotations" not in body, path
        assert "root:" not in body, path
        if place == "/static/0/":
            assert status in (400, 404), path


SQL = (
    "select * from read_csv('/etc/passwd')", "select * from read_text('/proc/self/environ')", "from '/etc/passwd'",
    "select * from glob('/*')", "select * from sniff_csv('/etc/passwd')", "attach '/tmp/x.duckdb'", "install httpfs",
    "load httpfs", "copy spans to '/tmp/x.csv'", "select 1; select 2", "commit; delete from raw.spans",
    "select getenv('HOME')", "set enable_external_access = true", "pragma database_list", "export database '/tmp/x'",
    "delete from raw.spans", "create table t (a int)", "select * from duckdb_secrets()", "checkpoint",
    "with x as (delete from raw.spans returning *) select * from x", "select * from query('delete from raw.spans')",
)  # fmt: skip


def test_sql_reads_the_views_and_nothing_else(collector: Start) -> None:
    """Files, network, settings and writes are refused over HTTP with 400, and the data is as before."""
    running = collector()
    send(running.url, rag_trace(0))
    for statement in SQL:
        status, body = ask(running.url, "POST", "/api/v1/sql", {"query": statement})
        assert status == 400, (statement, body)
        assert "root:" not in body
        where = urlencode({"where": f"1 in ({statement})"}, quote_via=quote)
        assert ask(running.url, "GET", f"/api/v1/traces?{where}")[0] == 400, statement
    assert connect(running.url).sql("select count(*) as n from spans").rows() == [{"n": 3}]


def test_a_terminal_obeys_no_span(collector: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences in texts are printed as spaces."""
    from ragpulse_collector.cli import run

    running = collector()
    send(running.url, rag_trace(0, query="\x1b]0;owned\x07\x1b[2Jhello", response="\x9b31m\u202ehello"))
    assert run(["traces", "--url", running.url]) == 0
    assert run(["show", TRACE, "--url", running.url]) == 0
    printed = capsys.readouterr().out
    assert "hello" in printed
    assert not set(printed) & {"\x1b", "\x07", "\x9b", "\u202e"}


# --- memory and time


def test_metrics_have_a_bounded_number_of_labels() -> None:
    """A million names make fifty lines, and a name cannot break out of its quotes."""
    refused = Rejected(spans=0, requests_by_code={str(code): 1 for code in range(100_000)})
    judge = replace(HEALTHY.judge, rules=[RuleMoney("r", 1.0, 2.0)] * 100_000)
    problems = [Fault(f"problem {number}", 1, None, None, "", "") for number in range(100_000)]
    status = replace(HEALTHY, rejected=refused, judge=judge, problems=problems)
    figures = Measured(value=0.5, least=0.4, most=0.6, n=1, users=1)
    quality = [ExportedQuality(f'e{n}"}} 1\nfake{{a="', figures) for n in range(100_000)]
    text = render(status, quality)
    assert len(text.splitlines()) < 600
    assert not re.search(r"^fake", text, re.MULTILINE)


def rude(url: str, *pieces: bytes, stop_after: int = 10**9) -> bytes:
    """Send raw bytes until the other side has had enough; return what it answered."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        try:
            for count, piece in enumerate(pieces):
                if count >= stop_after:
                    break
                connection.sendall(piece)
        except OSError:
            pass  # cut off while sending, as hoped
        try:
            return connection.recv(4096)
        except OSError:
            return b""


@pytest.mark.parametrize(
    "endless",
    [b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", b"GET /", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"],
    ids=["a header", "a path", "many headers"],
)
def test_an_endless_head_is_cut_off(collector: Start, endless: bytes) -> None:
    """After 64 KiB of head the connection ends; the collector goes on."""
    running = collector()
    filling = b"X-A: b\r\n" * 1000 if endless.endswith(b"\r\n") else b"a" * 8000
    answer = rude(running.url, endless, *[filling] * 400)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))
    assert ask(running.url, "GET", "/healthz")[0] == 200


def test_a_long_range_header_costs_nothing(collector: Start) -> None:
    """Ten thousand ranges on a static file: the whole file, or a refusal, never the quadratic merge."""
    running = collector()
    _, page = ask(running.url, "GET", "/")
    static = re.search(r"/static/[0-9a-f]+/[\w./-]+\.js", page)
    assert static
    for size in (1_000, 30_000):
        ranges = "bytes=" + ",".join(f"{n}-{n + 1}" for n in range(size // 6))
        status, _ = ask(running.url, "GET", static[0], headers={"Range": ranges})
        assert status in (200, 431)


def test_a_slow_head_is_cut_off(collector: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that dribbles its headers gets 408 and loses its connection, kept-alive ones included."""
    monkeypatch.setattr(BoundedProtocol, "head_within_s", 0.2)
    running = collector()
    assert rude(running.url, b"GET / HT").startswith(b"HTTP/1.1 408")
    monkeypatch.setattr(BoundedProtocol, "head_within_s", 60.0)
    assert rude(running.url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
    parts = urlsplit(running.url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += connection.recv(4096)
        monkeypatch.setattr(BoundedProtocol, "head_within_s", 0.2)
        connection.sendall(b"GET /again")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


def test_an_answer_that_nobody_reads_is_dropped(collector: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for much and never reads loses its connection; one that reads slowly gets everything."""
    monkeypatch.setattr(BoundedProtocol, "unread_within_s", 0.1)
    dropped = threading.Event()
    lost = BoundedProtocol.connection_lost

    def connection_lost(self: BoundedProtocol, error: Exception | None) -> None:
        dropped.set()
        lost(self, error)

    monkeypatch.setattr(BoundedProtocol, "connection_lost", connection_lost)
    parts = urlsplit(collector().url)
    query = json.dumps({"query": "select repeat('x', 1000) as a from range(20000)"}).encode()
    head = "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    asked = f"{head}Content-Length: {len(query)}\r\n\r\n".encode() + query
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
        connection.sendall(asked)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert dropped.wait(60)

    def take_all() -> bool:
        taken = 0
        dropped.clear()
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=60) as connection:
            connection.sendall(asked)
            while taken < 20_000_000 and not dropped.is_set():
                taken += len(connection.recv(256 * 1024))
        return taken >= 20_000_000

    eventually(take_all)  # a busy machine may read nothing for a tenth of a second


def peak_mb(pid: int) -> float:
    """The most memory a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def post(url: str, body: bytes, encoding: str) -> int:
    """Send one OTLP body; the answer's status, 0 where the connection was cut."""
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": encoding}
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        try:
            connection.request("POST", "/v1/traces", body, headers)
            return connection.getresponse().status
        except OSError:
            return 0


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs Linux's account of peak memory")
def test_bombs_against_the_whole_collector(tmp_path: Path) -> None:
    """A gigabyte in a megabyte, nested, deflated, many at once, and a body without end: 413, and 100 MB at most."""
    import zlib

    member = gzip.compress(bytes(32 * MIB), 1)
    bombs = [
        (member * 32, "gzip"),
        (gzip.compress(member * 32, 1), "gzip"),
        (zlib.compress(bytes(256 * MIB), 1), "deflate"),
    ]
    with Served(tmp_path / "ragpulse.duckdb", python=sys.executable) as process:
        send(process.url, rag_trace(0))
        client = connect(process.url)
        until(client, "select 1 from scores", 4)  # what the first trace loads is no bomb's
        before = peak_mb(process.process.pid)
        with ThreadPoolExecutor(12) as pool:
            codes = set(pool.map(lambda bomb: post(process.url, *bomb), bombs * 4))
        chunk = b"100000\r\n" + bytes(MIB) + b"\r\n"
        head = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
        endless = rude(process.url, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 200)
        grown = peak_mb(process.process.pid) - before
        send(process.url, rag_trace(1))
    assert codes <= {413, 400, 503}
    assert 413 in codes
    assert endless == b"" or b" 413 " in endless.splitlines()[0]
    assert grown < 100


# --- audit and transport


def test_changes_of_rules_and_deletions_are_audited(collector: Start) -> None:
    """Who changed or deleted what can be read with SQL, and not rewritten."""
    key = {"name": "ops", "scopes": ["admin"], "sha256": hashlib.sha256(b"secret").hexdigest()}
    running = collector(api_keys=[key])
    client = connect(running.url, api_key="secret")
    rule = {"name": "half", "evaluators": ["refusal"], "rate": 0.5}
    for name in ("_actor", "_caller", "caller", "actor"):
        with pytest.raises(ClientError, match="unknown parameter"):
            client.call("POST rules", rule | {name: "somebody else"})
    client.call("POST rules", rule)
    client.call("PUT rules/half", {"evaluators": ["refusal"], "rate": 0.25})
    client.call("DELETE rules/half")
    client.call("POST scores", {"trace_id": TRACE, "name": "thumbs", "score": 1})
    time.sleep(0.01)
    client.call("POST prune", {"older_than": "0.001s"})
    rows = client.sql("select action, actor, detail from raw.audit order by created_at").rows()
    assert [row["action"] for row in rows] == ["rule create", "rule change", "rule delete", "prune"]
    assert {row["actor"] for row in rows} == {"ops"}
    assert all(json.loads(row["detail"]) for row in rows)
    with pytest.raises(ClientError):
        client.sql("delete from raw.audit").rows()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for 127.0.0.1."""
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    try:
        subprocess.run(
            [*command, "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", str(key)],
            check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs openssl")
    return made, key


def test_tls_is_served_and_plain_http_is_not(collector: Start, certificate: tuple[Path, Path]) -> None:
    """With a certificate the port speaks TLS only; the session cookie is Secure."""
    made, key = certificate
    running = collector(tls_certificate=str(made), tls_key=str(key))
    assert running.url.startswith("https://")
    port = urlsplit(running.url).port or 0
    context = ssl.create_default_context(cafile=str(made))
    with closing(http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)) as connection:
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
    assert not rude(f"http://127.0.0.1:{port}", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP")


def test_grpc_speaks_tls_too(collector: Start, certificate: tuple[Path, Path]) -> None:
    """A key is never asked for over a plain connection where TLS is configured."""
    grpc = pytest.importorskip("grpc")
    made, key = certificate
    running = collector(tls_certificate=str(made), tls_key=str(key), grpc_port=0)
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    address = f"127.0.0.1:{running.grpc_port}"
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(made.read_bytes())) as channel:
        assert channel.unary_unary(method)(b"", timeout=60) == b""
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(method)(b"", timeout=60)


# --- dependencies

LAST_AFFECTED = {
    "starlette": "1.3.0",  # CVE-2026-54282, CVE-2026-54283; before: CVE-2026-48817, -48818, -48710, CVE-2025-62727
    "litellm": "1.83.14",  # CVE-2026-49468; before: CVE-2026-47101, -42208, -42271, -40217, and stolen keys in 1.82.7
}
"""The last version that an advisory names for each package (read in November 2026)."""


def test_no_floor_admits_a_version_with_a_known_advisory() -> None:
    """Whoever installs the oldest versions that we allow gets none that is known to be open."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = [Requirement(line) for lines in project["optional-dependencies"].values() for line in lines]
    found = {one.name: one.specifier for one in needed if one.name in LAST_AFFECTED}
    assert {name: found[name].contains(version) for name, version in LAST_AFFECTED.items()} == {
        "starlette": False,
        "litellm": False,
    }
