"""The client of a running collector, for notebooks, scripts and the command line; it needs neither duckdb nor a server.

It uses `urllib`: with httpx every command would start 66 ms later.

>>> from ragpulse_collector.client import connect
>>> connect().sql("select * from traces where error").to_pandas()
>>> connect().failures(since="7d")

Every operation that reads is a method under the name of its function; `dir(client)` lists them.
A notebook shows queries, metrics and traces as tables.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from html import escape
from http.client import HTTPException, HTTPResponse
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from ssl import SSLCertVerificationError, SSLContext, SSLError
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

from ragpulse_collector.interface import Signature, signatures
from ragpulse_collector.refusals import FieldError, Invalid, nearest

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

__all__ = ["Client", "ClientError", "Metrics", "Query", "Trace", "connect"]

DEFAULT_URL = "http://127.0.0.1:4318"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
SHOWN_ROWS, SHOWN_CHARACTERS = 20, 200


_READ: Mapping[str, Callable[[str], Any]] = {
    "TIMESTAMP": lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
    "DATE": date.fromisoformat,
    "DECIMAL": float,
}
"""How a frame reads what JSON has as a text, by the first word of its SQL type."""


class ClientError(Exception):
    """The collector refused or could not be reached; `status` is None when there was no answer."""

    def __init__(self, message: str, status: int | None = None, errors: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.errors = [FieldError(**one) for one in errors]
        """The wrong parameters."""


class Query:
    """A query that runs when its result is read."""

    def __init__(self, client: Client, query: str, params: Sequence[Any]) -> None:
        self._client, self._query, self._params = client, query, list(params)

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per row (plain JSON types)."""
        answer = self._client.call("POST sql", {"query": self._query, "params": self._params})
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    def arrow(self) -> pyarrow.Table:
        """Return a pyarrow table (needs pyarrow, in the collector too)."""
        ipc = _library("pyarrow.ipc", "'ragpulse[arrow]'")
        body = {"query": self._query, "params": self._params}
        stream = self._client.request("POST", "/api/v1/sql", body=body, accept=ARROW)
        return ipc.open_stream(stream).read_all()

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame; times are in UTC (needs pandas)."""
        return _library("pandas", "pandas").DataFrame(self._columns())

    df = to_pandas

    def pl(self) -> polars.DataFrame:
        """Return a polars data frame; times are in UTC (needs polars)."""
        return _library("polars", "polars").DataFrame(self._columns(), strict=False)

    def _columns(self) -> dict[str, list[Any]]:
        """Return the values of each column, with times and decimals as what they are: JSON has texts."""
        answer = self._client.call("POST sql", {"query": self._query, "params": self._params})
        columns: dict[str, list[Any]] = {}
        for number, (name, kind) in enumerate(zip(answer["columns"], answer["types"], strict=True)):
            read = None if kind.endswith("]") else _READ.get(re.split(r"\W|_", kind)[0])
            values = [row[number] for row in answer["rows"]]
            columns[name] = [value and read(value) for value in values] if read else values
        return columns

    def __repr__(self) -> str:
        return f"Query({self._query!r})"

    def _repr_html_(self) -> str:
        """Run the query for its first rows and show them."""
        first = f"select * from ({self._query.strip().rstrip(';')}\n) limit {SHOWN_ROWS + 1}"
        answer = self._client.call("POST sql", {"query": first, "params": self._params})
        more = f"<p>the first {SHOWN_ROWS} rows</p>" if len(answer["rows"]) > SHOWN_ROWS else ""
        return _table(answer["columns"], answer["rows"][:SHOWN_ROWS]) + more


class Answer(dict[str, Any]):
    """The answer of an operation: a mapping whose lists (runs, rules, monitors, ...) a notebook shows as tables."""

    def _repr_html_(self) -> str:
        lists = {name: rows for name, rows in self.items() if isinstance(rows, list) and rows}
        shown = {name: rows for name, rows in lists.items() if all(isinstance(row, Mapping) for row in rows)}
        columns = {
            name: [key for key in rows[0] if not isinstance(rows[0][key], (list, dict))] for name, rows in shown.items()
        }
        return "".join(
            f"<b>{escape(name)}</b>{_table(columns[name], ([row[key] for key in columns[name]] for row in rows))}"
            for name, rows in shown.items()
        )


class Metrics(dict[str, Any]):
    """The answer of `GET metrics`: a mapping that a notebook shows as a table."""

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping per point, with its group, version and judge."""
        return [
            {**series["group"], "version": series.get("version"), "judge": series.get("judge"), **point}
            for series in self["series"]
            for point in series["points"]
        ]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame, one row per point; `t` is a time in UTC (needs pandas)."""
        pandas = _library("pandas", "pandas")
        frame = pandas.DataFrame(self.rows())
        return frame.assign(t=pandas.to_datetime(frame["t"], utc=True)) if len(frame) else frame

    def _repr_html_(self) -> str:
        rows = [row for row in self.rows() if row["value"] is not None]
        columns = [name for name in (rows[0] if rows else ()) if any(row[name] is not None for row in rows)]
        marks = "".join(f"<p>{escape(mark['text'])} began {escape(mark['t'])}</p>" for mark in self.get("markers", ()))
        return (
            f"<b>{escape(self['name'])}</b>{''.join(_chart(one['points']) for one in self['series'])}"
            f"{_table(columns, ([row[name] for name in columns] for row in rows))}{marks}"
        )


class Trace(dict[str, Any]):
    """The answer of `GET traces/{trace_id}`: a mapping that a notebook shows as question, answer and tables."""

    def _repr_html_(self) -> str:
        trace = self["trace"]
        texts = "".join(f"<p><b>{name}</b> {escape(trace[name] or '-')}</p>" for name in ("query", "response"))
        return texts + "".join(
            f"<b>{name}</b>{_table(columns, ([row[column] for column in columns] for row in self[name]))}"
            for name, columns in TRACE_TABLES.items()
        )


TRACE_TABLES = {
    "contexts": ("rank", "id", "score", "text"),
    "spans": ("kind", "name", "latency_ms", "model", "status"),
    "scores": ("evaluator", "version", "status", "normalized", "explanation"),
}
"""The visible columns of the parts of a trace."""


class Client:
    """The address and key of a collector; it holds no socket open."""

    hint = "`ragpulse serve` starts a collector"
    """What to do where nothing answers."""

    def __init__(
        self, url: str, *, api_key: str | None = None, timeout_s: float = 60.0, context: SSLContext | None = None
    ) -> None:
        """`context` sets the accepted certificates; None: those of this machine's authorities.

        Raises ClientError where `url` is no address.
        """
        self.url = _address(url)
        self._api_key, self._timeout_s = (api_key or "").strip(), timeout_s
        # A proxy from the environment must not see loopback traffic.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

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

    def metrics(self, name: str, **params: Any) -> Metrics:
        """Return a metric over time, as `GET /api/v1/metrics` answers it (`from_` stands for `from`)."""
        return Metrics(self.call("GET metrics", {"name": name} | {key.rstrip("_"): params[key] for key in params}))

    def trace(self, trace_id: str) -> Trace:
        """Return one trace with its spans, contexts and scores."""
        return Trace(self.call(f"GET traces/{trace_id}"))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = _methods().get(name)
        if operation is None:
            raise AttributeError(f"the client has no method {name!r}{nearest(name, dir(self))}")

        def method(*args: Any, **params: Any) -> Any:
            answer = self.ask(operation.name, params | dict(zip(operation.own, args, strict=False)))
            return Answer(answer) if isinstance(answer, dict) else answer

        method.__name__, method.__doc__ = name, f"{operation.summary}\n\n{operation.text}".strip()
        method.__dict__["__signature__"] = inspect.Signature(
            [inspect.Parameter(one, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
             for name in (*operation.own, *operation.filters) if (one := f"{name}_" if iskeyword(name) else name)]
        )  # fmt: skip
        return method

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_methods()})

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def ask(self, operation: str, values: Mapping[str, Any]) -> Any:
        """Run an operation that reads; `since` is an age. Raises ClientError with the message of the collector."""
        try:
            return self.call(*signatures()[operation].request(values))
        except Invalid as error:
            raise ClientError(str(error), 400) from error

    def call(self, operation: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run an operation such as `"GET traces"`; raises ClientError with the message of the collector."""
        method, _, path = operation.partition(" ")
        values = {key: value for key, value in (params or {}).items() if value is not None}
        if method in ("GET", "DELETE"):
            query = urlencode({key: _in_query(value) for key, value in values.items()}, doseq=True)
            answer = self.request(method, f"/api/v1/{path}" + (f"?{query}" if query else ""))
        else:
            answer = self.request(method, f"/api/v1/{path}", body=values)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ClientError(f"{self.url} answers, but not as a ragpulse collector") from error

    def download(self, operation: str, params: Mapping[str, Any], target: Path) -> None:
        """Write an operation's file to `target`, readable by its owner alone; raises ClientError."""
        path = f"/api/v1/{operation.partition(' ')[2]}?{urlencode(params)}"
        with self._open("GET", path, None, "*/*") as response, open(target, "wb", opener=_private) as out:
            shutil.copyfileobj(response, out)

    def request(
        self, method: str, path: str, *, body: Any = None, accept: str = JSON, content_type: str = JSON
    ) -> bytes:
        """Send one request, with bytes or JSON as its body, and return the raw answer; raises ClientError."""
        with self._open(method, path, body, accept, content_type) as response:
            return bytes(response.read())

    def _open(self, method: str, path: str, body: Any, accept: str, content_type: str = JSON) -> HTTPResponse:
        headers = {"Accept": accept}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body, default=str).encode()
            headers["Content-Type"] = content_type
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=method)
        try:
            return cast("HTTPResponse", self._opener.open(request, timeout=self._timeout_s))
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ClientError(self._why(reason)) from error

    def _why(self, failure: object) -> str:
        """Return why there was no answer, with the fix."""
        if isinstance(failure, TimeoutError):
            return f"{self.url} did not answer within {self._timeout_s:g} s"
        if isinstance(failure, SSLCertVerificationError):
            fix = "SSL_CERT_FILE=FILE names the authority that signed it"
            return f"{self.url} has a certificate that is not trusted ({failure.verify_message}); {fix}"
        if isinstance(failure, SSLError):
            return f"{self.url} does not speak TLS ({failure.reason}): is it http://?"
        if isinstance(failure, HTTPException | ConnectionResetError):
            return f"{self.url} ends the connection without an HTTP answer: is it https://, or another program's port?"
        if isinstance(failure, ValueError):
            return "the API key has characters that no HTTP header may have"
        return f"nothing answers at {self.url} ({failure}); {self.hint}"


