"""Which web page caused a request: the one origin check, for API, OTLP, metrics, pages and assets alike.

The reasons are in docs/decisions/0003-keys-and-loopback.md. Settings about the public address belong here as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

_OWN_SITES = frozenset({"same-origin", "none"})
"""`none`: the person typed the address or opened a bookmark. `same-site` is another port or another subdomain."""
_NO_PAGES = (
    "/api/",
    "/v1/",
    "/metrics",
    "/openapi.json",
    "/static/",
    "/live/events",
    "/traces.csv",
    "/healthz",
    "/readyz",
)
_COPIES = ("/api/v1/snapshot", "/api/v1/export")
"""A browser asks for a copy of the data only where it proves that the page is ours: each costs disk and time."""


def refused_page(method: str, path: str, headers: Mapping[str, str], *, senders: Collection[str] = ()) -> str | None:
    """Return why a request may not pass because of the page that caused it, or None.

    `senders` are the origins whose pages may send OTLP. A request that no browser sent always passes.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin in senders and path.startswith("/v1/"):
        return None
    if site is not None:
        own = site in _OWN_SITES or _opens_page(method, path, headers)
        return None if own else _words(origin or site)
    if origin is not None:
        return None if _same_host(origin, headers.get("host", "")) else _words(origin)
    if method == "GET" and path.startswith(_COPIES) and headers.get("user-agent", "").startswith("Mozilla/"):
        return "this browser does not say which page asks for the copy: ask with POST"
    return None


def by_tls(scheme: str, headers: Mapping[str, str]) -> bool:
    """Return whether the person's browser speaks TLS, to this process or to a proxy in front of it.

    What the headers add can only make the session cookie `Secure`, so that a forged one gains nothing.
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


def _same_host(origin: str, host: str) -> bool:
    """Compare host and port alone: behind a proxy that ends TLS the scheme of the connection is another one."""
    return urlsplit(origin).netloc.lower() == host.lower()


def _words(sender: str) -> str:
    return f"requests from other pages ({sender[:200]!r}) are not accepted: open the page of this collector"
