"""The store: one writer, many readers, SQL on both sides.

receiver ─ submit(body) ─▶ queue ─▶ writer thread: drain, decode, one transaction, COMMIT ─▶ futures resolve
everyone else ─ write(work) ─▶ the same queue          readers ─ read(sql) ─▶ own cursors
"""

from ragpulse_collector.store.embedded import AnyStore, EmbeddedStore, FileReader, open_store
from ragpulse_collector.store.ingest.prices import Prices
from ragpulse_collector.store.protocol import Busy, Refused, Rows, Store, StoreError, Transaction

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
