"""Asks the operations that measure, as HTTP does, without a collector: parameters by their names, answers as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ragpulse_collector.analysis.query import Query
from ragpulse_collector.api.drafts import ReplayDraft
from ragpulse_collector.api.http import plain
from ragpulse_collector.api.measures import measures
from ragpulse_collector.api.models import Filters
from ragpulse_collector.app.replays import replay_request
from ragpulse_collector.evaluation.replay import ReplayRequest
from ragpulse_collector.refusals import ApiError, Invalid
from ragpulse_collector.store import Store
from ragpulse_collector.store.protocol import utc_now


def query_of(params: Mapping[str, Any], now: datetime) -> Query:
    """Return what a request with these parameters covers."""
    return Filters.parse(params).query(now)


def ask(
    store: Store, name: str, params: Mapping[str, Any], *, clock: Callable[[], datetime] = utc_now, lead: str = ""
) -> Any:
    """Return the content of the JSON answer to `GET <name>`; raises a Refusal, Invalid also for wrong parameters."""
    operation = next(one for one in measures(store, clock, lambda: lead) if one.name == f"GET {name}")
    try:
        parsed = operation.params.parse(params)
    except ApiError as error:
        raise Invalid(error.message) from error
    return plain(operation.answer_to(parsed))


def replay_of(*evaluators: str, clock: datetime, **params: Any) -> ReplayRequest:
    """What `POST replays` with these parameters asks for."""
    return replay_request(ReplayDraft.parse({"evaluators": list(evaluators), **params}), clock)
