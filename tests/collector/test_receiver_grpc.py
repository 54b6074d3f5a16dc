"""OTLP over gRPC with a real client on loopback: lines 13 to 15 of the server checklist."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="the extra [grpc] is not installed")
from google.rpc.error_details_pb2 import BadRequest, RetryInfo  # noqa: E402
from google.rpc.status_pb2 import Status  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse  # noqa: E402
from wire_support import MemoryStore, bomb, peak_mb, span_body  # noqa: E402

from ragpulse_collector.otlp.intake import Counters, Flight, Limits  # noqa: E402
from ragpulse_collector.receiver_grpc import SERVICES, GrpcReceiver  # noqa: E402
from ragpulse_collector.store import Busy  # noqa: E402

TRACES, LOGS, METRICS = (f"/{name}/Export" for name in SERVICES)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """As everywhere, but for the whole module."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
async def one_loop() -> AsyncIterator[None]:
    """Keep one event loop for all tests: gRPC has one completion queue a process and may wake a loop already closed."""
    yield  # noqa: PT022 - the loop lives as long as this generator


@asynccontextmanager
async def _channel(store: MemoryStore, **options: Any) -> AsyncIterator[Any]:
    async with _address(store, **options) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


@asynccontextmanager
async def _address(store: MemoryStore, **options: Any) -> AsyncIterator[str]:
    receiver = GrpcReceiver(store, host="127.0.0.1", port=0, **options)
    yield f"127.0.0.1:{await receiver.start()}"
    await receiver.stop(0)


def _connection(address: str) -> Any:
    """Return a channel with a connection of its own: channels of one process share one otherwise."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def _refused(channel: Any, body: bytes, method: str = TRACES, **options: Any) -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await channel.unary_unary(method)(body, timeout=60, **options)
    return raised.value


def _details(error: Any) -> tuple[Status, dict[str, bytes]]:
    trailers = {key: value for key, value in error.trailing_metadata() if key.endswith("-bin")}
    return Status.FromString(trailers["grpc-status-details-bin"]), trailers


async def test_all_three_signals_are_answered() -> None:
    """Traces, logs and metrics succeed; gzip is the transport's business."""
    store = MemoryStore()
    async with _channel(store) as channel:
        body = span_body({"a": 1})
        answer = await channel.unary_unary(TRACES)(body, compression=grpc.Compression.Gzip)
        assert (answer, await channel.unary_unary(LOGS)(b""), await channel.unary_unary(METRICS)(b"")) == (b"",) * 3
    assert [span.name for span in store.spans] == ["span"]


async def test_undecodable_requests_are_invalid_arguments() -> None:
    """The details hold a BadRequest; clients do not repeat them."""
    counters = Counters()
    async with _channel(MemoryStore(), counters=counters) as channel:
        error = await _refused(channel, b"\xff\xff")
        status, trailers = _details(error)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (status.code, status.details[0].Is(BadRequest.DESCRIPTOR)) == (3, True)
        assert "google.rpc.retryinfo-bin" not in trailers
    assert counters.requests == {("traces", 400): 1}


async def test_a_busy_store_says_in_both_places_when_to_come_again() -> None:
    """The specification's place and the trailer that Python's exporter reads."""
    store = MemoryStore()
    store.failure = Busy("queue full")
    async with _channel(store) as channel:
        error = await _refused(channel, b"")
    status, trailers = _details(error)
    info = RetryInfo()
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert status.details[0].Unpack(info)
    assert (info.retry_delay.seconds, RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])) == (1, info)


async def test_a_failing_store_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """A failure of ours keeps the batch with the sender."""
    store = MemoryStore()
    store.failure = OSError("disk on fire")
    async with _channel(store) as channel:
        error = await _refused(channel, b"")
    assert (error.code(), "fire" in error.details()) == (grpc.StatusCode.UNAVAILABLE, False)
    assert "disk on fire" in caplog.text


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
async def test_messages_beyond_the_limit_are_exhausted_for_good(compression: Any) -> None:
    """RESOURCE_EXHAUSTED without RetryInfo, measured after inflating too."""
    async with _channel(MemoryStore(), flight=Flight(Limits(max_body_bytes=10_000))) as channel:
        error = await _refused(channel, b"\0" * 20_000, compression=compression)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in dict(error.trailing_metadata() or ())


async def test_a_message_of_very_many_spans_is_exhausted_for_good() -> None:
    """As over HTTP, where it is 413; the limit is named."""
    async with _channel(MemoryStore()) as channel:
        spans = b"\x12\x00" * 400_000
        error = await _refused(channel, span_body({}) + b"\x0a\x84\xea\x30\x12\x80\xea\x30" + spans)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "more than 50000 spans" in error.details()


