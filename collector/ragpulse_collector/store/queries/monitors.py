"""Monitors: those made over the API, their states, and the messages about changes of state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from ragpulse_collector.store.protocol import Read, Transaction

_STATE = ("monitor", "group", "state", "value", "lo", "hi", "text", "statistic", "event_id", "created_at")
_MESSAGE = ("event_id", "destination", "state", "attempt", "error", "message", "due_at", "created_at")


class Stored(NamedTuple):
    """A stored monitor; `definition` is None for a monitor of the settings file that was only muted."""

    name: str
    definition: str | None
    mute_until: datetime | None
    deleted: bool


class Message(NamedTuple):
    """A message that a destination has not accepted yet."""

    event_id: UUID
    text: str
    """The message as JSON."""
    attempt: int
    due_at: datetime
    created_at: datetime


State = Literal["ok", "firing", "undecided", "no data"]


class StoredState(NamedTuple):
    """What a look found of one group of a monitor."""

    group: str
    """A JSON object."""
    state: State
    value: float | None
    lo: float | None
    hi: float | None
    text: str
    created_at: datetime
    delivery: str | None


_SHOWN = ", ".join(f'"{name}"' for name in StoredState._fields[:-1])


def stored_monitors(read: Read) -> list[Stored]:
    """Return the latest row of each monitor, by name."""
    sql = (
        "SELECT name, definition, mute_until, deleted FROM raw.monitors"
        " QUALIFY row_number() OVER (PARTITION BY name ORDER BY created_at DESC) = 1 ORDER BY name"
    )
    return read(sql).tuples(Stored)


def add_monitor(tx: Transaction, monitor: Stored, *, actor: str, action: str) -> None:
    """Append the new form of a monitor, and the audit's line about it."""
    tx.append("monitors", (*Stored._fields, "created_at"), [(*monitor, tx.at)])
    detail = f"{monitor.name} {monitor.definition or ''}".strip()
    tx.append("audit", ("created_at", "actor", "action", "detail"), [(tx.at, actor, f"monitor {action}", detail)])


def monitors_named(read: Read, prefix: str) -> list[str]:
    """Return the monitors with a stored state whose names start with `prefix`, in order."""
    sql = "SELECT DISTINCT monitor FROM raw.monitor_states WHERE starts_with(monitor, $prefix) ORDER BY 1"
    return read(sql, {"prefix": prefix}).values


def firing(read: Read) -> set[str]:
    """Return the monitors of which a group is firing."""
    sql = (
        "SELECT DISTINCT monitor FROM (FROM raw.monitor_states QUALIFY row_number() OVER (PARTITION BY monitor,"
        " \"group\" ORDER BY created_at DESC) = 1) WHERE state = 'firing'"
    )
    return set(read(sql).values)


def latest_states(read: Read, monitor: str) -> dict[str, StoredState]:
    """Return the latest state of each group of a monitor."""
    rows = read(
        f"SELECT {_SHOWN}, delivery FROM raw.monitor_states WHERE monitor = ? QUALIFY row_number() OVER (PARTITION BY"
        ' "group" ORDER BY created_at DESC) = 1',
        [monitor],
    ).rows
    return {row[0]: StoredState(*row) for row in rows}


def states(read: Read, monitor: str) -> list[StoredState]:
    """Return the states of a monitor, newest first; `delivery` is the state of each message."""
    deliveries = (
        "SELECT event_id, string_agg(destination || ': ' || CASE WHEN error IS NULL THEN state"
        " WHEN state = 'sent' THEN state ELSE state || ' (' || error || ')' END, ', ' ORDER BY destination) AS shown"
        " FROM (SELECT * FROM raw.alert_messages"
        " QUALIFY row_number() OVER (PARTITION BY event_id, destination ORDER BY attempt DESC) = 1) GROUP BY event_id"
    )
    sql = (
        f"SELECT {_SHOWN}, coalesce(d.shown, s.delivery) FROM raw.monitor_states s"
        f" LEFT JOIN ({deliveries}) d ON d.event_id = s.event_id"
        " WHERE monitor = $monitor ORDER BY created_at DESC LIMIT 100"
    )
    return read(sql, {"monitor": monitor}).tuples(StoredState)


def add_state(
    tx: Transaction,
    key: tuple[str, str, str],
    figures: tuple[float | None, float | None, float | None],
    texts: tuple[str, str | None],
    event_id: UUID,
) -> None:
    """Append a state: `key` is monitor, group and state; `figures` value and interval; `texts` text and statistic."""
    tx.append("monitor_states", _STATE, [(*key, *figures, *texts, event_id, tx.at)])


def add_messages(tx: Transaction, event_id: UUID, message: str, destinations: Sequence[str], *, at: datetime) -> None:
    """Store one message for each destination, due at once."""
    rows = [(event_id, name, "pending", 0, None, message, at, at) for name in destinations]
    tx.append("alert_messages", _MESSAGE, rows)


def pending_messages(read: Read, destination: str) -> list[Message]:
    """Return the messages that one destination has not accepted, oldest first."""
    sql = (
        "SELECT event_id, any_value(message), max(attempt), arg_max(due_at, attempt), min(created_at)"
        " FROM raw.alert_messages WHERE destination = $destination GROUP BY event_id"
        " HAVING arg_max(state, attempt) = 'pending' ORDER BY 5"
    )
    return read(sql, {"destination": destination}).tuples(Message)


def add_attempt(
    tx: Transaction, message: Message, destination: str, state: str, attempt: int, error: str | None, due_at: datetime
) -> None:
    """Append the outcome of one attempt."""
    row = (message.event_id, destination, state, attempt, error, message.text, due_at, message.created_at)
    tx.append("alert_messages", _MESSAGE, [row])
