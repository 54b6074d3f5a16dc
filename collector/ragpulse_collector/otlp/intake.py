"""The common part of the HTTP and gRPC receivers: limits, inflating, bytes in flight, answers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from typing import Any

import anyio
import anyio.to_thread
import orjson
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from zlib_ng import zlib_ng as zlib

from ragpulse_collector.otlp import PARSERS
from ragpulse_collector.records import ContentType, DecodeError, RawBody, Receipt, Signal, TooLarge

MIB = 1024 * 1024
ENCODINGS = ("gzip", "x-gzip", "deflate")
_PIECE = _CHUNK = 1 * MIB
"""Bytes that zlib reads and returns at a time: between two calls it must acquire Python's lock again."""
_FIRST_PASS = 4 * MIB
"""A larger body is inflated twice, first only to measure it, so that a bomb needs no more memory than this."""
_INLINE_BYTES = 64 * 1024
"""Compressed bodies up to this size are inflated on the event loop, unless they are large inflated: waking a thread
costs more."""
_MAX_MEMBERS = 64
"""A gzip body may have several members; more than this is an attack."""


async def inflate_aside(body: bytes, encoding: str, ticket: Ticket, workers: anyio.CapacityLimiter) -> bytes:
    """Inflate like `inflate`, large bodies on a thread; then gives back the bytes of the compressed body."""
    inflated = _inflate_little(body, encoding, ticket) if len(body) <= _INLINE_BYTES else None
    if inflated is None:
        outcome = await anyio.to_thread.run_sync(_inflate_or_refusal, body, encoding, ticket, limiter=workers)
        if isinstance(outcome, OtlpRefusal):
            raise OtlpRefusal(outcome.status, outcome.message, retry_after_s=outcome.retry_after_s)
        inflated = outcome
    ticket.give_back(len(body))
    return inflated


def _inflate_little(body: bytes, encoding: str, ticket: Ticket) -> bytes | None:
    """Inflate a body of one chunk; returns None for a longer one, of which little was inflated: 64 KiB may hold 64 MiB.

    Raises OtlpRefusal 400, 503.
    """
    chunks = list(islice(_chunks(body, encoding), 2))
    if len(chunks) > 1 or sum(map(len, chunks)) > ticket.limits.max_body_bytes:
        return None
    inflated = b"".join(chunks)
    ticket.take(len(inflated))
    return inflated


def _inflate_or_refusal(body: bytes, encoding: str, ticket: Ticket) -> bytes | OtlpRefusal:
    """Return a refusal instead of raising it: in a future it would hold the body until the garbage collection."""
    try:
        return inflate(body, encoding, ticket)
    except OtlpRefusal as refusal:
        return refusal.with_traceback(None)


def inflate(body: bytes, encoding: str, ticket: Ticket) -> bytes:
    """Return the inflated body; raises OtlpRefusal: 400 corrupt or truncated, 413 too big, 503 no budget left."""
    inflated = BytesIO()  # joining chunks would need the memory twice
    total = 0
    for chunk in _chunks(body, encoding):
        total += len(chunk)
        if total > ticket.limits.max_body_bytes:
            inflated.close()  # the traceback holds this frame for a while
            raise OtlpRefusal(413, f"the body inflates to more than {ticket.limits.max_body_bytes} bytes")
        if total <= _FIRST_PASS:
            inflated.write(chunk)
    ticket.take(total)
    if total > _FIRST_PASS:
        inflated.seek(0)
        inflated.writelines(_chunks(body, encoding))
    return inflated.getvalue()


def _chunks(body: bytes, encoding: str) -> Iterator[bytes]:
    window = _window(body, encoding)
    inflater = zlib.decompressobj(window)
    members = 1
    try:
        for start in range(0, len(body), _PIECE):
            rest = body[start : start + _PIECE]
            while rest:
                if inflater.eof:
                    members += 1
                    inflater = _next_member(window, members)
                yield inflater.decompress(rest, _CHUNK)
                rest = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if rest := inflater.flush():
            yield rest
    except zlib.error as error:  # type: ignore[misc]  # its stub calls the class an instance
        raise OtlpRefusal(400, f"the {encoding} body is corrupt: {error}") from error
    if not inflater.eof:
        raise OtlpRefusal(400, f"the {encoding} body is truncated")


