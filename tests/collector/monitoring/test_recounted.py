"""After the upgrade that counts requests alone: a marker, no alarm because of it, and other roots on request."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from asking import ask
from stored_units import T0, Units

from ragpulse_collector.monitoring import Monitors, log_changed_meanings
from ragpulse_collector.settings import MonitorSettings, Settings
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.schema import REQUESTS_SINCE

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
UPGRADE = T0 - 12 * HOUR
CHANGE, LIMIT = {"condition": "change", "baseline": "7d"}, {"condition": "< 90", "window": "6h"}


def roots(store: EmbeddedStore, *, until: datetime = T0, upgrade: datetime | None = UPGRADE) -> None:
    """Twenty roots an hour over two weeks; since the upgrade eight of them are requests, and these fail more often."""
    units, number = Units(store), 0
    for hour in range(-24 * 14, 0):
        for place in range(20):
            at, number = T0 + (hour + place / 20) * HOUR, number + 1
            if at < until:
                is_other = at >= UPGRADE and place >= 8
                units.unit(number, at=at, n_units=0 if is_other else 1, error=place == 0, cost_usd=0.5)
    units.save()
    if upgrade is not None:
        store.write(lambda tx: tx.append("meta", ("key", "value"), [(REQUESTS_SINCE, str(upgrade))])).result()


def state(store: EmbeddedStore, at: datetime = T0, **monitor: Any) -> tuple[str, str]:
    """What a monitor finds that was fine before."""
    settings = MonitorSettings.model_validate({"name": "m", "window": "1h", **monitor})
    finding = Monitors(store, Settings())._findings(settings, at, {"{}": "ok"})["{}"]
    return finding.state, finding.text


def test_a_change_is_looked_for_since_the_upgrade_alone(store: EmbeddedStore) -> None:
    """Former days counted what is no request: there is nothing to compare with yet."""
    roots(store)
    assert state(store, metric="requests", **CHANGE) == ("undecided", "no earlier level to compare with")
    assert state(store, metric="error_rate", **CHANGE)[0] == "undecided"


def test_without_the_mark_of_an_upgrade_it_is_a_change(store: EmbeddedStore) -> None:
    """Fewer requests fire as ever."""
    roots(store, upgrade=None)
    assert state(store, metric="requests", **CHANGE)[0] == "firing"


def test_a_limit_fires_in_the_first_week_only_if_it_would_have_before(store: EmbeddedStore) -> None:
    """A week later it does, and silence does at once."""
    roots(store)
    found, text = state(store, metric="requests", **LIMIT)
    assert found == "ok"
    assert text.startswith("beyond the limit only since the upgrade")
    assert state(store, T0 + 6 * HOUR, metric="requests", **LIMIT)[0] == "firing"
    store.write(lambda tx: tx.execute("UPDATE raw.meta SET value = $t", {"t": str(T0 - 8 * DAY)})).result()
    assert state(store, metric="requests", **LIMIT)[0] == "firing"


def test_the_start_names_limits_to_look_at(store: EmbeddedStore, caplog: pytest.LogCaptureFixture) -> None:
    """Those of the traffic, for a week."""
    roots(store, upgrade=datetime.now() - DAY)
    monitors = [MonitorSettings.model_validate({"name": "few", "metric": "requests", **LIMIT})]
    definitions = Monitors(store, Settings.model_validate({"monitor": monitors})).definitions
    log_changed_meanings(store, monitors=definitions, targets=(), rules=())
    assert "requests alone are counted since" in caplog.text
    assert "few" in caplog.text


def test_the_upgrade_is_a_marker_of_the_traffic_and_other_roots_are_asked_for(store: EmbeddedStore) -> None:
    """`roots` chooses what is counted: requests, other roots with their cost, or both."""
    roots(store)
    asked = {"name": ["requests", "cost_usd"], "from": T0 - DAY, "to": T0, "step": "all"}

    def totals(**more: Any) -> list[float]:
        answer = ask(store, "metrics", asked | more, clock=lambda: T0)
        return [one["series"][0]["points"][0]["value"] for one in answer["metrics"]]

    assert [totals(), totals(roots="other"), totals(roots="all")] == [[336, 168], [144, 72], [480, 240]]
    markers = ask(store, "metrics", asked | {"name": "requests"}, clock=lambda: T0)["markers"]
    assert [(marker["kind"], marker["label"]) for marker in markers] == [("counting", "counting")]
    assert not ask(store, "metrics", asked | {"name": "quality:judge"}, clock=lambda: T0)["markers"]
    shifts = ask(store, "overview", {"from": T0 - 2 * DAY, "to": T0}, clock=lambda: T0)["changes"]
    assert all(shift["cause"] == "counting requests alone" for shift in shifts)
