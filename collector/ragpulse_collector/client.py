"""Ask a running collector from a notebook, a script or the command line; needs neither duckdb nor a server.

It uses `urllib`: importing httpx would make every command start 90 ms later (140 instead of 50 ms).

>>> from ragpulse_collector.client import connect
>>> connect().sql("select * from traces where error").df()
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["Client", "ClientError", "Query", "connect"]

DEFAULT_URL = "http://127.0.0.1:4318"
ARROW = "application/vnd.apache.arrow.stream"


class ClientError(Exception):
    """The collector refused or could not be reached; `status` is None when there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Query:
    """A query that runs when its result is asked for, in the form it is asked for."""

    def __init__(self, client: Client, query: str, params: Sequence[Any]) -> None:
        self._client, self._query, self._params = client, query, list(params)

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per row (plain JSON types)."""
        answer = self._client.call("POST sql", {"query": self._query, "params": self._params})
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def arrow(self) -> pyarrow.Table:
        """Return a pyarrow table (needs pyarrow)."""
        import pyarrow.ipc

        body = {"query": self._query, "params": self._params}
        stream = self._client.request("POST", "/api/v1/sql", body=body, accept=ARROW)
        return pyarrow.ipc.open_stream(stream).read_all()

    def df(self) -> pandas.DataFrame:
        """Return a pandas data frame (needs pandas and pyarrow)."""
        return self.arrow().to_pandas()

    def pl(self) -> polars.DataFrame:
        """Return a polars data frame (needs polars and pyarrow)."""
        import polars

        return polars.DataFrame(polars.from_arrow(self.arrow()))


class Client:
    """A connection's address and key; holds no socket open."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 60.0) -> None:
        self.url = url.rstrip("/")
        self._api_key, self._timeout_s = api_key, timeout_s
        # A proxy from the environment must not see loopback traffic.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def sql(self, query: str, params: Sequence[Any] = ()) -> Query:
        """Prepare one read-only SELECT over the views (see docs/sql.md)."""
        return Query(self, query, params)

    def traces(self, where: str = "true") -> Query:
        """Prepare the rows of the view `traces` that satisfy a SQL condition."""
        return self.sql(f"select * from traces where {where} order by start_time desc")

    def spans(self, where: str = "true") -> Query:
        """Prepare the rows of the view `spans` that satisfy a SQL condition."""
        return self.sql(f"select * from spans where {where} order by start_time")

    def scores(self, where: str = "true") -> Query:
        """Prepare the rows of the view `scores` that satisfy a SQL condition."""
        return self.sql(f"select * from scores where {where} order by request_time")

    def metrics(self, name: str, **params: Any) -> Any:
        """Return a metric over time, as `GET /api/v1/metrics` answers it (`from_` stands for `from`)."""
        return self.call("GET metrics", {"name": name} | {key.rstrip("_"): value for key, value in params.items()})

    def call(self, operation: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run an operation such as `"GET traces"`; raises ClientError with the collector's own words."""
        method, _, path = operation.partition(" ")
        given = {key: value for key, value in (params or {}).items() if value is not None}
        if method in ("GET", "DELETE"):
            query = urlencode(given, doseq=True)
            answer = self.request(method, f"/api/v1/{path}" + (f"?{query}" if query else ""))
        else:
            answer = self.request(method, f"/api/v1/{path}", body=given)
        return json.loads(answer)

    def download(self, operation: str, params: Mapping[str, Any], target: Path) -> None:
        """Write an operation's file to `target`, readable by its owner alone; raises ClientError."""
        path = f"/api/v1/{operation.partition(' ')[2]}?{urlencode(params)}"
        with self._open("GET", path, None, "*/*") as response, open(target, "wb", opener=_private) as out:
            shutil.copyfileobj(response, out)

    def request(self, method: str, path: str, *, body: Any = None, accept: str = "application/json") -> bytes:
        """Send one request and return the raw answer; raises ClientError."""
        with self._open(method, path, body, accept) as response:
            return bytes(response.read())

    def _open(self, method: str, path: str, body: Any, accept: str) -> HTTPResponse:
        headers = {"Accept": accept}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body, default=str).encode(), "application/json"
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            return cast("HTTPResponse", self._opener.open(request, timeout=self._timeout_s))
        except urllib.error.HTTPError as error:
            with error:
                raise ClientError(_message(error), error.code) from error
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ClientError(
                f"no collector answers at {self.url} ({reason}); start one with `ragpulse serve`"
            ) from error


def connect(url: str | None = None, *, api_key: str | None = None, timeout_s: float = 60.0) -> Client:
    """Return a client of a running collector; nothing is sent before the first question.

    `url` and `api_key` default to RAGPULSE_URL and RAGPULSE_API_KEY, then to the local collector without a key.
    """
    address = url or os.environ.get("RAGPULSE_URL") or os.environ.get("RAGPULSE_ENDPOINT") or DEFAULT_URL
    return Client(address, api_key=api_key or os.environ.get("RAGPULSE_API_KEY"), timeout_s=timeout_s)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read(65536).decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}: {text[:200]}"