def _window(body: bytes, encoding: str) -> int:
    """Return zlib's window setting; `deflate` means zlib in the standard, and raw deflate from some senders."""
    if encoding != "deflate":
        return 16 + zlib.MAX_WBITS
    zlib_header = len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] * 256 + body[1]) % 31 == 0
    return zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS


def _next_member(window: int, members: int) -> Any:
    if window <= zlib.MAX_WBITS:
        raise OtlpRefusal(400, "the deflate body has bytes after its end")
    if members > _MAX_MEMBERS:
        raise OtlpRefusal(400, f"the gzip body has more than {_MAX_MEMBERS} members")
    return zlib.decompressobj(window)


PROTOBUF: ContentType = "application/x-protobuf"
JSON: ContentType = "application/json"

_RESPONSES: dict[Signal, Any] = {
    "traces": ExportTraceServiceResponse,
    "logs": ExportLogsServiceResponse,
    "metrics": ExportMetricsServiceResponse,
}
_REJECTED: dict[Signal, tuple[str, str]] = {
    "traces": ("rejected_spans", "rejectedSpans"),
    "logs": ("rejected_log_records", "rejectedLogRecords"),
    "metrics": ("rejected_data_points", "rejectedDataPoints"),
}
_CODES = {400: 3, 405: 12, 408: 4, 413: 8, 415: 3, 503: 14}
"""HTTP code → google.rpc.Code."""
OTHER_SERVICES = "(other services)"
_MAX_SERVICES = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a sender may ask of the receiver."""

    max_body_bytes: int = 64 * MIB
    """The most bytes of one body, before and after inflating; a larger one is refused for good."""
    max_in_flight_bytes: int = 128 * MIB
    """The most bytes of all bodies that are read, inflated or written; beyond it the sender should retry."""
    body_timeout_s: float = 30.0
    """The time within which a body must arrive."""
    retry_after_s: int = 1
    """OpenTelemetry's Python exporters drop a batch if this is ten seconds or more."""


class OtlpRefusal(Exception):
    """Answers a request with an error; `status` is the HTTP code."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Counters:
    """Counts of what was received since the start, for `GET status`."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(signal, HTTP code) → requests; gRPC requests count under the HTTP code of the same meaning."""
    body_bytes: int = 0
    """Inflated bytes of accepted bodies."""
    rejected: int = 0
    """Spans and log records refused inside accepted bodies."""
    duplicates: int = 0
    """Spans that had been stored before."""
    unmapped: int = 0
    """Spans kept with their raw attributes only, because a rule raised an exception: a fault of the collector."""
    logs: int = 0
    """Log records whose content or score was stored."""
    not_stored: dict[str, Counter[str]] = field(default_factory=dict)
    """Signal → service → metrics, or ordinary log records: accepted, counted, not stored."""

    def taken(self, signal: str, size: int, receipt: Receipt) -> None:
        """Count an accepted body."""
        self.requests[signal, 200] += 1
        self.body_bytes += size
        self.rejected += receipt.rejected
        self.duplicates += receipt.duplicates
        self.unmapped += receipt.unmapped
        if signal == "logs":
            self.logs += receipt.accepted
        for service, count in receipt.not_stored.items():
            self._count_only(signal, service, count)

    def _count_only(self, signal: str, service: str, count: int) -> None:
        """Count what is not stored, and log it once for each service."""
        counts = self.not_stored.setdefault(signal, Counter())
        if service not in counts:
            if len(counts) >= _MAX_SERVICES:
                service = OTHER_SERVICES
            else:
                content = "metrics" if signal == "metrics" else "log records that are no GenAI events"
                _log.warning("service %r sends %s: they are accepted and counted, not stored", service, content)
        counts[service] += count

    def refused(self, signal: str, status: int) -> None:
        """Count a request that was answered with an error."""
        self.requests[signal, status] += 1


