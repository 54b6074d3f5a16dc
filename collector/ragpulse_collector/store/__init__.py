"""The store: one writer, many readers, SQL on both sides.

    receiver ─ submit(body) ─▶ queue ─▶ writer thread: drain, decode, one transaction, COMMIT ─▶ futures resolve
    everyone else ─ write(work) ─▶ the same queue          readers ─ read(sql) ─▶ own cursors
"""

from ragpulse_collector.store.protocol import Busy, Rows, Store, Transaction

__all__ = ["Busy", "Rows", "Store", "Transaction"]
