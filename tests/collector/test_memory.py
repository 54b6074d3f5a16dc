"""Bodies leave memory at once, decoded or refused: nothing waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from served import Served
from waiting import eventually
from wire_support import JSON, PROTOBUF, app_of, span_body

from ragpulse_collector.conventions import decode
from ragpulse_collector.conventions.rules import FieldMapping
from ragpulse_collector.otlp.intake import Limits, OtlpRefusal, hand_over
from ragpulse_collector.otlp.wire import WireBatch
from ragpulse_collector.records import RawBody
from ragpulse_collector.store import EmbeddedStore, Transaction

pytestmark = pytest.mark.usefixtures("small_heap")
BAD = b"\0" * 1000


@pytest.fixture
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector off, so that only what nobody refers to is freed; pytest keeps what is logged."""
    logging.disable()
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


def _bodies(content: bytes) -> int:
    return sum(type(found) is RawBody and found.body == content for found in gc.get_objects())


@pytest.mark.usefixtures("_without_collector")
def test_a_decoded_body_is_freed_without_the_collector() -> None:
    """What decoding needed in between is in no cycle, which would hold a body's texts until the next collection."""
    batch = decode(RawBody(signal="traces", content_type=PROTOBUF, body=span_body({"input.value": "A question?"})))
    assert list(batch.spans[0].values("query")) == ["A question?"]
    assert [found for found in gc.get_objects() if type(found) in (FieldMapping, WireBatch)] == []


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("failure", ["decoder", "decoder bug", "writer"])
def test_a_refused_body_is_freed_without_the_collector(tmp_path: Path, failure: str) -> None:
    """Whoever refuses it: the sender's future, its exception and its traceback refer to no body."""

    def decoded(body: RawBody) -> Any:
        batch = decode(body)
        if failure == "decoder bug":
            raise LookupError("a bug")
        for spans in batch.spans:
            spans.columns["metadata"] = ["\ud800"] * len(spans)
        return batch

    store = EmbeddedStore(tmp_path / "t.duckdb", decode=decoded)
    content = BAD if failure == "decoder" else span_body({"a": 1})

    async def send() -> int:
        try:
            await hand_over(
                store.submit,
                RawBody(signal="traces", content_type="application/x-protobuf", body=content),
                Limits(),
                anyio.CapacityLimiter(1),
            )
        except OtlpRefusal as refusal:
            return refusal.status
        return 200

    try:
        assert [asyncio.run(send()) for _ in range(5)] == [400] * 5
        eventually(lambda: _bodies(content), lambda count: count == 0)
    finally:
        store.close()


@pytest.mark.usefixtures("_without_collector")
def test_failing_work_is_freed_without_the_collector(tmp_path: Path) -> None:
    """What a unit of work holds goes with the exception that its caller was given."""
    store = EmbeddedStore(tmp_path / "t.duckdb", decode=decode)

    def submit() -> str:
        held = RawBody(signal="traces", content_type="application/x-protobuf", body=BAD)

        def work(transaction: Transaction) -> None:
            raise LookupError(f"{transaction} {len(held.body)}")

        return "".join(traceback.format_exception(store.write(work).exception(60)))

    try:
        assert "LookupError" in submit()
        eventually(lambda: _bodies(BAD), lambda count: count == 0)
    finally:
        store.close()


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("content_type", [PROTOBUF, JSON])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_the_receiver_keeps_no_refused_body(tmp_path: Path, content_type: str, encoding: str) -> None:
    """Over HTTP, inflated on a thread or not."""
    content = BAD * 200 if encoding == "identity" else gzip.compress(BAD * 200, 0)
    headers = {"content-type": content_type, "content-encoding": "identity" if encoding == "identity" else "gzip"}
    store = EmbeddedStore(tmp_path / "t.duckdb", decode=decode)
    try:
        transport = httpx.ASGITransport(app=app_of(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            answers = [
                (await client.post("/v1/traces", content=content, headers=headers)).status_code for _ in range(5)
            ]
        assert answers == [400] * 5
        eventually(lambda: _bodies(BAD * 200), lambda count: count == 0)
    finally:
        store.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_a_flood_of_bad_bodies_adds_little_memory(tmp_path: Path) -> None:
    """Sixty requests of 58 KB that inflate to 58 MB each."""
    body = gzip.compress(bytes(58_000_000), 9)
    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
    arguments = (tmp_path / "t.duckdb", "--roles", "ingest")
    with Served(*arguments, python=sys.executable) as served, httpx.Client(timeout=60) as client:
        url = f"{served.url}/v1/traces"
        client.post(url, content=span_body({"a": 1}), headers={"content-type": PROTOBUF})
        before = _rss_mb(served.process.pid)
        assert [client.post(url, content=body, headers=headers).status_code for _ in range(60)] == [400] * 60
        assert _rss_mb(served.process.pid) - before < 100


def _rss_mb(pid: int) -> float:
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
