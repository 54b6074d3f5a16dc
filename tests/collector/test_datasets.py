"""Datasets: filled from traces, by filter or by items; read back, filtered by, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_units import Units, open_store, trace_id

from ragpulse_collector.api.drafts import DatasetDraft
from ragpulse_collector.api.handlers import datasets
from ragpulse_collector.api.handlers.traces import trace_list
from ragpulse_collector.api.models import ById, TraceList
from ragpulse_collector.refusals import NotFound
from ragpulse_collector.store import EmbeddedStore


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


def test_a_dataset_is_filled_read_and_deleted(store: EmbeddedStore) -> None:
    """By trace ids, then by a filter; a question is there once, a failed answer is null, and names are kept apart."""
    named = DatasetDraft(id="bad ones", trace_ids=[trace_id(1), trace_id(3)])
    assert datasets.fill_dataset(store, named) == datasets.DatasetFilled(
        "bad ones", added=2, new=2, more=False, asked=2
    )
    again = DatasetDraft.model_validate({"id": "bad ones", "from": "2026-01-01T00:00Z", "prompt_version": ["v7"]})
    filled = datasets.fill_dataset(store, again)
    assert (filled.asked, filled.added, filled.new) == (10, 10, 8)
    datasets.fill_dataset(store, DatasetDraft.model_validate({"id": "other", "items": [{"query": "typed in"}]}))
    assert [(one.name, one.items) for one in datasets.dataset_list(store).datasets] == [
        ("bad ones", 10),
        ("other", 1),
    ]
    items = datasets.dataset(store, ById(id="bad ones")).items
    assert {one.query for one in items} == {f"question {number}" for number in range(10)}
    datasets.delete_dataset(store, ById(id="bad ones"))
    with pytest.raises(NotFound, match="there is no dataset 'bad ones'"):
        datasets.dataset(store, ById(id="bad ones"))
    datasets.fill_dataset(store, named)
    found = {one.query: one.response for one in datasets.dataset(store, ById(id="bad ones")).items}
    assert found == {"question 1": "Because.", "question 3": None}


def test_a_dataset_narrows_every_list_to_its_questions(store: EmbeddedStore) -> None:
    """Under both prompt versions; nothing that matches is refused with words."""
    datasets.fill_dataset(store, DatasetDraft(id="two", trace_ids=[trace_id(1), trace_id(2)]))
    asked = TraceList.model_validate({"from": "2026-01-01T00:00Z", "dataset": "two"})
    found = trace_list(store, asked).traces
    assert sorted((one.query, one.prompt_version) for one in found) == [
        (f"question {number}", version) for number in (1, 2) for version in ("v6", "v7")
    ]
    with pytest.raises(ValueError, match="no trace with a question matches"):
        datasets.fill_dataset(store, DatasetDraft.model_validate({"id": "none", "prompt_version": ["v9"]}))
