"""Which store a `db` setting means."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.protocol import StoreError
from ragpulse_collector.store.writing import Writing

_PASSWORD = re.compile(r"\bpassword\s*=|//[^/@]*:[^/@]*@")


def open_store(db: str, *, environ: Mapping[str, str] = os.environ, **ways: Any) -> Writing:
    """Open a file, or the lake where `db` begins with `ducklake:`; takes the options of `Ways`. Raises StoreError.

    A lake names its catalog and where its files are:
    `ducklake:postgres:host=db dbname=lake data_path=s3://bucket/prefix`. S3 keys are read from AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL, never from the settings.
    """
    if not db.startswith("ducklake:"):
        return EmbeddedStore(Path(db), **ways)
    from ragpulse_collector.store.lake import LakeStore

    catalog, data_path = lake_parts(db)
    return LakeStore(catalog, data_path=data_path, s3=s3_secret(environ), **ways)


def lake_parts(db: str) -> tuple[str, str]:
    """Split a lake's `db` into what follows ATTACH and the place of its files; raises StoreError naming the mend."""
    words = db.split()
    paths = [word.removeprefix("data_path=") for word in words if word.startswith("data_path=")]
    if len(paths) != 1:
        raise StoreError(
            f"{db!r} does not say where its files are: add data_path=s3://bucket/prefix or data_path=FOLDER"
        )
    catalog = " ".join(word for word in words if not word.startswith("data_path="))
    if _PASSWORD.search(catalog):
        raise StoreError("no password in `db`, it is shown and logged: put it into PGPASSWORD or ~/.pgpass")
    return catalog, paths[0]


def s3_secret(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the fields of DuckDB's S3 secret from the usual variables; None where there are no keys."""
    if "AWS_ACCESS_KEY_ID" not in environ:
        return None
    secret = {"KEY_ID": environ["AWS_ACCESS_KEY_ID"], "SECRET": environ.get("AWS_SECRET_ACCESS_KEY", "")}
    if "AWS_REGION" in environ:
        secret["REGION"] = environ["AWS_REGION"]
    if "AWS_ENDPOINT_URL" in environ:
        endpoint = urlsplit(environ["AWS_ENDPOINT_URL"])
        secret |= {"ENDPOINT": endpoint.netloc, "URL_STYLE": "path"}
        secret["USE_SSL"] = "true" if endpoint.scheme == "https" else "false"
    return secret
