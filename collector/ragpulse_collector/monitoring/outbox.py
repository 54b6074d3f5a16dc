"""Delivers stored messages: at least once, each destination on a thread of its own, tried again for three days."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from ragpulse_collector.monitoring.destinations import Undelivered, send
from ragpulse_collector.settings import DestinationSettings, SmtpSettings
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries.monitors import Message, add_attempt, pending_messages
from ragpulse_collector.store.rows import utc_now
from ragpulse_evaluators.runner import Retry

__all__ = ["Outbox"]

_log = logging.getLogger(__name__)
_RETRY = Retry(first_s=5.0, longest_s=3600.0)
_GIVE_UP = timedelta(days=3)
_IDLE_S = 300.0
"""How long a thread sleeps while it has nothing to send and nobody wakes it."""


class Outbox:
    """Sends what the store holds for each destination, oldest first.

    A message is stored with the change of state it tells of, so that neither is lost without the other. A process
    killed between sending and noting it sends the message again, under the same `event_id`.
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
        """Start a thread for each destination; daemons, since a receiver that hangs must not hold up the stop."""
        self._stopping.clear()
        self._threads = [
            threading.Thread(target=self._run, args=(name,), name=f"ragpulse-alerts-{name}", daemon=True)
            for name in self.destinations
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more; what is pending stays in the store."""
        self._stopping.set()
        self.wake()

    def wake(self) -> None:
        """Look for new messages now."""
        for event in self._wake.values():
            event.set()

    def deliver(self, name: str) -> float:
        """Send what is due to one destination; returns the seconds until there may be more.

        The first failure ends the round: a receiver that is down is asked once, and messages keep their order.
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
                _log.exception("messages to %s could not be read or noted; they are tried again", name)
                wait_s = _RETRY.wait(0)
            self._wake[name].wait(wait_s)

    def _send(self, name: str, message: Message) -> bool:
        now, attempt = self._clock(), message.attempt + 1
        try:
            send(json.loads(message.text), self.destinations[name], self._smtp, at=now)
        except Undelivered as error:
            given_up = now - message.created_at > _GIVE_UP
            state = "given up" if given_up else "pending"
            _log.warning("message to %s: %s; %s", name, error, "given up" if given_up else "it is tried again")
            self._note(name, message, state, attempt, str(error), now + timedelta(seconds=_RETRY.wait(attempt - 1)))
            return given_up
        self._note(name, message, "sent", attempt, None, now)
        return True

    def _note(self, name: str, message: Message, state: str, attempt: int, error: str | None, due_at: datetime) -> None:
        self._store.write(lambda tx: add_attempt(tx, message, name, state, attempt, error, due_at)).result()
