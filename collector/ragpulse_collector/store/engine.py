"""DuckDB itself. The package `duckdb` around it adds relations and expressions, which nothing here uses.

Importing those takes 0.2 s and 15 MB, more than all other packages of a starting collector, so that only the compiled
part is imported: the same classes, the same exceptions.
"""

from _duckdb import (
    CatalogException,
    ConnectionException,
    DuckDBPyConnection,
    Error,
    FatalException,
    InternalException,
    InterruptException,
    InvalidInputException,
    IOException,
    OperationalError,
    OutOfMemoryException,
    SerializationException,
    StatementType,
    __version__,
    connect,
)

__all__ = [
    "CatalogException",
    "ConnectionException",
    "DuckDBPyConnection",
    "Error",
    "FatalException",
    "IOException",
    "InternalException",
    "InterruptException",
    "InvalidInputException",
    "OperationalError",
    "OutOfMemoryException",
    "SerializationException",
    "StatementType",
    "__version__",
    "connect",
]
