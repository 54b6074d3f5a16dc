"""What checkpoints cost, for sizes of row groups and of the log: CPU, the longest one, bytes a span.

100,000 spans of a dialect go into a store that makes a checkpoint whenever its log has reached the limit. Each pair of
sizes starts with an empty file, in a process of its own.

    python benchmarks/checkpoints.py [--dialect openinference] [--short]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _payload import body

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.store import connection
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.log import log_bytes

SPANS = 512
SIZES = ((16_384, 32), (16_384, 64), (8_192, 32), (8_192, 64), (4_096, 64), (122_880, 64))
"""Rows in a group, MB of log."""


def main() -> None:
    """Print one line for each pair of sizes."""
    dialect = sys.argv[sys.argv.index("--dialect") + 1] if "--dialect" in sys.argv else "openinference"
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(dialect, *map(int, sys.argv[2:5]))))
        return
    bodies = 40 if "--short" in sys.argv else 196
    print(f"{bodies * SPANS:,} spans of dialect {dialect}; CPU-s per 100,000 spans: all, checkpoints alone")
    for rows, megabytes in SIZES:
        command = [sys.executable, __file__, "one", str(rows), str(megabytes), str(bodies), "--dialect", dialect]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(
            f"  groups of {rows:>7,} rows, log of {megabytes} MB: "
            f"{figures['all_s']:.2f}, {figures['checkpoints_s']:.2f}; "
            f"{figures['checkpoints']} checkpoints, the longest {figures['longest_ms']:.0f} ms of CPU; "
            f"{figures['used']:.0f} B/span, file {figures['file']:.0f}"
        )


def measure(dialect: str, rows: int, megabytes: int, count: int) -> dict[str, float]:
    """Store the bodies, with a checkpoint at each `megabytes` of log; returns the figures of `main`."""
    connection.ROW_GROUP_SIZE = rows
    now = time.time_ns()
    bodies = [body(SPANS, seed=seed, start_ns=now + seed * 10**8, dialect=dialect) for seed in range(count)]
    spans = count * SPANS
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "checkpoints.duckdb"
        store = EmbeddedStore(path, decode=decode, wal_limit="10GB")
        start, times = time.process_time(), []
        for raw in bodies:
            store.submit(RawBody(signal="traces", content_type="application/x-protobuf", body=raw)).result()
            if log_bytes(path) >= megabytes * 2**20:
                before = time.process_time()
                store.read("CHECKPOINT")
                times.append(time.process_time() - before)
        cpu_s = time.process_time() - start
        used = store.used_bytes()
        store.close()
        return {
            "all_s": cpu_s / spans * 1e5,
            "checkpoints_s": sum(times) / spans * 1e5,
            "checkpoints": len(times),
            "longest_ms": max(times, default=0.0) * 1e3,
            "used": used / spans,
            "file": path.stat().st_size / spans,
        }


if __name__ == "__main__":
    main()
