"""Retention, vacuum, snapshot, export, search, remap, migrations: the store over its life."""

from __future__ import annotations

import gzip
import random
import re
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from spans import Span, span_batch, spans_of

from ragpulse_collector.api.models import TraceChoice
from ragpulse_collector.app.wiring import keep_limits
from ragpulse_collector.cli import cli
from ragpulse_collector.conventions import decode
from ragpulse_collector.operations.traces import list_sql
from ragpulse_collector.records import ContextRecord, SpanBatch
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.settings import CollectorSettings
from ragpulse_collector.store import EmbeddedStore, FileReader, StoreError, Transaction, migrations, schema
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.migrations import migrate_file
from ragpulse_collector.store.queries.traces import holds_words, requests_since, words
from ragpulse_collector.store.retention import prune, prune_service, prune_to_size, vacuum

HOUR_NS = 3_600_000_000_000


def _hourly(kit: Any, hours: int, **fields: Any) -> list[Span]:
    """One root a trace an hour, the first at the start."""
    return [
        kit.span(1, kind="rag", trace_id=f"{n + 1:032x}", start_ns=kit.start_ns + n * HOUR_NS, end_ns=kit.start_ns
                 + n * HOUR_NS + 10**6, query=f"question {n}", **fields)
        for n in range(hours)
    ]  # fmt: skip


def test_what_is_older_than_its_time_goes(kit: Any, rows: Any) -> None:
    """By the time of the request, in every table that ages, with one line in the audit; a second run does nothing."""
    store = kit.store()
    kit.send(store, *_hourly(kit, 10, contexts=[ContextRecord(rank=1, text="a")]))
    Sampler(store).decide(kit.later(3))
    cutoff = kit.start + timedelta(hours=4)
    assert prune(store, older_than=cutoff, dry_run=True).rows["spans"] == 4
    done = prune(store, older_than=cutoff, actor="test")
    left = {table: rows(store, f"SELECT count(*) FROM raw.{table}")[0][0] for table in done.rows}
    assert done.rows == {"spans": 4, "contents": 4, "contexts": 4, "trace_facts": 4, "decisions": 16, "eval_jobs": 16}
    assert left == {"spans": 6, "contents": 6, "contexts": 6, "trace_facts": 6, "decisions": 24, "eval_jobs": 24}
    assert rows(store, "SELECT actor, action FROM raw.audit") == [("test", "prune")]
    assert prune(store, older_than=cutoff).rows == {}


def test_a_service_goes_with_all_of_its_traces(kit: Any, rows: Any) -> None:
    """Spans, texts, decisions and jobs of each trace it took part in; other services' own traces stay."""
    store, mine = kit.store(), _hourly(kit, 3, service="shop", contexts=[ContextRecord(rank=1, text="a")])
    theirs = [replace(span, trace_id=f"f{span.trace_id[1:]}", service="bank") for span in _hourly(kit, 2)]
    shared = replace(theirs[1], span_id=f"{7:016x}", parent_span_id=theirs[1].span_id, service="shop", kind="tool")
    kit.send(store, *mine, *theirs, shared)
    Sampler(store).decide(kit.later(3))
    assert prune_service(store, "nobody").rows == {}
    would = prune_service(store, "shop", dry_run=True).rows
    assert prune_service(store, "shop", actor="test").rows == would
    assert would["spans"] == 5
    assert would["trace_facts"] == 4
    assert rows(store, "SELECT DISTINCT service FROM traces") == [("bank",)]
    assert [rows(store, f"SELECT count(*) FROM {view}")[0][0] for view in ("spans", "contexts", "decisions")] == [
        1,
        0,
        4,
    ]
    assert rows(store, "SELECT actor, action, detail->>'service' FROM raw.audit") == [("test", "prune", "shop")]


