"""Messages to people: what is sent, how it is signed, how it is delivered."""

from __future__ import annotations

import hashlib
import hmac
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.window import iso

__all__ = ["deliver", "post", "signature"]

_TIMEOUT_S = 5.0


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hex HMAC of timestamp, a dot and the body: the receiver computes the same and compares."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A webhook answers itself or not at all: following would carry the message elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}))


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """POST JSON; raises OSError where it was not taken."""
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    with _opener.open(request, timeout=_TIMEOUT_S):
        pass


def deliver(
    message: Mapping[str, Any], *, webhook: str | None, slack: str | None, secret: str | None, at: datetime
) -> str | None:
    """Send one message everywhere it should go; returns `sent`, what failed, or None where nobody is to be told."""
    failures = []
    if webhook:
        body = json.dumps(message, separators=(",", ":"), default=str).encode()
        timestamp = str(iso(at))
        headers = {"Content-Type": "application/json", "X-Ragpulse-Timestamp": timestamp}
        if secret:
            headers["X-Ragpulse-Signature"] = signature(secret, timestamp, body)
        failures += _try(webhook, body, headers)
    if slack:
        body = json.dumps({"text": message["text"]}).encode()
        failures += _try(slack, body, {"Content-Type": "application/json"})
    if not webhook and not slack:
        return None
    return "sent" if not failures else "failed: " + "; ".join(failures)


def _try(url: str, body: bytes, headers: Mapping[str, str]) -> list[str]:
    try:
        post(url, body, headers)
    except urllib.error.HTTPError as error:
        error.close()
        return [f"HTTP {error.code}"]
    except (OSError, ValueError) as error:
        return [str(error)]
    return []
