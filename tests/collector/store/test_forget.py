"""A person is forgotten: every table, the judge's record, the frozen sets, and in the end the bytes of the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from stored_units import SPAN_ID, T0, Units, open_store, trace_id
from traffic import rag_trace, send
from waiting import until

from ragpulse_collector.cli import run
from ragpulse_collector.client import ClientError, connect
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.queries.datasets import frozen_cases
from ragpulse_collector.store.retention import Subject, forget, vacuum
from ragpulse_collector.store.schema import TABLES

if TYPE_CHECKING:
    from ragpulse_collector.app import Collector

MARK = "zq7-confidential-marker"
ANN, BOB = 1, 3
"""Units: 1 is Ann's, 2 is of her session and names no user, 3 is Bob's."""


def filled(path: Path) -> EmbeddedStore:
    """A store in which everything of Ann holds the mark, in columns that are not compressed."""
    with duckdb.connect(str(path / "test.duckdb")) as connection:
        connection.execute("CREATE SCHEMA raw")
        for table, columns in TABLES.items():
            plain = re.sub(r" VARCHAR(?=,|$)", " VARCHAR USING COMPRESSION uncompressed", columns)
            connection.execute(f"CREATE TABLE raw.{table} ({plain})")
    store = open_store(path)
    units = Units(store)
    for number, user, session in ((1, MARK, "s-ann"), (2, None, "s-ann"), (3, "bob", "s-bob")):
        text = f"{MARK} asks {number}" if number < BOB else "Bob asks"
        at = T0 + timedelta(minutes=number)
        units.unit(number, at=at, query=text, response=f"{text}, answered", user_id=user, session_id=session)
        ids = {"trace_id": trace_id(number), "span_id": SPAN_ID}
        units.add("contexts", **ids, start_time=at, rank=1, text=text)
        units.add("content_events", **ids, time=at, received_at=at, joined=True, record=json.dumps({"query": text}))
        units.add("labels", **ids, request_time=at, evaluator="tone", comment=text, created_at=at)
        units.add("feedback", feedback_id=trace_id(number), trace_id=ids["trace_id"], time=at, received_at=at,
                  name="thumbs", explanation=text, source="human")  # fmt: skip
        units.add("decisions", **ids, request_time=at, evaluator="tone", latest=True)
        units.add("eval_jobs", job_id=trace_id(number), **ids, request_time=at, evaluator="tone", created_at=at)
        units.add("run_items", run_id="r", score_key=str(number), **ids)
        prompt = f"Judge this: {text}"
        units.add("scores", score_key=str(number), job_id=trace_id(number), **ids, request_time=at, evaluator="tone",
                  source="online", status="ok", normalized=1.0, explanation=text, created_at=at,
                  calls=json.dumps([{"prompt": prompt, "completion": "1"}]))  # fmt: skip
        for key, asked in (("same", prompt), ("other", f"A call whose score was never stored: {text}")):
            reply = json.dumps({"prompt": asked, "completion": "1"})
            units.add("judge_calls", key=f"{key}{number}", judge="j", reply=reply, created_at=at)
    for number in (1, 2, 3):
        case = {"query": f"{MARK} {number}" if number < BOB else "Bob"}
        item = {"query": case["query"], "trace_id": trace_id(number), "frozen": {"case": case, "span_id": SPAN_ID}}
        units.add("datasets", name="frozen tone 2026", query=case["query"], item=json.dumps(item), created_at=T0)
        quoted = json.dumps({"worst": [{"query": case["query"], "trace_b": trace_id(number)}]})
        units.add("runs", run_id=str(number), status="done", spec='{"dataset": "base"}', result=quoted, created_at=T0)
    units.save()
    return store


def rows_of(store: EmbeddedStore) -> dict[str, int]:
    """How many rows each table has."""
    return {table: store.read(f"SELECT count(*) FROM raw.{table}").rows[0][0] for table in TABLES}


def marked(store: EmbeddedStore) -> list[str]:
    """The tables of which a row shows the mark."""
    return [
        table
        for table in TABLES
        if store.read(f"SELECT count(*) FROM raw.{table} t WHERE contains(t::VARCHAR, $mark)", {"mark": MARK}).rows[0][
            0
        ]
    ]


def pruned(store: EmbeddedStore, subject: Subject, identity: str, *, dry_run: bool = False) -> dict[str, int]:
    """Forget as `POST prune` does."""
    return forget(store, subject, identity, also={}, dry_run=dry_run, actor="dpo")


@pytest.mark.parametrize(("subject", "identity"), [("user", MARK), ("session", "s-ann")])
def test_nothing_of_a_person_is_left(tmp_path: Path, subject: Subject, identity: str) -> None:
    """Rows in every table and the frozen answers; then the bytes of file and log. Bob keeps everything."""
    store = filled(tmp_path)
    file = tmp_path / "test.duckdb"
    before = rows_of(store)
    assert {"spans", "contents", "contexts", "scores", "judge_calls", "labels", "feedback", "datasets", "runs"} <= set(
        marked(store)
    )
    store.read("CHECKPOINT")
    assert MARK.encode() in file.read_bytes()
    counted = pruned(store, subject, identity, dry_run=True)
    assert rows_of(store) == before
    assert pruned(store, subject, identity) == counted
    assert counted["spans"] == counted["scores"] == counted["labels"] == counted["run_items"] == 2
    assert (counted["judge_calls"], counted["datasets"], counted["runs"], counted["trace_facts"]) == (4, 2, 2, 2)
    assert marked(store) == []
    left = rows_of(store)
    assert {table: left[table] for table in counted} == {
        table: before[table] - count for table, count in counted.items()
    }
    [(detail, actor)] = store.read("SELECT detail, actor FROM raw.audit").rows
    assert (json.loads(detail), actor) == ({"reason": subject, **counted}, "dpo")
    assert [case["query"] for case in frozen_cases(store, "frozen tone 2026").values()] == ["Bob"]
    store.purge()
    store.close()
    vacuum(file)
    for path in tmp_path.iterdir():
        assert MARK.encode() not in path.read_bytes(), path


def test_one_trace_takes_the_prompts_that_quote_it_along(tmp_path: Path) -> None:
    """The later turn of its session stays; the prompt in which a judge read the history does not."""
    store = filled(tmp_path)
    assert pruned(store, "trace", trace_id(1))["spans"] == 1
    calls = store.read("SELECT calls FROM raw.scores ORDER BY score_key").rows
    assert [row[0] is None for row in calls] == [True, False]
    assert store.read("SELECT count(*) FROM raw.judge_calls").rows == [(3,)]
    assert store.read("SELECT count(*) FROM raw.spans").rows == [(2,)]
    store.close()


def test_unknown_ids_match_nothing(tmp_path: Path) -> None:
    """Nothing is deleted, and the audit has no entry."""
    store = filled(tmp_path)
    before = rows_of(store)
    for subject, identity in (("user", "' OR true --"), ("session", ""), ("trace", trace_id(99))):
        assert pruned(store, subject, identity) == {}  # type: ignore[arg-type]
    assert rows_of(store) == before
    store.close()


def test_prune_over_http_and_from_the_terminal(
    collector: Callable[..., Collector], capsys: pytest.CaptureFixture[str]
) -> None:
    """Dry run, question, deletion, what is out of reach; an id that is not there says so."""
    client = connect(collector().url)
    for number, user in ((1, "ann"), (2, "bob")):
        send(client.url, rag_trace(number, **{"user.id": user, "session.id": f"s-{user}"}))
    until(client, "SELECT * FROM scores WHERE evaluator = 'refusal'", 2)
    before = client.call("POST prune", {"user": "ann", "dry_run": True})
    assert before["deleted"]["spans"] == 3

    def told(*arguments: str) -> str:
        assert run(["prune", "--url", client.url, *arguments]) == 0
        return capsys.readouterr().out

    assert "spans: 3" in told("--user", "ann", "--dry-run")
    assert "nothing matched" in told("--user", "nobody")
    assert "nothing matched" in told("--trace", "0" * 32, "--yes")
    said = told("--user", "ann", "--yes")
    assert "spans: 3" in said
    assert "snapshots" in said
    assert [row["user_id"] for row in client.call("GET traces")["traces"]] == ["bob"]
    assert client.sql("SELECT count(*) AS n FROM raw.audit WHERE contains(detail, 'ann')").rows() == [{"n": 0}]
    for wrong, says in (
        ({"trace": "abc"}, "no trace id"),
        ({"user": "a", "session": "b"}, "name one of"),
        ({}, "name one"),
    ):
        with pytest.raises(ClientError, match=says):
            client.call("POST prune", wrong)
    assert run(["prune", "--url", client.url, "--user", "a", "--trace", "b"]) == 2


def test_every_table_says_whether_it_belongs_to_a_trace() -> None:
    """A new table with texts must be deleted with its trace: those without a trace are named here, with care."""
    without = {name for name, columns in TABLES.items() if "trace_id UUID" not in columns}
    monitoring = {"monitors", "monitor_states", "alert_messages"}
    others = {"meta", "runs", "judge_calls", "ledger", "rules", "audit", "datasets"}
    ids_alone = {"forgotten"}  # digests
    topics = {"topics", "topic_fits"}  # topics/forgetting.py removes their texts
    assert without == others | monitoring | ids_alone | topics