def _address(url: str) -> str:
    """Return an address without its last slashes; raises ClientError where it has no scheme, host or valid port."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        fits = fits and " " not in url and "@" not in parts.netloc
    except ValueError:
        fits = False
    if not fits:
        shown = url.rpartition("@")[2]  # a password before it is not repeated
        why = "it has no user (RAGPULSE_API_KEY has the key)" if shown != url else "it begins with http:// or https://"
        raise ClientError(f"{shown!r} is no address: {why}, such as {DEFAULT_URL}")
    return url.rstrip("/")


def _library(module: str, install: str) -> Any:
    """Import what a result needs; raises ModuleNotFoundError with the line to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.name} is not installed: pip install {install}", name=error.name) from error


def connect(url: str | None = None, *, api_key: str | None = None, timeout_s: float = 60.0) -> Client:
    """Return a client of a running collector; nothing is sent before its first call.

    `url` and `api_key` default to RAGPULSE_URL and RAGPULSE_API_KEY, then to the local collector without a key.
    """
    address = url or os.environ.get("RAGPULSE_URL") or os.environ.get("RAGPULSE_ENDPOINT") or DEFAULT_URL
    return Client(address, api_key=api_key or os.environ.get("RAGPULSE_API_KEY"), timeout_s=timeout_s)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as HTML; texts of spans are hostile, so all of them are escaped."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _chart(points: Sequence[Mapping[str, Any]]) -> str:
    """Return a line with its interval as SVG; points without a value leave a gap of the line's own width."""
    known = [(place, one) for place, one in enumerate(points) if one["value"] is not None]
    ends = [one[end] for _, one in known for end in ("value", "lo", "hi") if one.get(end) is not None]
    if len(known) < 2:
        return ""
    low, spread = min(ends), (max(ends) - min(ends)) or 1.0

    def line(end: str) -> list[str]:
        heights = [(place, one["value"] if one.get(end) is None else one[end]) for place, one in known]
        return [f"{place * 600 / (len(points) - 1):.0f},{110 - 100 * (y - low) / spread:.0f}" for place, y in heights]

    band, value = " ".join(line("lo") + line("hi")[::-1]), " ".join(line("value"))
    return (
        f'<svg viewBox="0 0 600 120" width="600" role="img"><title>{low:.4g} to {low + spread:.4g}</title>'
        f'<polygon points="{band}" fill="#3f51b5" opacity=".15"/>'
        f'<polyline points="{value}" fill="none" stroke="#3f51b5" stroke-width="2"/></svg>'
    )


def _cell(value: Any) -> str:
    text = "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")


def _in_query(value: Any) -> Any:
    """Return a value as a query string has it: objects and lists of them as JSON."""
    nested = isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(one, Mapping) for one in value))
    return json.dumps(value) if nested else value


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _refusal(error: urllib.error.HTTPError) -> ClientError:
    text = error.read(65536).decode("utf-8", "replace")
    try:
        problem = json.loads(text)
        return ClientError(str(problem["error"]), error.code, problem.get("errors", ()))
    except (ValueError, KeyError, TypeError):
        return ClientError(f"{error.code} {error.reason}: {' '.join(text.split())[:200]}", error.code)


@cache
def _methods() -> Mapping[str, Signature]:
    return {one.function: one for one in signatures().values()}
