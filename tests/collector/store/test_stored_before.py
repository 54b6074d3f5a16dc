"""A store that version 0.1 wrote is read by this one: every table, every view, and what is derived from them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from wire_support import JSON, SPAN, otlp_json

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import RawBody
from ragpulse_collector.sampling import Sampler
from ragpulse_collector.store.embedded import EmbeddedStore
from ragpulse_collector.store.protocol import utc_now
from ragpulse_collector.store.schema import TABLES

WRITTEN = Path(__file__).parents[1] / "fixtures" / "store-0.1.duckdb.gz"
ADDED_SINCE = {"monitors", "alert_messages", "datasets", "forgotten", "topic_fits", "topics"}
ROWS = {"traces": 24, "spans": 72, "contexts": 48, "decisions": 76}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """The file as 0.1 left it, opened by this version."""
    file = tmp_path / "store.duckdb"
    file.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    opened = EmbeddedStore(file, decode=decode)
    yield opened
    opened.close()


@pytest.mark.parametrize("table", sorted(TABLES.keys() - ADDED_SINCE))
def test_every_table_kept_its_rows(store: EmbeddedStore, table: str) -> None:
    """Migration loses nothing: no table of 0.1 is empty."""
    assert store.read(f"SELECT count(*) FROM raw.{table}").rows[0][0] > 0


@pytest.mark.parametrize(("view", "rows"), ROWS.items())
def test_views_show_what_0_1_stored(store: EmbeddedStore, view: str, rows: int) -> None:
    """Counts as 0.1 showed them."""
    assert store.read(f"SELECT count(*) FROM {view}").rows == [(rows,)]


def test_scores_keep_their_values(store: EmbeddedStore) -> None:
    """By evaluator and source: how many, and their mean."""
    sql = """
        SELECT evaluator, source, count(*), round(avg(normalized), 3) FROM scores
        GROUP BY ALL ORDER BY ALL"""
    assert store.read(sql).rows == EXPECTED


EXPECTED: list[tuple[object, ...]] = [
    ("citation_check", "online", 1, None),
    ("conciseness", "online", 14, 0.8),
    ("context_utilization", "replay", 24, 0.5),
    ("groundedness", "online", 24, 0.977),
    ("helpful", "code", 1, 0.5),
    ("refusal", "online", 24, 1.0),
    ("thumbs", "human", 1, 1.0),
]


def test_a_unit_in_a_file_of_0_1_finds_its_texts(store: EmbeddedStore) -> None:
    """The migrated tables take the texts of spans below, and where they are from."""
    call = {"gen_ai.operation.name": "chat", "gen_ai.prompt": "q", "gen_ai.completion": "a"}
    below = {"spanId": "00000000000000ff", "parentSpanId": SPAN["spanId"], "attributes": call}
    store.submit(RawBody(signal="traces", content_type=JSON, body=otlp_json({}, below))).result()
    Sampler(store).decide(utc_now() + timedelta(minutes=1))
    asked = (
        "SELECT query, response, mapped_from ->> 'response' FROM spans WHERE trace_id = ? AND parent_span_id IS NULL"
    )
    assert store.read(asked, [SPAN["traceId"]]).rows == [("q", "a", "span 00000000000000ff")]