def test_a_service_may_go_earlier_than_the_others(kit: Any, rows: Any) -> None:
    """Its traces by its own limit, those of others by theirs; a longer limit than the others' is refused."""
    store = kit.store()
    traces = _hourly(kit, 10)
    kit.send(store, *(replace(span, service="shop" if n % 2 else "bank") for n, span in enumerate(traces)))
    settings = CollectorSettings(retention_days=8 / 24, retention_days_by_service={"shop": 4 / 24})
    keep_limits(store, settings, now=kit.start + timedelta(hours=9.5))
    left = rows(store, "SELECT service, count(*), min(start_time) FROM spans GROUP BY ALL ORDER BY 1")
    assert left == [("bank", 4, kit.start + timedelta(hours=2)), ("shop", 2, kit.start + timedelta(hours=7))]
    assert rows(store, "SELECT detail->>'reason', detail->>'service' FROM raw.audit") == [
        ("age", None),
        ("age", "shop"),
    ]
    with pytest.raises(ValueError, match="has more than retention_days"):
        CollectorSettings(retention_days_by_service={"shop": 31})


def _filled(kit: Any) -> Any:
    """A store of 4,000 traces with long answers that do not compress."""
    store, noise = kit.store(), random.Random(1)
    for part in range(4):
        hours = _hourly(kit, 1_000)
        long = (replace(s, trace_id=f"{part}{s.trace_id[1:]}", response=noise.randbytes(640).hex()) for s in hours)
        kit.send(store, *long)
    return store


def test_a_file_beyond_its_size_loses_its_oldest(kit: Any, rows: Any) -> None:
    """Enough of the oldest goes to come under the limit; below the limit nothing does. The audit says what and why."""
    store = _filled(kit)
    used = store.used_bytes()
    assert prune_to_size(store, used) == []
    limit = used // 2
    removed = sum(step.rows["spans"] for step in prune_to_size(store, limit, actor="test"))
    assert 0.9 * limit <= store.used_bytes() <= limit
    assert rows(store, "SELECT max(start_time) FROM raw.spans") == [(kit.start + timedelta(hours=999),)]
    audit = rows(store, "SELECT actor, detail->>'reason', (detail->>'spans')::INT, (detail->>'used_bytes')::BIGINT,"
                        " (detail->>'max_bytes')::BIGINT FROM raw.audit ORDER BY created_at")  # fmt: skip
    assert {(actor, reason, most) for actor, reason, _, _, most in audit} == {("test", "size", limit)}
    assert audit[0][3] == used
    assert sum(spans for *_, spans, _, _ in audit) == removed


def test_size_retention_deletes_nothing_a_second_time(kit: Any, rows: Any) -> None:
    """Blocks are freed later than rows are deleted; what is live counts, so that further rounds change nothing."""
    store = _filled(kit)
    limit = store.used_bytes() * 9 // 10
    prune_to_size(store, limit)
    left = rows(store, "SELECT count(*) FROM raw.spans")[0][0]
    for _ in range(7):
        assert prune_to_size(store, limit) == []
    assert rows(store, "SELECT count(*) FROM raw.spans") == [(left,)]
    assert 0.9 * 0.9 * 4_000 <= left < 4_000


def test_long_texts_are_compressed_in_a_file_and_by_vacuum_in_an_older_one(tmp_path: Path) -> None:
    """Texts and attributes are stored with zstd; the file of 0.1 is told about, and changed by a vacuum."""
    path = tmp_path / "old.duckdb"
    path.write_bytes(gzip.decompress((Path(__file__).parents[1] / "fixtures" / "store-0.1.duckdb.gz").read_bytes()))
    migrate_file(path, in_place=True)
    assert "compress the texts" in CliRunner().invoke(cli, ["vacuum", "--dry-run", "--db", str(path)]).output
    tables = ("traces", "contexts", "scores")
    with closing(FileReader(path)) as reader:
        counts = [reader.read(f"SELECT count(*) FROM {table}").rows for table in tables]
        views = reader.read("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").rows
    vacuum(path)
    assert "compress the texts" not in CliRunner().invoke(cli, ["vacuum", "--dry-run", "--db", str(path)]).output
    EmbeddedStore(tmp_path / "new.duckdb", decode=decode).close()
    for file in (path, tmp_path / "new.duckdb"):
        with duckdb.connect(str(file), read_only=True) as connection:
            told = dict(connection.execute("SELECT table_name, sql FROM duckdb_tables()").fetchall())
        assert [told[table].count("ZSTD") for table in ("contents", "contexts", "spans")] == [2, 1, 1]
    with closing(FileReader(path)) as reader:
        assert [reader.read(f"SELECT count(*) FROM {table}").rows for table in tables] == counts
        assert reader.read("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").rows == views


