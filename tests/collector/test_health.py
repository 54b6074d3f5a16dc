"""What `GET status` says is wrong, with number, rate and time to clear; `ragpulse doctor` repeats it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from healthy import HEALTHY
from traffic import rag_trace, send
from waiting import eventually

from ragpulse_collector.api.health import RECENT, Pace, RuleMoney, faults
from ragpulse_collector.api.status import disk, pace
from ragpulse_collector.cli.look import diagnose
from ragpulse_collector.cli.options import Source
from ragpulse_collector.client import connect
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store.queries.health import results_since

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector


@pytest.mark.parametrize(
    ("table", "values", "found"),
    [
        ("queue", {"bodies": 3, "refused": "No space left"}, ("store", 3, None, None, "No space left")),
        ("queue", {"bodies": 3, "oldest_s": 11.0}, ("queue", 3, None, None, "not stored after 11 s")),
        ("undecided", {"traces": 2, "oldest_s": 7200.0}, ("undecided", 2, None, None, "the oldest came 2.0 h ago")),
        ("judge", {"spent_today_usd": 1.0}, ("budget", 1, None, None, "budget of today is spent")),
        ("judge", {"spent_this_month_usd": 9.0, "budget_usd_per_month": 9.0}, ("budget", 1, None, None, "this month")),
        ("judge", {"rules": [RuleMoney("costly", 2.0, 2.0)]}, ("budget", 1, None, None, "today of rule costly")),
        ("disk", {"full_in_s": 86400.0}, ("disk", 50 * 10**9, 10**9 / 86400, 86400.0, "full in 24.0 h")),
        ("disk", {"free_bytes": 10**8}, ("disk", 10**8, 10**9 / 86400, None, "0.1 GB are free on the disk")),
        ("evaluations", {"oldest_s": 7200.0, "clears_in_s": 7200.0}, ("backlog", 5, 1.0, 7200.0, "done in 2.0 h")),
        ("evaluations", {"oldest_s": 7200.0, "clears_in_s": None}, ("backlog", 5, 1.0, None, "it grows")),
        ("judge", {"errors": 6, "down_since": datetime(2026, 1, 1, 9, 30), "reason": "refused"},
         ("judge", 6, 0.01, None, "since 09:30")),
        ("unknown_price", {"calls": 48, "per_hour": 2.0, "models": {"own": 48}},
         ("unknown_price", 48, 2 / 3600, None, "2 an hour")),
        ("other_groups", {"slow": 7}, ("other_groups", 7, None, None, "monitor slow has 7 groups")),
    ],
)  # fmt: skip
def test_each_fault_has_number_rate_and_time_to_clear(
    table: str, values: dict[str, Any], found: tuple[Any, ...]
) -> None:
    """What is well is no problem; one fault is one problem with a fix."""
    assert list(faults(HEALTHY)) == []
    part_of: Any = getattr(HEALTHY, table)
    changed: Any = {table: values if isinstance(part_of, dict) else replace(part_of, **values)}
    (one,) = faults(replace(HEALTHY, **changed))
    *figures, part = found
    assert [one.name, one.n, one.per_s, one.clears_in_s] == figures
    assert part in one.text
    assert one.fix


def test_a_judge_that_is_down_and_a_missing_price_are_in_status_metrics_and_doctor(
    collector: Callable[..., Collector],
) -> None:
    """A judge at a closed port, a model without a price: named in all three places, and unknown is never 0."""
    running = collector(judge={"model": "http://127.0.0.1:9/v1#m"}, rules=[("live", "faithfulness", 1.0)])
    send(running.url, rag_trace(0, model="in-house-7b"))
    silent = {"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    send(running.url, rag_trace(1, model="gpt-5-mini", error=True, **silent))  # a price would not help
    client = connect(running.url)
    status = eventually(lambda: client.call("GET status"), lambda status: status["judge"]["down_since"])
    assert [one["name"] for one in status["problems"]] == ["judge", "unknown_price"]
    assert status["unknown_price"]["models"] == {"in-house-7b": 1}
    assert status["disk"]["full_in_s"] is None
    text = client.request("GET", "/metrics").decode()
    for line in (
        'ragpulse_problem{name="judge"} 1',
        "ragpulse_unknown_price_calls 1",
        "ragpulse_undecided_traces 0",
        "ragpulse_log_bytes ",
        'ragpulse_query_seconds_bucket{le="+Inf"} ',
    ):
        assert line in text
    told = {finding.fix for finding in diagnose(Source(running.url, None, None)) if not finding.ok}
    assert {one["fix"] for one in status["problems"]} <= told


def test_rates_are_those_of_the_stored_rows(collector: Callable[..., Collector]) -> None:
    """Jobs that come faster than they are done never clear; growth is unknown before ten minutes of data are there."""
    running = collector()
    send(running.url, rag_trace(0))
    client = connect(running.url)
    status = eventually(lambda: client.call("GET status"), lambda status: status["evaluations"]["done"] == 4)
    now = datetime.fromisoformat(status["newest_span"].rstrip("Z")) + timedelta(seconds=30)
    found = pace(results_since(running.store, now - RECENT), 0)
    assert found == Pace(new_per_s=4 / 600, done_per_s=4 / 600, clears_in_s=0.0)
    assert pace(results_since(running.store, now - RECENT), 3).clears_in_s is None
    settings = CollectorSettings(db=running.settings.collector.db, retention_gb=1e6)
    assert disk(running.store, settings, now, 1000).growth_bytes_per_day is None
    later = disk(running.store, settings, now + timedelta(hours=12), 1000)
    assert later.growth_bytes_per_day == pytest.approx(2000, rel=0.01)
    assert later.free_bytes
    assert later.full_in_s == pytest.approx(later.free_bytes / 2000 * 86400, rel=0.01)
    small = CollectorSettings(db=running.settings.collector.db, retention_gb=1e-6)
    assert disk(running.store, small, now + timedelta(hours=12), 1000).full_in_s is None
