"""Where messages go: a webhook, Slack, PagerDuty or e-mail. Each sends one message or raises Undelivered."""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
from collections.abc import Mapping
from datetime import datetime
from email.message import EmailMessage
from typing import Any

from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.settings import DestinationSettings, SmtpSettings

__all__ = ["Undelivered", "send", "signature"]

_TIMEOUT_S = 5.0
_PAGERDUTY_EVENTS = "https://events.pagerduty.com/v2/enqueue"


class Undelivered(Exception):
    """The receiver did not take the message; the text says why."""


def send(message: Mapping[str, Any], to: DestinationSettings, smtp: SmtpSettings, *, at: datetime) -> None:
    """Send one message; raises Undelivered. `message` has at least `text` and `state`."""
    if to.webhook:
        _send_webhook(message, to.webhook, to.secret, at)
    elif to.slack:
        _post(to.slack, {"text": _with_links(message)})
    elif to.pagerduty:
        _post(to.pagerduty_url or _PAGERDUTY_EVENTS, _pagerduty_event(message, to.pagerduty))
    else:
        _send_mail(message, to.email, smtp)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hex HMAC of timestamp, a dot and the body: the receiver computes the same and compares."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def _send_webhook(message: Mapping[str, Any], url: str, secret: str | None, at: datetime) -> None:
    body = json.dumps(message, separators=(",", ":"), default=str).encode()
    timestamp = str(iso(at))
    signed = {"X-Ragpulse-Signature": signature(secret, timestamp, body)} if secret else {}
    _post(url, body, {"X-Ragpulse-Timestamp": timestamp, **signed})


def _post(url: str, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
    """POST JSON, through the proxy that the environment names; a redirect is a failure, since it leads elsewhere."""
    import httpx  # 66 ms that a collector without alerts does not spend

    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        answer = httpx.post(
            url, content=content, headers={"Content-Type": "application/json", **(headers or {})}, timeout=_TIMEOUT_S
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(str(error) or type(error).__name__) from error
    if not answer.is_success:
        hint = " (redirects are not followed)" if answer.is_redirect else ""
        raise Undelivered(f"HTTP {answer.status_code}{hint}")


def _with_links(message: Mapping[str, Any]) -> str:
    worst = [f"worst answer: {url}" for url in message.get("worst") or ()]
    return "\n".join([str(message["text"]), *filter(None, [message.get("link")]), *worst])


def _pagerduty_event(message: Mapping[str, Any], routing_key: str) -> dict[str, Any]:
    """Events API v2: one incident for each monitor and group, resolved when it recovers."""
    group = json.dumps(message.get("group") or {}, sort_keys=True)
    summary = {"summary": str(message["text"])[:1024], "source": "ragpulse", "severity": "error"}
    return {
        "routing_key": routing_key,
        "event_action": "resolve" if message["state"] == "ok" else "trigger",
        "dedup_key": f"ragpulse {message.get('monitor')} {group}"[:255],
        "payload": summary | {"custom_details": dict(message)},
        "links": [{"href": url, "text": "ragpulse"} for url in filter(None, [message.get("link")])],
    }


def _send_mail(message: Mapping[str, Any], receivers: tuple[str, ...], smtp: SmtpSettings) -> None:
    mail = EmailMessage()
    mail["Subject"] = str(message["text"]).partition("\n")[0][:150]
    mail["From"], mail["To"] = smtp.sender, ", ".join(receivers)
    mail["Message-ID"] = f"<{message.get('event_id', 'test')}@ragpulse>"
    mail.set_content(_with_links(message))
    try:
        with smtplib.SMTP(smtp.host, smtp.port, timeout=_TIMEOUT_S) as server:
            if smtp.starttls:
                server.starttls()
            if smtp.user:
                server.login(smtp.user, smtp.password or "")
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise Undelivered(f"SMTP: {error}") from error
