"""Behind a real nginx that ends TLS: a person logs in and submits the forms of the pages."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest
from lake_servers import free_port
from traffic import rag_trace, send
from waiting import eventually, until

from ragpulse_collector.client import connect
from ragpulse_collector.settings import CollectorSettings

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

Start = Callable[..., "Collector"]
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
TRACE = f"{1:032x}"
NAME = "rag.example.org"
BARE = ""
USUAL = "proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme;"
"""Without a word nginx sends the collector's own address as Host; most guides add these two lines."""
CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
  access_log off; proxy_max_temp_file_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate}; ssl_certificate_key {key};
    location / {{ proxy_pass {collector}; {headers} }}
    location /rag/ {{ proxy_pass {collector}/; {headers} }}
    location /whole/ {{ proxy_pass {collector}; {headers} }}
  }}
}}
"""


class Proxy:
    """One nginx, and a browser's requests through it."""

    def __init__(self, folder: Path, collector: str, headers: str) -> None:
        certificate, key = _certificate(folder)
        self.port = free_port()
        known = {"folder": folder, "port": self.port, "certificate": certificate, "key": key}
        path = folder / "nginx.conf"
        path.write_text(CONFIGURATION.format(**known, collector=collector, headers=headers))
        assert NGINX is not None
        self._process = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(path)], stderr=subprocess.PIPE)
        self._context = ssl.create_default_context(cafile=str(certificate))
        eventually(self._listens)

    def close(self) -> None:
        self._process.terminate()
        _, errors = self._process.communicate(timeout=60)
        assert b"emerg" not in errors, errors

    def ask(self, method: str, path: str, headers: dict[str, str], form: dict[str, str] | None = None) -> Answer:
        """Send one request as a browser at https://NAME would: the headers alone tell which page it comes from."""
        body = None if form is None else urlencode(form)
        kind = {} if form is None else {"Content-Type": "application/x-www-form-urlencoded"}
        with closing(self._connection()) as connection:
            connection.request(method, path, body, {"Host": f"{NAME}:{self.port}", **kind, **headers})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read().decode())

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context, timeout=60)

    def _listens(self) -> bool:
        assert self._process.poll() is None, "nginx has ended"
        try:
            with closing(self._connection()) as connection:
                connection.connect()
        except OSError:
            return False
        return True


class Answer:
    """Status, headers and text."""

    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, {name.lower(): value for name, value in headers.items()}, text


def _certificate(folder: Path) -> tuple[Path, Path]:
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", str(key)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return made, key


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Callable[[str, str], Proxy]]:
    """Start nginx in front of a collector."""
    if NGINX is None or shutil.which("openssl") is None:
        pytest.skip("needs nginx and openssl")
    started: list[Proxy] = []

    def start(collector: str, headers: str) -> Proxy:
        folder = tmp_path / "nginx"
        folder.mkdir()
        started.append(Proxy(folder, collector, headers))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.mark.parametrize(
    ("headers", "modern"), [(BARE, True), (USUAL, True), (USUAL, False)], ids=["bare", "usual", "old browser"]
)
def test_a_person_logs_in_and_submits_a_form(
    collector: Start, proxy: Callable[[str, str], Proxy], headers: str, modern: bool
) -> None:
    """The cookie is Secure, a label arrives, and another site's form is refused; nothing is configured for it."""
    key = {"name": "ops", "scopes": ["admin"], "sha256": hashlib.sha256(b"secret").hexdigest()}
    running = collector(api_keys=[key], allowed_hosts=[NAME])
    send(running.url, rag_trace(0), api_key="secret")
    client = connect(running.url, api_key="secret")
    until(client, "select 1 from traces where decided")  # a label before that is 404
    front = proxy(running.url, headers)
    own = {"Origin": f"https://{NAME}:{front.port}"} | ({"Sec-Fetch-Site": "same-origin"} if modern else {})
    login = front.ask("POST", "/login", own, {"key": "secret", "to": f"/traces/{TRACE}"})
    assert (login.status, login.headers["location"]) == (303, f"/traces/{TRACE}")
    assert re.search(r"; *secure\b", login.headers["set-cookie"], re.IGNORECASE)
    session = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
    assert front.ask("GET", f"/traces/{TRACE}", session).status == 200
    form = {"verdict": "bad", "evaluator": "groundedness", "comment": "no"}
    other = {"Origin": "https://evil.example"} | ({"Sec-Fetch-Site": "cross-site"} if modern else {})
    assert front.ask("POST", f"/traces/{TRACE}/label", session | other, form).status == 403
    labelled = front.ask("POST", f"/traces/{TRACE}/label", session | own, form)
    assert labelled.status == 303, labelled.text
    assert client.sql("select count(*) as n from raw.labels").rows() == [{"n": 1}]
    assert urlsplit(labelled.headers["location"]).netloc in ("", f"{NAME}:{front.port}")


