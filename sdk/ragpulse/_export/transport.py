"""POSTs batches over OTLP/HTTP, with bounds on time, on bytes and on redirects.

`http.client` reads for as long as the server sends. Here one deadline holds for all reads of an exchange, an answer has
at most 256 KiB and its body 64 KiB, and redirects are not followed. `configure` imports this module, because
`http.client` and `ssl` take long to load.
"""

import io
import json
import socket
import ssl
import time
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from .batch import Destination, EncodedBatch, HttpAnswer

_MAX_BODY = 65_536
_MAX_ANSWER = 4 * _MAX_BODY


class HttpTransport:
    """Carries batches to the collector over kept connections. For one thread at a time."""

    def __init__(self, destination: Destination) -> None:
        self._posters = {
            "traces": Poster(destination.traces_url, destination),
            "logs": Poster(destination.logs_url, destination),
        }

    def send(self, batch: EncodedBatch, timeout: float | None) -> HttpAnswer:
        """Delivers the batch; never raises."""
        return self._posters[batch.path].post(batch.body, encoding="gzip" if batch.gzipped else None, timeout=timeout)

    def close(self) -> None:
        """Closes the connections."""
        for poster in self._posters.values():
            poster.close()


class Poster:
    """Posts to one URL over a kept connection."""

    def __init__(self, url: str, destination: Destination) -> None:
        self._url = url
        self._destination = destination
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": "ragpulse", **destination.headers}
        self._connection: HTTPConnection | None = None

    def post(self, body: bytes, *, encoding: str | None, timeout: float | None = None) -> HttpAnswer:
        """Sends `body`; never raises. Reconnects once if the server closed a kept connection."""
        deadline = time.monotonic() + min(timeout or self._destination.timeout, self._destination.timeout)
        while True:
            reused = self._connection is not None
            try:
                return self._exchange(body, encoding, deadline)
            except (OSError, HTTPException, ValueError) as error:  # ssl.SSLError is an OSError
                self.close()
                if not reused or isinstance(error, TimeoutError):
                    return HttpAnswer(0, message=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Closes the connection; the next post opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, timeout: float) -> HTTPConnection:
        if self._connection is None:
            url = urlsplit(self._url)
            host, port = url.hostname or "", url.port
            if url.scheme == "https":
                connection: HTTPConnection = HTTPSConnection(host, port, timeout=timeout, context=self._tls())
            else:
                connection = HTTPConnection(host, port, timeout=timeout)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
        return self._connection

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._destination.certificate)
        if self._destination.client_certificate:
            context.load_cert_chain(*self._destination.client_certificate)
        return context

    def _exchange(self, body: bytes, encoding: str | None, deadline: float) -> HttpAnswer:
        connection = self._connect(max(deadline - time.monotonic(), 0.05))
        connection.sock.settimeout(max(deadline - time.monotonic(), 0.05))
        headers = self._headers if encoding is None else {**self._headers, "Content-Encoding": encoding}
        connection.response_class = partial(_bounded_response, deadline=deadline)  # type: ignore[assignment]
        url = urlsplit(self._url)
        connection.request("POST", (url.path or "/") + (f"?{url.query}" if url.query else ""), body, headers)
        with connection.getresponse() as response:
            answer = _http_answer(response)
            reusable = response.isclosed() and not response.will_close
        if not reusable:
            self.close()
        return answer


class _BoundedReader(io.RawIOBase):
    """A socket's read side with one deadline and one limit of bytes over all reads together."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        # Holds the socket open: `http.client` closes it before the body is read where the server ends the connection.
        self._stream = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self._allowed = _MAX_ANSWER

    def makefile(self, mode: str) -> io.BufferedReader:
        """The only method of a socket that `HTTPResponse` calls."""
        return io.BufferedReader(self, 8192)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the answer took too long")
        if self._allowed <= 0:
            raise OSError("the answer is too long")
        self._sock.settimeout(seconds)
        count = self._stream.readinto(buffer) or 0
        self._allowed -= count
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def _bounded_response(sock: socket.socket, *args: Any, deadline: float, **options: Any) -> HTTPResponse:
    return HTTPResponse(_BoundedReader(sock, deadline), *args, **options)  # type: ignore[arg-type]


def _http_answer(response: HTTPResponse) -> HttpAnswer:
    body = response.read(_MAX_BODY)
    rejected, message = 0, ""
    if not 200 <= response.status < 300:
        message = _error_text(body)
    elif response.headers.get_content_type() == "application/json":
        rejected, message = _partial_success_json(body)
    else:
        rejected, message = _partial_success(body)
    wait = response.headers.get("Retry-After", "")
    return HttpAnswer(response.status, rejected, message, float(wait) if wait.isdigit() else None)


def _error_text(body: bytes) -> str:
    """The readable part of an error body, whatever its encoding (a google.rpc.Status is mostly its message)."""
    text = body[:2000].decode("utf-8", "replace")
    return "".join(char for char in text if char.isprintable()).strip("\ufffd ")[:300]


def _partial_success_json(body: bytes) -> tuple[int, str]:
    try:
        partial_success = json.loads(body).get("partialSuccess") or {}
        count = partial_success.get("rejectedSpans", partial_success.get("rejectedLogRecords", 0))
        return int(count or 0), str(partial_success.get("errorMessage", ""))
    except (ValueError, AttributeError, TypeError):
        return 0, ""


def _partial_success(body: bytes) -> tuple[int, str]:
    """ExportTraceServiceResponse and ExportLogsServiceResponse alike: field 1 holds a count (1) and a message (2)."""
    message = _fields(body).get(1, b"")
    fields = _fields(message) if isinstance(message, bytes) else {}
    count, text = fields.get(1, 0), fields.get(2, b"")
    return count if isinstance(count, int) else 0, text.decode("utf-8", "replace") if isinstance(text, bytes) else ""


def _fields(data: bytes) -> dict[int, int | bytes]:
    """The varint and length-delimited fields of a protobuf message; stops at the first other field."""
    fields: dict[int, int | bytes] = {}
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        value, offset = _varint(data, offset)
        if tag & 7 == 2:
            fields[tag >> 3] = data[offset : offset + value]
            offset += value
        elif tag & 7 == 0:
            fields[tag >> 3] = value
        else:
            break
    return fields


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    number = shift = 0
    while offset < len(data):
        byte = data[offset]
        offset += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            break
    return number, offset
