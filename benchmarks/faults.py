"""What goes wrong with a process and its files: nothing that was acknowledged is lost.

- kill -9 at fifty random moments, checkpoints included. One file grows through all rounds. In every third round the
  process is first asked to end, so that the blow falls while it drains, checkpoints and closes.
- Size retention that runs every second: it goes below the limit once, never below 90 % of it, and states each deletion.
- One trace of 20,000 model calls inside one another: ordinary bodies are accepted meanwhile, and it stops in time.
- Sixty bodies of 58 KB that inflate to 58 MB and are refused: memory grows by at most 100 MB.
- A clock that is a year ahead, then right after a restart: every trace is decided.
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

from _payload import body, huge_trace
from _served import Server

SPANS = 256
SENDERS = 4
BASE_S = int(time.time()) - 86_400
"""Body number n starts n seconds later, so that its spans are found by their time."""


LIMIT_GB = 0.015
PRUNE_OFTEN = "import ragpulse_collector.app.background as duties\nduties.PRUNE_EVERY_S = 1.0\n"
PRUNED_S = 12.0
FILE_BODIES = 20
HUGE_SPANS = 20_000
HUGE_NUMBER = 50_000
"""The huge trace starts so many seconds after the first body, and is counted apart."""
ACKS_BESIDE = 40
STOP_WITHIN_S = 10.0
BAD_BODIES = 60
BAD_MB = 100.0
CLOCK_AHEAD = """from ragpulse_collector.store.rows import utc_now
def ahead():
    from datetime import UTC, datetime, timedelta
    return datetime.now(UTC).replace(tzinfo=None) + timedelta(days=365)
utc_now.__code__ = ahead.__code__  # others have imported the function by now
"""
DECIDED_WITHIN_S = 60.0


def main() -> int:
    """Run all scenarios; return 1 where one of them lost something."""
    rounds = 8 if "--short" in sys.argv else 50
    others = (retention, one_huge_trace, bad_bodies, clock_ahead, missing_file, damaged_log)
    wrong = [kills(rounds), *(scenario() for scenario in others)]
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


def one_huge_trace() -> bool:
    """Send ordinary bodies without and beside a huge trace until that is decided, then stop the process beside more."""
    with tempfile.TemporaryDirectory() as place:
        db, bodies = Path(place) / "ragpulse.duckdb", Bodies()
        server = Server(db)
        alone_s = [bodies.seconds_for(server, acks=ACKS_BESIDE) for _ in range(3)][-1]
        size = _post_huge(server, 0)
        beside_s = [bodies.seconds_for(server, acks=ACKS_BESIDE)]
        while not _status_of(server)["not_deduplicated"]:
            beside_s.append(bodies.seconds_for(server, acks=ACKS_BESIDE))
        for number in range(1, 4):
            _post_huge(server, number)
        stop_s = server.stop()
        server = Server(db, "--roles", "ingest")
        bodies.check(server, before=HUGE_NUMBER)
        huge = _one(server, f"select count(*) from raw.spans where epoch(start_time) >= {BASE_S + HUGE_NUMBER}")
        server.stop()
    print(f"one trace of {HUGE_SPANS} calls, {size / 1000:.0f} KB; {ACKS_BESIDE} bodies take {alone_s:.2f} s alone,")
    print(f"  at most {max(beside_s):.2f} s beside it; stop beside three more {stop_s:.1f} s;")
    print(f"  lost {bodies.lost}, in part {bodies.partial}, {huge:.0f} spans of huge traces stored")
    return bool(bodies.lost or bodies.partial or huge != 4 * HUGE_SPANS or stop_s > STOP_WITHIN_S)


def _post_huge(server: Server, number: int) -> int:
    number += HUGE_NUMBER  # also as a seed: an ordinary body's would make the same ids
    made = gzip.compress(huge_trace(HUGE_SPANS, seed=number, start_ns=(BASE_S + number) * 10**9), 1)
    assert _post(server, made) == 200
    return len(made)


def bad_bodies() -> bool:
    """Send bodies that inflate to zeros between ordinary ones, and compare the process's memory."""
    with tempfile.TemporaryDirectory() as place:
        db, bodies = Path(place) / "ragpulse.duckdb", Bodies()
        server = Server(db, "--roles", "ingest")
        bad = gzip.compress(bytes(58_000_000), 9)
        bodies.seconds_for(server, acks=FILE_BODIES)
        before = server.memory_mb("VmRSS")
        answers = [_post(server, bad) for _ in range(BAD_BODIES)]
        after = server.memory_mb("VmRSS")
        bodies.seconds_for(server, acks=FILE_BODIES)
        bodies.check(server)
        server.stop()
    refused = sum(answer in (400, 413, 503) for answer in answers)
    print(f"{BAD_BODIES} bodies of {len(bad) / 1000:.0f} KB, each 58 MB inflated: {refused} refused, "
          f"memory {before:.0f} MB before, {after:.0f} MB after; lost {bodies.lost}")  # fmt: skip
    return bool(bodies.lost or refused != BAD_BODIES or after - before > BAD_MB)


