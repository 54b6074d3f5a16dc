"""Attaching a lake to a connection: the store's own, and that of the process that answers users' queries."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import duckdb

from ragpulse_collector.store.connection import quoted
from ragpulse_collector.store.protocol import StoreError

NAME = "lake"
"""What a lake is attached as."""
_EXTENSIONS = ("ducklake", "postgres_scanner", "httpfs")
_RETRIES = ("ducklake_retry_wait_ms = 20", "ducklake_retry_backoff = 1.2", "ducklake_max_retry_count = 30")
"""Commits meet at the catalog; appends never truly conflict, so they are tried again inside, for 24 s at most."""


def attach_lake(
    connection: duckdb.DuckDBPyConnection, catalog: str, data_path: str, s3: Mapping[str, str] | None
) -> None:
    """Attach a lake to a connection and choose it; raises StoreError or duckdb.Error."""
    load_extensions(connection)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    for setting in _RETRIES:
        connection.execute(f"SET GLOBAL {setting}")
    if s3:
        fields = ", ".join(f"{name} '{quoted(value)}'" for name, value in s3.items())
        connection.execute(f"CREATE SECRET lake_files (TYPE s3, {fields})")
    connection.execute(f"ATTACH '{quoted(catalog)}' AS {NAME} (DATA_PATH '{quoted(data_path)}')")
    connection.execute(f"USE {NAME}")


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load what the lake needs, from installed packages where there are some; raises StoreError naming the mend."""
    for name in _EXTENSIONS:
        try:
            connection.execute(f"LOAD {_extension(name)}")
        except duckdb.Error as error:
            raise StoreError(
                f"duckdb {duckdb.__version__} has no extension {name}: pip install 'ragpulse[lake]' "
                f"or run INSTALL {name} with internet access"
            ) from error


def _extension(name: str) -> str:
    """Packages are loaded from where they lie: a service may not have a home folder that it can write to."""
    try:
        package = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return name
    file = package / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return f"'{quoted(file)}'"
