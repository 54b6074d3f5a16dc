"""A week of three tenants with sessions, bound keys and people who are forgotten, on a file and on a lake.

    python benchmarks/week.py [--turns 16] [--only file|lake]

Each tenant has a service and a key that is bound to it. Every day each tenant sends `--turns` traces with its key:
sessions of four turns, users with two sessions. In the evening one user of each tenant of the day before is forgotten.
Then counts, lists by tenant, bound keys, sessions, scores and what is left of the forgotten are compared with what was
sent; exit 1 where something differs. The lake is a PostgreSQL and an S3 server of its own; absent, it is left out.
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

TENANTS, DAYS, A_SESSION, A_USER = ("acme", "globex", "initech"), 7, 4, 8
DAY_NS, SPANS = 86_400 * 10**9, 3
RULES = """
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
        return f"{self.tenant}-s{self.number // A_SESSION}"

    @property
    def user(self) -> str:
        return f"{self.tenant}-u{self.number // A_USER}"


@dataclass
class Week:
    """A collector over a store, and what it should hold."""

    url: str
    turns: int
    kept: list[Turn] = field(default_factory=list)
    forgotten: list[Turn] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)

    def ask(self, key: str, method: str, path: str, **given: Any) -> tuple[int, Any]:
        """Return status and answer of one operation, asked with a key."""
        query, data = (f"?{urlencode(given)}", None) if method == "GET" else ("", json.dumps(given).encode())
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}{query}", data, headers, method=method)
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > until:  # 503 says: come again
                    return error.code, json.load(error)
            time.sleep(0.2)

    def listed(self, key: str, path: str, what: str, **given: Any) -> list[Any]:
        """Return every row of a list, page by page."""
        rows: list[Any] = []
        while True:
            status, answer = self.ask(key, "GET", path, limit=100, **given)
            assert status == 200, answer
            rows += answer[what]
            if not answer.get("next"):
                return rows
            given["cursor"] = answer["next"]

    def _first(self, sql: str) -> Any:
        """Return the one value that a query answers."""
        status, answer = self.ask("all", "POST", "sql", query=sql)
        assert status == 200, answer
        return answer["rows"][0][0]

    def count(self, sql: str) -> int:
        """Return the one number that a query answers."""
        return int(self._first(sql))

    def check(self, what: str, found: object, wanted: object) -> None:
        """Note and print where what is found is not what is wanted."""
        if found != wanted:
            self.differs.append(what)
            print(f"  DIFFERS {what}: {str(found)[:300]}, not {str(wanted)[:300]}")

    def live(self) -> None:
        """Send the week day by day, and forget one user of each tenant of the day before."""
        begun = time.time_ns() - DAYS * DAY_NS + DAY_NS // 2
        for day in range(DAYS):
            for place, tenant in enumerate(TENANTS):
                first = (day * len(TENANTS) + place) * self.turns
                turns = [Turn(tenant, day, number) for number in range(first, first + self.turns)]
                self._send(turns, begun + day * DAY_NS)
                self.kept += turns
            self._settle()
            for tenant in TENANTS if day else ():
                self._forget(next(turn for turn in self.kept if turn.day == day - 1 and turn.tenant == tenant))
        self._settle()

    def _send(self, turns: list[Turn], at: int) -> None:
        spans = []
        for place, turn in enumerate(turns):
            also = {"user.id": turn.user, "metadata": json.dumps({"tenant": turn.tenant}), "tag.tags": ["web"]}
            start = at + place * 60 * 10**9
            query = f"{turn.tenant} asks number {turn.number}?"
            spans += rag_trace(turn.number, query=query, session=turn.session, start_ns=start, **also)
        tenant = turns[0].tenant
        send(self.url, spans, service=tenant, release=f"1.{turns[0].day}", api_key=tenant)

    def _settle(self) -> None:
        """Wait until every trace is decided and evaluated."""
        scored = "SELECT count(DISTINCT trace_id) FROM scores WHERE evaluator = 'refusal'"
        eventually(lambda: self.count(scored), lambda found: found >= len(self.kept), within_s=300)

    def _forget(self, turn: Turn) -> None:
        theirs = [one for one in self.kept if one.user == turn.user]
        status, answer = self.ask("all", "POST", "prune", user=turn.user)
        assert status == 200, answer
        self.check(f"spans of {turn.user} that were forgotten", answer["deleted"].get("spans"), SPANS * len(theirs))
        self.forgotten += theirs
        self.kept = [one for one in self.kept if one.user != turn.user]

    def compare(self) -> None:
        """Compare everything with what was sent and not forgotten."""
        self.check("traces", self.count("SELECT count(*) FROM traces"), len(self.kept))
        self.check("spans", self.count("SELECT count(*) FROM spans"), SPANS * len(self.kept))
        self.check("contexts", self.count("SELECT count(*) FROM contexts"), 2 * len(self.kept))
        scored = "SELECT count(*) FROM scores WHERE evaluator = 'refusal'"
        self.check("scores", self.count(scored), len(self.kept))
        sessions = {turn.session for turn in self.kept}
        self.check("sessions", {one["session_id"] for one in self.listed("all", "sessions", "sessions")}, sessions)
        self._compare_judged_sessions()
        for tenant in TENANTS:
            self._compare_tenant(tenant)
        self._compare_forgotten()

    def _compare_judged_sessions(self) -> None:
        """Each session of the last day is judged once, at its last turn; those that ended earlier are left alone."""
        last = {turn.session: turn.trace_id for turn in self.kept if turn.day == DAYS - 1}
        judged = "SELECT list(DISTINCT trace_id) FROM scores WHERE evaluator = 'groundedness'"
        found = eventually(lambda: self._first(judged), lambda found: len(found or ()) >= len(last), within_s=120)
        self.check("judged sessions", set(found or ()), set(last.values()))

    def _compare_tenant(self, tenant: str) -> None:
        own = {turn.trace_id for turn in self.kept if turn.tenant == tenant}
        other = next(turn for turn in self.kept if turn.tenant != tenant)
        mine = next(iter(own))
        for key, given in ((tenant, {}), ("all", {"service": tenant}), ("all", {"metadata.tenant": tenant})):
            found = {one["trace_id"] for one in self.listed(key, "traces", "traces", **given)}
            self.check(f"traces of {tenant} with the key {key} and {given}", found, own)
        self.check(f"{tenant} opens its own", self.ask(tenant, "GET", f"traces/{mine}")[0], 200)
        self.check(f"{tenant} opens another's", self.ask(tenant, "GET", f"traces/{other.trace_id}")[0], 404)
        for method, path in (("POST", "sql"), ("POST", "prune"), ("GET", "sessions"), ("GET", "status")):
            self.check(f"{tenant} asks {method} {path}", self.ask(tenant, method, path)[0], 403)
        _, series = self.ask(tenant, "GET", "metrics", name="requests", step="all", **{"from": "-9d"})
        self.check(f"requests of {tenant}", series["series"][0]["points"][0]["value"], len(own))

    def _compare_forgotten(self) -> None:
        users = sorted({turn.user for turn in self.forgotten})
        for table in ("spans", "trace_facts"):
            listed = ", ".join(f"'{user}'" for user in users)
            self.check(f"raw.{table}", self.count(f"SELECT count(*) FROM raw.{table} WHERE user_id IN ({listed})"), 0)
        texts = "SELECT count(*) FROM raw.contents WHERE regexp_extract(query, 'number (\\d+)', 1) IN ({})"
        numbers = ", ".join(f"'{turn.number}'" for turn in self.forgotten)
        self.check("texts of the forgotten", self.count(texts.format(numbers)), 0)
        self.check("forgotten once more", self.ask("all", "POST", "prune", user=users[0])[1]["deleted"], {})
        self.check("a forgotten trace", self.ask("all", "GET", f"traces/{self.forgotten[0].trace_id}")[0], 404)


