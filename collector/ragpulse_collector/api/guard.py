"""Who may ask: Host against DNS rebinding, Origin against other sites, keys with scopes, on every route alike.

The guard wraps the whole application, so a new route cannot forget it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragpulse_collector.settings import ApiKey, CollectorSettings, is_loopback
from ragpulse_collector.settings import Scope as KeyScope

COOKIE = "ragpulse_session"
ACTOR = "ragpulse.actor"
"""Where the ASGI scope holds the name of the key a request came with; the audit names it."""
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
PUBLIC_PREFIXES = ("/login", "/static/")
BODY_SILENCE_S = 20.0
"""A client that sends nothing of its body for so long is cut off ..."""
BODY_WITHIN_S = 120.0
"""... and so is one whose body takes longer than this in all (the receiver's own limit is shorter)."""
MAX_SESSIONS = 1024
MAX_RETURN_BYTES = 1000
"""A longer address is not gone back to after the login."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Refusal(Exception):
    """A request that may not pass; a person is led to `page`, where there is one."""

    def __init__(self, status: int, message: str, *, page: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.page = status, message, page


class Sessions:
    """Browser sessions opened with a key; in memory, so a restart asks for the key again."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, ApiKey] = OrderedDict()

    def open(self, key: ApiKey) -> str:
        """Return a new session token for a key that was just checked."""
        token = secrets.token_urlsafe(32)
        self._open[token] = key
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return token

    def find(self, token: str) -> ApiKey | None:
        """Return the key behind a session token."""
        return self._open.get(token)


class Guard:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, *, settings: CollectorSettings, sessions: Sessions) -> None:
        self.app, self.settings, self.sessions = app, settings, sessions
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        self._needs_key = bool(settings.api_keys) or not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            key = self.check(scope["method"], scope["path"], headers)
        except Refusal as refusal:
            await _refuse(refusal, scope, headers, send)
            return
        await self.app({**scope, ACTOR: key.name if key else None}, _patient(receive), send)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> ApiKey | None:
        """Return the key a request came with; raises Refusal unless it may pass."""
        if path in OPEN_PATHS:
            return None
        key = self.key_of(headers)
        self._check_host(headers, key)
        self._check_origin(method, path, headers)
        if not self._needs_key or path.startswith(PUBLIC_PREFIXES) or method == "OPTIONS":
            return key
        if key is None:
            raise Refusal(401, "an API key is needed: Authorization: Bearer <key>", page="/login")
        wanted = scope_of(method, path)
        if wanted not in key.scopes and "admin" not in key.scopes:
            raise Refusal(403, f"the key {key.name!r} lacks the scope {wanted!r}", page=f"/login?lacks={wanted}")
        return key

    def key_of(self, headers: Mapping[str, str]) -> ApiKey | None:
        """Return the key a request carries as bearer token or session cookie."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return find_key(self.settings.api_keys, token.strip())
        if kind.lower() == "basic":  # Langfuse's SDK sends its key pair this way
            return find_key(self.settings.api_keys, _basic_password(token))
        return self.sessions.find(_cookie(headers.get("cookie", "")))

    def _check_host(self, headers: Mapping[str, str], key: ApiKey | None) -> None:
        host = _host_name(headers.get("host", ""))
        if is_loopback(host) or host in self._hosts or key is not None:
            return
        raise Refusal(403, f"unexpected Host {host!r}: add it to [collector] allowed_hosts")

    def _check_origin(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        origin = headers.get("origin")
        if origin is not None and not self._same_site(origin, headers) and not self._may_send(origin, path):
            raise Refusal(403, f"requests from {origin!r} are not accepted")
        if (
            method not in _SAFE
            and origin is None
            and headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        ):
            raise Refusal(403, "cross-site requests are not accepted")

    def _same_site(self, origin: str, headers: Mapping[str, str]) -> bool:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower()

    def _may_send(self, origin: str, path: str) -> bool:
        return origin in self.settings.allowed_origins and path.startswith("/v1/")


def scope_of(method: str, path: str) -> KeyScope:
    """Return the scope a request needs."""
    if path.startswith(("/v1/", "/api/public/otel/")) or (method, path) == ("POST", "/api/v1/scores"):
        return "ingest"
    if method in _SAFE or (method, path) == ("POST", "/api/v1/sql"):
        return "read"
    return "admin"


def may_ingest(settings: CollectorSettings, authorization: str | None) -> bool:
    """Return whether a sender over gRPC may send, by its `authorization` metadata."""
    if not settings.api_keys and is_loopback(settings.host):
        return True
    key = find_key(settings.api_keys, (authorization or "").partition(" ")[2].strip())
    return key is not None and bool({"ingest", "admin"} & set(key.scopes))


def find_key(keys: tuple[ApiKey, ...], secret: str) -> ApiKey | None:
    """Return the key whose hash matches, compared in constant time."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return next((key for key in keys if hmac.compare_digest(key.sha256, digest)), None)


def _basic_password(token: str) -> str:
    import base64
    import binascii

    try:
        return base64.b64decode(token, validate=True).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _cookie(header: str) -> str:
    try:
        morsel = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _host_name(header: str) -> str:
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def _patient(receive: Receive) -> Receive:
    """Cut off a client that stops in the middle of its body (slow-client attack)."""
    done = False
    ends = time.monotonic() + BODY_WITHIN_S

    async def limited() -> Message:
        nonlocal done
        if done:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), min(BODY_SILENCE_S, ends - time.monotonic()))
        except TimeoutError:
            return {"type": "http.disconnect"}
        done = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return limited


async def _refuse(refusal: Refusal, scope: Scope, headers: Mapping[str, str], send: Send) -> None:
    wants_page = refusal.page and "text/html" in headers.get("accept", "")
    page = refusal.page + (_back_to(scope) if refusal.status == 401 else "")
    status, extra = (303, [(b"location", page.encode())]) if wants_page else (refusal.status, [])
    if status == 401:
        extra = [(b"www-authenticate", b"Bearer")]
    body = f'{{"error": "{_escaped(refusal.message)}"}}'.encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head + extra})
    await send({"type": "http.response.body", "body": body})


def _back_to(scope: Scope) -> str:
    """Return what tells the login where to lead afterwards."""
    asked = bytes(scope.get("raw_path") or b"/") + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    if scope["method"] != "GET" or asked == b"/" or len(asked) > MAX_RETURN_BYTES:
        return ""
    return f"?to={quote(asked, safe='')}"


def _escaped(message: str) -> str:
    return message.replace("\\", "\\\\").replace('"', '\\"').encode("ascii", "replace").decode()