def test_freed_space_is_given_back_by_vacuum(kit: Any) -> None:
    """A closed file is rewritten smaller with the same content, by about as much as was promised."""
    store = kit.store()
    random_ = random.Random(1)
    kit.send(store, *(replace(span, response=random_.randbytes(4_000).hex()) for span in _hourly(kit, 3_000)))
    kit.close()
    store = kit.store()
    prune(store, older_than=kit.start + timedelta(hours=2_990))
    kit.close()
    told = CliRunner().invoke(cli, ["vacuum", "--dry-run", "--db", str(kit.path)]).output
    size, gain = (int(number.replace(",", "")) for number in re.findall(r" ([\d,]{5,})", told))
    before, after = vacuum(kit.path)
    assert size == before
    assert before - after == pytest.approx(gain, rel=0.2)
    reader = FileReader(kit.path)
    assert reader.read("SELECT count(*) FROM spans").rows == [(10,)]
    reader.close()


def test_a_snapshot_opens_in_another_process_while_spans_keep_coming(kit: Any, tmp_path: Path) -> None:
    """It holds everything stored before, views and macros included, and leaves nothing behind."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", query="q"))
    target = store.snapshot(tmp_path / "copies" / "copy.duckdb")
    kit.send(store, kit.span(2))
    copy = duckdb.connect(str(target), read_only=True)
    assert copy.execute("SELECT span_id, query FROM spans").fetchall() == [(f"{1:016x}", "q")]
    assert copy.execute("SELECT * FROM quality('e', '2026-01-01', '2027-01-01')").fetchall() == []
    copy.close()
    assert {path.name for path in tmp_path.iterdir()} == {"copies", "t.duckdb", "t.duckdb.wal"}
    with pytest.raises(StoreError, match="exists already"):
        store.snapshot(target)


def test_a_closed_file_gives_snapshots_and_exports_too(kit: Any, tmp_path: Path) -> None:
    """The command line's `--db` needs no collector for getting data out."""
    kit.send(kit.store(), kit.span(1, query="q"))
    kit.close()
    reader = FileReader(kit.path)
    assert len(reader.export(tmp_path / "out")) == 5
    copy = FileReader(reader.snapshot(tmp_path / "copy.duckdb"))
    assert copy.read("SELECT query FROM spans").rows == [("q",)]
    copy.close()
    reader.close()


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_holds_the_views(kit: Any, tmp_path: Path, form: Any) -> None:
    """One file a view with the promised columns, readable by anything that reads the format."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", query="it's"))
    files = store.export(tmp_path / "it's out", format=form)
    reader = "read_parquet" if form == "parquet" else "read_json"
    connection = duckdb.connect()
    found = connection.execute(f"SELECT trace_id, query FROM {reader}(?)", [str(files[1])]).fetchall()
    assert [file.name for file in files] == [
        f"{view}.{form}" for view in ("traces", "spans", "contexts", "scores", "decisions")
    ]
    assert [(str(t).replace("-", ""), q) for t, q in found] == [(kit.trace, "it's")]
    connection.close()


def test_an_unknown_format_and_an_existing_file_are_refused(kit: Any, tmp_path: Path) -> None:
    """The error names the fix and nothing is written."""
    store = kit.store()
    with pytest.raises(StoreError, match="parquet or jsonl"):
        store.export(tmp_path / "out", format="csv")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "spans.parquet").write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        store.export(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["spans.parquet"]


def test_search_finds_every_word_in_any_case(kit: Any) -> None:
    """Newest first, in query or response; signs that SQL patterns use are plain text."""
    store = kit.store()
    kit.send(
        store,
        kit.span(1, query="How do I return shoes?", response="Within 30 days."),
        kit.span(2, query="Discount?", response="A RETURN earns 100% credit for shoes"),
        kit.span(3, query="something else", response="return_policy"),
    )

    def found(text: str) -> list[int]:
        holds, parameters = holds_words(text)
        contents = "SELECT *, NULL::VARCHAR AS user_id, NULL::VARCHAR AS session_id FROM raw.contents"
        read = store.read(f"SELECT span_id FROM ({contents}) WHERE {holds} ORDER BY start_time DESC", parameters)
        return [number & 0xF for (number,) in read.rows]

    assert found("return shoes") == [2, 1]
    assert found('"return shoes"') == [1]
    assert found("100%") == [2]
    assert found("return_policy") == [3]
    assert found("e%s") == found("absent") == []
    assert found("") == [3, 2, 1]
    assert words('a "b c" d') == ["a", "b c", "d"]


def test_remap_rewrites_what_changed_once(kit: Any, rows: Any) -> None:
    """Columns are derived again, texts and contexts stay whole, the trace is rolled up again, a second run is idle."""
    store = kit.store()
    contexts = [ContextRecord(rank=1, id="d", text="a", score=0.5, metadata='{"a":1}'), ContextRecord(rank=2)]
    kit.send(store, kit.span(1, kind="rag", query="q", contexts=contexts, tags=["x"]), kit.span(2, 1, "other"))
    sampler = Sampler(store)
    sampler.decide(kit.later(3))
    seen: list[Span] = []

    def derive(batch: SpanBatch) -> SpanBatch:
        spans = spans_of(batch)
        seen.extend(spans)
        return span_batch([replace(span, kind="llm", model="m") if span.kind == "other" else span for span in spans])

    kit.later(60)
    assert remap(store, derive) == (2, 1)
    assert remap(store, derive) == (2, 0)
    assert (seen[0].query, seen[0].contexts, seen[0].tags) == ("q", contexts, ["x"])
    assert rows(store, "SELECT span_id, kind FROM spans ORDER BY 1") == [(f"{1:016x}", "rag"), (f"{2:016x}", "llm")]
    sampler.decide(kit.later(3))
    assert rows(store, "SELECT model, n_spans, late_spans FROM traces") == [("m", 2, 0)]


def test_an_older_version_counted_every_root_until_remap(kit: Any, rows: Any) -> None:
    """The upgrade leaves the past as it is, and its time in the file; remap counts it anew, once; the mark goes."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag", query="q"), kit.span(2, trace_id="2" * 32, kind="embedding", query="chunk"))
    Sampler(store).decide(kit.later(3))
    for statement in (
        "UPDATE raw.trace_facts SET n_units = 1, unit_span_id = 2 WHERE n_units = 0",
        "UPDATE raw.meta SET value = '12' WHERE key = 'schema_version'",
    ):
        store.write(partial(_run, statement)).result(60)
    kit.close()
    again = kit.store()
    counts = "SELECT n_units, count(*) FROM traces GROUP BY ALL ORDER BY 1"
    assert rows(again, counts) == [(1, 2)]
    assert requests_since(again) is not None
    kit.later(60)
    same = partial(remap, again, lambda batch: span_batch(spans_of(batch)))
    assert same() == (2, 1)
    Sampler(again).decide(kit.later(3))
    assert (rows(again, counts), requests_since(again), same()) == ([(0, 1), (1, 1)], None, (2, 0))