def config(folder: Path) -> Path:
    """Write the configuration: two rules, a key for everything, and a bound one for each tenant."""
    keys = [("all", '"admin", "ingest", "read"', ""), *((one, '"ingest", "read"', one) for one in TENANTS)]
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
    """Serve over a file; the address."""
    server = Server(folder / "week.duckdb", "--config", str(config(folder)))
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


@contextmanager
def on_a_lake(folder: Path) -> Iterator[str]:
    """Serve over a lake with PostgreSQL and an S3 server; the address."""
    python = lake_python()
    with Postgres() as catalog, SeaweedFS(python) as files:
        db = f"ducklake:postgres:{catalog.database('week')} data_path=s3://{BUCKET}/week/"
        server = LakeCollector(python, db, files, "--config", str(config(folder)), folder=folder)
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            server.stop()


STORES = {"file": on_a_file, "lake": on_a_lake}


def lived(name: str, turns: int) -> list[str]:
    """Live a week on one store; returns what differs."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, STORES[name](Path(place)) as url:
        week = Week(url, turns)
        week.live()
        week.compare()
    took = time.perf_counter() - begun
    told = f"{len(week.kept)} traces kept, {len(week.forgotten)} forgotten, {len(week.differs)} differences"
    print(f"{name}: {DAYS} days, {len(TENANTS)} tenants, {told}, {took:.0f} s")
    return week.differs


def main() -> int:
    """Live the week on each store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=16)
    parser.add_argument("--only", choices=list(STORES))
    asked = parser.parse_args()
    failed = 0
    for name in [asked.only] if asked.only else STORES:
        try:
            failed += bool(lived(name, asked.turns))
        except Absent as reason:
            print(f"{name}: not run: {reason}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
