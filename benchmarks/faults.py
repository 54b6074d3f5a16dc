"""Faults of the process and its files: nothing that was acknowledged is lost.

- kill -9 at fifty random moments, checkpoints included. One file grows through all rounds. In every third round the
  process gets SIGTERM first, so that the kill interrupts its draining, checkpoint and close.
- Size retention that runs every second: it goes below the limit once, never below 90 % of it, and audits each deletion.
- One trace of 20,000 nested model calls: other bodies are accepted meanwhile, and the process stops in time.
- Sixty bodies of 58 KB that inflate to 58 MB and are refused: memory grows by at most 100 MB.
- Bodies of 65 KB of gzip that hold up to thirty million messages: 413, other bodies are accepted meanwhile, and the
  process stops in time beside them.
- The log of the file removed and cut again and again while bodies arrive, then kill -9.
- A clock that is a year ahead, then right after a restart: every trace is decided.
- The database file removed, and replaced, while bodies arrive: every acknowledged body is in the file.
- A log damaged at its head and in its middle: every missing body is in the copy of the damaged log.
- 300 connections that send nothing, then 300 that stop in their body, beside a limit of 128 open files: health and
  receiving answer.
- Users' SQL that fails, asks too much or answers odd things, while bodies arrive: an answer or a sentence, never 500.
- A judge that asks for a pause without an end, nests its replies a thousand deep and states infinite usage: the other
  evaluator goes on, the wait is told, and every question has a result after it.
- Secrets in the environment, the file, headers and spans, beside a judge that repeats them: in no answer, file or log.
- One user's flood of 60,000 different questions: other bodies are acknowledged and evaluated meanwhile, the backlog is
  told, and the fit of topics ends soon.

Exits 1 if a body is lost, doubled or incomplete, or waits too long. `--short`: eight rounds of kill -9. Names of
scenarios (`small_bodies`) run those alone.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

from _payload import body, huge_trace, text
from _served import Server, get, get_json, post_traces, sql
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = 256
SENDERS = 4
BASE_S = int(time.time()) - 86_400
"""Body number n starts n seconds later, so that its spans are found by their time."""
LIMIT_GB = 0.015
PRUNE_OFTEN = "import ragpulse_collector.app.wiring as wiring\nwiring.PRUNE_EVERY_S = 1.0\n"
PRUNED_S = 12.0
FILE_BODIES = 20
HUGE_SPANS = 20_000
HUGE_NUMBER = 50_000
"""The first huge trace starts so many seconds after the first body, and is counted apart."""
ACKS_BESIDE = 40
STOP_WITHIN_S = 5.0
WAIT_AT_MOST_S = 1.0
BAD_BODIES = 60
BAD_MB = 100.0
CLOCK_AHEAD = """from ragpulse_collector.store.connection import utc_now
def ahead():
    from datetime import UTC, datetime, timedelta
    return datetime.now(UTC).replace(tzinfo=None) + timedelta(days=365)
