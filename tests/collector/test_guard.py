"""Host, Origin and keys are checked on every route: the router is enumerated, so a new route cannot forget."""

from __future__ import annotations

import hashlib
import http.client
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from all_routes import routes_of

from ragpulse_collector.api.guard import API, scope_of
from ragpulse_collector.api.operations import Operations

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


@pytest.fixture(scope="module")
def open_to_all(shared_collector: Start) -> Collector:
    """A collector without keys."""
    running: Collector = shared_collector()
    return running


@pytest.fixture(scope="module")
def keyed(shared_collector: Start) -> Collector:
    """A collector with keys."""
    running: Collector = shared_collector(api_keys=KEYS)
    return running


def test_a_foreign_host_is_refused_on_every_route(collector: Start) -> None:
    """DNS rebinding: a request for another host name gets 403 wherever it goes, OTLP included."""
    running = collector()
    for method, path in routes_of(running):
        if path in OPEN:
            continue
        status, _ = ask(running.url, method, path, {"Host": "evil.test"})
        assert status == 403, (method, path, status)


FETCHED = {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAMED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
LINKED = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
OTHER_PAGES = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", **FETCHED},
    {"Sec-Fetch-Site": "cross-site", **FRAMED},
    {"Sec-Fetch-Site": "cross-site", **LINKED, "Sec-Purpose": "prefetch"},
    {"Sec-Fetch-Site": "same-site", **FETCHED},
    {"Sec-Fetch-Site": "unheard-of"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:4318"},
    {"Origin": "https://evil.test"},
    {"Origin": "null"},
)
"""What browsers say of a request that another site's page, or one from another port, has caused."""


def test_pages_of_other_origins_are_refused_on_every_route(collector: Start) -> None:
    """Another page can ask nothing and change nothing: API, OTLP, metrics, pages, assets, health."""
    running = collector()
    for method, path in routes_of(running):
        for other in OTHER_PAGES:
            for kind in ("text/plain", "application/json") if method != "GET" else ("",):
                status, _ = ask(running.url, method, path, other | {"Content-Type": kind}, b"{}" if kind else b"")
                assert status == 403, (method, path, other, status)


def test_links_from_other_sites_lead_to_pages_only(collector: Start) -> None:
    """A followed link opens a page, in a tab of its own; the API, a download and a form are no pages."""
    running = collector()
    programs = ("/api/", "/v1/", "/metrics", "/openapi.json", "/static/", "/traces.csv", *OPEN)
    for method, path in routes_of(running):
        for site in ("cross-site", "same-site"):
            status, _ = ask(running.url, method, path, {"Sec-Fetch-Site": site, **LINKED})
            page = method == "GET" and not path.startswith(programs)
            assert (status != 403) == page, (method, path, site, status)


OWN_PAGES = (
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://rag.example.org"},
    {"Sec-Fetch-Site": "none", **LINKED},
    {"Sec-Fetch-Site": "same-origin", **FETCHED},
)
"""What a program sends, a browser behind a proxy that ends TLS, a typed address, a page of ours."""


@pytest.mark.parametrize("own", OWN_PAGES)
def test_programs_and_own_pages_pass(open_to_all: Collector, own: dict[str, str]) -> None:
    """The check is about other pages alone."""
    running = open_to_all
    json = {"Content-Type": "application/json"}
    assert ask(running.url, "GET", "/api/v1/status", own)[0] == 200
    assert ask(running.url, "GET", "/api/v1/export", own)[0] == 200
    assert ask(running.url, "POST", "/api/v1/sql", own | json, b'{"query": "select 1"}')[0] == 200
    assert ask(running.url, "POST", "/v1/traces", own | json, b"{}")[0] == 200


def test_a_browser_gets_no_copy_unless_it_says_which_page_asks(collector: Start) -> None:
    """An old browser sends GETs of any page without a word about it: copies go to programs, own pages and POST."""
    running = collector()
    browser = {"User-Agent": "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:80.0) Gecko/20100101 Firefox/80.0"}
    for path in ("/api/v1/snapshot", "/api/v1/export", "/api/v1/export/traces"):
        assert ask(running.url, "GET", path, browser)[0] == 403, path
        assert ask(running.url, "GET", path, browser | {"Sec-Fetch-Site": "same-origin"})[0] == 200, path
        assert ask(running.url, "GET", path, {"User-Agent": "curl/8"})[0] == 200, path
    for path in ("/api/v1/snapshot", "/api/v1/export"):
        assert ask(running.url, "POST", path, browser)[0] == 200, path
        assert ask(running.url, "POST", path, browser | {"Origin": "http://evil.test"})[0] == 403, path
    assert ask(running.url, "GET", "/api/v1/status", browser)[0] == 200


def test_listed_origins_send_spans_and_nothing_else(collector: Start) -> None:
    """`allowed_origins` opens OTLP to the pages of an application, preflight included, and no other route."""
    running = collector(allowed_origins=["http://localhost:3000"])
    page = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
    sent = page | {"Content-Type": "application/json"}
    assert ask(running.url, "POST", "/v1/traces", sent, b"{}")[0] == 200
    preflight = page | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert ask(running.url, "OPTIONS", "/v1/traces", preflight)[0] == 200
    assert ask(running.url, "POST", "/api/v1/sql", sent, b'{"query": "select 1"}')[0] == 403
    assert ask(running.url, "POST", "/v1/traces", sent | {"Origin": "http://localhost:3001"}, b"{}")[0] == 403


def test_with_keys_every_route_asks_for_one(collector: Start) -> None:
    """No key and a wrong key open nothing but health, login and static files; nor does a key of another scope."""
    running = collector(api_keys=KEYS)
    for method, path in routes_of(running):
        if path in OPEN or path.startswith(("/login", "/static")):
            continue
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, _ = ask(running.url, method, path, headers)
            assert status == 401, (method, path, status)
        if path.startswith("/api/v1/"):
            continue  # each operation's own scope is the next test's
        wanted = scope_of(method, path)
        other = {"ingest": "read", "read": "ingest", "admin": "read"}[wanted]
        status, _ = ask(running.url, method, path, {"Authorization": f"Bearer secret-{other}"})
        assert status == 403, (method, path, status)


OPERATIONS_OF_OTHER_KEYS = {"ingest": {"POST scores"}, "read": {"POST sql", "POST export"}}
"""The operations whose scope cannot be told from the method: GET reads and everything else changes something."""
ADMIN_READS = {"GET snapshot", "GET replays/{id}/cases"}


def test_each_operation_asks_for_its_scope(collector: Start) -> None:
    """Every operation of the table with no key and with a key of each scope: 401, 403, or an answer of its own."""
    running = collector(api_keys=KEYS)
    for operation in running.components.operations:
        name = f"{operation.method} {operation.path}"
        expected = "read" if operation.method == "GET" and name not in ADMIN_READS else "admin"
        expected = next((key for key, names in OPERATIONS_OF_OTHER_KEYS.items() if name in names), expected)
        assert operation.scope == expected, name
        path = "/api/v1/" + re.sub(r"\{[^}]+\}", "0" * 32, operation.path)
        assert ask(running.url, operation.method, path, {})[0] == 401, name
        for key in ("ingest", "read", "admin"):
            status, _ = ask(running.url, operation.method, path, {"Authorization": f"Bearer secret-{key}"})
            if key in (expected, "admin"):
                assert status not in (401, 403), (name, key, status)
            else:
                assert status == 403, (name, key, status)


_NO_PAGES = (API, "/v1/", "/api/public/")


def test_no_page_asks_an_operation_beyond_the_scope_of_its_key(
    collector: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every page with a key that reads: what it calls needs no other scope; the bill of a replay is for admins."""
    call, asked = Operations.call, set[str]()

    async def noting(operations: Operations, operation: str, params: Any, **options: Any) -> Any:
        asked.add(operation)
        return await call(operations, operation, params, **options)

    monkeypatch.setattr(Operations, "call", noting)
    running = collector(api_keys=KEYS)
    pages = [path for method, path in routes_of(running) if method == "GET" and not path.startswith(_NO_PAGES)]
    reader = {"Authorization": "Bearer secret-read"}
    answers = {path: ask(running.url, "GET", f"{path}?evaluators=groundedness", reader)[0] for path in pages}
    assert {operation.partition(" ")[0] for operation in asked} == {"GET"}
    assert len(asked) > 10
    assert [path for path, status in answers.items() if status == 403] == ["/replays/bill"]
    admin = {"Authorization": "Bearer secret-admin"}
    assert ask(running.url, "GET", "/replays/bill?evaluators=groundedness", admin)[0] == 200
    assert "POST replays" in asked


@pytest.mark.parametrize("path", ["snapshot%0A", "snapshot/", "%73napshot", "/snapshot", "./snapshot"])
def test_no_spelling_of_a_path_passes_the_scope_by(keyed: Collector, path: str) -> None:
    """Whatever the router takes for the snapshot asks for the snapshot's scope."""
    status, _ = ask(keyed.url, "GET", f"/api/v1/{path}", {"Authorization": "Bearer secret-read"})
    assert status in (307, 403, 404)


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
    assert "samesite=lax" in cookie.lower()  # a link from a chat message opens the page
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
def test_the_login_leads_back_and_to_no_other_site(keyed: Collector, to: str, leads: str) -> None:
    """The page that was asked for comes after the key; whatever else is asked for is the overview."""
    running = keyed
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
        ("GET", "/traces", "read"),
        ("GET", "/metrics", "read"),
        ("POST", "/rules", "admin"),
    ],
)
def test_each_kind_of_request_needs_its_scope(method: str, path: str, scope: str) -> None:
    """Sending needs ingest, looking read, changing admin."""
    assert scope_of(method, path) == scope
