"""What goes wrong with a process and its files: nothing that was acknowledged is lost.

- kill -9 at fifty random moments, checkpoints included. One file grows through all rounds. In every third round the
  process is first asked to end, so that the blow falls while it drains, checkpoints and closes.
- Size retention that runs every second: it goes below the limit once, never below 90 % of it, and states each deletion.
- The database file removed, and replaced, while bodies arrive: none is acknowledged that is not in the file.
- A log damaged at its head and in its middle: every body that is not there is in the log that was kept aside.

Exits 1 for a body that is lost, doubled or there in part. `--short`: eight rounds of kill -9.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from statistics import median
from typing import Any

from _payload import body
from _served import Server

SPANS = 256
SENDERS = 4
BASE_S = int(time.time()) - 86_400
"""Body number n starts n seconds later, so that its spans are found by their time."""


LIMIT_GB = 0.015
PRUNE_OFTEN = "import ragpulse_collector.app.duties as duties\nduties.PRUNE_EVERY_S = 1.0\n"
PRUNED_S = 12.0
FILE_BODIES = 20


def main() -> int:
    """Run all scenarios; return 1 where one of them lost something."""
    wrong = [kills(8 if "--short" in sys.argv else 50), retention(), missing_file(), damaged_log()]
    return int(any(wrong))


def kills(rounds: int) -> bool:
    """Run the rounds; print restarts, bodies and what was wrong."""
    chance, bodies, restarts = random.Random(4), Bodies(), []
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "ragpulse.duckdb"
        server = Server(db, "--roles", "ingest")
        for number in range(rounds):
            bodies.send_until(server, acks=chance.randrange(1, 40), linger_s=chance.random() * 0.1)
            if number % 3 == 2:
                os.kill(server.pid, signal.SIGTERM)
                time.sleep(chance.random() * 0.5)
            server.kill()
            bodies.land()
            server = Server(db, "--roles", "ingest")
            restarts.append(server.first_200_s)
            bodies.check(server)
        size = db.stat().st_size / 2**20
        server.stop()
    print(f"{rounds} x kill -9: {len(bodies.acknowledged)} bodies of {SPANS} spans acknowledged, "
          f"{bodies.more} stored beside them without an answer, file {size:.0f} MB")  # fmt: skip
    print(f"  lost {bodies.lost}, doubled {bodies.doubled}, in part {bodies.partial}; "
          f"restart median {median(restarts):.2f} s, worst {max(restarts):.2f} s")  # fmt: skip
    return bool(bodies.lost or bodies.doubled or bodies.partial)


def retention() -> bool:
    """Store twice the size limit, let retention run every second, and see what is left after each deletion."""
    with tempfile.TemporaryDirectory() as place:
        folder, bodies = Path(place), Bodies()
        (folder / "sitecustomize.py").write_text(PRUNE_OFTEN)
        often = {"PYTHONPATH": os.pathsep.join([place, os.environ.get("PYTHONPATH", "")])}
        config = folder / "ragpulse.toml"
        config.write_text(f"[collector]\nretention_days = 36500\nretention_gb = {LIMIT_GB}\n")
        server = Server(folder / "ragpulse.duckdb", "--config", str(config), environ=often)
        bodies.send_until(server, acks=200, linger_s=0)
        bodies.land()
        before = _one(server, "select count(*) from raw.spans")
        time.sleep(PRUNED_S)
        settled = _one(server, "select count(*) from raw.spans")
        time.sleep(PRUNED_S / 2)
        left = _one(server, "select count(*) from raw.spans")
        audit = _ask(server, "select detail from raw.audit where action = 'prune' order by created_at")
        server.stop()
        size = (folder / "ragpulse.duckdb").stat().st_size
    details = [json.loads(detail) for (detail,) in audit]
    removed = sum(detail["spans"] for detail in details)
    # A step's share of the spans is its share of the bytes: what the last one left is known from what it found.
    last = details[-1] if details else {"used_bytes": 0, "max_bytes": 1, "spans": 0}
    live = last["used_bytes"] * left / max(left + last["spans"], 1)
    print(f"size retention every second, limit {LIMIT_GB * 1000:.0f} MB: {before:.0f} spans became {left:.0f}")
    print(f"  in {len(details)} steps, {live / 10**6:.1f} MB live ({live / last['max_bytes']:.0%}), "
          f"file {size / 10**6:.0f} MB")  # fmt: skip
    stated = {detail["reason"] for detail in details} == {"size"} and removed >= before - left
    return not (0.9 <= live / last["max_bytes"] <= 1.0 and left == settled and stated)


def missing_file() -> bool:
    """Take the file away under traffic and put it back; then replace it; everything acknowledged is in it."""
    with tempfile.TemporaryDirectory() as place:
        db, bodies = Path(place) / "ragpulse.duckdb", Bodies()
        server = Server(db, "--roles", "ingest")
        bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
        away = db.rename(db.with_name("away"))
        time.sleep(0.5)
        taken, ready = len(bodies.acknowledged), _status(server, "/readyz")
        time.sleep(1.0)
        more = len(bodies.acknowledged) - taken
        away.rename(db)
        bodies.land()
        bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
        db.rename(away)
        db.write_bytes(b"another file")
        bodies.land()
        server.kill()
        away.replace(db)
        server = Server(db, "--roles", "ingest")
        bodies.check(server)
        server.stop()
    print(f"file removed, back, replaced, kill -9: {len(bodies.acknowledged)} bodies acknowledged, {more} of them")
    print(f"  without the file, readyz {ready} meanwhile; "
          f"lost {bodies.lost}, doubled {bodies.doubled}, in part {bodies.partial}")  # fmt: skip
    return bool(bodies.lost or bodies.doubled or bodies.partial or more) or ready != 503


def damaged_log() -> bool:
    """Damage the log of a killed process; it starts, and what is missing is in the log that it keeps aside."""
    return any([_damaged(0.0), _damaged(0.5)])


def _damaged(at: float) -> bool:
    with tempfile.TemporaryDirectory() as place:
        db, bodies = Path(place) / "ragpulse.duckdb", Bodies()
        Server(db, "--roles", "ingest").stop()
        server = Server(db, "--roles", "ingest")
        bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
        server.kill()
        bodies.land()
        log = db.with_name(db.name + ".wal")
        damaged = bytearray(log.read_bytes())
        start = int(len(damaged) * at)
        damaged[start : start + 8] = bytes(byte ^ 0xFF for byte in damaged[start : start + 8])
        log.write_bytes(damaged)
        server = Server(db, "--roles", "ingest")
        bodies.check(server)
        kept = [file for file in Path(place).glob("*.damaged-*") if file.read_bytes() == damaged]
        told = sum("bytes cannot be read" in line for line in db.with_suffix(".log").read_text().splitlines())
        server.stop()
    print(f"log of {len(damaged) / 2**20:.0f} MB damaged at {at:.0%}: starts in {server.first_200_s:.2f} s, "
          f"{len(bodies.acknowledged) - bodies.lost} of {len(bodies.acknowledged)} bodies stored,")  # fmt: skip
    print(f"  in part {bodies.partial}, doubled {bodies.doubled}; whole log kept: {len(kept) == 1}, told: {told == 1}")
    return bool(bodies.partial or bodies.doubled or len(kept) != 1 or told != 1)


class Bodies:
    """Sends numbered bodies, remembers which were acknowledged, and compares with what is stored."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.lost = self.doubled = self.partial = self.more = 0
        self._next, self._lock, self._threads = 0, threading.Condition(), list[threading.Thread]()
        self._stop = False

    def send_until(self, server: Server, *, acks: int, linger_s: float) -> None:
        """Return after so many more acknowledgements and a while, with requests under way."""
        self._stop = False
        wanted = len(self.acknowledged) + acks
        self._threads = [threading.Thread(target=self._send, args=(server,)) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()
        with self._lock:
            self._lock.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=120)
        time.sleep(linger_s)

    def land(self) -> None:
        """Wait until every sender has met the closed door."""
        self._stop = True
        for thread in self._threads:
            thread.join()

    def check(self, server: Server) -> None:
        """Compare all bodies with the store."""
        stored = {number: (spans, distinct) for number, spans, distinct in _stored(server)}
        self.lost += len(self.acknowledged - set(stored))
        self.doubled += sum(spans > distinct for spans, distinct in stored.values())
        self.partial += sum(distinct != SPANS for _, distinct in stored.values())
        self.more = len(set(stored) - self.acknowledged)

    def _send(self, server: Server) -> None:
        with closing(server.connection()) as connection:
            while not self._stop:
                with self._lock:
                    number, self._next = self._next, self._next + 1
                made = gzip.compress(body(SPANS, seed=number, start_ns=(BASE_S + number) * 10**9), 1)
                headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
                try:
                    connection.request("POST", "/v1/traces", made, headers)
                    response = connection.getresponse()
                    response.read()
                except (OSError, HTTPException):
                    return
                if response.status == 503:
                    time.sleep(0.05)
                if response.status == 200:
                    with self._lock:
                        self.acknowledged.add(number)
                        self._lock.notify_all()


def _stored(server: Server) -> list[Any]:
    query = (
        f"select epoch(date_trunc('second', start_time))::BIGINT - {BASE_S}, count(*),"
        " count(distinct (trace_id, span_id)) from raw.spans group by 1"
    )
    return _ask(server, query)


def _one(server: Server, query: str) -> float:
    return float(_ask(server, query)[0][0])


def _ask(server: Server, query: str) -> list[Any]:
    with closing(server.connection()) as connection:
        connection.request("POST", "/api/v1/sql", json.dumps({"query": query}), {"Content-Type": "application/json"})
        rows: list[Any] = json.loads(connection.getresponse().read())["rows"]
    return rows


def _status(server: Server, path: str) -> int:
    with closing(server.connection()) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


if __name__ == "__main__":
    sys.exit(main())