class Flight:
    """The budget for all bodies in flight; any thread may use it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lock = threading.Lock()
        self._taken = 0

    @property
    def taken(self) -> int:
        """Bytes in flight now."""
        return self._taken

    def board(self) -> Ticket:
        """Return an empty share of the budget, which is given back at the end of its `with` block."""
        return Ticket(self)

    def change(self, size: int) -> None:
        """Take bytes (or give them back); raises OtlpRefusal 503 when the budget is used up."""
        with self._lock:
            if size > 0 and self._taken + size > self.limits.max_in_flight_bytes:
                raise OtlpRefusal(503, "too many bytes in flight, come again", retry_after_s=self.limits.retry_after_s)
            self._taken += size


class Ticket:
    """One request's share of the budget."""

    def __init__(self, flight: Flight) -> None:
        self._flight, self.limits = flight, flight.limits
        self._taken = 0

    def take(self, size: int) -> None:
        """Take `size` more bytes; raises OtlpRefusal 503."""
        self._flight.change(size)
        self._taken += size

    def give_back(self, size: int) -> None:
        """Give back bytes that are no longer needed."""
        self._flight.change(-size)
        self._taken -= size

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back(self._taken)


Submit = Callable[[RawBody], Future[Receipt]]


async def hand_over(submit: Submit, body: RawBody, limits: Limits, workers: anyio.CapacityLimiter) -> Receipt:
    """Return the receipt once the body's content is on disk; metrics are only checked, in a thread.

    Raises OtlpRefusal: 400 for a body that cannot be decoded; 413 for one that holds too much; 503 for everything else,
    which is not the sender's fault.

    The store's exceptions lose their traceback here: futures refer to them in cycles, and the traceback to the body.
    """
    try:
        if body.signal == "metrics":
            count = PARSERS[body.content_type].metrics
            return Receipt(not_stored=dict(await anyio.to_thread.run_sync(count, body.body, limiter=workers)))
        # Shielded: a sender that disconnects must not cancel the write.
        return await asyncio.shield(asyncio.wrap_future(submit(body)))
    except DecodeError as error:
        status = 413 if isinstance(error, TooLarge) else 400
        raise OtlpRefusal(status, str(error)) from error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - the boundary: after a failure of ours the sender retries its batch
        retry_after_s = getattr(error, "retry_after_s", None)
        if retry_after_s is not None:
            raise OtlpRefusal(503, str(error), retry_after_s=retry_after_s) from error.with_traceback(None)
        _log.exception("a %s body could not be stored", body.signal)
        refusal = OtlpRefusal(503, "could not be stored, come again", retry_after_s=limits.retry_after_s)
        raise refusal from error.with_traceback(None)


def success(signal: Signal, content_type: ContentType, receipt: Receipt) -> bytes:
    """Return an Export…ServiceResponse; partial success is set only with a rejection or a message."""
    partial = bool(receipt.rejected or receipt.message)
    if content_type == JSON:
        members = {_REJECTED[signal][1]: str(receipt.rejected), "errorMessage": receipt.message or ""}
        return orjson.dumps({"partialSuccess": members} if partial else {})
    response = _RESPONSES[signal]()
    if partial:
        setattr(response.partial_success, _REJECTED[signal][0], receipt.rejected)
        response.partial_success.error_message = receipt.message or ""
    return bytes(response.SerializeToString())


def failure(status: int, message: str, content_type: ContentType) -> bytes:
    """Return a google.rpc.Status for an HTTP code; the details of a 400 name the body."""
    code = _CODES.get(status, 2)
    if content_type == JSON:
        violation = {"field": "body", "description": message}
        bad_request = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
        answer = {"code": code, "message": message}
        return orjson.dumps({**answer, "details": [bad_request]} if status == 400 else answer)
    violations = [BadRequest.FieldViolation(field="body", description=message)]
    return error_status(code, message, [BadRequest(field_violations=violations)] if status == 400 else [])


def error_status(code: int, message: str, details: Iterable[Any]) -> bytes:
    """Return a google.rpc.Status with details, which are messages of google.rpc."""
    status = Status(code=code, message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return bytes(status.SerializeToString())
