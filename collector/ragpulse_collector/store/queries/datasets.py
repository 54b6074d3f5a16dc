"""Datasets: chosen questions with their answers, which outlive their traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from ragpulse_collector.store.protocol import Read, Store, Transaction

DATASET_ITEMS = """
    SELECT name, query, arg_max(item, created_at) AS item, min(created_at) AS added_at, max(created_at) AS changed_at
    FROM raw.datasets WHERE query IS NOT NULL AND created_at > coalesce(
        (SELECT max(created_at) FROM raw.datasets AS d WHERE d.name = datasets.name AND d.deleted), TIMESTAMP 'epoch')
    GROUP BY name, query"""
"""One row per dataset and question."""
_FROZEN = "frozen "
"""Begins the name of a dataset that is judged again; then comes the evaluator, and when it was frozen."""
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
class Frozen:
    """What judging an answer again needs beside the item: it outlives its trace."""

    case: dict[str, Any]
    span_id: str
    user: str | None = None
    """The user, else the session; None in sets of older versions."""


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
    frozen: Frozen | None = None
    """Of an answer that is judged again."""

    @property
    def key(self) -> str:
        """What there is one of in a dataset: a question, or a frozen answer."""
        return self.query if self.frozen is None else f"{self.trace_id}/{self.frozen.span_id}"


_ITEMS = TypeAdapter(Item)


def datasets(store: Store) -> list[DatasetRow]:
    """Return every dataset with its size, by name."""
    return store.read(
        "SELECT name, count(*) AS items, min(added_at) AS created_at, max(changed_at) AS changed_at"
        f" FROM ({DATASET_ITEMS}) GROUP BY name ORDER BY name"
    ).of(DatasetRow)


def dataset_items(store: Store, name: str) -> list[Item]:
    """Return the items of a dataset in the order they were added; none for an unknown one."""
    sql = f"SELECT item FROM ({DATASET_ITEMS}) WHERE name = $name ORDER BY added_at, query"
    return [_ITEMS.validate_json(item) for item in store.read(sql, {"name": name}).values]


def frozen_name(evaluator: str, at: str) -> str:
    """Return the name of a dataset that is judged again."""
    return f"{_FROZEN}{evaluator} {at}"


def frozen_sets(read: Read) -> dict[str, str]:
    """Return the newest frozen dataset of each evaluator that has one, by name."""
    sql = f"SELECT DISTINCT name FROM ({DATASET_ITEMS}) WHERE starts_with(name, '{_FROZEN}') ORDER BY name"
    return {name.removeprefix(_FROZEN).rpartition(" ")[0]: name for name in read(sql).values}


def frozen_cases(store: Store, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the cases of a frozen dataset, by trace and span."""
    items = dataset_items(store, name)
    return {(item.trace_id, item.frozen.span_id): item.frozen.case for item in items if item.frozen}


def add_items(tx: Transaction, name: str, items: Sequence[Item]) -> int:
    """Append items; an item replaces the one with the same question (or frozen answer). Returns how many are new."""
    known = tx.execute(f"SELECT query FROM ({DATASET_ITEMS}) WHERE name = $name", {"name": name}).values
    rows = [(name, item.key, json.dumps(asdict(item), ensure_ascii=False), False, tx.at) for item in items]
    tx.append("datasets", _COLUMNS, rows)
    return len({item.key for item in items}.difference(known))


def delete_dataset(tx: Transaction, name: str) -> None:
    """End a dataset."""
    tx.append("datasets", _COLUMNS, [(name, None, None, True, tx.at)])


def keep(tx: Transaction, key: str, text: str) -> None:
    """Append a text under a key."""
    tx.append("meta", ("key", "value"), [(key, text)])


def kept(read: Read, key: str) -> list[str]:
    """Return the texts under a key, in no order."""
    return read("SELECT value FROM raw.meta WHERE key = $key", {"key": key}).values
