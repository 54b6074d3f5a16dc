"""A day of every kind of traffic in a real store, and the pages of a real collector over it.

Two services (an upstream sampler drops half of one), errors, empty and declined answers, unclear verdicts, evaluations
that ended otherwise, a replay in use and an exploratory one, feedback, labels, sessions, topics, costs known and
unknown. The day is long past, so that nothing but "in the last 24 h" depends
on the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient
from stored_units import Units, open_store, trace_id

from ragpulse_collector.api.params import Caller
from ragpulse_collector.app.wiring import Components
from ragpulse_collector.otlp.intake import Counters
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Prices
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.protocol import utc_now
from ragpulse_dashboards import routes
from ragpulse_dashboards.site import Api

DAY = datetime(2025, 3, 10)
HOURS = timedelta(hours=1)
RANGE = "from=2025-03-10T00:00Z&to=2025-03-11T00:00Z"
BEFORE, N = 120, 480
"""Requests of the day before, and of both days."""
SETTINGS: dict[str, Any] = {
    "judge": {"model": "openai/judge", "budget_usd_per_day": 3.5},
    "rule": [
        {"name": "live", "evaluators": ["groundedness"], "rate": 0.5},
        {"name": "half", "evaluators": ["citation_check"], "rate": 0.25},
    ],
    "monitor": [
        {
            "name": "slow",
            "metric": "latency_p95",
            "condition": "> 2000",
            "window": "1h",
            "where": "service = 'helpdesk'",
        }
    ],
    "target": [{"metric": "error_rate", "max": 0.05}, {"metric": "quality:groundedness", "min": 0.5}],
    "collector": {"retention_days": 45, "retention_gb": 7},
}


def plant(store: EmbeddedStore) -> None:
    """Write both days, the replays, the topics and the history of the monitor."""
    units = Units(store)
    for number in range(N):
        _request(units, number)
    _replay(units, "r1", "groundedness", in_use=False, low=0.2)
    _replay(units, "r2", "citation_check", in_use=True, low=0.5)
    units.add("topic_fits", fit_id=1, fitted_at=DAY, questions=300, other=60, last_id=2, least_users=5,
              assigned_from=DAY - 30 * HOURS)  # fmt: skip
    for topic, name in enumerate(("returns", "shipping"), 1):
        units.add("topics", topic_id=topic, fit_id=1, first_fit=1, name=name, terms=[name], size=100)
    for hour, state, value in ((3, "ok", 1500.0), (5, "firing", 2750.0)):
        units.add("monitor_states", monitor="slow", group="{}", state=state, value=value, lo=value - 250.0,
                  hi=value + 250.0, text=f"latency_p95 {value:g} ms", created_at=DAY + hour * HOURS)  # fmt: skip
    units.save()
    store.write(lambda tx: tx.execute("UPDATE raw.spans SET attributes = '{}', mapped_from = '{}'")).result()


def _request(units: Units, number: int) -> None:
    day, place, size = (-1, number, BEFORE) if number < BEFORE else (0, number - BEFORE, N - BEFORE)
    at = DAY + timedelta(days=day) + 24 * HOURS * (place / size) + timedelta(seconds=1)
    kept = 0.5 if number % 3 == 0 else 1.0
    error, declined, empty = number % 11 == 0, number % 9 == 2, number % 23 == 1
    answer = None if error else "refused" if declined else "empty" if empty else "answered"
    priced = number % 10 != 3
    units.unit(
        number,
        at=at,
        query=f"Question {number}?",
        response="" if empty else f"Answer {number}.",
        service="shop" if kept < 1 else "helpdesk",
        upstream_pi=kept,
        error=error,
        answer=answer,
        model="sonnet" if number % 4 == 0 else "haiku",
        prompt_version="v7" if place >= size / 2 else "v6",
        user_id=None if number % 19 == 0 else f"u{number % 37}",
        session_id=f"s{number % 40}",
        latency_ms=500.0 + 37 * number % 2900,
        cost_usd=0.001 * (1 + number % 7) if priced else None,
        cost_unknown_reason=None if priced else "the model has no price",
        input_tokens=None if number % 13 == 5 else 100 + number,
        output_tokens=None if number % 13 == 5 else 20 + number % 9,
        topic=(None, "returns", "shipping", "other", "returns")[number % 5],
        feedback=(1.0, -1.0)[number % 16 > 0] if number % 8 == 0 else None,
    )
    units.contexts(number, ["A text."] * 2, ids=[f"doc{number % 7}", f"doc{number % 5 + 7}"], at=at)
    _scores(units, number, at, kept, answer)


def _scores(units: Units, number: int, at: datetime, kept: float, answer: str | None) -> None:
    half = 0.5 if number % 2 else 1.0
    if units.decision(number, "groundedness", pi=half * kept, u=(number * 13 % 100) / 100 * kept, at=at):
        status = {0: "invalid", 1: "error"}.get(number % 29, "skipped" if answer != "answered" else "ok")
        value, unclear = (number * 7 % 10) / 10, number % 12 == 7
        units.score(number, "groundedness", value if status == "ok" else None, at=at, status=status,
                    passing=None if status != "ok" or unclear else value >= 0.5, label="unclear" if unclear else None,
                    cost_usd=0.0002)  # fmt: skip
    capped = number % 6 == 1
    if units.decision(number, "refusal", pi=kept, u=0.0, at=at, capped=capped, reason="budget" if capped else None):
        units.score(
            number, "refusal", 0.0 if answer == "refused" else 1.0, at=at, created=utc_now() if at > DAY else at
        )
    if number % 8 == 0:
        units.score(number, "thumbs", float(number % 16 == 0), at=at, source="human", version="", passing=None)
        row: dict[str, Any] = {"evaluator": "groundedness", "score": float(number % 3 > 0), "created_at": at}
        units.add("labels", trace_id=trace_id(number), span_id=0xAA, request_time=at, label_pi=0.5, **row)


def _replay(units: Units, run_id: str, evaluator: str, *, in_use: bool, low: float) -> None:
    at, numbers = DAY + 20 * HOURS, range(BEFORE, BEFORE + 90)
    for number in numbers:
        status = "skipped" if number % 30 == 0 else "ok"
        when = DAY + 24 * HOURS * ((number - BEFORE) / (N - BEFORE)) + timedelta(seconds=1)
        job = units.job(number, evaluator, at=when, run_id=run_id)
        key = units.score(number, evaluator, None if status != "ok" else low + (number % 5) / 10, at=when, version="v2",
                          source="replay", run_id=run_id, status=status, created=at, cost_usd=0.003,
                          explanation="no contexts" if status != "ok" else None, job_id=job)  # fmt: skip
        units.add(
            "run_items", run_id=run_id, score_key=key, job_id=job, trace_id=trace_id(number), span_id=0xAA, u=number / N
        )
    units.add("runs", run_id=run_id, evaluator=evaluator, version="v2", spec="{}", status="done", total=len(numbers),
              created_at=at, in_use=in_use)  # fmt: skip


@contextmanager
def pages(folder: Path) -> Iterator[tuple[EmbeddedStore, TestClient, Api]]:
    """The store, and the pages and operations of a collector over it that evaluates nothing."""
    settings = Settings.model_validate(SETTINGS)
    with closing(open_store(folder)) as store:
        plant(store)
        prices = Prices(settings.prices, settings.collector.price_table)
        components = Components(store, settings, prices=prices, counters=Counters())
        api = partial(components.operations.call, caller=Caller())
        yield store, TestClient(Starlette(routes=routes(api)), base_url="http://127.0.0.1:4318"), api
