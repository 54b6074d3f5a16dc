"""Targets: met or missed only where the whole interval says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from asking import query_of
from pydantic import ValidationError
from stored_units import T0, Units, open_store, uniform

from ragpulse_collector.monitoring import Targets
from ragpulse_collector.settings import TargetSettings
from ragpulse_collector.store.embedded import EmbeddedStore

NOW = T0 + timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """400 requests an hour ago: 90 % pass, latencies of 1 to 400 ms."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number in range(400):
        facts = {"latency_ms": float(number + 1), "service": "a" if number < 300 else "b"}
        units.scored(number, "judge", float(uniform(number, "y") < 0.9), facts=facts)
    units.save()
    yield opened
    opened.close()


def state(store: EmbeddedStore, **target: object) -> str:
    """The state of one target over the last two hours."""
    (found,) = Targets(store, [TargetSettings.model_validate(target)])(query_of({"from": "-2h"}, NOW)).targets
    return found.state


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"metric": "quality:judge", "min": 0.8}, "met"),
        ({"metric": "quality:judge", "min": 0.9}, "undecided"),
        ({"metric": "quality:judge", "min": 0.97}, "missed"),
        ({"metric": "quality:nobody", "min": 0.5}, "undecided"),
        ({"metric": "latency_p95", "max": 500}, "met"),
        ({"metric": "latency_p95", "max": 380}, "undecided"),
        ({"metric": "latency_p95", "max": 300}, "missed"),
        ({"metric": "latency_p95", "max": 300, "where": "service = 'a'"}, "met"),
        ({"metric": "error_rate", "max": 0.05}, "met"),
    ],
)
def test_a_target_is_decided_by_its_interval(store: EmbeddedStore, target: dict[str, object], expected: str) -> None:
    """Near the limit it stays open; where nothing was measured, too."""
    assert state(store, **target) == expected


def test_filters_of_the_page_narrow_a_target(store: EmbeddedStore) -> None:
    """Value, interval and n are those of the filtered range."""
    targets = Targets(store, [TargetSettings(metric="quality:judge", min=0.5)])
    (whole,) = targets(query_of({"from": "-2h"}, NOW)).targets
    (part,) = targets(query_of({"from": "-2h", "service": "b"}, NOW)).targets
    assert (whole.n, part.n, whole.unit) == (400, 100, "share")
    assert (part.hi or 0.0) - (part.lo or 0.0) > (whole.hi or 0.0) - (whole.lo or 0.0)


def test_a_target_has_one_limit_and_a_known_metric(store: EmbeddedStore) -> None:
    """Neither, both, or a metric that there is not: refused at the start."""
    for limits in ({}, {"min": 0.1, "max": 0.2}):
        with pytest.raises(ValidationError, match="either min or max"):
            TargetSettings.model_validate({"metric": "quality:judge", **limits})
    with pytest.raises(ValueError, match="target 'latencyp95': no metric 'latencyp95'; did you mean 'latency_p95'"):
        Targets(store, [TargetSettings(metric="latencyp95", max=3)])
    with pytest.raises(ValueError, match=r"target 'requests': where .* did you mean 'service'"):
        Targets(store, [TargetSettings(metric="requests", min=5, where="servce = 'a'")])
