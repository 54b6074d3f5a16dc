"""`GET datasets` and what changes them: questions that are kept, from traces or typed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from pydantic import Field

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.api.models import MAX_LIMIT, PageSize, TraceList
from ragpulse_collector.api.operations import operation
from ragpulse_collector.api.params import TraceIds
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.refusals import Invalid, NotFound
from ragpulse_collector.settings.lead import Lead
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries import datasets as stored
from ragpulse_collector.store.queries.scored_traces import trace_rows
from ragpulse_collector.store.queries.traces import TraceRow


@dataclass(frozen=True, slots=True)
class DatasetList:
    """Datasets with their sizes."""

    datasets: list[stored.DatasetRow]


@operation("GET datasets")
def dataset_list(store: Store, /) -> DatasetList:
    """Datasets with their sizes."""
    return DatasetList(stored.datasets(store))


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset and its questions."""

    name: str
    items: list[stored.Item]


@operation("GET datasets/{id}")
def dataset(store: Store, /, id: str) -> Dataset:
    """The questions of a dataset.

    Raises NotFound.
    """
    items = stored.dataset_items(store, id)
    if not items:
        raise NotFound(f"there is no dataset {id!r}")
    return Dataset(id, items)


@dataclass(frozen=True, slots=True)
class DatasetFilled:
    """The number of added questions; `more`: the filters match further traces."""

    name: str
    added: int
    new: int
    """Those that the dataset did not have."""
    more: bool
    asked: int
    """How many items and traces there were: of equal questions the last one stays, without a question none."""


@operation("POST datasets/{id}", scope="admin")
def fill_dataset(
    store: Store,
    lead: Lead,
    /,
    params: TraceList,
    id: Annotated[str, Field(min_length=1, max_length=80)],
    limit: PageSize = MAX_LIMIT,
    trace_ids: Annotated[TraceIds, "These traces; without them those that the filters match."] = [],
    items: list[stored.Item] = [],
) -> DatasetFilled:
    """Add traces or items to a dataset: items, named traces, or the first `limit` that match the filters.

    Raises Invalid where none of them has a question.
    """
    more, asked, added = False, len(items), list(items)
    if not items:
        rows, more = _chosen(store, lead, params, trace_ids)
        asked = len(rows)
        added = [_item(row, row.query) for row in rows if row.query]
    if not added:
        raise Invalid("no trace with a question matches: choose others, or send `items`")
    new = store.write(lambda tx: stored.add_items(tx, id, added)).result()
    return DatasetFilled(id, added=len({item.query for item in added}), new=new, more=more, asked=asked)


@operation("DELETE datasets/{id}", scope="admin")
def delete_dataset(store: Store, /, id: str) -> Done:
    """Delete a dataset.

    Raises NotFound.
    """
    dataset(store, id)
    store.write(lambda tx: stored.delete_dataset(tx, id)).result()
    return Done()


def _chosen(store: Store, lead: Lead, params: TraceList, trace_ids: Sequence[UUID]) -> tuple[Sequence[TraceRow], bool]:
    if trace_ids:
        return trace_rows(store, [trace_id.hex for trace_id in trace_ids]), False
    page = trace_list(store, lead, params)
    return page.traces, page.next is not None


def _item(row: TraceRow, question: str) -> stored.Item:
    return stored.Item(
        query=question,
        response=None if row.error else row.response,
        trace_id=row.trace_id,
        at=f"{row.start_time.isoformat()}Z",
        latency_ms=row.latency_ms,
        cost_usd=row.cost_usd,
    )
