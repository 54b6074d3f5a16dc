"""No secret leaves: planted in the environment, the file, addresses, headers, DSNs and spans, it is shown nowhere."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import pytest
from all_routes import ASKED
from served import Served
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.client import connect
from ragpulse_collector.configuration import load_settings
from ragpulse_collector.settings import SettingsError
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.lake import lake_parts
from ragpulse_collector.store.protocol import StoreError

SECRET = "sk-pl4nted-0123456789"
PASSED_ON = "sk-pl4nted-passed-on-0"
"""The variable that headers and queries name."""
KEY = "sk-pl4nted-collector-key"
MARK = "pl4nted"
"""In every secret."""


class Echo(BaseHTTPRequestHandler):
    """Refuses each request, and repeats what it was sent, address and headers included."""

    seen: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        told = f"{self.path} {dict(self.headers)}"
        type(self).seen.append(told)
        content = json.dumps({"error": {"message": f"wrong: {told}"}}).encode()
        self.send_response(401, "wrong")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


@contextmanager
def echoing() -> Iterator[tuple[int, list[str]]]:
    """A server that repeats what it is sent: its port, and what that was."""
    handler = type("Handler", (Echo,), {"seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server.server_address[1], handler.seen
    server.shutdown()
    server.server_close()


FILE = """
[collector]
settle_s = 0
redact = ["sk-pl4nted-[a-z0-9-]+"]
[[collector.api_keys]]
name = "all"
sha256 = "{sha256}"
scopes = ["ingest", "read", "admin"]
[judge]
model = "http://127.1:{port}/v1#paid"
api_key_env = "HOUSE_KEY"
headers = {{ X-Team = "{secret}-team", X-More = "${{PASSED_ON_KEY}}" }}
query = {{ tenant = "{secret}/t x", key = "${{PASSED_ON_KEY}}" }}
[prices.paid]
input = 1
output = 1
[[evaluator]]
name = "second"
use = "helpfulness"
judge = {{ model = "http://127.1:{port}/v1#own", api_key_env = "HOUSE_KEY", headers = {{ X-Own = "{secret}-own" }} }}
[prices.own]
input = 1
output = 1
[[rule]]
name = "all"
evaluators = ["helpfulness", "second", "groundedness"]
rate = 1
[[destination]]
name = "hook"
webhook = "http://127.0.0.1:{port}/{secret}-hook?token={secret}"
secret = "{secret}-hmac"
[[destination]]
name = "mail"
email = ["a@example.org"]
[smtp]
host = "127.0.0.1"
port = {port}
user = "me"
password = "{secret}-smtp"
[[monitor]]
name = "few"
metric = "requests"
condition = "< 5"
notify = ["hook", "mail"]
slack = "http://127.0.0.1:{port}/services/{secret}-slack"
"""
ENVIRONMENT = {
    "HOUSE_KEY": f"{SECRET}-house", "PASSED_ON_KEY": PASSED_ON, "OPENAI_API_KEY": f"{SECRET}-openai",
    "AWS_SECRET_ACCESS_KEY": f"{SECRET}-aws", "PGPASSWORD": f"{SECRET}-pg", "HTTPS_PROXY": f"http://u:{SECRET}@x:1",
    "UNRELATED": f"{SECRET}-unrelated",
}  # fmt: skip
PAGES = (
    "/", "/traces", f"/traces/{1:032x}", "/sessions", "/explain", "/compare", "/documents", "/topics", "/evaluators",
    "/replays", "/alerts", "/health", "/settings", "/label", "/datasets", "/metrics", "/openapi.json", "/readyz",
    "/nothing-here", f"/traces?q={SECRET}-asked&where=no such column",
)  # fmt: skip


SPAN = {"traceId": "1" * 32, "spanId": "2" * 16, "name": SECRET, "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
UNREADABLE = (
    f'{{"resourceSpans": [{{"{SECRET}": ',
    f'{{"resourceSpans": "{SECRET}"}}',
    json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN | {"startTimeUnixNano": SECRET}]}]}]}),
    json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN | {"traceId": SECRET}]}]}]}),
    json.dumps(
        {"resourceSpans": [{"scopeSpans": [{"spans": [SPAN | {"attributes": [{"key": SECRET, "value": 1}]}]}]}]}
    ),
    json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN | {"name": f"{SECRET} \ud800"}]}]}]}),
)
"""Bodies that are refused, or stored in part: no message about them holds their texts."""


def _send_raw(url: str, body: str) -> int:
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        connection.request("POST", f"/v1/traces?key={SECRET}", body.encode("utf-8", "surrogatepass"), headers)
        return connection.getresponse().status


def shown(url: str) -> Iterator[tuple[str, str]]:
    """What every page and every operation that reads answers."""
    reads = [(path, params) for method, path, params in ASKED if method == "GET"]
    targets = [*PAGES, *(f"/api/v1/{path}?{urlencode(_of(path, params), doseq=True)}" for path, params in reads)]
    for target in targets:
        target = target.replace("{trace_id}", f"{1:032x}").replace("{id}", "session-0")
        with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
            connection.request("GET", quote(target, safe="/?&=%:"), headers={"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            yield target, f"{answer.headers}{answer.read().decode('utf-8', 'replace')}"


def _of(path: str, params: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in params.items() if f"{{{name}}}" not in path}


def texts(db: Path) -> Iterator[str]:
    """Every text of every table of a closed file."""
    with closing(EmbeddedStore(db, decode=lambda _: pytest.fail("nothing is sent"))) as store:
        tables = store.read("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'raw'").values
        for table in tables:
            yield from (f"{table}: {row}" for row in store.read(f"SELECT * FROM raw.{table}").rows)


def test_no_planted_secret_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where judges and destinations repeat it: in no answer, page, file, row or log."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    sha256, db, config = (
        hashlib.sha256(KEY.encode()).hexdigest(),
        tmp_path / "ragpulse.duckdb",
        tmp_path / "config.toml",
    )
    with echoing() as (port, seen):
        config.write_text(FILE.format(secret=SECRET, port=port, sha256=sha256))
        with Served(db, "--config", str(config), python=sys.executable) as served:
            client = connect(served.url, api_key=KEY)
            question = {"query": f"Why is {SECRET} refused?", "response": f"Because {SECRET}-answer is wrong."}
            documents = [("a.md", f"The key is {SECRET}-document.")]
            send(served.url, rag_trace(0, documents=documents, **question, metadata=f"{SECRET}-raw"), api_key=KEY)
            until(client, "select 1 from scores where evaluator in ('helpfulness', 'second')", 2)
            client.call("POST monitors/few/test")
            refused = [_send_raw(served.url, body) for body in UNREADABLE]
            answers = dict(shown(served.url))
            served.terminate()
            log = served.errors + served.output
    config.unlink()
    sent = "".join(seen)
    assert all(f"{SECRET}-{name}" in sent for name in ("team", "house", "own", "hook")), "the judge was asked"
    assert PASSED_ON in sent
    assert set(refused) <= {200, 400}
    leaks = [(place, _around(text)) for place, text in answers.items() if MARK in _own(place, text)]
    leaks += [("log", _around(log))] if MARK in log else []
    leaks += [("row", _around(row)) for row in texts(db) if MARK in row]
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    leaks += [("file", path.name) for path in files if MARK.encode() in path.read_bytes() or MARK in path.name]
    assert leaks == []


def _own(place: str, text: str) -> str:
    """What is not repeated from the address: a page shows what was searched for."""
    return text.replace(f"{SECRET}-asked", "") if "-asked" in place else text


def _around(text: str) -> str:
    at = text.index(MARK)
    return text[max(0, at - 150) : at + 40]


REFUSED = (
    f'[judge]\nmodel = "http://h/v1#m"\napi_key_env = "{SECRET}"',
    '[judge]\nmodel = "http://h/v1#m"\napi_key_env = "PL4NTED0123456789"',
    *(f'[judge]\n{key} = "{SECRET}"' for key in ("timeout_s", "structured", "reasoning_effort", "omit", "headers")),
    f'[judge]\nmodel = ["{SECRET}"]',
    f'[judge]\nmodel = "http://me:{SECRET}@h/v1#m"\nquery = {{ a = ["{SECRET}"] }}',
    f'[judge]\nmodel = "http://h/v1#m"\nheaders = {{ a = "{SECRET} ${{NOT_SET_HERE}}" }}',
    f'[[evaluator]]\nname = "a"\nuse = "b"\njudge = {{ model = "m", api_base = ["{SECRET}"] }}',
    f'[[monitor]]\nname = "a"\nmetric = "requests"\ncondition = "< 1"\nslack = ["{SECRET}"]',
    f'[[destination]]\nname = "a"\nwebhook = ["{SECRET}"]',
    f'[smtp]\npassword = ["{SECRET}"]',
    f'[collector]\nredact = ["{SECRET}("]',
    f'[collector]\napi_keys = ["{SECRET}"]',
    f'[[collector.api_keys]]\nname = "a"\nsha256 = "{SECRET}"',
    *(f'[collector]\ndb = "{db}"' for db in (
        f"ducklake:postgres:host=h password={SECRET}", f"ducklake:postgres:postgresql://me:{SECRET}@h/d",
        f"ducklake:postgres:host=h password={SECRET} data_path=files", f"postgres://me:{SECRET}@h/d",
        f"md:d?motherduck_token={SECRET}", f"s3://me:{SECRET}@bucket/d.duckdb",
    )),
)  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text.replace("\n", " ")[:50])
def test_a_refusal_does_not_repeat_what_may_be_a_secret(tmp_path: Path, text: str) -> None:
    """A key in the place of its variable's name, a password in a DSN: the place is named, the value is not."""
    file = tmp_path / "ragpulse.toml"
    file.write_text(text)

    def start() -> None:
        settings = load_settings(file, {})
        print(settings.judge.access.keys(), lake_parts(settings.collector.db))

    with pytest.raises((SettingsError, StoreError)) as refused:
        start()
    assert MARK not in str(refused.value).lower()


def test_a_refusal_of_a_variable_does_not_repeat_it() -> None:
    """The name of the variable says enough."""
    with pytest.raises(SettingsError, match="RAGPULSE_JUDGE_STRUCTURED") as refused:
        load_settings(None, {"RAGPULSE_JUDGE_STRUCTURED": SECRET})
    assert MARK not in str(refused.value)
