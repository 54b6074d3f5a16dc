"""Asks the operations that measure, as HTTP does, without a collector: parameters by their names, answers as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from ragpulse_collector.analysis.cache import Snapshots
from ragpulse_collector.analysis.query import Query
from ragpulse_collector.api.http import plain
from ragpulse_collector.api.models import Filters, LastWeek
from ragpulse_collector.api.operations import Operations, declared
from ragpulse_collector.api.params import Since
from ragpulse_collector.evaluation.replay import ReplayRequest
from ragpulse_collector.operations import figures
from ragpulse_collector.settings import Settings
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import Clock, utc_now


def query_of(params: Mapping[str, Any], now: datetime) -> Query:
    """Return what a request with these parameters covers."""
    return Filters.parse(params).query(now)


def measures(store: Store, clock: Clock = utc_now, lead: str = "", *, snapshots: Snapshots | None = None) -> Operations:
    """Return the operations that measure, over a store without a collector."""
    services = {
        Store: lambda: store,
        Clock: lambda: clock,
        Lead: lambda: lambda: lead,
        Snapshots: lambda: snapshots or Snapshots(store),
        Settings: Settings,
    }
    return Operations(declared(figures), services)


def ask(
    store: Store, name: str, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now, lead: str = ""
) -> Any:
    """Return the content of the JSON answer to `GET <name>`; raises a Refusal, Invalid also for wrong parameters."""
    operation = next(one for one in measures(store, clock, lead) if one.name == f"GET {name}")
    return plain(operation.answer_to(operation.params.parse(params)))


def replay_of(*evaluators: str, clock: datetime, since: str | None = None, **params: Any) -> ReplayRequest:
    """What `POST replays` with these parameters asks for."""
    own = ("judge", "prompts", "loads", "limit", "max_usd", "external")
    limits = {name: params.pop(name) for name in own if name in params}
    choice = LastWeek.parse(params)
    query = choice.query(clock, since=TypeAdapter(Since | None).validate_python(since))
    return ReplayRequest(query=query, evaluators=evaluators, where=choice.where, **limits)