utc_now.__code__ = ahead.__code__  # other modules have imported the function by now
"""
DECIDED_WITHIN_S = 60.0
INGEST = ("--roles", "ingest")
OPEN_FILES, IDLE = 128, 300
FLOOD, FLOOD_BODY = 60_000, 2_000
FIT_OFTEN = "import ragpulse_collector.app.wiring as wiring\nwiring.TOPICS_EVERY_S = 2.0\n"
FLOODED_S = 30.0
SLOW_BODY = (
    b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)
QUESTIONS, PAUSED_S = 50, 75.0
SECRET = "sk-pl4nted-0123456789"
JUDGED = """
[collector]
settle_s = 0
redact = ["sk-pl4nted-[a-z0-9-]+"]
[[rule]]
name = "all"
evaluators = ["helpfulness", "citation_check"]
rate = 1
[judge]
model = "{url}"
"""
SHOWN = (
    "/", "/traces", "/evaluators", "/health", "/settings", "/metrics", "/openapi.json", "/nothing-here",
    "/api/v1/status", "/api/v1/traces", "/api/v1/evaluators", "/api/v1/settings", "/api/v1/rules", "/api/v1/overview",
)  # fmt: skip
ODD_QUERIES = (
    "select factorial(33)", "select factorial(34)", "select error('mine')", "select 'a'::int", "select 1e308 * 10",
    "select timestamptz 'infinity'", "select map([[1]], ['a'])", "select chr(1114112)",
    "select " + "[" * 300 + "]" * 300, "select * from range(1000000000000)", "select repeat('x', 100000000000)",
    "select nothing", "select", "drop table x", "select count(*) from range(100000000) a, range(100000000) b",
    "select list(range) from range(100000000)",
)  # fmt: skip
SPAN_COUNT = "select count(*) from raw.spans"


def main() -> int:
    """Run all scenarios; return 1 if one of them failed."""
    rounds = 8 if "--short" in sys.argv else 50
    scenarios = (
        partial(kills, rounds=rounds), retention, one_huge_trace, bad_bodies, small_bodies, clock_ahead, missing_file,
        missing_log,
        partial(damaged_log, 0.0), partial(damaged_log, 0.5), odd_queries, stalling_judge, secrets, idle_connections,
        flood,
    )  # fmt: skip
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    failed = []
    for scenario in scenarios:
        if names and _name(scenario) not in names:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            failed.append(scenario(Path(temporary) / "ragpulse.duckdb", Bodies()))
    return int(any(failed))


def _name(scenario: Callable[..., bool]) -> str:
    return str(getattr(scenario, "func", scenario).__name__)


def kills(db: Path, bodies: Bodies, *, rounds: int) -> bool:
    """Kill the process in each round; print restarts and bodies."""
    rng, restarts = random.Random(4), []
    server = Server(db, *INGEST)
    for number in range(rounds):
        bodies.send_until(server, acks=rng.randrange(1, 40), linger_s=rng.random() * 0.1)
        if number % 3 == 2:
            server.terminate()
            time.sleep(rng.random() * 0.5)
        server.kill()
        bodies.end_senders()
        server = Server(db, *INGEST)
        restarts.append(server.first_200_s)
        bodies.check(server)
    size = db.stat().st_size / 2**20
    server.stop()
    print(f"{rounds} x kill -9: {len(bodies.acknowledged)} bodies of {SPANS} spans acknowledged, "
          f"{bodies.unanswered} stored without an answer, file {size:.0f} MB")  # fmt: skip
    print(f"  {bodies}; restart median {median(restarts):.2f} s, worst {max(restarts):.2f} s")
    return bodies.wrong


def retention(db: Path, bodies: Bodies) -> bool:
    """Store twice the size limit, let retention run every second, and check the size after each deletion."""
    config = f"[collector]\nretention_days = 36500\nretention_gb = {LIMIT_GB}\n"
    server = Server(db, *_config(db, config), environ=_patched(db, PRUNE_OFTEN))
    bodies.send_until(server, acks=200, linger_s=0)
    bodies.end_senders()
    before = sql(server, SPAN_COUNT)[0][0]
    time.sleep(PRUNED_S)
    settled = sql(server, SPAN_COUNT)[0][0]
    time.sleep(PRUNED_S / 2)
    after = sql(server, SPAN_COUNT)[0][0]
    audit = sql(server, "select detail from raw.audit where action = 'prune' order by created_at")
    server.stop()
    size = db.stat().st_size
    steps = [json.loads(detail) for (detail,) in audit]
    # A step's share of the spans is its share of the bytes: this gives the live bytes after the last step.
    last = steps[-1] if steps else {"used_bytes": 0, "max_bytes": 1, "spans": 0}
    live = last["used_bytes"] * after / max(after + last["spans"], 1)
    print(f"size retention every second, limit {LIMIT_GB * 1000:.0f} MB: {before:.0f} spans became {after:.0f}")
    print(f"  in {len(steps)} steps, {live / 10**6:.1f} MB live ({live / last['max_bytes']:.0%}), "
          f"file {size / 10**6:.0f} MB")  # fmt: skip
    audited = {step["reason"] for step in steps} == {"size"} and sum(step["spans"] for step in steps) >= before - after
    return not (0.9 <= live / last["max_bytes"] <= 1.0 and after == settled and audited)


def one_huge_trace(db: Path, bodies: Bodies) -> bool:
    """Send ordinary bodies alone, then beside a huge trace until that is decided; stop the process beside more."""
    server = Server(db)
    alone_s = [bodies.seconds_for(server, acks=ACKS_BESIDE) for _ in range(3)][-1]
    size = _post_huge(server, 0)
    beside_s = [bodies.seconds_for(server, acks=ACKS_BESIDE)]
    while not get_json(server, "/api/v1/status")["not_deduplicated"]:
        beside_s.append(bodies.seconds_for(server, acks=ACKS_BESIDE))
    for number in range(1, 4):
        _post_huge(server, number)
    stop_s = server.stop()
    server = Server(db, *INGEST)
    bodies.check(server, before=HUGE_NUMBER)
    huge = sql(server, f"{SPAN_COUNT} where epoch(start_time) >= {BASE_S + HUGE_NUMBER}")[0][0]
    server.stop()
    print(f"one trace of {HUGE_SPANS} calls, {size / 1000:.0f} KB; {ACKS_BESIDE} bodies take {alone_s:.2f} s alone,")
    print(f"  at most {max(beside_s):.2f} s beside it; stop beside three more {stop_s:.1f} s;")
    print(f"  {bodies}, {huge:.0f} spans of huge traces stored")
    return bool(bodies.lost or bodies.partial or huge != 4 * HUGE_SPANS or stop_s > STOP_WITHIN_S)


def _post_huge(server: Server, number: int) -> int:
    number += HUGE_NUMBER  # also the seed: an ordinary body's number would give the same ids
    content = gzip.compress(huge_trace(HUGE_SPANS, seed=number, start_ns=(BASE_S + number) * 10**9), 1)
    assert _post_status(server, content) == 200
    return len(content)


def bad_bodies(db: Path, bodies: Bodies) -> bool:
    """Send bodies that inflate to zeros between ordinary ones, and compare the process's memory."""
    server = Server(db, *INGEST)
    bad = gzip.compress(bytes(58_000_000), 9)
    bodies.seconds_for(server, acks=FILE_BODIES)
    before = server.memory_mb("VmRSS")
    refused = sum(_post_status(server, bad) in (400, 413, 503) for _ in range(BAD_BODIES))
    after = server.memory_mb("VmRSS")
    bodies.seconds_for(server, acks=FILE_BODIES)
    bodies.check(server)
    server.stop()
    print(f"{BAD_BODIES} bodies of {len(bad) / 1000:.0f} KB, each 58 MB inflated: {refused} refused, "
          f"memory {before:.0f} MB before, {after:.0f} MB after; {bodies}")  # fmt: skip
    return bool(bodies.lost or refused != BAD_BODIES or after - before > BAD_MB)


