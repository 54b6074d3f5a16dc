"""Which store: a DuckDB file, or a lake shared by several collectors, chosen by how `db` begins."""

from __future__ import annotations

from collections.abc import Callable

from ragpulse_collector.records import Batch, RawBody, SpanRecord
from ragpulse_collector.settings import CollectorSettings, SettingsError
from ragpulse_collector.store import EmbeddedStore
from ragpulse_collector.store.lake import LakeStore, Lease

LAKE = "ducklake:"
POSTGRES = "ducklake:postgres:"


def open_store(
    told: CollectorSettings, *, decode: Callable[[RawBody], Batch], price: Callable[[SpanRecord], None]
) -> EmbeddedStore | LakeStore:
    """Open what `[collector] db` names; raises SettingsError or StoreError with the mend."""
    if not told.db.startswith(LAKE):
        return EmbeddedStore(told.db, decode=decode, price=price)
    if not told.lake_data:
        raise SettingsError("[collector] lake_data is missing: the folder or s3://bucket/prefix of the lake's files")
    return LakeStore(told.db, data_path=told.lake_data, s3=dict(told.lake_s3) or None, decode=decode, price=price)


def lease_of(told: CollectorSettings) -> Lease | None:
    """Return the right to evaluate and maintain where several processes may want it; None where there is only one."""
    return Lease(told.db.removeprefix(POSTGRES)) if told.db.startswith(POSTGRES) else None
