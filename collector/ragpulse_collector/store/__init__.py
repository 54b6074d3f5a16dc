"""The store: one writer, many readers, SQL on both sides.

receiver ─ submit(body) ─▶ queue ─▶ writer thread: drain, decode, one transaction, COMMIT ─▶ futures resolve
everyone else ─ write(work) ─▶ the same queue          readers ─ read(sql) ─▶ own cursors
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ragpulse_collector.store.protocol import Busy, Refused, Rows, Store, StoreError, Transaction

if TYPE_CHECKING:
    from ragpulse_collector.store.embedded import AnyStore, EmbeddedStore, FileReader, open_store
    from ragpulse_collector.store.ingest.prices import Prices

__all__ = [
    "AnyStore",
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
    "AnyStore": "embedded",
    "EmbeddedStore": "embedded",
    "FileReader": "embedded",
    "Prices": "ingest.prices",
    "open_store": "embedded",
}


def __getattr__(name: str) -> Any:
    """Import the writer at its first use: a reader process starts without it."""
    if name in _LATE:
        return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
