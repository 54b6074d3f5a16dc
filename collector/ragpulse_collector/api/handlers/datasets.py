"""Operations on datasets: list, read, fill from traces or with items, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpulse_collector.analysis.selection import iso
from ragpulse_collector.api.handlers.traces import trace_list
from ragpulse_collector.api.models import MAX_LIMIT, ById, DatasetDraft
from ragpulse_collector.store import Store
from ragpulse_collector.store.queries import datasets as stored
from ragpulse_collector.store.queries.traces import trace_rows

__all__ = ["add", "delete", "listed", "one"]

_KEPT = ("query", "response", "trace_id", "latency_ms", "cost_usd")


def listed(store: Store) -> dict[str, Any]:
    """Answer `GET datasets`."""
    found = stored.datasets(store)
    return {
        "datasets": [one | {key: iso(one[key]) for key in ("created_at", "changed_at")} for one in found],
    }


def one(store: Store, params: ById) -> dict[str, Any]:
    """Answer `GET datasets/{id}`; raises LookupError."""
    items = stored.dataset_items(store, params.id)
    if not items:
        raise LookupError(f"there is no dataset {params.id!r}")
    return {"name": params.id, "items": items}


def add(store: Store, params: DatasetDraft) -> dict[str, Any]:
    """Answer `POST datasets/{id}`: add items as given, named traces, or the first 1,000 that match the filters.

    Raises ValueError where nothing with a question is found.
    """
    items, more = [one.model_dump() for one in params.items], False
    if not items:
        rows, more = _chosen(store, params)
        items = [_item(row) for row in rows if row["query"]]
    if not items:
        raise ValueError("no trace with a question matches: choose others, or send `items`")
    store.write(lambda tx: stored.add_items(tx, params.id, items)).result()
    return {"name": params.id, "added": len(items), "more": more}


def delete(store: Store, params: ById) -> dict[str, Any]:
    """Answer `DELETE datasets/{id}`; raises LookupError."""
    one(store, params)
    store.write(lambda tx: stored.delete_dataset(tx, params.id)).result()
    return {"ok": True}


def _chosen(store: Store, params: DatasetDraft) -> tuple[list[dict[str, Any]], bool]:
    if params.trace_ids:
        return trace_rows(store, [one.hex for one in params.trace_ids]), False
    limited = store.limited() if params.where else store
    answer = trace_list(limited, params.model_copy(update={"limit": MAX_LIMIT}))
    return answer["traces"], answer["next"] is not None


def _item(row: Mapping[str, Any]) -> dict[str, Any]:
    """A line as `ragpulse freeze` writes it; what was retrieved is read from the trace while it is stored."""
    response = None if row.get("error") else row["response"]
    return {**{key: row[key] for key in _KEPT}, "response": response, "at": str(row["start_time"]), "retrieved": None}
