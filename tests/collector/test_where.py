"""One check of users' conditions: rules, filters and replays take and refuse the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_units import Units, open_store

from ragpulse_collector.api.traces import trace_list
from ragpulse_collector.metrics.filters import filter_of
from ragpulse_collector.metrics.overview import overview
from ragpulse_collector.sampler import RuleError, check_where
from ragpulse_collector.store.where import WHERE_COLUMNS, condition


@pytest.mark.parametrize(
    "where",
    [
        "count(*) > 1",
        "row_number() OVER () = 1",
        "EXISTS (FROM traces)",
        "true) OR (true; DROP TABLE traces",
        "true) GROUP BY (1",
        "true LIMIT 1",
        "$1",
        "cost_usd",
        "decided",
        "random() < 0.5",
        "read_text('/etc/passwd') IS NOT NULL",
        "error = ",
        "length(repeat(query, 100000000)) > 1",
        "list_sum(list_transform([1], lambda x: x)) > 0",
    ],
)
def test_rules_and_filters_refuse_alike(where: str) -> None:
    """The same words from both, and the condition in them."""
    with pytest.raises(ValueError, match="where") as by_filter:
        filter_of({"where": where})
    with pytest.raises(RuleError) as by_rule:
        check_where(where)
    assert str(by_filter.value) == str(by_rule.value)
    assert where in str(by_rule.value)


def test_every_column_may_be_named() -> None:
    """Each column of `traces` that facts have; a comment cannot swallow what follows."""
    for column in WHERE_COLUMNS:
        assert condition(f"{column} IS NULL -- none") == f"(\n{column} IS NULL -- none\n)"


@pytest.mark.parametrize("where", ["query::INTEGER = 1", "trace_id = 'abc'"])
def test_a_condition_that_fails_on_a_row_does_not_hold(tmp_path: Path, where: str) -> None:
    """A cast that one row cannot take leaves that row out; it does not fail the question."""
    store = open_store(tmp_path)
    units = Units(store)
    units.unit(1, query="Why?")
    units.save()
    for answer in (trace_list, overview):
        assert answer(store, {"where": where, "from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z"})
    assert trace_list(store, {"where": where})["traces"] == []
    store.close()
