"""Logins end, Host headers are read strictly, and answers are kept by nobody."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from served import Served

from ragpulse_collector.api.guard import Guard, Keys
from ragpulse_collector.refusals import Refusal
from ragpulse_collector.settings import ApiKey, CollectorSettings

KEY = ApiKey(name="ann", scopes=("read",), sha256="0" * 64)


@pytest.mark.parametrize(
    "host",
    [
        "[::1].evil.test", "[::1]evil.test", "[::1]:80.evil.test", "[::1", "::1]", "[[::1]]", "localhost:evil.test",
        "127.0.0.1:80:evil.test", "localhost:80@evil.test", "[evil.test]", "localhost:123456",
        "localhost.evil",
    ],
)  # fmt: skip
def test_a_malformed_host_is_no_loopback(host: str) -> None:
    """Nothing may stand behind the name, the address or the port; an empty port is a port."""
    guard = Guard(lambda *_: None, settings=CollectorSettings(), keys=Keys(CollectorSettings()))  # type: ignore[arg-type]
    if host == "[::1]:":
        guard.check("GET", "/", {"host": host})
        return
    with pytest.raises(Refusal, match="unexpected Host"):
        guard.check("GET", "/", {"host": host})


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:4318", "127.0.0.1:4318", "[::1]", "[::1]:4318"])
def test_loopback_is_loopback(host: str) -> None:
    """With and without a port."""
    guard = Guard(lambda *_: None, settings=CollectorSettings(), keys=Keys(CollectorSettings()))  # type: ignore[arg-type]
    assert guard.check("GET", "/", {"host": host}) is None


def test_a_login_ends_by_itself_and_by_its_owner() -> None:
    """After 30 days, or when its owner signs out."""
    now = [0.0]
    keys = Keys(CollectorSettings(api_keys=(KEY,)), clock=lambda: now[0])
    first, second = keys.open(KEY), keys.open(KEY)
    keys.close(f"theme=dark; ragpulse_session={first}")
    assert (keys.of_session(first), keys.of_session(second)) == (None, KEY)
    now[0] = 30 * 86_400 - 1
    assert keys.of_session(second) == KEY
    now[0] += 1
    assert keys.of_session(second) is None


def test_signing_out_ends_the_session_here_and_in_the_browser(tmp_path: Path) -> None:
    """The page has a button; the cookie is deleted, and a copy of it opens nothing."""
    import hashlib

    config = tmp_path / "ragpulse.toml"
    digest = hashlib.sha256(b"secret").hexdigest()
    config.write_text(f'[[collector.api_keys]]\nname = "ann"\nscopes = ["read"]\nsha256 = "{digest}"\n')
    with (
        Served(tmp_path / "ragpulse.duckdb", "--config", str(config)) as served,
        httpx.Client(base_url=served.url) as web,
    ):
        answer = web.post("/login", data={"key": "secret"})
        assert "Max-Age=2592000" in answer.headers["set-cookie"]
        copy = {"cookie": f"ragpulse_session={web.cookies['ragpulse_session']}"}
        page = web.get("/traces")
        assert (page.status_code, 'action="/login/end"' in page.text) == (200, True)
        assert web.get("/api/v1/status").headers["cache-control"] == "no-store"
        assert web.get("/api/v1/nothing").headers["cache-control"] == "no-store"
        web.post("/login/end")
        assert "ragpulse_session" not in web.cookies
        assert httpx.get(f"{served.url}/api/v1/status", headers=copy).status_code == 401
