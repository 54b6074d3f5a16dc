"""One POST, with everything a hostile or broken server could do to us bounded: time, bytes, redirects.

The standard library's client reads what it is given for as long as it is given; here each read of the socket is held
to one deadline for the whole exchange, and a body is read to 64 KiB and no further. Imported with the first request:
`http.client` and `ssl` take longer to load than all the rest of the SDK.
"""

import io
import json
import socket
import ssl
import time
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ragpulse._settings import Settings

from .batch import Answer, Batch

_MAX_BODY = 65_536
_MAX_ANSWER = 4 * _MAX_BODY


class _Timed(io.RawIOBase):
    """A socket's read side that keeps to one deadline and one allowance of bytes over all reads together."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        # Holds the socket open: `http.client` closes it before the body is read where the server ends the connection.
        self._stream = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self._allowance = _MAX_ANSWER

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        if self._allowance <= 0:
            raise OSError("the answer is too long")
        self._sock.settimeout(left)
        count = self._stream.readinto(buffer) or 0
        self._allowance -= count
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


class _TimedSocket:
    """As much of a socket as `HTTPResponse` asks for."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._raw = _Timed(sock, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._raw, 8192)


class Poster:
    """Posts to one URL over a kept connection. Not for use by several threads at once."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str], timeout: float, context: ssl.SSLContext | None = None
    ) -> None:
        parts = urlsplit(url)
        self._https = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": "ragpulse", **headers}
        self._timeout = timeout
        self._context = context
        self._connection: HTTPConnection | None = None

    def post(self, body: bytes, *, encoding: str | None, timeout: float | None = None) -> Answer:
        """Send `body`; never raises. A kept connection that the server closed meanwhile is opened anew, once."""
        deadline = time.monotonic() + min(timeout or self._timeout, self._timeout)
        reused = self._connection is not None
        try:
            return self._exchange(body, encoding, deadline)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            if not reused or isinstance(error, TimeoutError):
                return Answer(0, message=f"{type(error).__name__}: {error}")
        try:
            return self._exchange(body, encoding, deadline)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            return Answer(0, message=f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the connection; the next post opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, left: float) -> HTTPConnection:
        if self._connection is None:
            if self._https:
                context = self._context or ssl.create_default_context()
                self._connection = HTTPSConnection(self._host, self._port, timeout=left, context=context)
            else:
                self._connection = HTTPConnection(self._host, self._port, timeout=left)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._connection

    def _exchange(self, body: bytes, encoding: str | None, deadline: float) -> Answer:
        connection = self._connect(max(deadline - time.monotonic(), 0.05))
        connection.sock.settimeout(max(deadline - time.monotonic(), 0.05))
        connection.putrequest("POST", self._path, skip_accept_encoding=True)
        for name, value in self._headers.items():
            connection.putheader(name, value)
        if encoding:
            connection.putheader("Content-Encoding", encoding)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        connection.response_class = partial(_timed_response, deadline=deadline)  # type: ignore[assignment]
        with connection.getresponse() as response:
            answer = _answer(response)
            kept = response.isclosed() and not response.will_close
        if not kept:
            self.close()
        return answer


def _timed_response(sock: socket.socket, *args: Any, deadline: float, **options: Any) -> HTTPResponse:
    return HTTPResponse(_TimedSocket(sock, deadline), *args, **options)  # type: ignore[arg-type]


def _answer(response: HTTPResponse) -> Answer:
    body = response.read(_MAX_BODY)
    kind = response.headers.get_content_type()
    rejected, message = 0, ""
    if 200 <= response.status < 300 and body:
        rejected, message = _partial_success_json(body) if kind == "application/json" else _partial_success(body)
    elif body:
        message = _error_text(body)
    return Answer(response.status, rejected, message, _retry_after(response.headers.get("Retry-After")))


def _error_text(body: bytes) -> str:
    """The readable part of an error body, whatever its encoding (a google.rpc.Status is mostly its message)."""
    text = body[:2000].decode("utf-8", "replace")
    return "".join(char for char in text if char.isprintable()).strip("\ufffd ")[:300]


def _retry_after(value: str | None) -> float | None:
    return float(value) if value is not None and value.isdigit() else None


def _partial_success_json(body: bytes) -> tuple[int, str]:
    try:
        told = json.loads(body).get("partialSuccess") or {}
        count = told.get("rejectedSpans", told.get("rejectedLogRecords", 0))
        return int(count or 0), str(told.get("errorMessage", ""))
    except (ValueError, AttributeError, TypeError):
        return 0, ""


def _partial_success(body: bytes) -> tuple[int, str]:
    """ExportTraceServiceResponse and ExportLogsServiceResponse alike: field 1 holds a count (1) and a message (2)."""
    for number, value in _fields(body):
        if number == 1 and isinstance(value, bytes):
            inner = dict(_fields(value))
            count, text = inner.get(1, 0), inner.get(2, b"")
            message = text.decode("utf-8", "replace") if isinstance(text, bytes) else ""
            return (count if isinstance(count, int) else 0), message
    return 0, ""


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """The varint and length-delimited fields of a protobuf message; stops at the first thing that is neither."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 2:
            found.append((tag >> 3, data[at : at + value]))
            at += value
        elif tag & 7 == 0:
            found.append((tag >> 3, value))
        else:
            break
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128 or shift > 63:
            break
    return number, at


if TYPE_CHECKING:
    from ssl import SSLContext


class HttpTransport:
    """Carries batches to the collector over OTLP/HTTP."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._posters: dict[str, Poster] = {}

    def send(self, batch: Batch, timeout: float | None) -> Answer:
        """Deliver the batch; never raises."""
        try:
            return self._poster(batch.path).post(
                batch.body, encoding="gzip" if batch.gzipped else None, timeout=timeout
            )
        except Exception as error:  # noqa: BLE001 - e.g. a certificate file that is not there
            return Answer(0, message=f"{type(error).__name__}: {error}")

    def _poster(self, path: str) -> "Poster":
        if path not in self._posters:
            destination = self._settings.destination
            self._posters[path] = Poster(
                destination.traces_url if path == "traces" else destination.logs_url,
                headers=destination.headers,
                timeout=destination.timeout,
                context=self._tls(),
            )
        return self._posters[path]

    def _tls(self) -> "SSLContext | None":
        destination = self._settings.destination
        if not destination.traces_url.startswith("https"):
            return None
        import ssl

        context = ssl.create_default_context(cafile=destination.certificate)
        if destination.client_certificate:
            context.load_cert_chain(*destination.client_certificate)
        return context

    def close(self) -> None:
        """Let connections go."""
        for poster in self._posters.values():
            poster.close()

    def forked(self) -> None:
        """In a forked child: the parent's connections are not ours to use."""
        self._posters = {}
