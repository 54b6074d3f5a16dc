"""What users' SQL may not do, and what it may. test_lake.py runs the same corpora over a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragpulse_collector.store import Refused

FILE = "{secret}"
"""Stands for the path of a file that lies beside the store."""
_READERS = (
    "read_csv", "read_csv_auto", "read_text", "read_blob", "read_json", "read_json_auto", "read_json_objects",
    "read_ndjson", "read_ndjson_auto", "read_ndjson_objects", "read_parquet", "parquet_scan", "sniff_csv", "glob",
    "read_duckdb", "parquet_metadata", "parquet_schema", "parquet_file_metadata", "parquet_kv_metadata",
)  # fmt: skip
_CATALOG = (
    "duckdb_settings", "duckdb_secrets", "duckdb_databases", "duckdb_tables", "duckdb_columns", "duckdb_views",
    "duckdb_functions", "duckdb_extensions", "duckdb_variables", "duckdb_logs", "duckdb_memory",
    "duckdb_temporary_files", "duckdb_schemas", "duckdb_types", "duckdb_constraints", "duckdb_indexes",
    "duckdb_sequences", "duckdb_dependencies", "duckdb_optimizers", "duckdb_keywords", "duckdb_external_file_cache",
    "duckdb_prepared_statements", "pragma_database_size", "pragma_version", "pragma_platform", "pragma_user_agent",
    "pragma_collations", "icu_calendar_names", "pg_timezone_names", "checkpoint", "force_checkpoint",
    "test_all_types",
)  # fmt: skip
_TABLES = (
    f'"{FILE}"', f"'{FILE}'", f'"{FILE}".csv', "'*.csv'", "'https://127.0.0.1:1/x.csv'",
    "'s3://bucket/x.parquet'", "'hf://datasets/a/b.csv'", '"/etc/passwd".csv', '"/etc".passwd', '"/tmp/a"."b".csv',
    '"http://127.0.0.1:1/a".json', '"s3://bucket/a".parquet', "sqlite_master", "sqlite_schema", "duckdb_tables",
    "duckdb_settings", "duckdb_secrets", "information_schema.tables", "information_schema.columns",
    "information_schema.schemata", "pg_catalog.pg_tables", "pg_tables", "pg_settings", "pg_class",
    "system.information_schema.tables", "system.main.duckdb_settings", "temp.sqlite_master", "memory.main.spans",
    "other.main.spans", "other.raw.meta", "nothing", "main.meta", "raw.traces", "raw.nothing",
    "__ducklake_metadata_lake.ducklake_snapshot", "__ducklake_metadata_lake.main.ducklake_data_file",
    "__ducklake_metadata_lake.public.ducklake_metadata", "__ducklake_metadata_ragpulse.main.ducklake_table",
)  # fmt: skip
_SCALARS = (
    "getenv('HOME')", "current_setting('s3_secret_access_key')", "current_setting('threads')",
    "getvariable('a')", "nextval('nothing')", "currval('nothing')", "current_query()", "current_schemas(true)",
    "current_database()", "txid_current()", "version()", "pg_sleep(1)", "sleep_ms(1)", "write_log('a')",
    "error('a')", "setseed(0.5)", "json_serialize_sql('SELECT 1')", "json_execute_serialized_sql('x')",
    "json_deserialize_sql('{}')", "json_serialize_plan('SELECT 1')", "parse_duckdb_log_message('a', 'b')",
    "system.main.getenv('HOME')", "main.current_setting('threads')", "has_table_privilege('a', 'b')",
    "pg_get_viewdef(1)", "in_search_path('a', 'b')", "stats(1)", "which_secret('s3://a', 's3')",
    "'threads'.current_setting()", "cast_to_type('1', 1)", "inet_server_addr()", "pg_conf_load_time()",
    "__internal_decompress_string(1)", "read_text('/etc/passwd')", "query('SELECT 1')", "list_any(query('a'))",
)  # fmt: skip
_STATEMENTS = (
    "", ";", "SELEC 1", "SELECT 1; SELECT 2", "SELECT 1; COMMIT; INSERT INTO raw.meta VALUES ('a', 'b')", "COMMIT",
    "ROLLBACK", "BEGIN; SELECT 1", "INSERT INTO raw.meta VALUES ('a', 'b')", "UPDATE raw.meta SET value = 'x'",
    "DELETE FROM raw.meta", "WITH gone AS (DELETE FROM raw.meta RETURNING *) SELECT * FROM gone",
    "WITH made AS (INSERT INTO raw.meta VALUES ('a', 'b') RETURNING *) SELECT * FROM made",
    "SELECT * FROM query('DELETE FROM raw.meta')", "SELECT * FROM query_table('raw.meta')",
    "SELECT * FROM query_table(['raw.meta', 'raw.audit'])", "DROP TABLE raw.meta", "DROP VIEW traces",
    "TRUNCATE raw.meta", "ALTER TABLE raw.meta ADD COLUMN a INTEGER", "CREATE TABLE t (a INTEGER)",
    "CREATE TABLE t AS SELECT 1", "CREATE TEMP TABLE t (a INTEGER)", "CREATE VIEW v AS SELECT 1",
    "CREATE MACRO f() AS 1", "CREATE SECRET s (TYPE s3)", "DROP SECRET s", "ATTACH 'other.duckdb'",
    "ATTACH ':memory:' AS m", "DETACH ragpulse", "USE memory", "COPY raw.meta TO 'out.csv'",
    "COPY (SELECT 1) TO 'out.csv'", "COPY raw.meta FROM '/etc/passwd'", "COPY FROM DATABASE ragpulse TO m",
    "EXPORT DATABASE 'out'", "IMPORT DATABASE 'out'", "INSTALL httpfs", "LOAD httpfs", "FORCE INSTALL httpfs",
    "SET threads = 4", "SET GLOBAL memory_limit = '1TB'", "SET enable_external_access = true", "SET VARIABLE a = 1",
    "RESET lock_configuration", "PRAGMA database_list", "PRAGMA enable_profiling", "PRAGMA table_info('traces')",
    "CALL pragma_version()", "CALL checkpoint()", "CHECKPOINT", "FORCE CHECKPOINT", "VACUUM", "ANALYZE",
    "PREPARE p AS SELECT 1", "EXECUTE p", "DEALLOCATE p", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE DELETE FROM raw.meta",
    "SHOW ALL TABLES", "SHOW DATABASES", "SHOW TABLES", "SELECT * FROM (SHOW ALL TABLES)",
    "SELECT * FROM (SHOW DATABASES)", "DESCRIBE duckdb_settings", "SUMMARIZE '/etc/passwd'",
)  # fmt: skip
_HIDDEN = (
    "WITH sqlite_master AS (SELECT 1) SELECT * FROM sqlite_master",
    "WITH sqlite_master AS (SELECT * FROM sqlite_master) SELECT * FROM sqlite_master",
    "WITH a AS (SELECT * FROM a) SELECT * FROM a",
    "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
    "SELECT * FROM (WITH hidden AS (SELECT 1) SELECT * FROM hidden), hidden",
    'WITH "/etc/passwd" AS (SELECT 1) SELECT * FROM "/etc/passwd"',
    'WITH "a.csv" AS (SELECT 1) SELECT * FROM (SELECT 1), "a.csv"',
    "WITH RECURSIVE a AS (SELECT * FROM duckdb_settings() UNION ALL SELECT * FROM a) SELECT * FROM a",
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT (SELECT count(*) FROM glob('/*')) FROM a) SELECT * FROM a",
    "WITH RECURSIVE a AS (SELECT * FROM a UNION ALL SELECT 1 FROM a) SELECT * FROM a",
    "WITH a AS MATERIALIZED (FROM read_text('/etc/passwd')) FROM a",
    "SELECT (SELECT count(*) FROM glob('/etc/*'))", "SELECT [x FOR x IN (SELECT getenv('HOME'))]",
    "SELECT list_transform([1], lambda x: getenv('HOME'))", "SELECT list_filter([1], x -> getenv('HOME') = 'a')",
    "SELECT * FROM traces WHERE EXISTS (FROM duckdb_secrets())",
    "SELECT * FROM traces WHERE trace_id IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM traces ORDER BY getenv('HOME')", "SELECT * FROM traces LIMIT (SELECT count(*) FROM glob('/*'))",
    "SELECT * FROM traces LIMIT 1 OFFSET (SELECT count(*) FROM glob('/*'))",
    "SELECT DISTINCT ON (getenv('HOME')) * FROM traces", "SELECT 1 FROM traces GROUP BY getenv('HOME')",
    "SELECT count(*) FROM traces HAVING getenv('HOME') = 'a'",
    "SELECT 1 FROM traces QUALIFY row_number() OVER (ORDER BY getenv('HOME')) = 1",
    "SELECT sum(1) FILTER (getenv('HOME') = 'a') FROM traces",
    "SELECT sum(n_spans) OVER (PARTITION BY getenv('HOME')) FROM traces",
    "SELECT list(n_spans ORDER BY getenv('HOME')) FROM traces",
    "SELECT CASE WHEN getenv('HOME') = 'a' THEN 1 END", "SELECT getenv('HOME')::INTEGER",
    "SELECT TRY(getenv('HOME'))", "SELECT 1 BETWEEN 0 AND length(getenv('HOME'))",
    "SELECT {'a': getenv('HOME')}", "SELECT [getenv('HOME')]", "SELECT MAP {'a': getenv('HOME')}",
    "SELECT COLUMNS(c -> getenv('HOME') = 'a') FROM traces", "SELECT * REPLACE (getenv('HOME') AS name) FROM traces",
    "VALUES (getenv('HOME'))", "SELECT * FROM (VALUES (1), (getenv('HOME')))",
    "SELECT 1 UNION ALL SELECT length(getenv('HOME'))", "SELECT 1 EXCEPT (FROM duckdb_settings())",
    "SELECT * FROM traces JOIN duckdb_settings() ON true", "SELECT * FROM traces JOIN scores ON getenv('HOME') = 'a'",
    "SELECT * FROM traces, LATERAL (SELECT getenv('HOME'))", "SELECT * FROM traces POSITIONAL JOIN duckdb_settings()",
    "SELECT * FROM traces ASOF JOIN sqlite_master ON true", "SELECT * FROM range(length(getenv('HOME')))",
    "SELECT * FROM range((SELECT count(*) FROM glob('/*')))", "SELECT * FROM unnest([getenv('HOME')])",
    "SELECT * FROM trace(getenv('HOME'))", "SELECT * FROM quality(getenv('HOME'), now(), now())",
    "FROM duckdb_settings() PIVOT (count(*) FOR name IN ('a'))",
    "FROM traces PIVOT (count(getenv('HOME')) FOR name IN ('a'))", "UNPIVOT duckdb_settings() ON name, value",
    "SELECT * FROM raw.meta AT (VERSION => 1)", "SELECT * FROM histogram('raw.meta', 'key')",
    "SELECT * FROM histogram_values(traces, name)", "SELECT * FROM undecided_since(now())", "SELECT * FROM summary(1)",
    "SELECT * FROM raw.quality('e', now(), now())", "SELECT * FROM system.main.range(3)",
    "SELECT * FROM postgres_query('lake', 'SELECT 1')", "SELECT * FROM postgres_scan('', 'public', 'a')",
    "SELECT * FROM postgres_execute('lake', 'DROP TABLE a')", "SELECT * FROM ducklake_snapshots('lake')",
    "SELECT * FROM ducklake_table_info('lake')", "SELECT * FROM ducklake_cleanup_old_files('lake')",
    "SELECT * FROM ducklake_list_files('lake', 'spans')", "SELECT * FROM ducklake_options('lake')",
    "SELECT * FROM ducklake_expire_snapshots('lake', versions => [1])", "SELECT * FROM lake.snapshots()",
    "SELECT * FROM iceberg_scan('a')", "SELECT * FROM delta_scan('a')", "SELECT * FROM sqlite_scan('a', 'b')",
    "SELECT * FROM python_map_function(1)", "SELECT * FROM arrow_scan(1, 2, 3)", "SELECT * FROM seq_scan('a')",
    "SELECT * FROM pandas_scan(1)", "SELECT * FROM repeat_row(1, num_rows => 3)", "SELECT * FROM enable_logging()",
)  # fmt: skip

ESCAPES = (
    *_STATEMENTS,
    *(f"SELECT * FROM {name}('{FILE}')" for name in _READERS),
    *(f"SELECT * FROM {name}()" for name in _CATALOG),
    *(f"SELECT * FROM {name}" for name in _TABLES),
    *(f"SELECT {call}" for call in _SCALARS),
    *_HIDDEN,
)

ORDINARY = (
    "SELECT now(), ';é;' AS sign; -- a comment behind the end",
    "  ;SELECT current_date",
    "SELECT * FROM traces", "FROM spans", "TABLE contexts", "SELECT count(*) FROM scores;", "FROM decisions LIMIT 3",
    "SELECT * FROM quality_daily", "SELECT * FROM judge_spans -- a comment", "VALUES (1), (2)", "SELECT 1 AS a",
    "SELECT * FROM raw.spans s JOIN raw.contents c USING (trace_id, span_id)",
    "SELECT value FROM main.traces, raw.meta",
    "FROM quality('groundedness', now() - INTERVAL 1 DAY, now())", "FROM trace('0af7651916cd43dd8448eb211c80319c')",
    "WITH a AS (SELECT 1 AS b), c AS (SELECT b + 1 AS d FROM a) SELECT * FROM a, c, range(3)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT sum(i) FROM n",
    "WITH n AS MATERIALIZED (SELECT name FROM spans) SELECT * FROM n WHERE name IN (SELECT name FROM n)",
    "SELECT prompt_version, sum(cost_usd), avg((cost_usd IS NULL)::INTEGER) AS unknown FROM traces"
    " WHERE start_time >= now() - INTERVAL 7 DAY GROUP BY 1",
    "SELECT hash, any_value(id), count(DISTINCT trace_id) FROM contexts GROUP BY 1 ORDER BY 3 DESC LIMIT 20",
    "SELECT quantile_cont(latency_ms, [0.5, 0.95, 0.99]), approx_quantile(latency_ms, 0.5),"
    " median(latency_ms) FROM traces",
    "SELECT date_trunc('hour', start_time) AS hour, count(*) FROM traces GROUP BY ALL ORDER BY ALL",
    "SELECT time_bucket(INTERVAL '5 minutes', start_time) AS t, count(*) FILTER (error) FROM traces GROUP BY 1",
    "SELECT name, rank() OVER w, lag(latency_ms) OVER w FROM spans WINDOW w AS (PARTITION BY name ORDER BY start_time)",
    "SELECT * FROM spans QUALIFY row_number() OVER (PARTITION BY name ORDER BY start_time DESC) = 1",
    "SELECT attributes->>'$.a', json_extract_string(attributes, 'b'), attributes.c FROM spans",
    "SELECT DISTINCT ON (name) name, start_time FROM spans ORDER BY name, start_time DESC",
    "SELECT name, count(*) FROM spans GROUP BY ROLLUP (name)",
    "SELECT kind, GROUPING(kind) FROM spans GROUP BY CUBE (kind)",
    "FROM spans PIVOT (count(*) FOR kind IN ('llm', 'rag') GROUP BY name)",
    "UNPIVOT (SELECT input_tokens, output_tokens FROM spans) ON input_tokens, output_tokens INTO NAME what"
    " VALUE tokens",
    "SELECT t.* EXCLUDE (query) REPLACE (upper(name) AS name) FROM traces t", "SELECT COLUMNS('.*_tokens') FROM spans",
    "SELECT * FROM traces t WHERE EXISTS (FROM scores s WHERE s.trace_id = t.trace_id AND s.score < 0.5)",
    "SELECT t.name, (SELECT count(*) FROM spans s WHERE s.trace_id = t.trace_id) FROM traces t",
    "SELECT * FROM traces t, LATERAL (SELECT max(rank) FROM contexts c WHERE c.trace_id = t.trace_id) m",
    "SELECT * FROM traces t ASOF JOIN scores s ON t.start_time >= s.request_time",
    "SELECT * FROM traces SEMI JOIN scores USING (trace_id)", "SELECT * FROM spans ANTI JOIN traces USING (trace_id)",
    "SELECT name FROM spans UNION ALL BY NAME SELECT name, kind FROM spans EXCEPT SELECT 'a', 'b'",
    "SELECT list(name ORDER BY start_time), string_agg(name, ', '), histogram(kind), mode(kind) FROM spans",
    "SELECT list_transform([1, 2], lambda x: x + 1), [x * 2 FOR x IN [1, 2] IF x > 1], unnest([3, 4])",
    "SELECT query FROM traces WHERE query ILIKE '%refund%' OR query SIMILAR TO '.*x' OR regexp_matches(query, 'y+')",
    "SELECT CASE WHEN error THEN 'bad' ELSE 'good' END, coalesce(model, '?'), nullif(name, '') FROM traces",
    "SELECT latency_ms::DECIMAL(10, 2), try_cast(name AS INTEGER), {'a': 1}.a, MAP {'k': 'v'}['k'] FROM spans",
    "SELECT extract(hour FROM start_time), start_time::DATE, strftime(start_time, '%Y'), age(start_time) FROM spans",
    "SELECT levenshtein(query, response), length(query), split_part(query, ' ', 1), md5(query) FROM traces",
    "SELECT corr(latency_ms, output_tokens), regr_slope(cost_usd, latency_ms), stddev(latency_ms) FROM traces",
    "SELECT * FROM spans USING SAMPLE 10 ROWS", "SELECT * FROM spans TABLESAMPLE 10%", "DESCRIBE traces",
    "SUMMARIZE scores",
    "SELECT TIMESTAMPTZ '2026-03-01 12:00:00+02' AS a, current_date, now()", "SELECT * FROM (DESCRIBE spans)",
    "SELECT name.upper().left(3) FROM spans", "SELECT #1 FROM spans", "SELECT student_975(5), wilson_lo(0.5, 10)",
    "SELECT width, n FROM (SELECT floor(latency_ms / 100) AS width, count(*) AS n FROM traces GROUP BY 1) ORDER BY 1",
    "SELECT * FROM json_each('[1, 2]')", "SELECT " + " + ".join(["1"] * 150),
)  # fmt: skip


@pytest.fixture(scope="module")
def store(module_kit: Any) -> Any:
    """A store with a few spans, and a file beside it that nobody may read."""
    made = module_kit.store()
    module_kit.send(made, module_kit.span(1, kind="rag", query="why?"), module_kit.span(2, 1, kind="llm"))
    _secret(module_kit).write_text("a\n1\n")
    return made


def _secret(kit: Any) -> Path:
    path: Path = kit.path.parent / "secret.csv"
    return path


@pytest.mark.parametrize("sql", ESCAPES)
def test_everything_but_one_select_over_the_store_is_refused(store: Any, module_kit: Any, sql: str) -> None:
    """The guard refuses it by name or by kind, before anything is bound; the store has not changed."""
    before = store.read("SELECT * FROM raw.meta").rows
    with pytest.raises(Refused, match=r"allowed|is not a (table|name)|Parser Error"):
        store.run_user_sql(sql.replace(FILE, str(_secret(module_kit))))
    assert store.read("SELECT * FROM raw.meta").rows == before


@pytest.mark.parametrize("sql", ORDINARY)
def test_ordinary_questions_are_answered(store: Any, sql: str) -> None:
    """What an analyst writes works as before."""
    assert store.run_user_sql(sql).columns


def test_the_corpora_are_as_large_as_promised() -> None:
    """No entry twice, so that the number says something."""
    assert len(set(ESCAPES)) == len(ESCAPES) >= 150
    assert len(set(ORDINARY)) == len(ORDINARY) >= 40
