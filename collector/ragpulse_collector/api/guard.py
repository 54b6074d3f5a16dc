"""The guard of every route: Host against DNS rebinding, the origin of pages, keys with scopes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Set
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ragpulse_collector.api.http import MEDIA_TYPE, problem
from ragpulse_collector.refusals import Forbidden, Refusal
from ragpulse_collector.settings import BINDING, ApiKey, Binding, CollectorSettings
from ragpulse_collector.settings import Scope as KeyScope
from ragpulse_evaluators.judges.protocol import is_loopback

_OWN_SITES = frozenset({"same-origin", "none"})
"""`none`: the person typed the address or opened a bookmark. `same-site` is another port or another subdomain."""
_NO_PAGES = (
    "/api/",
    "/v1/",
    "/metrics",
    "/openapi.json",
    "/static/",
    "/traces.csv",
    "/healthz",
    "/readyz",
)
_COPIES = ("/api/v1/snapshot", "/api/v1/export")
"""Copies of the data cost disk and time: a browser has to prove that the page is ours."""


def refused_page(
    method: str, path: str, headers: Mapping[str, str], *, senders: Collection[str] = (), own: str | None = None
) -> str | None:
    """Return the reason to refuse a request because of the page that caused it, or None.

    `senders` are the origins whose pages may send OTLP; `own` is the public origin of the pages, where one is
    configured. A request that no browser sent always passes.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin in senders and path.startswith("/v1/"):
        return None
    if site is not None:
        ours = site in _OWN_SITES or _opens_page(method, path, headers)
        return None if ours else _other_page(origin or site)
    if origin is not None:
        # Host and port alone count: behind a proxy that ends TLS the scheme of the connection is another one.
        same_host = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        return None if origin.lower() == own or same_host else _other_page(origin)
    if method == "GET" and path.startswith(_COPIES) and headers.get("user-agent", "").startswith("Mozilla/"):
        return "this browser does not say which page asks for the copy: ask with POST"
    return None


def by_tls(scheme: str, headers: Mapping[str, str]) -> bool:
    """Return whether the browser uses TLS, to this process or to a proxy in front of it.

    The headers can only make the session cookie `Secure`: a forged one gains nothing.
    """
    origin, forwarded = headers.get("origin", ""), headers.get("x-forwarded-proto", "")
    return "https" in (scheme, urlsplit(origin).scheme, forwarded.rpartition(",")[2].strip().lower())


def _opens_page(method: str, path: str, headers: Mapping[str, str]) -> bool:
    """Return whether a person follows a link to one of the pages, in a tab of its own."""
    return (
        method == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and "sec-purpose" not in headers  # prefetched: nobody has clicked
        and not path.startswith(_NO_PAGES)
    )


def _other_page(sender: str) -> str:
    return f"requests from other pages ({sender[:200]!r}) are not accepted: open the page of this collector"


COOKIE = "ragpulse_session"
ACTOR = "ragpulse.actor"
"""Key in the ASGI scope: the name of the request's API key, for the audit."""
GRANTED = "ragpulse.granted"
"""Key in the ASGI scope: the scopes of the request; all where no keys are needed."""
API = "/api/v1/"
MCP = "/mcp"
"""Messages that read: each operation behind it checks the binding itself, as below the API."""
ALL: frozenset[KeyScope] = frozenset({"ingest", "read", "admin"})
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
PUBLIC_PREFIXES = ("/login", "/static/")
BODY_SILENCE_S = 20.0
"""A client that sends nothing of its body for this long is disconnected ..."""
BODY_WITHIN_S = 120.0
"""... and so is a client whose body takes longer than this in total (the receiver has a shorter limit)."""
MAX_SESSIONS = 1024
MAX_RETURN_BYTES = 1000
"""The login does not return to a longer address."""
_ADMIN_PAGES = frozenset({"/replays/bill"})
"""Pages that read through an operation with the scope admin: the bill is `POST replays` as a dry run."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class Keys:
    """The keys in force, and browser sessions opened with them: in memory, so a restart asks for the key again."""

    def __init__(self, settings: CollectorSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._open: OrderedDict[str, tuple[ApiKey, float]] = OrderedDict()
        self._clock = clock
        self.replace(settings)

    def replace(self, settings: CollectorSettings) -> None:
        """Put the keys of these settings in force; sessions of other keys end."""
        self._accepted, self.needed = settings.api_keys, settings.needs_key
        self.session_s = settings.login_days * 86_400

    def find(self, secret: str) -> ApiKey | None:
        """Return the key whose hash matches, compared in constant time."""
        digest = hashlib.sha256(secret.encode()).hexdigest()
        return next((key for key in self._accepted if hmac.compare_digest(key.sha256, digest)), None)

    def sender(self, authorization: str | None) -> Binding | None:
        """Return the binding of a gRPC sender by its `authorization` metadata; raises PermissionError."""
        if not self.needed:
            return None
        key = self.find((authorization or "").partition(" ")[2].strip())
        if key is None or not {"ingest", "admin"} & set(key.scopes):
            raise PermissionError("no key that may send")
        return key.binding

    def open(self, key: ApiKey) -> str:
        """Return a new session token for a key that was just checked."""
        token = secrets.token_urlsafe(32)
        self._open[token] = key, self._clock() + self.session_s
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return token

    def of_session(self, token: str) -> ApiKey | None:
        """Return the key behind a session token, while it is in force."""
        key, until = self._open.get(token, (None, 0.0))
        return key if key in self._accepted and self._clock() < until else None

    def close(self, cookies: str) -> None:
        """End the session of a request's cookies."""
        self._open.pop(_cookie(cookies), None)


