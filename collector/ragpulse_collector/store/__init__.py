"""The store: one writer, many readers, SQL on both sides.

receiver ─ submit(body) ─▶ queue ─▶ writer thread: drain, decode, one transaction, COMMIT ─▶ futures resolve
everyone else ─ write(work) ─▶ the same queue          readers ─ read(sql) ─▶ own cursors
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragpulse_collector.refusals import Busy
from ragpulse_collector.store.protocol import Refused, Rows, StoreError, Transaction

if TYPE_CHECKING:
    from ragpulse_collector.store.embedded import EmbeddedStore, FileReader, Writing
    from ragpulse_collector.store.ingest.prices import Prices
    from ragpulse_collector.store.reading import Reading as Store

__all__ = [
    "Busy",
    "EmbeddedStore",
    "FileReader",
    "Prices",
    "Refused",
    "Rows",
    "Store",
    "StoreError",
    "Transaction",
    "open_store",
]

_LATE = {
    "EmbeddedStore": ("embedded", "EmbeddedStore"),
    "FileReader": ("embedded", "FileReader"),
    "Prices": ("ingest.prices", "Prices"),
    "Store": ("reading", "Reading"),
}


def __getattr__(name: str) -> Any:
    """Import the writer at its first use: a reader process starts without it."""
    if name in _LATE:
        module, found = _LATE[name]
        return getattr(import_module(f"{__name__}.{module}"), found)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_store(db: str, **options: Any) -> Writing:
    """Open a file, or the lake where `db` begins with `ducklake:`; raises StoreError.

    `options` are the fields of WriteOptions. A lake names its catalog and where its files are:
    `ducklake:postgres:host=db dbname=lake data_path=s3://bucket/prefix`. S3 keys are read from AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, never from the settings.
    """
    if not db.startswith("ducklake:"):
        from ragpulse_collector.store.embedded import EmbeddedStore

        return EmbeddedStore(Path(db), **options)
    from ragpulse_collector.store.lake import LakeStore, lake_parts, s3_secret

    catalog, data_path = lake_parts(db)
    return LakeStore(catalog, data_path=data_path, s3=s3_secret(os.environ), **options)
