"""OTLP over HTTP: reads and inflates bodies within limits, queues them, and answers once they are on disk.

The store's thread decodes the bodies, and a worker thread inflates large ones. Keys, Host and Origin are checked by
the application's middleware.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ragpulse_collector.otlp.intake import (
    ENCODINGS,
    JSON,
    PROTOBUF,
    Counters,
    Flight,
    Limits,
    OtlpRefusal,
    Ticket,
    failure,
    hand_over,
    inflate_aside,
    success,
)
from ragpulse_collector.records import ContentType, RawBody, Receipt, Signal
from ragpulse_collector.settings import BINDING
from ragpulse_collector.store.protocol import Store

PATHS: dict[str, Signal] = {
    "/v1/traces": "traces",
    "/v1/logs": "logs",
    "/v1/metrics": "metrics",
    "/api/public/otel/v1/traces": "traces",
}
"""Langfuse's SDK sends to the last one if our address is its host."""


class Intake(NamedTuple):
    """The shared parts of the endpoints."""

    store: Store
    flight: Flight
    counters: Counters
    workers: anyio.CapacityLimiter


def routes(store: Store, *, flight: Flight, counters: Counters) -> list[Route]:
    """Return the OTLP routes; `flight` and `counters` are shared with gRPC and the API."""
    intake = Intake(store, flight, counters, anyio.CapacityLimiter(2))
    return [Route(path, Endpoint(signal, intake), name=f"otlp {path}") for path, signal in PATHS.items()]


@dataclass(frozen=True)
class Endpoint:
    """One signal's endpoint, an ASGI application: it gets every method, so that every refusal is an OTLP answer."""

    signal: Signal
    intake: Intake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        answer_type = _answer_type(request)
        try:
            receipt = await self._receive(request)
        except ClientDisconnect:
            self.intake.counters.refused(self.signal, 499)
            return
        except OtlpRefusal as refusal:
            self.intake.counters.refused(self.signal, refusal.status)
            response = _refused(refusal, answer_type)
        else:
            response = Response(success(self.signal, answer_type, receipt), media_type=answer_type)
        await response(scope, receive, send)

    async def _receive(self, request: Request) -> Receipt:
        content_type, encoding = _check_headers(request, self.intake.flight.limits)
        with self.intake.flight.board() as ticket:
            body = await self._body(request, ticket)
            if encoding is not None:
                body = await inflate_aside(body, encoding, ticket, self.intake.workers)
            binding = request.scope.get(BINDING)
            raw = RawBody(signal=self.signal, content_type=content_type, body=body, binding=binding)
            receipt = await hand_over(self.intake.store.submit, raw, ticket.limits, self.intake.workers)
        self.intake.counters.taken(self.signal, len(body), receipt)
        return receipt

    async def _body(self, request: Request, ticket: Ticket) -> bytes:
        body = BytesIO()  # joining chunks would need the memory twice
        limits = ticket.limits
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                async for chunk in request.stream():
                    if body.tell() + len(chunk) > limits.max_body_bytes:
                        raise _too_big(limits)
                    ticket.take(len(chunk))
                    body.write(chunk)
        except TimeoutError as error:
            raise OtlpRefusal(408, f"the body did not arrive within {limits.body_timeout_s:g} s") from error
        return body.getvalue()


def _answer_type(request: Request) -> ContentType:
    return PROTOBUF if _media_type(request) == PROTOBUF else JSON


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _check_headers(request: Request, limits: Limits) -> tuple[ContentType, str | None]:
    """Return the body's type and encoding (None: none); raises OtlpRefusal before anything is read."""
    if request.method != "POST":
        raise OtlpRefusal(405, f"OTLP is sent by POST, not by {request.method}")
    media_type = _media_type(request)
    if media_type not in (PROTOBUF, JSON):
        raise OtlpRefusal(415, f"Content-Type must be {PROTOBUF} or {JSON}, not {media_type[:80] or 'absent'}")
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "none", "identity", *ENCODINGS):
        raise OtlpRefusal(415, f"Content-Encoding must be gzip, deflate or identity, not {encoding[:80]}")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limits.max_body_bytes:
        raise _too_big(limits)
    return (PROTOBUF if media_type == PROTOBUF else JSON), encoding if encoding in ENCODINGS else None


def _too_big(limits: Limits) -> OtlpRefusal:
    return OtlpRefusal(413, f"the body is larger than {limits.max_body_bytes} bytes")


def _refused(refusal: OtlpRefusal, answer_type: ContentType) -> Response:
    headers: dict[str, str] = {}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == 405:
        headers["Allow"] = "POST"
    if refusal.status == 408:
        headers["Connection"] = "close"
    body = failure(refusal.status, refusal.message, answer_type)
    return Response(body, refusal.status, headers, media_type=answer_type)
