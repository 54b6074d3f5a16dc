"""What receivers of both protocols share: limits, a budget for bodies in flight, parsing, storing, answers."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import orjson
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragpulse_collector.otlp import json_body, protobuf
from ragpulse_collector.otlp.wire import WireBatch, WireLog
from ragpulse_collector.records import DecodeError, RawBody, Receipt

MIB = 1024 * 1024
Signal = Literal["traces", "logs", "metrics"]
ContentType = Literal["application/x-protobuf", "application/json"]
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
_MOST_SERVICES = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a sender may ask of the receiver."""

    max_body_bytes: int = 64 * MIB
    """Cap of one request body, before and after inflating; beyond it the request is refused for good."""
    max_in_flight_bytes: int = 128 * MIB
    """All bodies being read, inflated or waiting for the disk; beyond it requests are to come again."""
    body_timeout_s: float = 30.0
    """A sender slower than this with one body is cut off."""
    retry_after_s: int = 1
    """OpenTelemetry's Python exporters drop a batch when asked to wait for ten seconds: stay far below."""


class Refusal(Exception):
    """A request that is answered with an error; `status` is the HTTP code."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


@dataclass(slots=True)
class Counters:
    """What was received since the start; read by the API's status."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(signal, HTTP code) → requests; gRPC requests count under the HTTP code of the same meaning."""
    body_bytes: int = 0
    """Inflated bytes of the bodies that were taken."""
    rejected: int = 0
    """Spans and log records refused inside bodies that were taken."""
    duplicates: int = 0
    """Spans that had been stored before."""
    unmapped: int = 0
    """Spans kept with their raw attributes only, because a rule raised an exception: a fault of the collector."""
    logs: int = 0
    """Log records whose content or score was kept."""
    not_stored: dict[str, Counter[str]] = field(default_factory=dict)
    """Signal → service → metrics, or ordinary log records: accepted, counted, not stored."""

    def taken(self, signal: str, size: int, receipt: Receipt) -> None:
        """Count a body that was taken."""
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
        """Count what is not stored, and say so once for each service."""
        found = self.not_stored.setdefault(signal, Counter())
        if service not in found:
            if len(found) >= _MOST_SERVICES:
                service = OTHER_SERVICES
            else:
                what = "metrics" if signal == "metrics" else "log records that are no GenAI events"
                _log.warning("service %s sends %s: they are accepted and counted, not stored", service, what)
        found[service] += count

    def refused(self, signal: str, status: int) -> None:
        """Count a request that was answered with an error."""
        self.requests[signal, status] += 1


class Flight:
    """The one budget for all bodies in flight; any thread may take from it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._taken = 0

    @property
    def taken(self) -> int:
        """Bytes held at this moment."""
        return self._taken

    def board(self) -> Ticket:
        """Return an empty share of the budget, given back at the end of its `with` block."""
        return Ticket(self)

    def change(self, by: int) -> None:
        """Take bytes (or give them back); raises Refusal 503 when the budget is used up."""
        with self._lock:
            if by > 0 and self._taken + by > self._limits.max_in_flight_bytes:
                raise Refusal(503, "too many bytes in flight, come again", retry_after_s=self._limits.retry_after_s)
            self._taken += by


class Ticket:
    """One request's share of the budget."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._taken = 0

    def take(self, size: int) -> None:
        """Take `size` more bytes; raises Refusal 503."""
        self._flight.change(size)
        self._taken += size

    def give_back(self, size: int) -> None:
        """Give bytes back that are no longer held."""
        self._flight.change(-size)
        self._taken -= size

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back(self._taken)


def parse_spans(body: RawBody) -> tuple[list[WireBatch], int]:
    """Return the spans of a traces body, a batch for each scope, and how many were rejected for their ids.

    Raises DecodeError where the body is not what its content type promises.
    """
    return json_body.spans(body.body) if body.content_type == "application/json" else protobuf.spans(body.body)


def parse_logs(body: RawBody) -> Iterator[WireLog]:
    """Yield the records of a logs body; raises DecodeError."""
    return json_body.logs(body.body) if body.content_type == "application/json" else protobuf.logs(body.body)


def count_metrics(body: RawBody) -> dict[str, int]:
    """Return how many metrics of each service a body holds; raises DecodeError. Metrics are counted, not stored."""
    return json_body.metrics(body.body) if body.content_type == "application/json" else protobuf.metrics(body.body)


Submit = Callable[[RawBody], Future[Receipt]]


async def hand_over(submit: Submit, body: RawBody, limits: Limits) -> Receipt:
    """Return the receipt once the body's content is on disk; metrics are only checked, in a thread.

    Raises Refusal: 400 for what cannot be decoded; 503 for everything that is not the sender's fault, whether the store
    says when to come again (`retry_after_s` on its exception) or failed in a way nobody foresaw.

    The store's exceptions lose their traceback here: futures refer to them in cycles, and the traceback to the body.
    """
    try:
        if body.signal == "metrics":
            return Receipt(not_stored=await asyncio.to_thread(count_metrics, body))
        # Shielded: a sender that leaves must not cancel what is being written.
        return await asyncio.shield(asyncio.wrap_future(submit(body)))
    except DecodeError as error:
        raise Refusal(400, str(error)) from error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - at this boundary a failure is ours, so the sender keeps its batch
        retry_after_s = getattr(error, "retry_after_s", None)
        if retry_after_s is not None:
            raise Refusal(503, str(error), retry_after_s=retry_after_s) from error.with_traceback(None)
        _log.exception("a %s body could not be stored", body.signal)
        refusal = Refusal(503, "could not be stored, come again", retry_after_s=limits.retry_after_s)
        raise refusal from error.with_traceback(None)


def success(signal: Signal, content_type: ContentType, receipt: Receipt) -> bytes:
    """Return an Export…ServiceResponse; partial success is set only where there is something to say."""
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
    """Return a google.rpc.Status for an HTTP code; 400 says in its details that the body is at fault."""
    code = _CODES.get(status, 2)
    if content_type == JSON:
        violation = {"field": "body", "description": message}
        bad_request = {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
        answer = {"code": code, "message": message}
        return orjson.dumps({**answer, "details": [bad_request]} if status == 400 else answer)
    details = []
    if status == 400:
        packed = AnyMessage()
        packed.Pack(BadRequest(field_violations=[BadRequest.FieldViolation(field="body", description=message)]))
        details.append(packed)
    return bytes(Status(code=code, message=message, details=details).SerializeToString())
