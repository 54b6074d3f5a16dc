"""OTLP over gRPC (extra `[grpc]`): bodies, budget and counters as over HTTP, refusals as gRPC status codes.

Requests stay bytes, which the store's thread decodes, like HTTP bodies. The delay before a retry is sent twice: in
`grpc-status-details-bin`, as in the specification, and in the trailer `google.rpc.retryinfo-bin`, the only one that
Python's exporter reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn

import anyio
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo

from ragpulse_collector.otlp.intake import (
    MIB,
    PROTOBUF,
    Counters,
    Flight,
    Limits,
    OtlpRefusal,
    error_status,
    hand_over,
    inflate_aside,
    success,
)
from ragpulse_collector.records import RawBody, Signal
from ragpulse_collector.settings import Binding
from ragpulse_collector.store.protocol import Store

try:
    import grpc
    from grpc import aio
except ImportError as _import_error:
    raise ImportError("OTLP over gRPC needs one more package: pip install 'ragpulse[grpc]'") from _import_error

SERVICES: dict[str, Signal] = {
    "opentelemetry.proto.collector.trace.v1.TraceService": "traces",
    "opentelemetry.proto.collector.logs.v1.LogsService": "logs",
    "opentelemetry.proto.collector.metrics.v1.MetricsService": "metrics",
}
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_ENCODINGS = {b"\x1f": "gzip", b"\x78": "deflate"}
"""The encoding by the first byte of a message; an OTLP request, which has only field 1, begins with 0x0A."""
_MAX_MESSAGE_BYTES = 16 * MIB
"""A message on the wire; OpenTelemetry's own receivers take 4 MiB. Inflated, it may be as large as any body."""
_PATIENCE_S = 0.25
"""A message that was sent as a whole arrives in milliseconds."""
Authorize = Callable[[str | None], Binding | None]
"""Returns what the key of an `authorization` metadata value is bound to; raises PermissionError."""


