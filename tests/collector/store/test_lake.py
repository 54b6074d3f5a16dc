"""The lake for real: PostgreSQL, S3, several processes, killed and restarted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import pytest
from lake_servers import BUCKET, SOURCES, Absent, Answer, LakeCollector, Postgres, SeaweedFS, lake_python

HERE = Path(__file__).parent
Serve = Callable[[str, str], LakeCollector]


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the lake's environment."""
    try:
        return lake_python()
    except Absent as error:
        pytest.skip(str(error))


class Process:
    """An ingesting process that answers a number once its body is in the lake."""

    def __init__(self, lake: Lake, db: str) -> None:
        command = [str(lake.python), str(HERE / "lake_process.py"), "ingest", db]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=lake.environ
        )
        assert self._out.readline() == "ready\n"

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout

    def ask(self, number: int) -> None:
        """Hand over a body."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()

    def answer(self) -> int:
        """Wait until a body is stored."""
        return int(self._out.readline())

    def kill(self) -> set[int]:
        """kill -9; returns what it had acknowledged unread."""
        self._process.kill()
        return {int(line) for line in self._process.communicate()[0].splitlines() if line.isdigit()}

    def stop(self) -> None:
        """Let it drain and end."""
        self._process.communicate(timeout=300)
        assert self._process.returncode == 0


@pytest.fixture(scope="module")
def lake(python: Path) -> Iterator[Lake]:
    """A PostgreSQL and an S3 server; every test takes a database and a prefix of its own."""
    try:
        with Postgres() as catalog, SeaweedFS(python) as files:
            yield Lake(python, catalog, files)
    except Absent as error:
        pytest.skip(str(error))


class Lake(NamedTuple):
    """The servers of a lake."""

    python: Path
    catalog: Postgres
    files: SeaweedFS

    def make(self, name: str) -> str:
        """Make an empty lake; returns its `db`."""
        return f"ducklake:postgres:{self.catalog.database(name)} data_path=s3://{BUCKET}/{name}/"

    @property
    def environ(self) -> dict[str, str]:
        """What a process over the lake finds its sources and its S3 keys by."""
        return os.environ | self.files.environ | {"PYTHONPATH": SOURCES}


@pytest.fixture
def serve(lake: Lake, tmp_path: Path) -> Iterator[Serve]:
    """Start collectors over a lake."""
    started: list[LakeCollector] = []

    def start(db: str, roles: str) -> LakeCollector:
        started.append(LakeCollector(lake.python, db, lake.files, "--roles", roles, folder=tmp_path))
        return started[-1]

    yield start
    for collector in started:
        collector.kill()


def test_two_processes_share_a_lake_through_kills(lake: Lake) -> None:
    """Round-robin bodies, one process killed and restarted, every acknowledged span there once, one decides."""
    db = lake.make("kills")
    processes = [Process(lake, db), Process(lake, db)]
    acknowledged: set[int] = set()
    for number in range(0, 12, 2):
        for offset, process in enumerate(processes):
            process.ask(number + offset)
        acknowledged |= {process.answer() for process in processes}
    processes[1].ask(12)
    acknowledged |= processes[1].kill()
    processes[1] = Process(lake, db)
    resent = set(range(13)) - acknowledged
    for number in sorted(resent | {13, 0}):
        processes[1].ask(number)
        acknowledged.add(processes[1].answer())
    for process in processes:
        process.stop()
    report = _decide(lake, db)
    assert acknowledged == set(range(14))
    assert report["spans"] == [14 * 50, 14 * 50, 14, 14 * 50]
    assert report["facts"] == [14, 14 * 50, 14]
    assert (report["decided"], report["decisions"]) == ([14, 0], 14)
    assert report["taken"] == [True, False, True, True]
    assert report["files"][1] < report["files"][0]
    assert report["pruned"] == [6 * 50, 0], "days are whole files: nothing is left that is deleted in part"


@pytest.mark.parametrize("away", ["catalog", "files"])
def test_an_outage_loses_nothing_that_was_acknowledged(lake: Lake, serve: Serve, away: str) -> None:
    """PostgreSQL or S3 away: 503 with Retry-After to senders and readers; back: stored again, by the same process."""
    collector = serve(lake.make(away), "ingest")
    assert [_send(collector, number).status for number in range(2)] == [200, 200]
    server = getattr(lake, away)
    server.stop()
    refused = [_send(collector, 2), _send(collector, 3), collector.ask("GET", "/api/v1/traces")]
    alive = collector.ask("GET", "/healthz").status
    server.start()
    assert [answer.status for answer in refused] == [503] * 3
    assert [answer.retry_after for answer in refused] == ["1"] * 3
    assert b"password" not in b"".join(answer.body for answer in refused)
    assert [alive, *(_send(collector, number).status for number in (2, 3, 4))] == [200] * 4
    assert collector.sql("SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans") == [[320, 320]]
    assert collector.stop() == 0


@pytest.mark.parametrize("receivers", [1, 2])
def test_a_commit_whose_answer_was_lost_is_shown_once(lake: Lake, serve: Serve, receivers: int) -> None:
    """PostgreSQL ends after it commits and before it answers; the sender retries, with the same collector or another.

    DuckLake has deleted the files of that commit: it is undone, and everything can be read.
    """
    db = lake.make(f"lost_{receivers}")
    collectors = [serve(db, "ingest") for _ in range(receivers)]
    assert _send(collectors[0], 0).status == 200
    body = _rag_body(traces=20)
    with ThreadPoolExecutor(1) as pool:
        lake.catalog.hold_commits()
        lost = pool.submit(collectors[0].ask, "POST", "/v1/traces", body)
        _until(lambda: lake.catalog.held_commits() == 1)
        lake.catalog.stop()
        assert lost.result(60).status == 503
    lake.catalog.start()
    lake.catalog.answer_commits()
    _until(lambda: collectors[-1].ask("POST", "/v1/traces", body).status == 200)
    assert _send(collectors[0], 1).status == 200
    assert _shown(collectors[-1]) == _ONCE
    serve(db, "evaluate")
    _until(lambda: _decided(collectors[0]) == 16 + 16 + 20)
    assert _shown(collectors[0]) == _ONCE
    listed = json.loads(collectors[0].ask("GET", "/api/v1/traces?service=lost&limit=100").body)["traces"]
    assert [trace["n_spans"] for trace in listed] == [2] * 20


def test_a_collector_killed_while_its_commit_was_in_doubt(lake: Lake, serve: Serve) -> None:
    """PostgreSQL has the commit, DuckLake deleted its files, the process is gone: the next start undoes the commit.

    Everything that was acknowledged is readable, and what the sender sends again is stored once.
    """
    db = lake.make("doubt")
    first = serve(db, "ingest")
    assert [_send(first, number).status for number in (0, 1)] == [200, 200]
    body = _rag_body(traces=20)
    with ThreadPoolExecutor(1) as pool:
        lake.catalog.hold_commits()
        lost = pool.submit(first.ask, "POST", "/v1/traces", body)
        _until(lambda: lake.catalog.held_commits() == 1)
        lake.catalog.stop()
        assert lost.result(60).status == 503
    first.kill()
    lake.catalog.start()
    lake.catalog.answer_commits()
    second = serve(db, "ingest")
    log = second.log.read_text()
    assert log.count(": undone; nothing of it was acknowledged. Missing: s3://") == 1
    assert second.sql("SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans") == [[128, 128]]
    _until(lambda: second.ask("POST", "/v1/traces", body).status == 200)
    assert _shown(second) == _ONCE | {"traces": 16 + 16 + 20}
    assert "undone" not in serve(db, "ingest").log.read_text()


def test_nothing_is_undone_where_all_files_are_elsewhere(lake: Lake, serve: Serve) -> None:
    """A bucket without any file of the lake is the wrong one: the catalog stays as it is, and the log says why."""
    lake.files.make_bucket("wrong")
    db = lake.make("elsewhere").replace(f"s3://{BUCKET}/", "s3://wrong/")
    first = serve(db, "ingest")
    assert [_send(first, number).status for number in range(3)] == [200] * 3
    first.kill()
    lake.files.drop_bucket("wrong")
    lake.files.make_bucket("wrong")
    files = "SELECT count(*), count(end_snapshot) FROM ducklake_data_file"
    before = lake.catalog.ask("elsewhere", files)
    second = serve(db, "ingest")
    assert "is this the right bucket?" in second.log.read_text()
    assert lake.catalog.ask("elsewhere", files) == before


def test_maintenance_whose_answer_was_lost_loses_no_row(lake: Lake, serve: Serve) -> None:
    """PostgreSQL has removed the rows that were written into a file: the file stays although the COMMIT failed."""
    db = lake.make("flush")
    command = [str(lake.python), str(HERE / "lake_process.py"), "flush", db]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=lake.environ
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        lake.catalog.hold_commits()
        process.stdin.write("go\n")
        process.stdin.flush()
        _until(lambda: lake.catalog.held_commits() == 1)
        lake.catalog.stop()
        assert process.stdout.readline() == "failed\n"
        process.kill()
    lake.catalog.start()
    lake.catalog.answer_commits()
    flushed = "SELECT count(*) FROM ducklake_data_file JOIN ducklake_table USING (table_id) WHERE table_name = 'audit'"
    assert lake.catalog.ask("flush", flushed) == [["1"]]
    collector = serve(db, "ingest")
    assert collector.sql("SELECT count(DISTINCT detail) FROM raw.audit") == [[5]]
    assert collector.stop() == 0


def test_writing_goes_on_after_maintenance(lake: Lake) -> None:
    """The plan of an INSERT must not outlive its table: that ended the process."""
    assert _asked(lake, "maintain", lake.make("maintained")) == [[75]]


def test_a_person_is_forgotten(lake: Lake, tmp_path: Path) -> None:
    """The text is in a file before, and in none after the old snapshots expired; what is not of that person stays.

    Evaluations of that person's trace that end afterwards are known, so that the others go on.
    """
    db = f"ducklake:postgres:{lake.catalog.database('forgotten')} data_path={tmp_path}/"
    assert _asked(lake, "forgotten", db) == [1, 1, 0, [["bob", "nothing of Ann's"]], [f"{1:032x}"]]


def test_a_span_stored_by_two_collectors_is_removed_once(lake: Lake, serve: Serve) -> None:
    """A sender that retries with another collector, though the first one stored its body: one copy stays."""
    db = lake.make("twice")
    collectors = [serve(db, "ingest") for _ in range(2)]
    body = _rag_body(traces=20)
    for collector in collectors:
        assert [_send(collector, 0).status, _send(collector, 1).status] == [200, 200]
        assert collector.ask("POST", "/v1/traces", body).status == 200
    assert _shown(collectors[0])["spans"] > _ONCE["spans"]
    serve(db, "evaluate")
    _until(lambda: _decided(collectors[0]) == _ONCE["traces"])
    assert [_shown(collector) for collector in collectors] == [_ONCE] * 2


def test_a_collector_without_its_bucket_is_not_ready(lake: Lake, serve: Serve) -> None:
    """`/readyz` names the bucket that takes no files, says 200 once it does, and leaves no file behind."""
    lake.files.make_bucket("other")
    db = lake.make("bucket").replace(f"s3://{BUCKET}/", "s3://other/")
    collector = serve(db, "ingest")
    assert lake.files.files("other") == []
    lake.files.drop_bucket("other")
    _until(lambda: collector.ask("GET", "/readyz").status == 503)
    assert b"no file can be written to s3://other/bucket/" in collector.ask("GET", "/readyz").body
    lake.files.make_bucket("other")
    _until(lambda: collector.ask("GET", "/readyz").status == 200)
    assert lake.files.files("other") == []


def test_a_leader_goes_on_after_the_catalog_was_away(lake: Lake, serve: Serve) -> None:
    """The one that decides waits through an outage, takes the lease again and decides; others can end meanwhile."""
    db = lake.make("leader")
    ingest = serve(db, "ingest")
    leader, second = (serve(db, "evaluate,maintain") for _ in range(2))
    _send(ingest, 1)
    _until(lambda: _decided(ingest) == 16)
    lake.catalog.stop()
    _until(lambda: leader.ask("GET", "/api/v1/traces").status == 503)
    assert second.stop() == 0
    lake.catalog.start()
    assert _send(ingest, 2).status == 200
    _until(lambda: _decided(ingest) == 32)
    assert [leader.stop(), ingest.stop()] == [0, 0]


def test_a_reader_goes_on_while_another_process_merges(lake: Lake, serve: Serve) -> None:
    """Rows that PostgreSQL kept and files that were many have moved: whoever had the catalog open finds them."""
    db = lake.make("merged")
    ingest = serve(db, "ingest")
    for number in range(3):
        assert _send(ingest, number).status == 200
        assert _decided(ingest) == 0
    assert _decide(lake, db)["decided"] == [48, 0]
    assert _decided(ingest) == 48
    assert _send(ingest, 3).status == 200
    assert ingest.sql("SELECT count(*), count(DISTINCT (trace_id, span_id)) FROM raw.spans") == [[256, 256]]
    assert ingest.ask("GET", "/api/v1/traces").status == 200


def test_a_question_under_way_is_answered_though_the_lake_is_opened_anew(lake: Lake) -> None:
    """It ends on the connection it began on, whole; nobody waits for it meanwhile."""
    assert _asked(lake, "reopen", lake.make("reopened")) == [[[0]], [[0]]]


def _send(collector: LakeCollector, number: int) -> Answer:
    spans = [
        {
            "traceId": f"{number * 16 + i // 4 + 1:032x}", "spanId": f"{i + 1:016x}", "name": "n",
            "startTimeUnixNano": str(time.time_ns()), "endTimeUnixNano": str(time.time_ns()),
        }
        for i in range(64)
    ]  # fmt: skip
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    return collector.ask("POST", "/v1/traces", body)


_ONCE = {"spans": 64 + 64 + 40, "contents": 40, "contexts": 60, "traces": 16 + 16 + 20, "their spans": 64 + 64 + 40}


def _shown(collector: LakeCollector) -> dict[str, int]:
    """Count what the views show."""
    counts = {
        "spans": "count(*) FROM spans",
        "contents": "count(*) FROM raw.contents",
        "contexts": "count(*) FROM contexts",
        "traces": "count(*) FROM traces",
        "their spans": "sum(n_spans)::BIGINT FROM traces",
    }
    return {name: collector.sql(f"SELECT {count}")[0][0] for name, count in counts.items()}


def _rag_body(*, traces: int) -> bytes:
    """A body of traces with two spans each: a question, and a search with three documents."""
    at = str(time.time_ns())
    times = {"startTimeUnixNano": at, "endTimeUnixNano": at}
    documents = {f"retrieval.documents.{i}.document.content": f"document {i}" for i in range(3)}
    kinds = {
        "1": {"openinference.span.kind": "CHAIN", "input.value": "why?", "output.value": "because"},
        "2": {"openinference.span.kind": "RETRIEVER", "input.value": "why?", **documents},
    }
    spans = [
        {
            "traceId": f"{trace + 1:04x}{'7' * 28}", "spanId": span * 16, "name": span, **times,
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
            **({} if span == "1" else {"parentSpanId": "1" * 16}),
        }
        for trace in range(traces)
        for span, attributes in kinds.items()
    ]  # fmt: skip
    service = {"key": "service.name", "value": {"stringValue": "lost"}}
    resource = {"resource": {"attributes": [service]}, "scopeSpans": [{"spans": spans}]}
    return json.dumps({"resourceSpans": [resource]}).encode()


def _decided(collector: LakeCollector) -> int:
    count: int = collector.sql("SELECT count(*) FROM raw.trace_facts WHERE latest")[0][0]
    return count


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def _decide(lake: Lake, db: str) -> dict[str, Any]:
    found: dict[str, Any] = _asked(lake, "decide", db)
    return found


def _asked(lake: Lake, role: str, db: str) -> Any:
    command = [str(lake.python), str(HERE / "lake_process.py"), role, db]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=lake.environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the lake's servers are set up for Linux")
