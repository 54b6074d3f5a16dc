"""Host, Origin and keys are checked on every route: the router is enumerated, so a new route cannot forget."""

from __future__ import annotations

import hashlib
import http.client
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode, urlsplit

import pytest
from starlette.routing import Mount, Route

from ragpulse_collector.api.guard import Sessions, scope_of
from ragpulse_collector.app.web import Pages, web
from ragpulse_collector.otlp.intake import Counters, Flight, Limits

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
OPEN = {"/healthz", "/readyz"}
KEYS = [
    {"name": scope, "scopes": [scope], "sha256": hashlib.sha256(f"secret-{scope}".encode()).hexdigest()}
    for scope in ("ingest", "read", "admin")
]


def ask(url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, dict[str, str]]:
    """Send one request with exactly these headers."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            connection.putheader(name, value)
        connection.endheaders(body or None)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


def routes_of(collector: Collector) -> Iterator[tuple[str, str]]:
    """Every (method, path) the routers know, placeholders filled."""
    made = web(
        collector.store,
        collector.settings,
        operations=collector.parts.operations,
        sessions=Sessions(),
        flight=Flight(Limits()),
        limits=Limits(),
        counters=Counters(),
    )
    yield "GET", "/healthz"
    *own, mount = made.routes
    assert isinstance(mount, Mount), mount
    for route in (*own, *cast(Pages, mount.app).router().routes):
        assert isinstance(route, Route), route
        path = re.sub(r"\{[^}]+\}", "0" * 32, route.path)
        for method in sorted((route.methods or {"GET", "POST"}) - {"HEAD"}):
            yield method, path


def test_a_foreign_host_is_refused_on_every_route(collector: Start) -> None:
    """DNS rebinding: a request for another host name gets 403 wherever it goes, OTLP included."""
    running = collector()
    for method, path in routes_of(running):
        if path in OPEN:
            continue
        status, _ = ask(running.url, method, path, {"Host": "evil.test"})
        assert status == 403, (method, path, status)


def test_a_foreign_origin_is_refused_on_every_mutating_route(collector: Start) -> None:
    """Another site's page can change nothing, whatever content type it finds a way to send."""
    running = collector()
    crosses = ({"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"})
    for method, path in routes_of(running):
        if method == "GET":
            continue
        for cross in crosses:
            for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
                status, _ = ask(running.url, method, path, cross | {"Content-Type": kind}, b"{}")
                assert status in (403, 415), (method, path, cross, status)


def test_with_keys_every_route_asks_for_one(collector: Start) -> None:
    """No key, a wrong key and a key of another scope open nothing but health, login and static files."""
    running = collector(api_keys=KEYS)
    for method, path in routes_of(running):
        if path in OPEN or path.startswith(("/login", "/static")):
            continue
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, _ = ask(running.url, method, path, headers)
            assert status == 401, (method, path, status)
        wanted = scope_of(method, path)
        other = {"ingest": "read", "read": "ingest", "admin": "read"}[wanted]
        status, _ = ask(running.url, method, path, {"Authorization": f"Bearer secret-{other}"})
        assert status == 403, (method, path, status)


def test_a_key_with_the_scope_passes_and_waives_the_host_check(collector: Start) -> None:
    """A valid key may come under any host name; admin may do everything."""
    running = collector(api_keys=KEYS)
    headers = {"Authorization": "Bearer secret-read", "Host": "rag.example.org"}
    assert ask(running.url, "GET", "/api/v1/status", headers)[0] == 200
    admin = {"Authorization": "Bearer secret-admin"}
    assert ask(running.url, "GET", "/api/v1/rules", admin)[0] == 200


def test_login_exchanges_a_key_for_a_cookie(collector: Start) -> None:
    """The cookie is HttpOnly and SameSite=Strict, and opens the pages; a wrong key opens nothing."""
    running = collector(api_keys=KEYS)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, headers = ask(running.url, "POST", "/login", form, b"key=secret-read")
    cookie = headers["set-cookie"]
    assert status == 303
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert ask(running.url, "GET", "/traces", {"Cookie": cookie.partition(";")[0]})[0] == 200
    _, headers = ask(running.url, "POST", "/login", form, b"key=wrong")
    assert "set-cookie" not in headers


def test_a_page_without_a_key_leads_to_the_login(collector: Start) -> None:
    """A person gets the login page, which also says what a key may not do; a program gets 401 or 403."""
    running = collector(api_keys=KEYS)
    status, headers = ask(running.url, "GET", "/traces", {"Accept": "text/html"})
    assert (status, headers["location"]) == (303, "/login?to=%2Ftraces")
    status, headers = ask(running.url, "GET", "/traces?model=a%26b&sort=slow", {"Accept": "text/html"})
    assert headers["location"] == "/login?to=%2Ftraces%3Fmodel%3Da%2526b%26sort%3Dslow"
    _, headers = ask(running.url, "GET", "/", {"Accept": "text/html"})
    assert headers["location"] == "/login"
    reading = {"Accept": "text/html", "Authorization": "Bearer secret-read"}
    status, headers = ask(running.url, "POST", "/demo", reading)
    assert (status, headers["location"]) == (303, "/login?lacks=admin")


@pytest.mark.parametrize(
    ("to", "leads"),
    [
        ("/traces?model=a%26b&sort=slow", "/traces?model=a%26b&sort=slow"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/x\r\nset-cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
def test_the_login_leads_back_and_to_no_other_site(collector: Start, to: str, leads: str) -> None:
    """The page that was asked for comes after the key; whatever else is asked for is the overview."""
    running = collector(api_keys=KEYS)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    _, headers = ask(running.url, "POST", "/login", form, urlencode({"key": "secret-read", "to": to}).encode())
    assert headers["location"] == leads
    _, headers = ask(running.url, "POST", "/login", form, urlencode({"key": "wrong", "to": to}).encode())
    assert headers["location"] == f"/login?failed=1&to={quote(leads, safe='')}"


def test_every_answer_carries_the_security_headers(collector: Start) -> None:
    """The policy forbids inline code and other origins on every page and answer."""
    running = collector()
    for method, path in routes_of(running):
        if method == "GET":
            _, headers = ask(running.url, "GET", path, {})
            assert "script-src 'self'" in headers["content-security-policy"], path
            assert headers["x-content-type-options"] == "nosniff"


def test_listening_sockets_are_loopback(collector: Start) -> None:
    """With defaults nothing listens beyond this computer (read from the operating system)."""
    running = collector()
    port = urlsplit(running.url).port
    with open("/proc/self/net/tcp") as table:
        listening = [line.split()[1] for line in table.read().splitlines()[1:] if line.split()[3] == "0A"]
    mine = [address for address in listening if int(address.split(":")[1], 16) == port]
    assert mine == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/traces", "ingest"),
        ("POST", "/api/v1/scores", "ingest"),
        ("GET", "/api/v1/traces", "read"),
        ("POST", "/api/v1/sql", "read"),
        ("POST", "/api/v1/labels", "admin"),
        ("DELETE", "/api/v1/rules/x", "admin"),
    ],
)
def test_each_kind_of_request_needs_its_scope(method: str, path: str, scope: str) -> None:
    """Sending needs ingest, looking read, changing admin."""
    assert scope_of(method, path) == scope