class Arrivals:
    """Bounds the messages of one peer that arrive at once: gRPC buffers a whole message before it passes on a byte.

    One more message takes the place of the oldest, once that has been arriving for a moment. So
    streams that send nothing, or little by little, keep nobody out.
    """

    def __init__(self, places: int, limits: Limits) -> None:
        self._places, self._limits = places, limits
        self._arriving: dict[str, dict[asyncio.Future[bytes], float]] = {}
        """Peer → its messages and since when they arrive, the oldest first."""

    async def message(self, requests: AsyncIterator[bytes], peer: str) -> bytes:
        """Return the message of a stream; raises OtlpRefusal."""
        now = asyncio.get_running_loop().time
        while len(arriving := self._arriving.setdefault(peer, {})) >= self._places:
            oldest, since = next(iter(arriving.items()))
            if (wait_s := since + _PATIENCE_S - now()) > 0:
                await asyncio.wait(arriving, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            else:
                del arriving[oldest]
                oldest.cancel()
        message: asyncio.Future[bytes] = asyncio.ensure_future(_next_message(requests, self._limits))
        arriving[message] = now()
        try:
            return await message
        except asyncio.CancelledError:
            if message not in arriving:
                raise OtlpRefusal(
                    503, "too many messages arrive at once", retry_after_s=self._limits.retry_after_s
                ) from None
            message.cancel()
            raise
        finally:
            arriving.pop(message, None)
            if not arriving:
                self._arriving.pop(peer, None)


class GrpcIntake(NamedTuple):
    """The shared parts of the services."""

    store: Store
    flight: Flight
    counters: Counters
    authorize: Authorize
    arrivals: Arrivals
    workers: anyio.CapacityLimiter


@dataclass(eq=False)
class GrpcReceiver:
    """A gRPC server on one host and port; start and stop it on the running event loop."""

    store: Store
    _: KW_ONLY
    host: str
    port: int
    flight: Flight = field(default_factory=Flight)
    counters: Counters = field(default_factory=Counters)
    authorize: Authorize = lambda _: None
    credentials: grpc.ServerCredentials | None = None
    most_connections: int = 2**30

    def __post_init__(self) -> None:
        limits = self.flight.limits
        arrivals = Arrivals(max(1, limits.max_in_flight_bytes // _max_message(limits)), limits)
        workers = anyio.CapacityLimiter(1)
        self._intake = GrpcIntake(self.store, self.flight, self.counters, self.authorize, arrivals, workers)
        self._server: aio.Server | None = None

    async def start(self) -> int:
        """Listen on the given host only; returns the port. Raises OSError if it is in use."""
        server = aio.server(options=_options(self.flight.limits, self.most_connections))
        server.add_generic_rpc_handlers([_handler(name, signal, self._intake) for name, signal in SERVICES.items()])
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        try:
            port = self._listen(server, address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}: {str(error).partition(';')[0]}") from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace_s: float = 5.0) -> None:
        """Refuse new requests, and wait at most `grace_s` seconds for the current ones."""
        if self._server is not None:
            await self._server.stop(grace_s)

    def _listen(self, server: aio.Server, address: str) -> int:
        if self.credentials is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, self.credentials))


async def _export(
    intake: GrpcIntake, signal: Signal, requests: AsyncIterator[bytes], context: aio.ServicerContext
) -> bytes:
    """Answer one request of a signal's service once its content is on disk.

    The server treats the request as a stream, which is the same on the wire: so the key is checked before a message is
    read, and a message is read only when its peer has a free place.
    """
    try:
        binding = _binding(intake.authorize, _metadata(context, "authorization"))
        with intake.flight.board() as ticket:
            request = await intake.arrivals.message(requests, _host(context.peer()))
            ticket.take(len(request))
            encoding = _ENCODINGS.get(request[:1])
            if encoding is not None:
                request = await inflate_aside(request, encoding, ticket, intake.workers)
            body = RawBody(signal=signal, content_type=PROTOBUF, body=request, binding=binding)
            receipt = await hand_over(intake.store.submit, body, ticket.limits, intake.workers)
    except OtlpRefusal as refusal:
        intake.counters.refused(signal, refusal.status)
        await _abort(context, refusal)
    intake.counters.taken(signal, len(request), receipt)
    return success(signal, PROTOBUF, receipt)


def _binding(authorize: Authorize, authorization: str | None) -> Binding | None:
    try:
        return authorize(authorization)
    except PermissionError as error:
        raise OtlpRefusal(401, "a valid API key is needed: authorization: Bearer ...") from error


async def _next_message(requests: AsyncIterator[bytes], limits: Limits) -> bytes:
    try:
        async with asyncio.timeout(limits.body_timeout_s):
            return await anext(requests)
    except TimeoutError as error:
        raise OtlpRefusal(408, f"the message did not arrive within {limits.body_timeout_s:g} s") from error
    except StopAsyncIteration as error:
        raise OtlpRefusal(400, "the request has no message") from error


def _handler(name: str, signal: Signal, intake: GrpcIntake) -> grpc.GenericRpcHandler:
    method = grpc.stream_unary_rpc_method_handler(partial(_export, intake, signal))
    return grpc.method_handlers_generic_handler(name, {"Export": method})


def _host(peer: str) -> str:
    """Return the address of a peer without its port: one peer may open many connections."""
    return peer.rpartition(":")[0]


def _max_message(limits: Limits) -> int:
    return min(limits.max_body_bytes, _MAX_MESSAGE_BYTES)


def _options(limits: Limits, most_connections: int) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", _max_message(limits)),
        ("grpc.max_concurrent_streams", 32),
        ("grpc.max_allowed_incoming_connections", most_connections),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", 75_000),
        ("grpc.so_reuseport", 0),
        # gRPC inflates without a bound; compressed messages meet the same limits here as over HTTP.
        ("grpc.per_message_decompression", 0),
    ]


def _metadata(context: aio.ServicerContext, key: str) -> str | None:
    return next((value for name, value in context.invocation_metadata() or () if name == key), None)


async def _abort(context: aio.ServicerContext, refusal: OtlpRefusal) -> NoReturn:
    code = _CODES[refusal.status]
    trailers: list[tuple[str, bytes]] = []
    details: list[Any] = []
    if refusal.retry_after_s is not None:
        info = RetryInfo(retry_delay=Duration(seconds=refusal.retry_after_s))
        trailers.append(("google.rpc.retryinfo-bin", info.SerializeToString()))
        details.append(info)
    if refusal.status == 400:
        violation = BadRequest.FieldViolation(field="request", description=refusal.message)
        details.append(BadRequest(field_violations=[violation]))
    trailers.append(("grpc-status-details-bin", error_status(code.value[0], refusal.message, details)))
    await context.abort(code, refusal.message, trailing_metadata=tuple(trailers))
    raise AssertionError("abort raises")