def test_an_older_file_is_brought_to_this_version(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lacks is added inside one transaction; where something fails, the old file is as it was."""
    kit.send(kit.store(), kit.span(1))
    kit.close()
    new = schema.SCHEMA_VERSION + 1
    monkeypatch.setattr(migrations, "SCHEMA_VERSION", new)
    for name, declared in (("meta", "key VARCHAR, value VARCHAR, a INTEGER"), ("new", "a INTEGER, b NONSENSE")):
        monkeypatch.setitem(schema.TABLES, name, declared)
    with pytest.raises(duckdb.CatalogException):
        kit.store()
    monkeypatch.setitem(schema.TABLES, "new", "a INTEGER, b INTEGER")
    store = kit.store()
    assert store.read("SELECT max(try_cast(value AS INTEGER)), count(a) FROM raw.meta").rows == [(new, 0)]
    assert store.read("SELECT (SELECT count(*) FROM spans), (SELECT count(b) FROM raw.new)").rows == [(1, 0)]
    kit.close()
    assert kit.store().read("SELECT count(*) FROM raw.meta WHERE key = 'schema_version'").rows == [(2,)]


def test_a_file_of_the_first_version_gains_what_came_since(kit: Any, rows: Any) -> None:
    """Columns that are new are empty for what was stored before, and filled for what comes."""
    store = kit.store()
    kit.send(store, kit.span(1))
    for statement in (
        "DROP VIEW spans CASCADE",
        "DROP VIEW traces CASCADE",
        *(
            f"ALTER TABLE raw.trace_facts DROP COLUMN {name}"
            for name in ("retriever", "misdated_spans", "spans_from", "tags", "metadata", "release")
        ),
        "ALTER TABLE raw.spans DROP COLUMN links",
        "ALTER TABLE raw.contents DROP COLUMN query_from",
        "ALTER TABLE raw.contents DROP COLUMN response_from",
        "ALTER TABLE raw.feedback DROP COLUMN response_id",
        "ALTER TABLE raw.monitor_states DROP COLUMN event_id",
        "ALTER TABLE raw.eval_jobs DROP COLUMN rule",
        "ALTER TABLE raw.ledger DROP COLUMN rule",
        "DROP TABLE raw.monitors",
        "DROP TABLE raw.alert_messages",
        "DROP TABLE raw.datasets",
        "UPDATE raw.meta SET value = '1' WHERE key = 'schema_version'",
    ):
        store.write(partial(_run, statement)).result(60)
    kit.close()
    again = kit.store()
    kit.send(again, kit.span(2, links='[{"trace_id": "a"}]'))
    assert rows(again, "SELECT links FROM spans ORDER BY span_id") == [(None,), ('[{"trace_id": "a"}]',)]
    kit.send(again, kit.span(3, 1, kind="retriever", name="bm25", query="q"))
    Sampler(again).decide(kit.later(60))
    assert rows(again, "SELECT retriever, decided, query FROM traces") == [("bm25", True, "q")]


def _run(statement: str, transaction: Transaction) -> None:
    transaction.execute(statement)


def test_long_answers_are_exported_within_the_memory(kit: Any, tmp_path: Path) -> None:
    """More text than the store's own limit holds goes through it: rows are written as they are read."""
    store = kit.store()
    text = "repeat(md5(i::VARCHAR), 90)"
    sql = f"INSERT INTO raw.trace_facts BY NAME SELECT uuid() AS trace_id, {text} AS response, i AS unit_span_id,"
    sql += " true AS latest, ?::TIMESTAMP AS start_time FROM range(60000) t(i)"
    store.write(lambda transaction: transaction.execute(sql, [kit.start])).result()
    store.read("CHECKPOINT")
    query, parameters = list_sql(store, str, TraceChoice.parse({"sort": "slow"}), max_rows=59_000)
    written = store.parquet(tmp_path / "traces.parquet", query, parameters)
    assert duckdb.execute("SELECT count(*) FROM read_parquet(?)", [str(written)]).fetchall() == [(59_000,)]
