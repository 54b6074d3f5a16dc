"""kill -9 at fifty random moments, checkpoints included: what was acknowledged is there, whole and once, after each.

One file grows through all rounds. In every third round the process is first asked to end, so that the blow falls while
it drains, checkpoints and closes. Exits 1 for a body that is lost, doubled or there in part. `--short`: eight rounds.
"""

from __future__ import annotations

import gzip
import json
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import closing
from http.client import HTTPException
from os import kill
from pathlib import Path
from statistics import median
from typing import Any

from _payload import body
from _served import Server

SPANS = 256
SENDERS = 4
BASE_S = int(time.time()) - 86_400
"""Body number n starts n seconds later, so that its spans are found by their time."""


def main() -> int:
    """Run the rounds; print restarts, bodies and what was wrong."""
    rounds = 8 if "--short" in sys.argv else 50
    chance, bodies, restarts = random.Random(4), Bodies(), []
    with tempfile.TemporaryDirectory() as place:
        db = Path(place) / "ragpulse.duckdb"
        server = Server(db, "--roles", "ingest")
        for number in range(rounds):
            bodies.send_until(server, acks=chance.randrange(1, 40), linger_s=chance.random() * 0.1)
            if number % 3 == 2:
                kill(server.pid, signal.SIGTERM)
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
    return int(bool(bodies.lost or bodies.doubled or bodies.partial))


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
                if response.status == 200:
                    with self._lock:
                        self.acknowledged.add(number)
                        self._lock.notify_all()


def _stored(server: Server) -> list[Any]:
    query = (
        f"select epoch(date_trunc('second', start_time))::BIGINT - {BASE_S}, count(*),"
        " count(distinct (trace_id, span_id)) from raw.spans group by 1"
    )
    with closing(server.connection()) as connection:
        connection.request("POST", "/api/v1/sql", json.dumps({"query": query}), {"Content-Type": "application/json"})
        rows: list[Any] = json.loads(connection.getresponse().read())["rows"]
    return rows


if __name__ == "__main__":
    sys.exit(main())
