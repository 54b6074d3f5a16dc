"""The delivery of messages, at least once.

Each destination has a thread, and failures are retried for three days.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import logging
import smtplib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Literal

import orjson

from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.monitoring.messages import Alert
from ragpulse_collector.settings import DestinationSettings, SmtpSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import Message, add_attempt, pending_messages
from ragpulse_evaluators.runner import Retry

_TIMEOUT_S = 5.0
_PAGERDUTY_EVENTS = "https://events.pagerduty.com/v2/enqueue"


class Undelivered(Exception):
    """The receiver did not accept the message; the text says why."""


def send(alert: Alert, destination: DestinationSettings, smtp: SmtpSettings, *, time: datetime) -> None:
    """Send one message; raises Undelivered."""
    if destination.webhook:
        _send_webhook(alert, destination.webhook, destination.secret, time)
    elif destination.slack:
        # Senders of spans choose names in the text: `<!channel>` would call everybody.
        _post(destination.slack, orjson.dumps({"text": html.escape(_with_links(alert), quote=False)}))
    elif destination.pagerduty:
        event = _pagerduty_event(alert, destination.pagerduty)
        _post(destination.pagerduty_url or _PAGERDUTY_EVENTS, orjson.dumps(event, option=orjson.OPT_NAIVE_UTC))
    else:
        _send_mail(alert, destination.email, smtp)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return `sha256=` and the hex HMAC of timestamp, a dot and the body; the receiver compares it."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def _send_webhook(alert: Alert, url: str, secret: str | None, time: datetime) -> None:
    body = alert.encode()
    timestamp = str(iso(time))
    signed = {"X-Ragpulse-Signature": signature(secret, timestamp, body)} if secret else {}
    _post(url, body, {"X-Ragpulse-Timestamp": timestamp, **signed})


def _post(url: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """POST JSON, through the proxy of the environment; a redirect is a failure, since it leads elsewhere."""
    import httpx  # 66 ms that a collector without alerts does not spend

    try:
        answer = httpx.post(
            url, content=body, headers={"Content-Type": "application/json", **(headers or {})}, timeout=_TIMEOUT_S
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Undelivered(str(error) or type(error).__name__) from error
    if not answer.is_success:
        hint = " (redirects are not followed)" if answer.is_redirect else ""
        raise Undelivered(f"HTTP {answer.status_code}{hint}")


def _with_links(alert: Alert) -> str:
    worst = [f"worst answer: {url}" for url in alert.worst]
    return "\n".join([alert.text, *filter(None, [alert.link]), *worst])


@dataclass(frozen=True, slots=True, kw_only=True)
class _PagerDutyEvent:
    """An event of the Events API v2: one incident per monitor and group, resolved with the alert's end."""

    routing_key: str
    event_action: Literal["trigger", "resolve"]
    dedup_key: str
    payload: _PagerDutyPayload
    links: Sequence[_PagerDutyLink]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PagerDutyPayload:
    summary: str
    custom_details: Alert
    source: str = "ragpulse"
    severity: str = "error"


@dataclass(frozen=True, slots=True)
class _PagerDutyLink:
    href: str
    text: str = "ragpulse"


def _pagerduty_event(alert: Alert, routing_key: str) -> _PagerDutyEvent:
    group = json.dumps(alert.group, sort_keys=True)
    return _PagerDutyEvent(
        routing_key=routing_key,
        event_action="resolve" if alert.state in ("ok", "no data") else "trigger",
        dedup_key=f"ragpulse {alert.monitor} {group}"[:255],
        payload=_PagerDutyPayload(summary=alert.text[:1024], custom_details=alert),
        links=[_PagerDutyLink(alert.link)] if alert.link else [],
    )


def _send_mail(alert: Alert, receivers: tuple[str, ...], smtp: SmtpSettings) -> None:
    mail = EmailMessage()
    mail["Subject"] = alert.text.splitlines()[0][:150]
    mail["From"], mail["To"] = smtp.sender, ", ".join(receivers)
    mail["Message-ID"] = f"<{alert.event_id or 'test'}@ragpulse>"
    mail.set_content(_with_links(alert))
    try:
        with smtplib.SMTP(smtp.host, smtp.port, timeout=_TIMEOUT_S) as server:
            if smtp.starttls:
                server.starttls()
            if smtp.user:
                server.login(smtp.user, smtp.password or "")
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise Undelivered(f"SMTP: {error}") from error


_log = logging.getLogger(__name__)
_RETRY = Retry(first_s=5.0, longest_s=3600.0)
_GIVE_UP = timedelta(days=3)
_IDLE_S = 300.0
"""How long a thread sleeps without a message to send."""


class Outbox:
    """Sends the stored messages of each destination, oldest first.

    A message is stored in the transaction of its change of state. A process that is killed between sending and storing
    the outcome sends the message again, with the same `event_id`.
    """

    def __init__(
        self,
        store: Store,
        destinations: Mapping[str, DestinationSettings],
        smtp: SmtpSettings,
        *,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.destinations = destinations
        self._store, self._smtp, self._clock = store, smtp, clock
        self._wake = {name: threading.Event() for name in destinations}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start a daemon thread for each destination: a receiver that hangs must not delay the stop."""
        self._stopping.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"ragpulse-alerts-{name}", daemon=True)
            for name in self.destinations
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending; pending messages stay in the store."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Look for new messages now."""
        for event in self._wake.values():
            event.set()

    def deliver(self, name: str) -> float:
        """Send the due messages of a destination; returns the seconds until the next round.

        The first failure ends the round: messages keep their order.
        """
        for message in pending_messages(self._store.read, name):
            wait = (message.due_at - self._clock()).total_seconds()
            if wait > 0:
                return min(wait, _IDLE_S)
            if not self._send(name, message):
                return _RETRY.wait(message.attempt)
        return _IDLE_S

    def _run(self, name: str) -> None:
        while not self._stopping.is_set():
            self._wake[name].clear()
            try:
                wait_s = self.deliver(name)
            except Exception:  # noqa: BLE001 - the thread's boundary: a store that cannot be read now is read again
                _log.exception("messages to %s could not be read or stored; they are tried again", name)
                wait_s = _RETRY.wait(0)
            self._wake[name].wait(wait_s)

    def _send(self, name: str, message: Message) -> bool:
        now, attempt = self._clock(), message.attempt + 1
        try:
            send(Alert.decode(message.text), self.destinations[name], self._smtp, time=now)
        except Undelivered as error:
            given_up = now - message.created_at > _GIVE_UP
            state = "given up" if given_up else "pending"
            _log.warning("message to %s: %s; %s", name, error, "given up" if given_up else "it is tried again")
            self._store_attempt(
                name, message, state, attempt, str(error), now + timedelta(seconds=_RETRY.wait(attempt - 1))
            )
            return given_up
        self._store_attempt(name, message, "sent", attempt, None, now)
        return True

    def _store_attempt(
        self, name: str, message: Message, state: str, attempt: int, error: str | None, due_at: datetime
    ) -> None:
        self._store.write(lambda tx: add_attempt(tx, message, name, state, attempt, error, due_at)).result()
