"""Which store a `db` setting means, and what users' SQL may name where files cannot be forbidden."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from ragpulse_collector.store import EmbeddedStore, Refused, StoreError, open_store
from ragpulse_collector.store.guard import refuse_files
from ragpulse_collector.store.opening import lake_parts, s3_secret


def test_a_path_is_an_embedded_file(kit: Any) -> None:
    """Anything but `ducklake:` is a file."""
    store = open_store(str(kit.path), decode=lambda body: None)
    assert isinstance(store, EmbeddedStore)
    store.close()


def test_a_lake_names_its_catalog_and_its_files() -> None:
    """The data path is taken out of the connection string; without it the mend is named."""
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


@pytest.mark.parametrize(
    "sql",
    [
        "FROM '/etc/passwd'", "SELECT * FROM 's3://bucket/x.parquet'", "FROM \"a/b.csv\"",
        "FROM read_text('/etc/passwd')",
        "SELECT (SELECT count(*) FROM glob('/etc/*'))", "WITH a AS (FROM read_csv('x.csv')) FROM a",
        "SELECT * FROM query('SELECT 1')", "SELECT * FROM postgres_query('catalog', 'SELECT 1')", "DROP TABLE spans",
    ],
)  # fmt: skip
def test_files_and_functions_are_refused_by_name(sql: str) -> None:
    """On a lake the engine may open files, so users' SQL is refused before it is bound."""
    with pytest.raises(Refused):
        refuse_files(duckdb.connect(), sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM traces", "FROM raw.spans s JOIN contexts c USING (trace_id)", "FROM quality('e', now(), now())",
        "WITH a AS (SELECT 1 AS b) SELECT * FROM a, range(3)", "SELECT unnest([1, 2])",
    ],
)  # fmt: skip
def test_tables_views_and_macros_are_let_through(sql: str) -> None:
    """What the documentation offers works on a lake too."""
    refuse_files(duckdb.connect(), sql)