class Guard:
    """ASGI middleware in front of everything."""

    def __init__(self, app: ASGIApp, *, settings: CollectorSettings, keys: Keys) -> None:
        self.app, self.settings, self.keys = app, settings, keys
        self._hosts = {host.lower() for host in settings.allowed_hosts}
        public = urlsplit(settings.public_url or "")
        self._hosts |= {public.hostname} if public.hostname else set()
        self._public_origin = f"{public.scheme}://{public.netloc}".lower() if public.netloc else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            key = self.check(scope["method"], scope["path"], headers)
        except Refusal as refusal:
            await _refused(refusal, scope, headers)(scope, receive, send)
            return
        binding = key.binding if key else None
        facts = {ACTOR: key.name if key else None, GRANTED: self._granted(key), BINDING: binding}
        await self.app({**scope, **facts}, _with_deadline(receive), send)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> ApiKey | None:
        """Return the key of a request; raises Refusal where the request may not pass.

        The operations of the API check their scopes afterwards.
        """
        reason = refused_page(method, path, headers, senders=self.settings.allowed_origins, own=self._public_origin)
        if reason is not None:
            raise Forbidden(reason)
        if path in OPEN_PATHS:
            return None
        key = self.key_of(headers)
        self._check_host(headers, key)
        if not self.keys.needed or path.startswith(PUBLIC_PREFIXES) or method == "OPTIONS":
            return key
        if key is None:
            reason = "this API key is not valid here" if "authorization" in headers else "an API key is needed"
            raise Refusal(f"{reason}: Authorization: Bearer <key>", status=401, page="/login")
        if not path.startswith(API):
            scope = scope_of(method, path)
            require(scope, self._granted(key), name=key.name)
            if key.binding and scope != "ingest" and path != MCP:
                raise Forbidden(
                    f"the key {key.name!r} is bound to services or environments: it reads over the API only"
                    " (traces, metrics, exemplars, documents, check); pages need a key that is not bound",
                )
        return key

    def _granted(self, key: ApiKey | None) -> frozenset[KeyScope]:
        if not self.keys.needed:
            return ALL
        scopes = frozenset(key.scopes) if key else frozenset()
        return ALL if "admin" in scopes else scopes

    def key_of(self, headers: Mapping[str, str]) -> ApiKey | None:
        """Return the key a request carries as bearer token or session cookie."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.keys.find(token.strip())
        if kind.lower() == "basic":  # Langfuse's SDK sends its key pair this way
            return self.keys.find(_basic_password(token))
        return self.keys.of_session(_cookie(headers.get("cookie", "")))

    def _check_host(self, headers: Mapping[str, str], key: ApiKey | None) -> None:
        host = _host_name(headers.get("host", ""))
        if is_loopback(host) or host in self._hosts or key is not None:
            return
        raise Forbidden(f"unexpected Host {host!r}: add it to [collector] allowed_hosts")


def scope_of(method: str, path: str) -> KeyScope:
    """Return the scope that a request outside the API needs."""
    if path.startswith(("/v1/", "/api/public/otel/")):
        return "ingest"
    if path in _ADMIN_PAGES:
        return "admin"
    return "read" if method in _SAFE or path == MCP else "admin"


def require(scope: KeyScope, granted: Set[KeyScope], *, name: str | None) -> None:
    """Check that a request has a scope; raises Forbidden."""
    if scope not in granted:
        raise Forbidden(f"the key {name!r} lacks the scope {scope!r}", page=f"/login?lacks={scope}")


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


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]*))(?::[0-9]{0,5})?")
"""`name`, `name:port`, `[address]` or `[address]:port`, and nothing behind it."""


def _host_name(header: str) -> str:
    """Return the name of a Host header without its port; a malformed one is no host's name."""
    match = _HOST.fullmatch(header.lower())
    return (match[1] or match[2] or "") if match else f"?{header}"


def _with_deadline(receive: Receive) -> Receive:
    """Disconnect a client that stops in the middle of its body (slow-client attack)."""
    done = False
    deadline = time.monotonic() + BODY_WITHIN_S

    async def limited() -> Message:
        nonlocal done
        if done:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), min(BODY_SILENCE_S, deadline - time.monotonic()))
        except TimeoutError:
            return {"type": "http.disconnect"}
        done = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return limited


def _refused(refusal: Refusal, scope: Scope, headers: Mapping[str, str]) -> Response:
    status, extra = refusal.status, {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    if refusal.page and "text/html" in headers.get("accept", ""):
        status, extra = 303, {"Location": refusal.page + (_back_to(scope) if refusal.status == 401 else "")}
    return Response(problem(refusal.status, refusal.message, instance=scope["path"]), status, extra, MEDIA_TYPE)


def _back_to(scope: Scope) -> str:
    """Return the query that makes the login return to this address."""
    address = bytes(scope.get("raw_path") or b"/") + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    if scope["method"] != "GET" or address == b"/" or len(address) > MAX_RETURN_BYTES:
        return ""
    return f"?to={quote(address, safe='')}"