def small_bodies(db: Path, bodies: Bodies) -> bool:
    """Send bodies of very many messages, ordinary ones beside them, and SIGTERM beside more."""
    server = Server(db, *INGEST)
    alone_s = [bodies.seconds_for(server, acks=ACKS_BESIDE) for _ in range(3)][-1]
    statuses, costs = set(), list[float]()
    before, size = server.memory_mb("VmHWM"), 0
    for name, content in _attacks():
        begun = server.cpu_s()
        statuses.add(_post_status(server, content, json_body=name.startswith("JSON")))
        costs.append(server.cpu_s() - begun)
        size = max(size, len(content))
    grown = server.memory_mb("VmHWM") - before
    attackers = [threading.Thread(target=_attack, args=(server, content)) for _, content in _attacks()[:4]]
    for attacker in attackers:
        attacker.start()
    bodies.slowest_s = 0.0
    beside_s = bodies.seconds_for(server, acks=ACKS_BESIDE)
    slowest_s = bodies.slowest_s
    bodies.check(server)
    stop_s = server.stop()
    for attacker in attackers:
        attacker.join()
    print(f"{len(costs)} bodies of at most {size / 1000:.0f} KB with up to 64 MB of messages: {sorted(statuses)}, "
          f"at most {max(costs):.2f} CPU-s each, memory +{grown:.0f} MB;")  # fmt: skip
    print(f"  {ACKS_BESIDE} bodies take {alone_s:.2f} s alone, {beside_s:.2f} s beside four attackers "
          f"(the slowest {slowest_s:.2f} s), stop beside them {stop_s:.1f} s; {bodies}")  # fmt: skip
    waited = slowest_s > WAIT_AT_MOST_S
    return bool(bodies.lost or statuses != {413} or grown > BAD_MB or waited or stop_s > STOP_WITHIN_S)


