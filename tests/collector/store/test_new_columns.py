"""The columns of schema version 11: how a trace gets them, before and after its decision, and from an older file."""

from __future__ import annotations

import gzip
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ragpulse_collector.conventions.bodies import derive
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store.ingest.remap import remap
from ragpulse_collector.store.migrations import migrate_file

WRITTEN = Path(__file__).parents[1] / "fixtures" / "store-0.1.duckdb.gz"
COLUMNS = ("finish_reason", "agent", "data_source", "top_k", "response_missing_reason", "control_flow", "index_version")
SHOWN: dict[str, tuple[dict[int, dict[str, Any]], tuple[Any, ...]]] = {
    "the last model call's reason to stop": (
        {3: {"finish_reason": "stop"}, 4: {"finish_reason": "length"}},
        ("length", None, None, None, None, None, None),
    ),
    "the unit's own reason first": (
        {1: {"finish_reason": "stop"}, 4: {"finish_reason": "length"}},
        ("stop", None, None, None, None, None, None),
    ),
    "agent, source and top k of the first span that states them": (
        {2: {"data_source": "docs", "top_k": 5}, 3: {"agent": "planner"}, 4: {"agent": "other", "top_k": 9}},
        (None, "planner", "docs", 5, None, None, None),
    ),
    "the index of the first search": (
        {3: {"index_version": "i2"}, 4: {"index_version": "i1"}},
        (None, None, None, None, None, None, "i2"),
    ),
    "why there is no response": (
        {4: {"response_missing_reason": "tool_calls"}},
        (None, None, None, None, "tool_calls", None, None),
    ),
    "a reason does not matter where there is a response": (
        {1: {"response": "Yes.", "response_missing_reason": "cut"}, 4: {"response_missing_reason": "tool_calls"}},
        (None, None, None, None, None, None, None),
    ),
    "an empty response is a response": (
        {1: {"response": ""}, 4: {"response_missing_reason": "tool_calls"}},
        (None, None, None, None, None, None, None),
    ),
    "control flow of the unit only": (
        {1: {"control_flow": "handoff"}, 4: {"control_flow": "retry"}},
        (None, None, None, None, None, "handoff", None),
    ),
    "not of a span below": ({4: {"control_flow": "retry"}}, (None, None, None, None, None, None, None)),
}


@pytest.mark.parametrize("case", SHOWN)
def test_a_trace_shows_the_columns_of_its_unit(kit: Any, rows: Any, case: str) -> None:
    """The same before and after the decision, and in the view of spans."""
    fields, expected = SHOWN[case]
    store = kit.store()
    spans = [(1, None, "rag"), (2, 1, "retriever"), (3, 1, "llm"), (4, 1, "llm")]
    kit.send(store, *(kit.span(n, parent, kind, **fields.get(n, {})) for n, parent, kind in spans))
    read = f"SELECT decided, {', '.join(COLUMNS)} FROM traces"
    assert rows(store, read) == [(False, *expected)]
    assert Sampler(store).decide(kit.later(60)) == 1
    assert rows(store, read) == [(True, *expected)]
    for number, stated in fields.items():
        for name in stated.keys() & set(COLUMNS):
            assert rows(store, f"SELECT {name} FROM spans WHERE span_id = '{number:016x}'") == [(stated[name],)]


ANSWERS: dict[str, tuple[dict[str, Any], str | None, str | None]] = {
    "an answer": ({"response": "Yes."}, None, "answered"),
    "an empty one": ({"response": ""}, "empty", "empty"),
    "white space": ({"response": " \n\t"}, "empty", "empty"),
    "one that declines": ({"response": "No: I decline."}, None, "refused"),
    "the provider refused": ({"response_missing_reason": "refused_by_provider"}, None, "refused"),
    "the provider filtered": ({"response_missing_reason": "filtered"}, None, "refused"),
    "withheld": ({"response_missing_reason": "withheld"}, None, None),
    "nothing is known": ({}, None, None),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_trace_says_whether_it_was_answered(kit: Any, rows: Any, case: str) -> None:
    """Emptiness shows at once, a refusal with the decision."""
    fields, before, after = ANSWERS[case]
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag"), kit.span(2, 1, "llm", **fields))
    if "response" in fields:
        kit.send(store, kit.span(1, kind="rag", trace_id="2" * 32, **fields))
        assert rows(store, f"SELECT answer FROM traces WHERE trace_id = '{'2' * 32}'") == [(before,)]
    Sampler(store, refused=lambda responses: ["decline" in text for text in responses]).decide(kit.later(60))
    assert set(rows(store, "SELECT answer FROM traces")) == {(after,)}


def test_feedback_is_stored_by_name(kit: Any, rows: Any) -> None:
    """The newest score of each name; acceptance is the newest of the names that are acceptance."""
    store = kit.store()
    kit.send(store, kit.span(1, kind="rag"))
    given = [("thumbs", 0.0), ("thumbs", 1.0), ("reading_difficulty", 0.0), ("stars", 4.0), ("liked", 3.0)]
    columns = ("feedback_id", "trace_id", "time", "received_at", "name", "score", "source")
    received = [kit.later(1) for _ in given]
    values = [
        (f"{at.timestamp():032.0f}", kit.trace, at, at, *one, "human") for at, one in zip(received, given, strict=True)
    ]
    store.write(lambda transaction: transaction.append("feedback", columns, values)).result(60)
    assert Sampler(store, scales={"stars": (1, 3)}).decide(kit.later(60)) == 1
    stored = {"reading_difficulty": 0.0, "thumbs": 1.0}
    columns = "feedback, feedbacks, feedbacks_off_scale"
    assert rows(store, f"SELECT {columns} FROM traces") == [(1.0, stored, ["liked", "stars"])]
    assert rows(store, "SELECT count(*) FROM scores WHERE source = 'human'") == [(5,)]


def test_an_older_file_gets_names_and_columns(tmp_path: Path) -> None:
    """A number that is no acceptance ends as such; `remap` fills the new columns from the raw attributes."""
    path = tmp_path / "old.duckdb"
    path.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE raw.scores SET evaluator = 'reading_difficulty', score = 0 WHERE source = 'human'")
        connection.execute("UPDATE raw.trace_facts SET feedback = 0 WHERE feedback = 1")
        connection.execute(
            'UPDATE raw.spans SET attributes = json_merge_patch(attributes, \'{"gen_ai.agent.name": "planner"}\')'
        )
    migrate_file(path, in_place=True)
    with duckdb.connect(str(path)) as connection:
        facts = "SELECT feedback, feedbacks FROM raw.trace_facts WHERE feedback IS NOT NULL OR feedbacks IS NOT NULL"
        assert connection.execute(facts).fetchall() == [(None, {"reading_difficulty": 0.0})]
        names = {name for (name,) in connection.execute("SELECT column_name FROM (DESCRIBE traces)").fetchall()}
        assert {*COLUMNS, "feedbacks"} <= names


def test_remap_fills_the_columns(kit: Any, rows: Any) -> None:
    """Spans that an older version stored have the attributes already."""
    store = kit.store()
    text = '{"gen_ai.response.finish_reasons": ["length", "stop"], "gen_ai.retrieval.top_k": 7}'
    kit.send(store, kit.span(1, kind="llm", attributes=text))
    assert rows(store, "SELECT finish_reason, top_k FROM spans") == [(None, None)]
    assert remap(store, derive, since=kit.start - timedelta(days=1)) == (1, 1)
    assert rows(store, "SELECT finish_reason, top_k FROM spans") == [("length", 7)]
