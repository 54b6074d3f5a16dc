"""One check of users' conditions: rules, filters and replays take and refuse the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from stored_units import Units, create_empty, open_store

from ragpulse_collector.analysis.query import meeting
from ragpulse_collector.api.copies import Download
from ragpulse_collector.api.models import TraceList
from ragpulse_collector.api.operations import Refusal
from ragpulse_collector.app.collector import Collector
from ragpulse_collector.operations.traces import trace_list
from ragpulse_collector.sampling import Rule
from ragpulse_collector.settings import Settings
from ragpulse_collector.store import Rows
from ragpulse_collector.store.sql.limits import Question
from ragpulse_collector.store.sql.where import WHERE_COLUMNS, condition


@pytest.mark.parametrize(
    "where",
    [
        "count(*) > 1",
        "row_number() OVER () = 1",
        "EXISTS (FROM traces)",
        "true) OR (true; DROP TABLE traces",
        "true) GROUP BY (1",
        "true) OR (true",
        "tag = 'beta') OR (true",
        "true LIMIT 1",
        "$1",
        "cost_usd",
        "decided",
        "random() < 0.5",
        "read_text('/etc/passwd') IS NOT NULL",
        "error = ",
        "length(repeat(query, 100000000)) > 1",
        "list_sum(list_transform([1], lambda x: x)) > 0",
        "levenshtein(query, response) > 3",
        "damerau_levenshtein(query, response) > 3",
        "jaro_similarity(query, response) > 0.5",
        "jaro_winkler_similarity(query, response) > 0.5",
        "jaccard(query, response) > 0.5",
        "replace(replace(query, 'a', 'aaaa'), 'a', 'aaaa') = 'b'",
        "hex(hex(query)) = 'a'",
        "query::BLOB::BIT::VARCHAR = 'a'",
        "[[query]::VARCHAR]::VARCHAR = 'a'",
        "query LIKE response",
        "query LIKE '%a_%b_%c_%d'",
        "query ILIKE '%a%b%c%d%'",
        "query GLOB '*a*b*c*'",
        "current_setting('threads') = '1'",
        "getenv('HOME') = 'a'",
        "main.getenv('HOME') = 'a'",
        "service IN (SELECT name FROM duckdb_settings())",
        "service = ANY(['a'])",
        "sleep_ms(1000) IS NULL",
        "(SELECT count(*) FROM duckdb_secrets()) > 0",
        "true AND 1" + " + 1" * 2_000 + " > 0",
    ],
)
def test_rules_and_filters_refuse_alike(where: str) -> None:
    """The same words from both, and the condition in them."""
    with pytest.raises(ValueError, match="where") as by_filter:
        meeting(where)
    with pytest.raises(ValueError, match="where") as by_rule:
        Rule(name="r", evaluators=("e",), rate=1.0, where=where)
    assert str(by_filter.value) == str(by_rule.value)
    assert where in str(by_rule.value)


def test_every_column_may_be_named() -> None:
    """Each column of `traces` that facts have; a comment cannot swallow what follows."""
    for column in WHERE_COLUMNS:
        assert condition(f"{column} IS NULL -- none") == f"(\n{column} IS NULL -- none\n)"


@pytest.mark.parametrize("where", ["query::INTEGER = 1", "trace_id = 'abc'"])
def test_a_condition_that_fails_on_a_row_does_not_hold(tmp_path: Path, where: str) -> None:
    """A cast that one row cannot take leaves that row out; it does not fail the question."""
    store = open_store(tmp_path)
    units = Units(store)
    units.unit(1, query="Why?")
    units.save()
    given = {"where": where, "from": "2026-11-20T00:00Z", "to": "2026-11-21T00:00Z"}
    assert trace_list(store, str, TraceList.parse(given))
    assert ask(store, "overview", given)
    assert trace_list(store, str, TraceList.parse({"where": where})).traces == []
    store.close()


@pytest.mark.parametrize(
    "where",
    [
        "service = 'helpdesk'",
        "error or feedback < 0",
        "top_score < 0.4",
        "service IN ('a', 'b') AND NOT error",
        "query LIKE '%a%b%c%'",
        "query ILIKE '%refund%'",
        "query LIKE 'a!%' ESCAPE '!'",
        "regexp_matches(query, 'refunds?')",
        "start_time >= now() - INTERVAL 7 DAY",
        "date_trunc('day', start_time) = DATE '2026-11-20'",
        "hour(start_time) BETWEEN 8 AND 17",
        "latency_ms::INTEGER > 3 OR cost_usd * 2 > 1e-3",
        "coalesce(length(query), 0) > 100",
        "CASE WHEN error THEN true ELSE cost_usd IS NULL END",
        "lower(service) = 'x' AND contains(query, 'y')",
    ],
)
def test_ordinary_conditions_are_taken(where: str) -> None:
    """What rules and filters say works as before."""
    assert where in condition(where)


@pytest.mark.skipif(os.name != "posix", reason="elsewhere it is answered in the collector itself")
@pytest.mark.parametrize(
    ("operation", "params"),
    [
        ("GET traces", {}),
        ("GET metrics", {"name": "requests"}),
        ("GET overview", {}),
        ("GET coverage", {}),
        ("GET explain", {"metric": "latency_p95", "sel_from": "-1h", "sel_to": "-1m"}),
        ("GET compare", {"a": "service:x", "b": "service:y", "evaluator": "latency"}),
        ("GET export/traces", {}),
        ("GET rules/preview", {"name": "r", "evaluators": ["latency"], "rate": 0.5}),
        ("POST replays", {"evaluators": ["latency"], "dry_run": True}),
    ],
)
def test_a_users_condition_is_answered_in_the_reader_process(
    collector: Collector, operation: str, params: dict[str, Any]
) -> None:
    """Under the limits of users' SQL, in every operation that takes one; without one, in the collector."""
    readers = collector.store._readers
    assert readers is not None
    asked: list[str] = []
    ask = readers.ask

    def counted(question: Question) -> Rows:
        asked.append(question.sql)
        return ask(question)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "ask", counted)
        _call(collector, operation, {**params, "where": "length(query) > 41 AND cost_usd IS NULL"})
    assert any("length(query) > 41" in sql for sql in asked)


def _call(collector: Collector, operation: str, params: dict[str, Any]) -> None:
    with contextlib.suppress(Refusal):  # such as too few scores to compare, which the store was asked for
        answer = asyncio.run(collector.components.operations.call(operation, params))
        if isinstance(answer, Download):
            answer.discard()


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector with a trace, asked in this process."""
    db = tmp_path_factory.mktemp("where") / "t.duckdb"
    create_empty(db)
    made = Collector(Settings().with_options("collector", {"db": str(db), "host": "127.0.0.1", "port": 0}))
    made.start(listen=False)
    units = Units(made.store)
    units.unit(1, query="Why?")
    units.save()
    yield made
    made.stop()


def test_a_slip_in_a_column_names_the_nearest() -> None:
    """In words, without the engine's."""
    with pytest.raises(ValueError, match=r"where .*: there is no column 'servce'; did you mean 'service'\?$"):
        meeting("servce = 'x'")