def _attacks() -> list[tuple[str, bytes]]:
    """Return bodies of one kind of message each, as gzip."""
    size = 64 * 2**20 - 4096
    ids = _field(1, b"t" * 16) + _field(2, b"s" * 8)
    nested = _field(9, _field(1, b"k") + _field(2, _field(5, b"\x0a\x02\x2a\x00" * 9000)))
    kinds = {
        "resources": b"\x0a\x00" * (size // 2),
        "spans": _field(1, _field(2, b"\x12\x00" * (size // 2))),
        "minimal spans": _field(1, _field(2, _field(2, ids) * (size // 32))),
        "events": _field(1, _field(2, _field(2, ids + b"\x5a\x00" * (size // 2 - 32)))),
        "attributes": _field(1, _field(2, _field(2, ids + b"\x4a\x00" * 9000) * (size // 18_100))),
        "lists": _field(1, _field(2, _field(2, ids + nested) * (size // 36_200))),
        "unknown fields": b"\xfa\x01\x00" * (size // 3),
        "groups": b"\xfb\x01\xfc\x01" * (size // 4),
        "JSON objects": b'{"resourceSpans":[{}' + b",{}" * (size // 3 - 20) + b"]}",
        "JSON ignored numbers": b'{"other":[1' + b",1" * (size // 2 - 20) + b"]}",
    }
    return [(name, gzip.compress(content, 9)) for name, content in kinds.items()]


def _field(number: int, content: bytes) -> bytes:
    """Return a protobuf field with a length."""
    size, head = len(content), bytearray([number << 3 | 2])
    while size >= 0x80:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*head, size)) + content


def _attack(server: Server, content: bytes) -> None:
    with suppress(OSError, HTTPException):
        while True:
            _post_status(server, content)


def missing_log(db: Path, bodies: Bodies) -> bool:
    """Remove and cut the log under traffic, then kill the process; every acknowledged body is in the file."""
    server = Server(db, *INGEST)
    log = db.with_name(db.name + ".wal")
    bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
    for number in range(10):
        with suppress(OSError):  # a checkpoint has removed it
            log.unlink() if number % 2 else os.truncate(log, log.stat().st_size // 2)
        time.sleep(0.1)
    bodies.end_senders()
    bodies.seconds_for(server, acks=1)
    server.kill()
    server = Server(db, *INGEST)
    bodies.check(server)
    server.stop()
    print(f"log removed and cut ten times, kill -9: {len(bodies.acknowledged)} bodies acknowledged; {bodies}")
    return bodies.wrong


def clock_ahead(db: Path, bodies: Bodies) -> bool:
    """Run with a clock that is a year ahead, start again with the right one; check what is decided."""
    arguments = _config(db, "[collector]\nretention_days = 36500\n")
    server = Server(db, *arguments, environ=_patched(db, CLOCK_AHEAD))
    bodies.seconds_for(server, acks=FILE_BODIES)
    _wait_until_decided(server)
    future = sql(server, f"{SPAN_COUNT} where received_at > now()::TIMESTAMP + interval 300 days")[0][0]
    bodies.seconds_for(server, acks=FILE_BODIES)
    server.stop()
    server = Server(db, *arguments)
    bodies.seconds_for(server, acks=FILE_BODIES)
    decided_s = _wait_until_decided(server)
    bodies.check(server)
    undecided = sql(server, "select count(distinct trace_id) from raw.spans where trace_id not in "
                            "(select trace_id from raw.trace_facts where latest)")[0][0]  # fmt: skip
    server.stop()
    print(f"clock a year ahead ({future:.0f} spans received then), restart with the right one: all decided after "
          f"{decided_s:.0f} s, {undecided:.0f} traces undecided; {bodies}")  # fmt: skip
    return bool(bodies.lost or undecided or not future)


def _config(db: Path, toml: str) -> tuple[str, str]:
    file = db.with_name("ragpulse.toml")
    file.write_text(toml)
    return "--config", str(file)


def _patched(db: Path, code: str) -> dict[str, str]:
    """The variables of a process that runs this code when it starts."""
    db.with_name("sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(db.parent), os.environ.get("PYTHONPATH", "")])}


def _wait_until_decided(server: Server) -> float:
    """Wait until no trace is undecided or the time is over; return the seconds."""
    begun = time.perf_counter()
    while get_json(server, "/api/v1/status")["undecided"]["traces"] and time.perf_counter() - begun < DECIDED_WITHIN_S:
        time.sleep(0.1)
    return time.perf_counter() - begun


def missing_file(db: Path, bodies: Bodies) -> bool:
    """Move the file away under traffic and put it back; then replace it; every acknowledged body is in it."""
    server = Server(db, *INGEST)
    bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
    away = db.rename(db.with_name("away"))
    time.sleep(0.5)
    count, ready = len(bodies.acknowledged), _ready_status(server)
    time.sleep(1.0)
    without_file = len(bodies.acknowledged) - count
    away.rename(db)
    bodies.end_senders()
    bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
    db.rename(away)
    db.write_bytes(b"another file")
    bodies.end_senders()
    server.kill()
    away.replace(db)
    server = Server(db, *INGEST)
    bodies.check(server)
    server.stop()
    print(f"file removed, back, replaced, kill -9: {len(bodies.acknowledged)} bodies acknowledged, {without_file} of")
    print(f"  them without the file, readyz {ready} meanwhile; {bodies}")
    return bodies.wrong or without_file > 0 or ready != 503


def damaged_log(share: float, db: Path, bodies: Bodies) -> bool:
    """Damage the log of a killed process at a share of its length; missing bodies are in the log set aside."""
    Server(db, *INGEST).stop()
    server = Server(db, *INGEST)
    bodies.send_until(server, acks=FILE_BODIES, linger_s=0)
    server.kill()
    bodies.end_senders()
    log = db.with_name(db.name + ".wal")
    damaged = bytearray(log.read_bytes())
    start = int(len(damaged) * share)
    damaged[start : start + 8] = bytes(byte ^ 0xFF for byte in damaged[start : start + 8])
    log.write_bytes(damaged)
    server = Server(db, *INGEST)
    bodies.check(server)
    copies = [file for file in db.parent.glob("*.damaged-*") if file.read_bytes() == damaged]
    logged = sum("bytes cannot be read" in line for line in db.with_suffix(".log").read_text().splitlines())
    server.stop()
    print(f"log of {len(damaged) / 2**20:.0f} MB damaged at {share:.0%}: starts in {server.first_200_s:.2f} s, "
          f"{len(bodies.acknowledged) - bodies.lost} of {len(bodies.acknowledged)} bodies stored,")  # fmt: skip
    print(f"  {bodies}; whole log copied: {len(copies) == 1}, logged: {logged == 1}")
    return bool(bodies.partial or bodies.doubled or len(copies) != 1 or logged != 1)


def odd_queries(db: Path, bodies: Bodies) -> bool:
    """Ask SQL that fails, is too large or answers odd values, while bodies arrive."""
    server = Server(db, environ={"RAGPULSE_MEMORY_MB": "300"})
    bodies.send_until(server, acks=ACKS_BESIDE, linger_s=0)
    statuses = Counter(_asked(server, "/api/v1/sql", json.dumps({"query": query}))[0] for query in ODD_QUERIES)
    wheres = ("true) OR (true", "1/0 = 1", "query LIKE '%' || repeat('a', 9) || chr(1114112)", "factorial(50) > 1")
    statuses.update(_asked(server, f"/api/v1/traces?{urlencode({'where': where})}")[0] for where in wheres)
    bodies.end_senders()
    bodies.check(server)
    server.stop()
    print(f"{statuses.total()} odd queries while bodies arrive: {dict(statuses)}; {bodies}")
    return bodies.wrong or not {200, 400, 503, 504}.issuperset(statuses)


def stalling_judge(db: Path, bodies: Bodies) -> bool:
    """Evaluate with a judge that misbehaves at first, while bodies arrive."""
    with _judge(_misbehaving) as (url, asked):
        server = Server(db, *_config(db, JUDGED.format(url=url)))
        cpu_s, begun = server.cpu_s(), time.perf_counter()
        assert _post_status(server, _questions("asked", 0, QUESTIONS)) == 200
        bodies.seconds_for(server, acks=ACKS_BESIDE)
        without_s = _wait_until_scored(server, "citation_check", begun)
        told = get_json(server, "/api/v1/status")["evaluations"]["waiting"]
        with_s = _wait_until_scored(server, "helpfulness", begun)
        cpu_s = server.cpu_s() - cpu_s
        bodies.check(server, before=HUGE_NUMBER)
        stop_s = server.stop()
    print(f"a judge that stalls, {QUESTIONS} questions: another evaluator is through after {without_s:.0f} s, the "
          f"judge after {with_s:.0f} s and {len(asked)} requests;")  # fmt: skip
    names = ", ".join(one["evaluator"] for one in told)
    print(f"  status told of {names}; {cpu_s:.0f} CPU-s, stop {stop_s:.1f} s; {bodies}")
    is_told = any(one["evaluator"] == "helpfulness" for one in told)
    return bodies.wrong or not is_told or without_s > FLOODED_S or with_s > PAUSED_S or stop_s > STOP_WITHIN_S


def secrets(db: Path, bodies: Bodies) -> bool:
    """Look for planted secrets in answers, files and the log; the judge repeats what it is sent."""
    environ = {"HOUSE_KEY": f"{SECRET}-house", "OPENAI_API_KEY": f"{SECRET}-openai"}
    with _judge(_repeating) as (url, asked):
        toml = JUDGED.format(url=url) + f'api_key_env = "HOUSE_KEY"\nheaders = {{ X-Team = "{SECRET}-team" }}\n'
        server = Server(db, *_config(db, toml), environ=environ)
        bodies.send_until(server, acks=ACKS_BESIDE, linger_s=0)
        assert _post_status(server, _questions(SECRET, 0, 1)) == 200
        _wait_until_scored(server, "helpfulness", time.perf_counter(), 1)
        shown = "".join(_asked(server, path)[1] for path in SHOWN)
        bodies.end_senders()
        bodies.check(server, before=HUGE_NUMBER)
        rows = str(sql(server, "select * from spans where name = 'answer'")) + str(sql(server, "select * from scores"))
        server.stop()
    leaks = {"answers": shown, "rows": rows, "log": db.with_suffix(".log").read_text()}
    found = [place for place, text in leaks.items() if SECRET in text]
    print(f"secrets planted in four places, {len(asked)} requests repeated by the judge: found in {found or 'none'};")
    print(f"  {bodies}")
    return bodies.wrong or bool(found) or SECRET not in "".join(asked)


@contextmanager
def _judge(answer: Callable[[int, str], tuple[int, str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Serve a judge: its address, and what it was sent; a function of number and request answers."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            asked.append(f"{self.headers}{content!r}")
            status, pause, reply = answer(len(asked), asked[-1])
            self.send_response(status)
            self.send_header("Retry-After", pause)
            self.end_headers()
            self.wfile.write(reply.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1#m", asked
        server.shutdown()


def _misbehaving(number: int, _: str) -> tuple[int, str, str]:
    """Ask for a pause for ever, then nest, then state infinite and negative usage, then answer."""
    text = json.dumps({"reason": "so", "score": 3, "verdict": "YES"}) if number > 6 else "[" * 1000 + "]" * 1000
    usage = {"prompt_tokens": 1e999, "completion_tokens": -5}
    reply = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage}
    return (429, "inf", "{}") if number == 1 else (200, "0", json.dumps(reply))


def _repeating(_: int, request: str) -> tuple[int, str, str]:
    return 401, "0", json.dumps({"error": {"message": f"wrong: {request}"}})


def _asked(server: Server, path: str, body: str | None = None) -> tuple[int, str]:
    """Return status and text of an answer."""
    with closing(server.connection()) as connection:
        connection.request("POST" if body else "GET", path, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        return response.status, f"{response.headers}{response.read().decode()}"


def _wait_until_scored(server: Server, evaluator: str, begun: float, count: int = QUESTIONS) -> float:
    """Wait until so many have a result of the evaluator or the time is over; return the seconds since `begun`."""
    query = f"select count(distinct trace_id) from raw.scores where evaluator = '{evaluator}'"
    while sql(server, query)[0][0] < count and time.perf_counter() - begun < 2 * PAUSED_S:
        time.sleep(0.2)
    return time.perf_counter() - begun


def idle_connections(db: Path, bodies: Bodies) -> bool:
    """Open idle connections beside a low limit of open files; ask for health and send bodies meanwhile."""
    server = Server(db, *INGEST)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    health_s = []
    for sent in (b"", SLOW_BODY):
        with ExitStack() as idle:
            for _ in range(IDLE):
                connection = idle.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                connection.sendall(sent)
            for _ in range(3):
                begun = time.perf_counter()
                with closing(server.connection()) as health:
                    get(health, "/healthz")
                health_s.append(time.perf_counter() - begun)
            bodies.seconds_for(server, acks=ACKS_BESIDE)
            files = server.open_files()
    bodies.check(server)
    server.stop()
    print(f"twice {IDLE} idle connections beside a limit of {OPEN_FILES} open files: {files} open, health within "
          f"{max(health_s):.2f} s, acknowledgements within {bodies.slowest_s:.2f} s; {bodies}")  # fmt: skip
    return bodies.wrong or max(health_s) > WAIT_AT_MOST_S or files >= OPEN_FILES


def flood(db: Path, bodies: Bodies) -> bool:
    """Send very many questions of one user, then questions of another service one by one."""
    server = Server(db, environ=_patched(db, FIT_OFTEN))
    questions = [_questions("flood", first, FLOOD_BODY) for first in range(0, FLOOD, FLOOD_BODY)]
    cpu_s = server.cpu_s()
    with closing(server.connection()) as connection:
        for content in questions:
            while post_traces(connection, content).status != 200:
                time.sleep(0.05)
    acks_s, told, fit, begun = [], 0, None, time.perf_counter()
    while time.perf_counter() - begun < FLOODED_S * (1 if fit else 3):
        for _ in range(10):
            content, sent = _questions("quiet", FLOOD + len(acks_s), 1), time.perf_counter()
            with closing(server.connection()) as connection:
                assert post_traces(connection, content).status == 200
            acks_s.append(time.perf_counter() - sent)
            time.sleep(0.1)
        status, fit = get_json(server, "/api/v1/status"), get_json(server, "/api/v1/topics")["fit"]
        told = max(told, status["undecided"]["traces"], status["evaluations"]["pending"])
    evaluated, slowest_s = sql(server, _EVALUATED)[0]
    stored, cpu_s = sql(server, SPAN_COUNT)[0][0], server.cpu_s() - cpu_s
    stop_s = server.stop()
    p99_s = sorted(acks_s)[int(len(acks_s) * 0.99)]
    print(f"{FLOOD} questions of one user: {len(acks_s)} acknowledgements beside them, median {median(acks_s):.2f} s, "
          f"99th percentile {p99_s:.2f} s; {evaluated} evaluated,")  # fmt: skip
    print(f"  the slowest after {slowest_s or 0:.1f} s; {told} waited by status, "
          f"{fit['questions'] if fit else 0} questions in a fit; {cpu_s:.0f} CPU-s, stop {stop_s:.1f} s")  # fmt: skip
    late = p99_s > WAIT_AT_MOST_S or not evaluated or slowest_s > FLOODED_S or stop_s > STOP_WITHIN_S
    return late or stored != FLOOD + len(acks_s) or not told or fit is None


_EVALUATED = """
    select count(distinct trace_id), max(epoch(s.created_at - t.received_at))
    from raw.scores s join raw.spans t using (trace_id) where t.service = 'quiet'"""


def _questions(service: str, first: int, count: int) -> bytes:
    """Return a gzipped body of so many traces, each with a question of its own of one user."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = service
    spans, words, now = resource.scope_spans.add().spans, random.Random(first), time.time_ns()
    for number in range(first + 1, first + count + 1):
        ids = {"trace_id": number.to_bytes(16, "big"), "span_id": number.to_bytes(8, "big")}
        span = spans.add(name="answer", start_time_unix_nano=now - 10**9, end_time_unix_nano=now, **ids)
        question = f"How {text(words, 60)} {number}?"
        texts = {"ragpulse.span.kind": "rag", "input.value": question, "output.value": "It is so.", "user.id": service}
        for key, value in texts.items():
            span.attributes.add(key=key).value.string_value = value
    return gzip.compress(request.SerializeToString(), 1)


class Bodies:
    """Sends numbered bodies, remembers which were acknowledged, and compares with what is stored."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.lost = self.doubled = self.partial = self.unanswered = 0
        self.slowest_s = 0.0
        """The longest wait for an acknowledgement; a scenario may set it to 0."""
        self._next, self._lock, self._threads = 0, threading.Condition(), list[threading.Thread]()
        self._stop = False

    @property
    def wrong(self) -> bool:
        """Whether a body is lost, doubled or incomplete."""
        return bool(self.lost or self.doubled or self.partial)

    def __str__(self) -> str:
        return f"lost {self.lost}, doubled {self.doubled}, incomplete {self.partial}"

    def send_until(self, server: Server, *, acks: int, linger_s: float) -> None:
        """Return after so many more acknowledgements and a pause, while the senders continue."""
        self._stop = False
        goal = len(self.acknowledged) + acks
        self._threads = [threading.Thread(target=self._send, args=(server,)) for _ in range(SENDERS)]
        for thread in self._threads:
            thread.start()
        with self._lock:
            self._lock.wait_for(lambda: len(self.acknowledged) >= goal, timeout=120)
        time.sleep(linger_s)

    def end_senders(self) -> None:
        """Stop sending; return once no request is under way."""
        self._stop = True
        for thread in self._threads:
            thread.join()

    def seconds_for(self, server: Server, *, acks: int) -> float:
        """Send until so many more are acknowledged and all requests have ended; return how long that took."""
        begun = time.perf_counter()
        self.send_until(server, acks=acks, linger_s=0)
        self.end_senders()
        return time.perf_counter() - begun

    def check(self, server: Server, *, before: int = 10**9) -> None:
        """Compare all bodies with the store; rows whose number is `before` or higher are of no body."""
        rows = sql(
            server,
            f"select epoch(date_trunc('second', start_time))::BIGINT - {BASE_S}, count(*),"
            " count(distinct (trace_id, span_id)) from raw.spans group by 1",
        )
        stored = {number: (spans, distinct) for number, spans, distinct in rows if number < before}
        self.lost += len(self.acknowledged - set(stored))
        self.doubled += sum(spans > distinct for spans, distinct in stored.values())
        self.partial += sum(distinct != SPANS for _, distinct in stored.values())
        self.unanswered = len(set(stored) - self.acknowledged)

    def _send(self, server: Server) -> None:
        with closing(server.connection()) as connection:
            while not self._stop:
                with self._lock:
                    number, self._next = self._next, self._next + 1
                content = gzip.compress(body(SPANS, seed=number, start_ns=(BASE_S + number) * 10**9), 1)
                begun = time.perf_counter()
                try:
                    status = post_traces(connection, content).status
                except (OSError, HTTPException):
                    return
                self.slowest_s = max(self.slowest_s, time.perf_counter() - begun)
                if status == 503:
                    time.sleep(0.05)
                if status == 200:
                    with self._lock:
                        self.acknowledged.add(number)
                        self._lock.notify_all()


def _post_status(server: Server, content: bytes, *, json_body: bool = False) -> int:
    with closing(server.connection()) as connection:
        if not json_body:
            return post_traces(connection, content).status
        connection.request(
            "POST", "/v1/traces", content, {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        )
        response = connection.getresponse()
        response.read()
        return response.status


def _ready_status(server: Server) -> int:
    with closing(server.connection()) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status


if __name__ == "__main__":
    sys.exit(main())