@pytest.mark.parametrize(("root", "headers"), [("/rag", BARE), ("/rag", USUAL), ("/whole", USUAL)])
def test_everything_works_below_a_path(
    collector: Start, proxy: Callable[[str, str], Proxy], root: str, headers: str
) -> None:
    """Login, label, rule, replay, an open page and export; nginx removes the path or not; every link leads below it."""
    key = {"name": "ops", "scopes": ["admin"], "sha256": hashlib.sha256(b"secret").hexdigest()}
    running = collector(api_keys=[key], public_url=f"https://{NAME}{root}", trusted_proxies=["127.0.0.1"])
    send(running.url, rag_trace(0), api_key="secret")
    until(connect(running.url, api_key="secret"), "select 1 from traces where decided")
    front = proxy(running.url, headers)
    own = {"Origin": f"https://{NAME}", "Sec-Fetch-Site": "same-origin"}
    login = front.ask("POST", f"{root}/login", own, {"key": "secret", "to": f"/traces/{TRACE}"})
    assert (login.status, login.headers["location"]) == (303, f"{root}/traces/{TRACE}")
    assert {f"path={root}", "secure", "samesite=lax", "httponly"} <= _attributes(login.headers["set-cookie"])
    session = {"Cookie": login.headers["set-cookie"].partition(";")[0]}
    page = front.ask("GET", f"{root}/traces/{TRACE}", session)
    links = set(re.findall(r'(?:href|src|action|hx-get)="(/[^"#?]*)', page.text))
    assert len(links) > 15
    assert {link for link in links if not link.startswith(f"{root}/")} == set()
    assert {link: front.ask("GET", link, session).status for link in links if "/static/" in link or "." in link} != {}
    for link in links:
        assert front.ask("GET", link, session).status in (200, 303, 405), link
    forms = {
        f"{root}/traces/{TRACE}/label": {"verdict": "bad", "evaluator": "groundedness"},
        f"{root}/rules": {"name": "mine", "evaluators": "groundedness", "rate": "0.5"},
        f"{root}/replays": {"evaluators": "groundedness", "last": "10"},
    }
    for path, form in forms.items():
        answer = front.ask("POST", path, session | own, form)
        assert answer.status == 303, (path, answer.text)
        assert answer.headers["location"].startswith(f"{root}/"), path
    export = front.ask("GET", f"{root}/traces.csv", session)
    assert (export.status, TRACE in export.text) == (200, True)
    assert front.ask("GET", f"{root}/api/v1/traces", session).status == 200
    assert f'data-url="{root}/?' in front.ask("GET", f"{root}/", session).text, "what an open page reads again"
    outside = front.ask("GET", f"{root}/traces", {"Accept": "text/html"})
    assert outside.headers["location"] == f"{root}/login?to=%2Ftraces"


def _attributes(cookie: str) -> set[str]:
    return {part.strip().lower() for part in cookie.split(";")}


@pytest.mark.parametrize("trusted", [True, False])
def test_only_a_trusted_proxy_names_the_host(collector: Start, trusted: bool) -> None:
    """X-Forwarded-Host counts from an address that is configured; from any other it is one more header."""
    running = collector(trusted_proxies=["127.0.0.0/8"] if trusted else ["10.0.0.0/8"])
    with closing(http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=60)) as connection:
        connection.request("GET", "/api/v1/status", headers={"X-Forwarded-Host": "evil.example"})
        assert connection.getresponse().status == (403 if trusted else 200)


@pytest.mark.parametrize(
    ("name", "value"),
    [("public_url", "rag.example.org"), ("root_path", "rag/"), ("trusted_proxies", ["proxy"])],
)
def test_a_wrong_address_is_refused(name: str, value: object) -> None:
    """The message names the setting's fault."""
    with pytest.raises(ValueError, match=r"write the whole address|begin with /|does not appear to be"):
        CollectorSettings.model_validate({name: value})
