"""Which store a `db` setting means."""

from __future__ import annotations

from typing import Any

import pytest

from ragpulse_collector.store import EmbeddedStore, StoreError, open_store
from ragpulse_collector.store.lake import lake_parts, s3_secret


def test_a_path_is_an_embedded_file(kit: Any) -> None:
    """Anything but `ducklake:` is a file."""
    store = open_store(str(kit.path), decode=lambda body: None)
    assert isinstance(store, EmbeddedStore)
    store.close()


def test_a_lake_names_its_catalog_and_its_files() -> None:
    """The data path is taken out of the connection string; without it the fix is named."""
    db = "ducklake:postgres:host=db dbname=lake data_path=s3://bucket/prefix"
    assert lake_parts(db) == ("ducklake:postgres:host=db dbname=lake", "s3://bucket/prefix")
    with pytest.raises(StoreError, match="data_path="):
        lake_parts("ducklake:postgres:dbname=lake")


@pytest.mark.parametrize("place", ["postgres:dbname=lake password=s", "postgres:postgresql://me:s@db/lake"])
def test_a_password_in_the_setting_is_refused(place: str) -> None:
    """`db` is shown at the start, in the status and in errors; libpq reads passwords from elsewhere."""
    with pytest.raises(StoreError, match="PGPASSWORD"):
        lake_parts(f"ducklake:{place} data_path=s3://bucket/prefix")


def test_keys_come_from_the_environment() -> None:
    """An endpoint of one's own is addressed by path, with TLS as its scheme says."""
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_ENDPOINT_URL": "http://127.0.0.1:8333"}
    assert s3_secret(keys) == {
        "KEY_ID": "k", "SECRET": "s", "ENDPOINT": "127.0.0.1:8333", "URL_STYLE": "path", "USE_SSL": "false",
    }  # fmt: skip
    assert s3_secret({}) is None
