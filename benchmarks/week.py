"""A week of three tenants with sessions, bound keys and deleted users, on a file and on a lake.

    python benchmarks/week.py [--turns 16] [--only file|lake]

Each tenant has a service and a key that is bound to it. Every day each tenant sends `--turns` traces with its key:
sessions of four turns, users with two sessions. Every evening `prune` deletes one user of each tenant of the day
before. Then the script compares counts, lists by tenant, bound keys, sessions, scores and the rows of deleted users
with what was sent, and exits 1 on a difference. The lake has its own PostgreSQL and S3 server; without them it is
skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from _served import Server

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lake_servers import BUCKET, Absent, LakeCollector, Postgres, SeaweedFS, lake_python
from traffic import rag_trace, send
from waiting import eventually

TENANTS, DAYS, SESSION_TURNS, USER_TURNS = ("acme", "globex", "initech"), 7, 4, 8
DAY_NS, SPANS = 86_400 * 10**9, 3
RULES = """
offline = false
[collector]
settle_s = 0
session_quiet_s = 0
[[rule]]
name = "each"
evaluators = ["refusal"]
rate = 1.0
[[rule]]
name = "sessions"
evaluators = ["groundedness"]
rate = 1.0
unit = "session"
"""


@dataclass(frozen=True)
class Turn:
    """One trace as it was sent."""

    tenant: str
    day: int
    number: int

    @property
    def trace_id(self) -> str:
        return f"{self.number + 1:032x}"

    @property
    def session(self) -> str:
        return f"{self.tenant}-s{self.number // SESSION_TURNS}"

    @property
    def user(self) -> str:
        return f"{self.tenant}-u{self.number // USER_TURNS}"


@dataclass
class Week:
    """A collector over a store, and the expected traces."""

    url: str
    turns: int
    stored: list[Turn] = field(default_factory=list)
    deleted: list[Turn] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def call(self, key: str, method: str, path: str, **params: Any) -> tuple[int, Any]:
        """Return status and answer of one operation, called with a key."""
        query, data = (f"?{urlencode(params)}", None) if method == "GET" else ("", json.dumps(params).encode())
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}{query}", data, headers, method=method)
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > deadline:  # 503: try again
                    return error.code, json.load(error)
            time.sleep(0.2)

    def rows(self, key: str, path: str, name: str, **params: Any) -> list[Any]:
        """Return every row of a list, page by page."""
        rows: list[Any] = []
        while True:
            status, answer = self.call(key, "GET", path, limit=100, **params)
            assert status == 200, answer
            rows += answer[name]
            if not answer.get("next"):
                return rows
            params["cursor"] = answer["next"]

    def _value(self, sql: str) -> Any:
        """Return the single value of a query."""
        status, answer = self.call("all", "POST", "sql", query=sql)
        assert status == 200, answer
        return answer["rows"][0][0]

    def count(self, sql: str) -> int:
        """Return the single number of a query."""
        return int(self._value(sql))

    def check(self, name: str, actual: object, expected: object) -> None:
        """Record and print a difference."""
        if actual != expected:
            self.differences.append(name)
            print(f"  DIFFERS {name}: {str(actual)[:300]}, not {str(expected)[:300]}")

    def send(self) -> None:
        """Send the week day by day; each day delete one user of each tenant of the day before."""
        begun = time.time_ns() - DAYS * DAY_NS + DAY_NS // 2
        for day in range(DAYS):
            for index, tenant in enumerate(TENANTS):
                first = (day * len(TENANTS) + index) * self.turns
                turns = [Turn(tenant, day, number) for number in range(first, first + self.turns)]
                self._send_turns(turns, begun + day * DAY_NS)
                self.stored += turns
            self._wait_until_scored()
            for tenant in TENANTS if day else ():
                self._delete_user(next(turn for turn in self.stored if turn.day == day - 1 and turn.tenant == tenant))
        self._wait_until_scored()

    def _send_turns(self, turns: list[Turn], start_ns: int) -> None:
        spans = []
        for index, turn in enumerate(turns):
            attributes = {"user.id": turn.user, "metadata": json.dumps({"tenant": turn.tenant}), "tag.tags": ["web"]}
            start = start_ns + index * 60 * 10**9
            query = f"{turn.tenant} asks number {turn.number}?"
            spans += rag_trace(turn.number, query=query, session=turn.session, start_ns=start, **attributes)
        tenant = turns[0].tenant
        send(self.url, spans, service=tenant, release=f"1.{turns[0].day}", api_key=tenant)

    def _wait_until_scored(self) -> None:
        """Wait until every trace is decided and evaluated."""
        scored = "SELECT count(DISTINCT trace_id) FROM scores WHERE evaluator = 'refusal'"
        eventually(lambda: self.count(scored), lambda count: count >= len(self.stored), within_s=300)

    def _delete_user(self, turn: Turn) -> None:
        turns = [each for each in self.stored if each.user == turn.user]
        status, answer = self.call("all", "POST", "prune", user=turn.user)
        assert status == 200, answer
        self.check(f"deleted spans of {turn.user}", answer["deleted"].get("spans"), SPANS * len(turns))
        self.deleted += turns
        self.stored = [each for each in self.stored if each.user != turn.user]

    def compare(self) -> None:
        """Compare the store with what was sent and not deleted."""
        self.check("traces", self.count("SELECT count(*) FROM traces"), len(self.stored))
        self.check("spans", self.count("SELECT count(*) FROM spans"), SPANS * len(self.stored))
        self.check("contexts", self.count("SELECT count(*) FROM contexts"), 2 * len(self.stored))
        scored = "SELECT count(*) FROM scores WHERE evaluator = 'refusal'"
        self.check("scores", self.count(scored), len(self.stored))
        sessions = {turn.session for turn in self.stored}
        self.check("sessions", {row["session_id"] for row in self.rows("all", "sessions", "sessions")}, sessions)
        self._compare_judged_sessions()
        for tenant in TENANTS:
            self._compare_tenant(tenant)
        self._compare_deleted()

    def _compare_judged_sessions(self) -> None:
        """Each session of the last day is judged once, at its last turn; earlier sessions are not judged."""
        last = {turn.session: turn.trace_id for turn in self.stored if turn.day == DAYS - 1}
        judged = "SELECT list(DISTINCT trace_id) FROM scores WHERE evaluator = 'groundedness'"
        traces = eventually(lambda: self._value(judged), lambda ids: len(ids or ()) >= len(last), within_s=120)
        self.check("judged sessions", set(traces or ()), set(last.values()))

    def _compare_tenant(self, tenant: str) -> None:
        own = {turn.trace_id for turn in self.stored if turn.tenant == tenant}
        other = next(turn for turn in self.stored if turn.tenant != tenant)
        for key, params in ((tenant, {}), ("all", {"service": tenant}), ("all", {"metadata.tenant": tenant})):
            traces = {row["trace_id"] for row in self.rows(key, "traces", "traces", **params)}
            self.check(f"traces of {tenant} with the key {key} and {params}", traces, own)
        self.check(f"{tenant} opens its own", self.call(tenant, "GET", f"traces/{next(iter(own))}")[0], 200)
        self.check(f"{tenant} opens another's", self.call(tenant, "GET", f"traces/{other.trace_id}")[0], 404)
        for method, path in (("POST", "sql"), ("POST", "prune"), ("GET", "sessions"), ("GET", "status")):
            self.check(f"{tenant} asks {method} {path}", self.call(tenant, method, path)[0], 403)
        _, series = self.call(tenant, "GET", "metrics", name="requests", step="all", **{"from": "-9d"})
        self.check(f"requests of {tenant}", series["series"][0]["points"][0]["value"], len(own))

    def _compare_deleted(self) -> None:
        users = sorted({turn.user for turn in self.deleted})
        for table in ("spans", "trace_facts"):
            values = ", ".join(f"'{user}'" for user in users)
            self.check(f"raw.{table}", self.count(f"SELECT count(*) FROM raw.{table} WHERE user_id IN ({values})"), 0)
        texts = "SELECT count(*) FROM raw.contents WHERE regexp_extract(query, 'number (\\d+)', 1) IN ({})"
        numbers = ", ".join(f"'{turn.number}'" for turn in self.deleted)
        self.check("texts of deleted users", self.count(texts.format(numbers)), 0)
        self.check("a second deletion", self.call("all", "POST", "prune", user=users[0])[1]["deleted"], {})
        self.check("a deleted trace", self.call("all", "GET", f"traces/{self.deleted[0].trace_id}")[0], 404)


def config(folder: Path) -> Path:
    """Write the configuration: two rules, a key for everything, and a bound key for each tenant."""
    keys = [("all", '"admin", "ingest", "read"', ""), *((tenant, '"ingest", "read"', tenant) for tenant in TENANTS)]
    lines = [
        f'{{ name = "{name}", scopes = [{scopes}], sha256 = "{hashlib.sha256(name.encode()).hexdigest()}"'
        + (f', services = ["{service}"]' if service else "")
        + " }"
        for name, scopes, service in keys
    ]
    path = folder / "ragpulse.toml"
    path.write_text(RULES.replace("[collector]", f"[collector]\napi_keys = [{', '.join(lines)}]"))
    return path


@contextmanager
def on_a_file(folder: Path) -> Iterator[str]:
    """Serve over a file; yields the address."""
    server = Server(folder / "week.duckdb", "--config", str(config(folder)))
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


@contextmanager
def on_a_lake(folder: Path) -> Iterator[str]:
    """Serve over a lake with PostgreSQL and an S3 server; yields the address."""
    python = lake_python()
    with Postgres() as catalog, SeaweedFS(python) as files:
        db = f"ducklake:postgres:{catalog.database('week')} data_path=s3://{BUCKET}/week/"
        server = LakeCollector(python, db, files, "--config", str(config(folder)), folder=folder)
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.stop()


STORES = {"file": on_a_file, "lake": on_a_lake}


def run(name: str, turns: int) -> list[str]:
    """Run the week on one store; return the differences."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, STORES[name](Path(folder)) as url:
        week = Week(url, turns)
        week.send()
        week.compare()
    counts = f"{len(week.stored)} traces stored, {len(week.deleted)} deleted, {len(week.differences)} differences"
    print(f"{name}: {DAYS} days, {len(TENANTS)} tenants, {counts}, {time.perf_counter() - begun:.0f} s")
    return week.differences


def main() -> int:
    """Run the week on each store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--only", choices=list(STORES))
    options = parser.parse_args()
    failed = 0
    for name in [options.only] if options.only else STORES:
        try:
            failed += bool(run(name, options.turns))
        except Absent as reason:
            print(f"{name}: skipped: {reason}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
