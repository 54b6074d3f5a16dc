"""Datasets: filled from traces, by filter or by items; read back, filtered by, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stored_units import Units, open_store, trace_id

from ragpulse_collector.api.models import TraceList
from ragpulse_collector.api.operations import Operations, declared
from ragpulse_collector.operations import datasets
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import EmbeddedStore, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Ten answered questions, asked twice."""
    opened = open_store(tmp_path)
    units = Units(opened)
    for number in range(20):
        version = "v6" if number < 10 else "v7"
        units.unit(number, query=f"question {number % 10}", prompt_version=version, error=number == 3)
    units.save()
    yield opened
    opened.close()


def fill(store: EmbeddedStore, **params: Any) -> datasets.DatasetFilled:
    """Answer `POST datasets/{id}` with these parameters."""
    table = Operations(declared(datasets), {Store: lambda: store, Lead: lambda: str})
    one = next(one for one in table if one.name == "POST datasets/{id}")
    filled: datasets.DatasetFilled = one.run(one.params.parse(params))
    return filled


def test_a_dataset_is_filled_read_and_deleted(store: EmbeddedStore) -> None:
    """By trace ids, then by a filter; a question is there once, a failed answer is null, and names are kept apart."""
    named: dict[str, Any] = {"id": "bad ones", "trace_ids": [trace_id(1), trace_id(3)]}
    assert fill(store, **named) == datasets.DatasetFilled("bad ones", added=2, new=2, more=False, asked=2)
    filled = fill(store, **{"id": "bad ones", "from": "2026-01-01T00:00Z", "prompt_version": ["v7"]})
    assert (filled.asked, filled.added, filled.new) == (10, 10, 8)
    fill(store, id="other", items=[{"query": "typed in"}])
    assert [(one.name, one.items) for one in datasets.dataset_list(store).datasets] == [
        ("bad ones", 10),
        ("other", 1),
    ]
    items = datasets.dataset(store, "bad ones").items
    assert {one.query for one in items} == {f"question {number}" for number in range(10)}
    datasets.delete_dataset(store, "bad ones")
    with pytest.raises(NotFound, match="there is no dataset 'bad ones'"):
        datasets.dataset(store, "bad ones")
    fill(store, **named)
    found = {one.query: one.response for one in datasets.dataset(store, "bad ones").items}
    assert found == {"question 1": "Because.", "question 3": None}


def test_a_dataset_narrows_every_list_to_its_questions(store: EmbeddedStore) -> None:
    """Under both prompt versions; nothing that matches is refused with words."""
    fill(store, id="two", trace_ids=[trace_id(1), trace_id(2)])
    asked = TraceList.model_validate({"from": "2026-01-01T00:00Z", "dataset": "two"})
    found = trace_list(store, str, asked).traces
    assert sorted((one.query, one.prompt_version) for one in found) == [
        (f"question {number}", version) for number in (1, 2) for version in ("v6", "v7")
    ]
    with pytest.raises(ValueError, match="no trace with a question matches"):
        fill(store, id="none", prompt_version=["v9"])
