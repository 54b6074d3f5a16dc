"""Datasets: questions that somebody chose, with what was answered then; they outlive the traces they came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ragpulse_collector.store.protocol import Store, Transaction

__all__ = ["DATASET_ITEMS", "add_items", "dataset_items", "datasets", "delete_dataset"]

DATASET_ITEMS = """
    SELECT name, query, arg_max(item, created_at) AS item, min(created_at) AS added_at, max(created_at) AS changed_at
    FROM raw.datasets WHERE query IS NOT NULL AND created_at > coalesce(
        (SELECT max(created_at) FROM raw.datasets AS d WHERE d.name = datasets.name AND d.deleted), TIMESTAMP 'epoch')
    GROUP BY name, query"""
"""One row per dataset and question."""
_COLUMNS = ("name", "query", "item", "deleted", "created_at")


def datasets(store: Store) -> list[dict[str, Any]]:
    """Return every dataset with its size, by name."""
    return store.read(
        "SELECT name, count(*) AS items, min(added_at) AS created_at, max(changed_at) AS changed_at"
        f" FROM ({DATASET_ITEMS}) GROUP BY name ORDER BY name"
    ).dicts()


def dataset_items(store: Store, name: str) -> list[dict[str, Any]]:
    """Return the items of a dataset in the order they were added; none for an unknown one."""
    sql = f"SELECT item FROM ({DATASET_ITEMS}) WHERE name = $name ORDER BY added_at, query"
    return [json.loads(item) for (item,) in store.read(sql, {"name": name}).rows]


def add_items(tx: Transaction, name: str, items: Sequence[dict[str, Any]]) -> None:
    """Append items; one of a question that is there takes its place."""
    rows = [(name, one["query"], json.dumps(one, ensure_ascii=False, default=str), False, tx.at) for one in items]
    tx.append("datasets", _COLUMNS, rows)


def delete_dataset(tx: Transaction, name: str) -> None:
    """End a dataset."""
    tx.append("datasets", _COLUMNS, [(name, None, None, True, tx.at)])