async def test_partial_success_counts_refused_spans() -> None:
    """The same answer as over HTTP."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest.FromString(span_body({"a": 1}))
    request.resource_spans[0].scope_spans[0].spans[0].span_id = b"short"
    async with _channel(MemoryStore()) as channel:
        answer = await channel.unary_unary(TRACES)(request.SerializeToString())
    assert ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans == 1


async def test_keys_are_asked_for_where_needed() -> None:
    """The application decides who may send."""

    def authorize(value: str | None) -> None:
        if value != "Bearer good":
            raise PermissionError

    async with _channel(MemoryStore(), authorize=authorize) as channel:
        assert (await _refused(channel, b"")).code() is grpc.StatusCode.UNAUTHENTICATED
        await channel.unary_unary(TRACES)(b"", metadata=(("authorization", "Bearer good"),))


async def test_a_slow_message_is_cut_off_and_no_message_is_none() -> None:
    """A sender that stalls gives its place to others."""
    async with _channel(MemoryStore(), flight=Flight(Limits(body_timeout_s=0.2))) as channel:
        stalled = channel.stream_unary(TRACES)(timeout=60)
        with pytest.raises(grpc.aio.AioRpcError, match="did not arrive") as raised:
            await stalled
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with _channel(MemoryStore()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.stream_unary(TRACES)(iter([]), timeout=60)
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("silent", [2, 8, 31, 100])
@pytest.mark.parametrize("begins", [False, True], ids=["nothing", "a part"])
async def test_streams_that_send_no_whole_message_keep_nobody_out(silent: int, begins: bool) -> None:
    """An export of the same computer is stored meanwhile; at most eight streams of a peer wait for their message."""
    counters = Counters()
    async with _address(MemoryStore(), counters=counters) as address, AsyncExitStack() as connections:
        others = [await connections.enter_async_context(_connection(address)) for _ in range(silent // 25 + 1)]
        calls = [others[number // 25].stream_unary(TRACES)(timeout=60) for number in range(silent)]
        if begins:  # a message that flow control cuts: its first bytes are on their way
            for call in calls[:4]:
                asyncio.ensure_future(call.write(bytes(2**20))).cancel()
        channel = await connections.enter_async_context(_connection(address))
        await asyncio.wait_for(channel.unary_unary(TRACES)(span_body({"a": 1})), 60)
        async with asyncio.timeout(60):
            while counters.requests["traces", 503] < silent - 8:
                await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
    assert counters.requests["traces", 200] == 1


async def test_a_stop_does_not_wait_for_silent_streams() -> None:
    """The streams end with the server."""
    receiver = GrpcReceiver(MemoryStore(), host="127.0.0.1", port=0)
    port = await receiver.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [channel.stream_unary(TRACES)(timeout=60) for _ in range(4)]
        await channel.unary_unary(TRACES)(b"")
        await asyncio.wait_for(receiver.stop(0.1), 60)
        for call in calls:
            with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
                await call


async def test_a_taken_port_is_an_os_error() -> None:
    """So that the command line can name the likely owner."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        receiver = GrpcReceiver(MemoryStore(), host="127.0.0.1", port=taken.getsockname()[1])
        with pytest.raises(OSError, match="cannot listen"):
            await receiver.start()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's list of open files")
async def test_connections_are_bounded() -> None:
    """Those beyond the most take no descriptor."""
    async with _address(MemoryStore(), most_connections=4) as address:
        host, port = address.split(":")
        before = len(list(Path("/proc/self/fd").iterdir()))
        with ExitStack() as idle:
            for _ in range(20):
                idle.enter_context(socket.create_connection((host, int(port))))
            async with _connection(address) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary(TRACES)(b"", timeout=0.2)
            assert len(list(Path("/proc/self/fd").iterdir())) - before <= 20 + 4 + 1


async def test_compressed_messages_are_inflated_here() -> None:
    """Gzip and deflate, as gRPC's transport offers them; what is corrupt is refused."""
    store = MemoryStore()
    async with _channel(store) as channel:
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            await channel.unary_unary(TRACES)(span_body(*[{"a": 1}] * 20), compression=compression)
        error = await _refused(channel, zlib.compress(b"\n" * 100)[:-8])
    assert [sum(map(len, batch.spans)) for batch in store.batches] == [20, 20]
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of peak memory")
async def test_many_bombs_at_once_cost_little_memory() -> None:
    """Twenty of a gigabyte and four that gRPC packed itself: refused for good, and the next export is served."""
    places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    with subprocess.Popen([sys.executable, __file__], env=environment, stdin=-1, stdout=-1, text=True) as server:
        port = server.stdout.readline().strip() if server.stdout else ""
        async with grpc.aio.insecure_channel(
            f"127.0.0.1:{port}", options=[("grpc.max_send_message_length", -1)]
        ) as wire:
            export = wire.unary_unary(TRACES)
            await export(span_body({"a": 1}))
            before = peak_mb(server.pid)
            packed = [export(bytes(80 * 2**20), compression=grpc.Compression.Gzip) for _ in range(4)]
            answers = await asyncio.gather(*[export(bomb(1024)) for _ in range(20)], *packed, return_exceptions=True)
            grown = peak_mb(server.pid) - before
            await export(span_body({"a": 1}))
        server.communicate("")
    assert {answer.code() for answer in answers} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert grown < 100


async def _serve() -> None:
    receiver = GrpcReceiver(MemoryStore(), host="127.0.0.1", port=0)
    print(await receiver.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await receiver.stop(0)


if __name__ == "__main__":
    asyncio.run(_serve())
