"""Storing against its floor: OTLP bodies → decode → rows → append → commit → checkpoint, each alone and all at once.

Prints CPU microseconds a span of each step, their sum (the floor), and what the store does with the same bodies:
durable spans a second, CPU seconds per 100,000 spans, ack p50 and p99 with checkpoints, peak memory, bytes a span on
disk; without and with the sampler deciding beside it.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from _payload import body
from ragpulse_collector.store.block_rows import table_parts

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store import EmbeddedStore, Prices
from ragpulse_collector.store.append import Appender
from ragpulse_collector.store.rows import Appendable, utc_now
from ragpulse_collector.store.writer import WriterTransaction

SPANS = 512
IN_FLIGHT = 8


def main() -> None:
    """Make the bodies once, then run the floor and each variant in a process of its own."""
    if len(sys.argv) > 2:
        run = {"floor": floor, "store": store, "decide": lambda bodies: store(bodies, deciding=True)}[sys.argv[1]]
        run(Path(sys.argv[2]))
        return
    count = 40 if "--short" in sys.argv else 200
    with tempfile.TemporaryDirectory() as folder:
        now = time.time_ns()
        for seed in range(count):
            (Path(folder) / f"{seed:05}.bin").write_bytes(body(SPANS, seed=seed, start_ns=now + seed * 10**8))
        print(f"{count * SPANS:,} spans in bodies of {SPANS}")
        for name in ("floor", "store", "decide"):
            subprocess.run([sys.executable, __file__, name, folder], check=True)


def bodies_in(folder: Path) -> Iterator[RawBody]:
    """Read the bodies one after another; holding them all would be counted as the store's memory."""
    for file in sorted(folder.glob("*.bin")):
        yield RawBody(signal="traces", content_type="application/x-protobuf", body=file.read_bytes())


def floor(folder: Path) -> None:
    """Time each step alone, four bodies a transaction."""
    with tempfile.TemporaryDirectory() as place:
        kept = EmbeddedStore(Path(place) / "t.duckdb", decode=decode)
        cursor = kept._cursor()
        appender = Appender(cursor)
        steps: dict[str, list[float]] = {name: [] for name in ("decode", "price", "rows", "append", "commit")}
        prices, spans = Prices(), 0
        bodies = list(bodies_in(folder))[:40]
        for first in range(0, len(bodies), 4):
            clock = Clock(steps)
            batches = [decode(one) for one in bodies[first : first + 4]]
            clock.lap("decode")
            blocks = [block for batch in batches for block in batch.blocks]
            for block in blocks:
                prices.block(block)
            clock.lap("price")
            at = utc_now()
            rows = Appendable(parts=[table_parts(block, at) for block in blocks])
            clock.lap("rows")
            cursor.begin()
            rows.append_to(WriterTransaction(cursor, appender, at))
            clock.lap("append")
            cursor.commit()
            clock.lap("commit")
            spans += sum(map(len, blocks))
        begun = time.process_time()
        cursor.execute("CHECKPOINT")
        checkpoint = time.process_time() - begun
        cursor.close()
        kept.close()
    each = {name: median(times) / (4 * SPANS) * 1e6 for name, times in steps.items()} | {
        "checkpoint": checkpoint / spans * 1e6
    }
    print("floor, CPU us a span: " + ", ".join(f"{name} {value:.1f}" for name, value in each.items()))
    print(f"floor, sum of steps: {sum(each.values()):.1f} us = {1e6 / sum(each.values()):,.0f} spans/s on one core")


class Clock:
    """CPU time between laps, added to lists by name."""

    def __init__(self, laps: dict[str, list[float]]) -> None:
        self._laps = laps
        self._last = time.process_time()

    def lap(self, name: str) -> None:
        """Book the time since the last lap."""
        now = time.process_time()
        self._laps[name].append(now - self._last)
        self._last = time.process_time()


def store(folder: Path, *, deciding: bool = False) -> None:
    """Push the bodies through the store, a fixed number in flight, as a receiver would."""
    with tempfile.TemporaryDirectory() as place:
        kept = EmbeddedStore(Path(place) / "t.duckdb", decode=decode, price=Prices())
        stop = threading.Event()
        decider = threading.Thread(target=_decide, args=(kept, stop))
        if deciding:
            decider.start()
        acks: list[float] = []
        flying: deque[tuple[float, Future[Any]]] = deque()
        count, cpu, begun = 0, time.process_time(), time.perf_counter()
        for one in bodies_in(folder):
            if len(flying) >= IN_FLIGHT:
                _land(flying, acks)
            future = kept.submit(one)
            sent = time.perf_counter()
            future.add_done_callback(lambda _f, sent=sent: acks.append(time.perf_counter() - sent))
            flying.append((sent, future))
            count += SPANS
        while flying:
            _land(flying, acks)
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        stop.set()
        if deciding:
            decider.join()
            decided = kept.read("SELECT count(*) FROM raw.trace_facts").rows[0][0]
            print(f"  decided {decided:,} of {count // 4:,} traces meanwhile")
        stored = kept.read("SELECT count(*) FROM raw.spans").rows[0][0]
        assert stored == count, (stored, count)
        begun = time.process_time()
        kept.close()
        size = (Path(place) / "t.duckdb").stat().st_size
        closing = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cuts = quantiles(acks, n=100)
    name = "store + decisions" if deciding else "store"
    print(f"{name}: {count / wall:,.0f} spans/s durable, ack p50 {cuts[49] * 1e3:.0f} p99 {cuts[98] * 1e3:.0f} ms")
    print(
        f"  {cpu / count * 1e5:.2f} CPU-s per 100,000 spans ({(cpu + closing) / count * 1e5:.2f} with the last"
        f" checkpoint), peak {peak:.0f} MB, {size / count:.0f} B/span on disk"
    )


def _land(flying: deque[tuple[float, Future[Any]]], _acks: list[float]) -> None:
    flying.popleft()[1].result()


def _decide(kept: EmbeddedStore, stop: threading.Event) -> None:
    sampler = Sampler(kept, settle_s=0.5)
    while not stop.wait(1.0):
        sampler.decide(utc_now() + timedelta(seconds=0))


if __name__ == "__main__":
    main()