def clock_ahead() -> bool:
    """Run with a clock that is a year ahead, start again with the right one; see what is decided."""
    with tempfile.TemporaryDirectory() as place:
        folder, bodies = Path(place), Bodies()
        (folder / "sitecustomize.py").write_text(CLOCK_AHEAD)
        ahead = {"PYTHONPATH": os.pathsep.join([place, os.environ.get("PYTHONPATH", "")])}
        config = folder / "ragpulse.toml"
        config.write_text("[collector]\nretention_days = 36500\n")
        server = Server(folder / "ragpulse.duckdb", "--config", str(config), environ=ahead)
        bodies.seconds_for(server, acks=FILE_BODIES)
        _until_decided(server)
        future = _one(server, "select count(*) from raw.spans where received_at > now()::TIMESTAMP + interval 300 days")
        bodies.seconds_for(server, acks=FILE_BODIES)
        server.stop()
        server = Server(folder / "ragpulse.duckdb", "--config", str(config))
        bodies.seconds_for(server, acks=FILE_BODIES)
        took_s = _until_decided(server)
        bodies.check(server)
        undecided = _one(server, "select count(distinct trace_id) from raw.spans where trace_id not in "
                                 "(select trace_id from raw.trace_facts where latest)")  # fmt: skip
        server.stop()
    print(f"clock a year ahead ({future:.0f} spans received then), restart with the right one: all decided after "
          f"{took_s:.0f} s, {undecided:.0f} traces undecided; lost {bodies.lost}")  # fmt: skip
    return bool(bodies.lost or undecided or not future)


def _until_decided(server: Server) -> float:
    """Wait until no trace is undecided, but not for ever; return the seconds."""
    begun = time.perf_counter()
    while _status_of(server)["undecided"]["traces"] and time.perf_counter() - begun < DECIDED_WITHIN_S:
        time.sleep(0.1)
    return time.perf_counter() - begun


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

    def seconds_for(self, server: Server, *, acks: int) -> float:
        """Send until so many more are acknowledged and all requests have ended; return how long that took."""
        begun = time.perf_counter()
        self.send_until(server, acks=acks, linger_s=0)
        self.land()
        return time.perf_counter() - begun

    def check(self, server: Server, *, before: int = 10**9) -> None:
        """Compare all bodies with the store; what has the number `before` or a higher one is none of them."""
        stored = {number: (spans, distinct) for number, spans, distinct in _stored(server) if number < before}
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


def _post(server: Server, made: bytes) -> int:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
    with closing(server.connection()) as connection:
        connection.request("POST", "/v1/traces", made, headers)
        return connection.getresponse().status


def _status_of(server: Server) -> Any:
    with closing(server.connection()) as connection:
        connection.request("GET", "/api/v1/status")
        return json.loads(connection.getresponse().read())


def _status(server: Server, path: str) -> int:
    with closing(server.connection()) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


if __name__ == "__main__":
    sys.exit(main())
