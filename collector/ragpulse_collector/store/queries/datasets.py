"""Datasets (chosen questions with their answers) and baselines of answers with their checks.

Both outlive their traces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from ragpulse_collector.store.protocol import Read, Store, Transaction

DATASET_ITEMS = """
    SELECT name, query, arg_max(item, created_at) AS item, min(created_at) AS added_at, max(created_at) AS changed_at
    FROM raw.datasets WHERE query IS NOT NULL AND created_at > coalesce(
        (SELECT max(created_at) FROM raw.datasets AS d WHERE d.name = datasets.name AND d.deleted), TIMESTAMP 'epoch')
    GROUP BY name, query"""
"""One row per dataset and question."""
ANCHORS, CHECKS = "anchors/", "drift/"
"""Keys of `raw.meta`, whose rows no retention deletes: frozen answers outlive their traces."""
LEADS = "lead"
"""The key of each evaluator that began to lead, as its time and its name."""
_COLUMNS = ("name", "query", "item", "deleted", "created_at")


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A dataset with its size."""

    name: str
    items: int
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Item:
    """A question of a dataset, as `ragpulse freeze` writes it; readers take its documents from the stored trace."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]
    response: str | None = None
    trace_id: str = ""
    at: str = ""
    retrieved: list[str] | None = None
    latency_ms: float | None = None
    cost_usd: float | None = None
    scores: list[dict[str, str | float | None]] = field(default_factory=list)
    reference: str | list[str] | None = None


def datasets(store: Store) -> list[DatasetRow]:
    """Return every dataset with its size, by name."""
    return store.read(
        "SELECT name, count(*) AS items, min(added_at) AS created_at, max(changed_at) AS changed_at"
        f" FROM ({DATASET_ITEMS}) GROUP BY name ORDER BY name"
    ).of(DatasetRow)


def dataset_items(store: Store, name: str) -> list[Item]:
    """Return the items of a dataset in the order they were added; none for an unknown one."""
    sql = f"SELECT item FROM ({DATASET_ITEMS}) WHERE name = $name ORDER BY added_at, query"
    return [Item(**json.loads(item)) for item in store.read(sql, {"name": name}).values]


def add_items(tx: Transaction, name: str, items: Sequence[Item]) -> int:
    """Append items; an item replaces the one with the same question. Returns how many questions are new."""
    known = tx.execute(f"SELECT query FROM ({DATASET_ITEMS}) WHERE name = $name", {"name": name}).values
    rows = [(name, item.query, json.dumps(asdict(item), ensure_ascii=False), False, tx.at) for item in items]
    tx.append("datasets", _COLUMNS, rows)
    return len({item.query for item in items}.difference(known))


def delete_dataset(tx: Transaction, name: str) -> None:
    """End a dataset."""
    tx.append("datasets", _COLUMNS, [(name, None, None, True, tx.at)])


def keep(tx: Transaction, key: str, text: str) -> None:
    """Append a baseline of answers (`ANCHORS` and the evaluator), or a check of one (`CHECKS`), as JSON."""
    tx.append("meta", ("key", "value"), [(key, text)])


def kept(read: Read, key: str) -> list[str]:
    """Return the texts under a key, in no order."""
    return read("SELECT value FROM raw.meta WHERE key = $key", {"key": key}).values


def kept_under(read: Read, prefix: str) -> list[str]:
    """Return the keys that begin with `prefix`, in order, without it."""
    sql = "SELECT DISTINCT key FROM raw.meta WHERE starts_with(key, $prefix) ORDER BY key"
    return [str(key).removeprefix(prefix) for key in read(sql, {"prefix": prefix}).values]


def rewrite(tx: Transaction, key: str, change: Callable[[str], str]) -> None:
    """Replace each text under a key by the result of `change`."""
    for text in kept(tx.execute, key):
        parameters = {"key": key, "old": text, "new": change(text)}
        tx.execute("UPDATE raw.meta SET value = $new WHERE key = $key AND value = $old", parameters)
