"""Blocks of spans are stored as the same spans are one by one: once each, with their texts, contexts and costs."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragpulse_collector.conventions import decode
from ragpulse_collector.records import Batch, ContentRecord, RawBody, ScoreRecord, SpanRecord
from ragpulse_collector.store import Prices

TABLES = ("spans", "contents", "contexts")
SPANS = 10


def batch(kit: Any) -> Batch:
    """Return two blocks: retrievals with documents, some of them with none or without text, and model calls."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(1, SPANS + 1):
        documents = [{"id": f"d{n}", "score": n / 4, "content": f"für {n}"} for n in range(number % 3)]
        calls = {
            "gen_ai.usage.input_tokens": str(number),
            "gen_ai.response.id": f"r-{number}",
            "tag.tags": f"t{number}",
        }
        for span_id, attributes in (
            (number, {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": json.dumps(documents)}),
            (number + SPANS, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5-mini", **calls}),
        ):
            start = kit.start_ns + span_id * 1_000_000
            span = spans.add(name="s", start_time_unix_nano=start, end_time_unix_nano=start + 5_000_000)
            span.trace_id, span.span_id = bytes.fromhex(kit.trace), span_id.to_bytes(8, "big")
            span.parent_span_id = (SPANS + 1).to_bytes(8, "big") if number % 2 else b""
            for key, value in attributes.items():
                span.attributes.add(key=key).value.string_value = value
    body = RawBody(signal="traces", content_type="application/x-protobuf", body=request.SerializeToString())
    found = decode(body)
    assert [len(block) for block in found.blocks] == [SPANS, SPANS]
    return found


def records(kit: Any) -> list[SpanRecord]:
    """Return the same spans one by one."""
    return batch(kit).spans


def test_tables_are_the_same(kit: Any, rows: Any, tmp_path: Any) -> None:
    """Every column of every table, costs included."""
    found = {}
    for name in ("blocks", "records"):
        kit.path = tmp_path / f"{name}.duckdb"
        store = kit.store(price=Prices())
        receipt = kit.send(store, blocks=batch(kit).blocks) if name == "blocks" else kit.send(store, *records(kit))
        assert (receipt.accepted, receipt.duplicates) == (2 * SPANS, 0)
        found[name] = [rows(store, f"SELECT * FROM raw.{table} ORDER BY ALL") for table in TABLES]
    assert found["blocks"] == found["records"]
    assert [len(table) for table in found["blocks"]] == [2 * SPANS, 0, 10]


@pytest.mark.parametrize("how", ["again", "one of them", "both at once", "after a restart"])
def test_what_came_before_is_a_duplicate(kit: Any, rows: Any, how: str) -> None:
    """In memory, in the same transaction, in the table."""
    store = kit.store()
    if how == "one of them":
        kit.send(store, records(kit)[3])
    elif how == "both at once":
        with kit.held(store):
            futures = [store.submit(kit.body(blocks=batch(kit).blocks)) for _ in range(2)]
        assert sorted(future.result(20).duplicates for future in futures) == [0, 2 * SPANS]
    else:
        kit.send(store, blocks=batch(kit).blocks)
    if how == "after a restart":
        store.close()
        store = kit.store()
    again = kit.send(store, blocks=batch(kit).blocks)
    assert again.duplicates == (1 if how == "one of them" else 2 * SPANS)
    assert rows(store, "SELECT count(*), count(DISTINCT span_id) FROM raw.spans") == [(2 * SPANS, 2 * SPANS)]


def test_what_waits_for_a_span_finds_it_in_a_block(kit: Any, rows: Any) -> None:
    """Texts of a log event, and a score that knows a response only."""
    store = kit.store()
    event = ContentRecord(trace_id=kit.trace, span_id=f"{3:016x}", time_ns=kit.start_ns, query="q")
    score = ScoreRecord(trace_id=None, span_id=None, time_ns=kit.start_ns, name="e", score=1.0, response_id="r-4")
    kit.send(store, contents=[event], scores=[score])
    kit.send(store, blocks=batch(kit).blocks)
    assert rows(store, "SELECT span_id, query FROM raw.contents") == [(3, "q")]
    assert rows(store, "SELECT span_id FROM raw.feedback") == [(4 + SPANS,)]


def test_a_block_costs_what_its_spans_cost(kit: Any) -> None:
    """Each call its own, by the same table; what cannot be priced says why."""
    (_, calls), prices = batch(kit).blocks, Prices()
    calls.columns["output_tokens"] = [None, *range(1, SPANS)]
    spans = copy.deepcopy(calls).records()
    for span in spans:
        prices(span)
    prices.block(calls)
    assert calls.records() == spans
    assert {span.cost_unknown_reason for span in spans} == {None, "no output tokens"}
