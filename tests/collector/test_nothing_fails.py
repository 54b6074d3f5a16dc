"""Nothing answers 500: odd SQL, short memory, and odd but valid stores over every operation and page."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any, NoReturn
from urllib.parse import urlsplit

import duckdb
import pytest
from waiting import eventually

from ragpulse_collector.api.operations import Operation
from ragpulse_collector.app import Collector, server

Start = Callable[..., Collector]
ARROW = "application/vnd.apache.arrow.stream"


def ask(url: str, method: str, target: str, body: Any = None, accept: str = "*/*") -> tuple[int, str, str]:
    """Send one request; return status, `Retry-After` and body."""
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as connection:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Accept": accept} | ({} if body is None else {"Content-Type": "application/json"})
        connection.request(method, target, content, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Retry-After", ""), answer.read().decode("utf-8", "replace")


def nested(levels: int) -> str:
    """A list in a list, so many levels deep."""
    return "[" * levels + "]" * levels


SQL: dict[str, str | None] = {
    "factorial(33)": "8683317618811886495518194401280000000",
    "-factorial(33)": "-8683317618811886495518194401280000000",
    "340282366920938463463374607431768211455::uhugeint": "340282366920938463463374607431768211455",
    "{'a': factorial(33)}": '{"a":8683317618811886495518194401280000000}',
    "map([1::hugeint << 100], [2])": '{"1267650600228229401496703205376":2}',
    "map([[1]], ['a'])": '{"key":[[1]],"value":["a"]}',
    "map([1], ['a'])": '{"1":"a"}',
    "'12:00:00+05'::timetz": '"12:00:00+05:00"',
    "[timestamptz '2026-11-20 12:00:00+00']": '["2026-11-20T12:00:00Z"]',
    "{'a': timestamptz '2026-11-20 12:00:00+00'}": '{"a":"2026-11-20T12:00:00Z"}',
    "'infinity'::timestamp": '"9999-12-31T23:59:59.999999Z"',
    "1e308 * 10": "null",
    nested(240): None,
    nested(300): None,
    "factorial(34)": "",
    "error('mine')": "",
    "1::int / 0 || repeat('x', 100000000000)": "",
    "'a'::int": "",
    "date '9999-12-31' + interval '1000000 years'": "",
    "regexp_matches('a', '(')": "",
    "json('{')": "",
    "chr(1114112)": "",
}
"""An expression, and its value in JSON: None for any, empty where the database refuses it."""


def test_what_sql_answers_is_an_answer_or_a_sentence(shared_collector: Start) -> None:
    """Over JSON and Arrow; an error of the database is 400 with its words."""
    url = shared_collector().url
    for expression, value in SQL.items():
        question = {"query": f"select {expression} as answer"}
        status, _, body = ask(url, "POST", "/api/v1/sql", question)
        assert status == (400 if value == "" else 200), (expression, body)
        if status == 200 and value is not None:
            assert body.startswith(f'{{"columns":["answer"],"rows":[[{value}]],'), (expression, body)
        status, _, body = ask(url, "POST", "/api/v1/sql", question, ARROW)
        assert status in (200, 400), (expression, body)
        assert status == 200 or json.loads(body)["detail"] != "", expression


def test_columns_of_one_name_stay_apart_in_arrow(shared_collector: Start) -> None:
    """As they do in JSON."""
    pyarrow = pytest.importorskip("pyarrow")
    with closing(HTTPConnection(urlsplit(shared_collector().url).netloc)) as connection:
        body = json.dumps({"query": "select 1 as a, 2 as a"})
        connection.request("POST", "/api/v1/sql", body, {"Content-Type": "application/json", "Accept": ARROW})
        table = pyarrow.ipc.open_stream(connection.getresponse().read()).read_all()
    assert [column.to_pylist() for column in table.columns] == [[1], [2]]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate"),
        duckdb.Error("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        OSError(28, "No space left on device"),
    ],
    ids=repr,
)
def test_short_memory_and_a_full_disk_are_503(
    shared_collector: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """On pages and over the API, with what to do and when."""

    def fail(*_: object) -> NoReturn:
        raise error

    url = shared_collector().url
    monkeypatch.setattr(Operation, "answer_to", fail)
    for target in ("/evaluators", "/api/v1/evaluators"):
        status, retry_after, body = ask(url, "GET", target)
        assert (status, retry_after) == (503, "10"), body
        assert "ask again" in body or "disk refuses" in body


def connected(url: str, sent: bytes = b"") -> socket.socket:
    """A connection that sends this and nothing more."""
    host, port = urlsplit(url).netloc.split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(sent)
    return connection


SLOW_BODY = (
    b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)


def test_connections_without_a_request_make_room(collector: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a low limit of open files: health and receiving answer, and the connection in use stays."""
    monkeypatch.setattr(server, "most_connections", lambda: 40)
    monkeypatch.setattr(server.BoundedProtocol, "head_within_s", 600.0)
    url = collector().url
    with ExitStack() as opened, closing(HTTPConnection(urlsplit(url).netloc, timeout=60)) as kept:
        for sent in (b"", b"GET /healthz HT", SLOW_BODY):
            kept.request("GET", "/healthz")
            assert kept.getresponse().read() == b"ok\n"
            for _ in range(60):
                opened.enter_context(connected(url, sent))
            assert [ask(url, "GET", "/healthz")[0], ask(url, "POST", "/v1/traces", {})[0]] == [200, 200], sent
            if sent != SLOW_BODY:
                eventually(lambda: ask(url, "GET", "/api/v1/evaluators")[0], lambda status: status == 200)
        status, retry_after, body = ask(url, "GET", "/api/v1/evaluators")
        assert (status, retry_after) == (503, "10"), body
        assert "raise the limit of open files" in body
