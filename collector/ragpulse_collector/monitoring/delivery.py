"""The words of messages, and their delivery at least once.

Each destination has a thread, and failures are retried for three days.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import smtplib
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import Any

from ragpulse_collector.analysis.selection import duration_s, iso
from ragpulse_collector.monitoring.definitions import DRIFT
from ragpulse_collector.monitoring.measure import Reading, State
from ragpulse_collector.settings import DestinationSettings, MonitorSettings, SmtpSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.queries.monitors import Message, add_attempt, pending_messages
from ragpulse_dashboards.words import called
from ragpulse_evaluators.runner import Retry

_YEAR_S = 365.25 * 86_400
_DRIFT_ALPHA = 0.05
"""A check calls a judge moved where its 95 % interval excludes 0."""


def false_alarm_rate(monitor: MonitorSettings) -> str:
    """Return how often a monitor alarms falsely."""
    if not monitor.name.startswith(DRIFT):
        return f"at most {monitor.false_alarms_per_year:g} a year"
    checks = _YEAR_S / duration_s(monitor.window) if monitor.window != "never" else 1.0
    return f"at most {round(checks * _DRIFT_ALPHA, 2):g} a year"


def limit_text(monitor: MonitorSettings, group: str, reading: Reading, state: State, before: State) -> str:
    """Return the outcome of a look at a limit."""
    group_text = of_group(group)
    evaluator = monitor.metric.partition(":")[2]
    if monitor.condition == "no data" or reading.value is None:
        events = f"evaluations by {called(evaluator)}" if evaluator else "requests"
        return (
            f"no {events}{group_text} in the last {window_text(monitor.window)}"
            if not reading.n
            else f"{events}{group_text} arrive"
        )
    ends = "" if reading.lo is None or reading.hi is None else f" ({number(reading.lo)} to {number(reading.hi)})"
    if state == "undecided" and reading.n is not None and reading.n < monitor.min_n:
        value = f"{called(monitor.metric)}{group_text} = {number(reading.value)}"
        return f"{value} from {reading.n:g}; {monitor.min_n} are needed"
    ok = "is no longer" if before == "firing" else "is not"
    verb = {"firing": "is", "ok": ok}.get(state, "may or may not be")
    value = f"{called(monitor.metric)}{group_text} = {number(reading.value)}{ends}"
    return f"{value} over the last {window_text(monitor.window)}: {verb} {monitor.condition}"


def window_text(window: str) -> str:
    """Return the length of a window in words: `hour`, `10 minutes`."""
    seconds = duration_s(window)
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
    unit, length = next((unit, length) for unit, length in units if seconds % length == 0 or length == 1)
    return unit if seconds == length else f"{seconds / length:g} {unit}s"


def of_group(group: str) -> str:
    """Return a group in parentheses; nothing for the only group."""
    return "" if group == "{}" else f" ({plain_group(group)})"


def plain_group(group: str) -> str:
    """Return a group without JSON syntax."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(group).items())


def number(value: float) -> str:
    """Format a number with three digits; from 1000 on whole, with separators."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


_TIMEOUT_S = 5.0
_PAGERDUTY_EVENTS = "https://events.pagerduty.com/v2/enqueue"


class Undelivered(Exception):
    """The receiver did not accept the message; the text says why."""


def send(message: Mapping[str, Any], destination: DestinationSettings, smtp: SmtpSettings, *, time: datetime) -> None:
    """Send one message; raises Undelivered. `message` has at least `text` and `state`."""
    if destination.webhook:
        _send_webhook(message, destination.webhook, destination.secret, time)
    elif destination.slack:
        _post(destination.slack, {"text": _with_links(message)})
    elif destination.pagerduty:
        _post(destination.pagerduty_url or _PAGERDUTY_EVENTS, _pagerduty_event(message, destination.pagerduty))
    else:
        _send_mail(message, destination.email, smtp)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return `sha256=` and the hex HMAC of timestamp, a dot and the body; the receiver compares it."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"sha256={digest}"


def _send_webhook(message: Mapping[str, Any], url: str, secret: str | None, time: datetime) -> None:
    body = json.dumps(message, separators=(",", ":"), default=str).encode()
    timestamp = str(iso(time))
    signed = {"X-Ragpulse-Signature": signature(secret, timestamp, body)} if secret else {}
    _post(url, body, {"X-Ragpulse-Timestamp": timestamp, **signed})


def _post(url: str, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
    """POST JSON, through the proxy of the environment; a redirect is a failure, since it leads elsewhere."""
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
    """Return an event (Events API v2): one incident per monitor and group, resolved with the alert's end."""
    group = json.dumps(message.get("group") or {}, sort_keys=True)
    summary = {"summary": str(message["text"])[:1024], "source": "ragpulse", "severity": "error"}
    return {
        "routing_key": routing_key,
        "event_action": "resolve" if message["state"] in ("ok", "no data") else "trigger",
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
            send(json.loads(message.text), self.destinations[name], self._smtp, time=now)
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
