"""`GET datasets` and what changes them: questions that are kept, from traces or typed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ragpulse_collector.analysis.answers import Done
from ragpulse_collector.api.drafts import DatasetDraft
from ragpulse_collector.api.handlers.traces import trace_list
from ragpulse_collector.api.models import ById
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


def dataset_list(store: Store) -> DatasetList:
    """Answer `GET datasets`."""
    return DatasetList(stored.datasets(store))


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset and its questions."""

    name: str
    items: list[stored.Item]


def dataset(store: Store, params: ById) -> Dataset:
    """Answer `GET datasets/{id}`; raises NotFound."""
    items = stored.dataset_items(store, params.id)
    if not items:
        raise NotFound(f"there is no dataset {params.id!r}")
    return Dataset(params.id, items)


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


def fill_dataset(store: Store, params: DatasetDraft, lead: Lead = str) -> DatasetFilled:
    """Answer `POST datasets/{id}`: add items, named traces, or the first `limit` that match the filters.

    Raises Invalid where none of them has a question.
    """
    items, more = params.items, False
    asked = len(items)
    if not items:
        rows, more = _chosen(store, params, lead)
        asked = len(rows)
        items = [_item(row, row.query) for row in rows if row.query]
    if not items:
        raise Invalid("no trace with a question matches: choose others, or send `items`")
    new = store.write(lambda tx: stored.add_items(tx, params.id, items)).result()
    return DatasetFilled(params.id, added=len({item.query for item in items}), new=new, more=more, asked=asked)


def delete_dataset(store: Store, params: ById) -> Done:
    """Answer `DELETE datasets/{id}`; raises NotFound."""
    dataset(store, params)
    store.write(lambda tx: stored.delete_dataset(tx, params.id)).result()
    return Done()


def _chosen(store: Store, params: DatasetDraft, lead: Lead) -> tuple[Sequence[TraceRow], bool]:
    if params.trace_ids:
        return trace_rows(store, [trace_id.hex for trace_id in params.trace_ids]), False
    page = trace_list(store, params, lead)
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
