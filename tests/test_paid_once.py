"""A call in a call is paid once: one rule on all sides, held equal on generated traces."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from spans import Span, batch_of

from ragpulse import attributes as names
from ragpulse._reading.usage import instrumented_facts
from ragpulse_collector.conventions.dedupe import Node, token_spans
from ragpulse_collector.records import RawBody
from ragpulse_collector.store import EmbeddedStore

TRACES = 400
START_NS = 1_760_000_000 * 10**9


def trace(number: int, random: Random) -> list[Span]:
    """A root, model calls below it and in each other, repeated ones with the id and the figures of the first."""
    trace_id, tokens = f"{number:032x}", {f"r{number}-{i}": random.randrange(1, 50) for i in range(3)}
    spans = [Span(trace_id=trace_id, span_id=f"{1:016x}", parent_span_id=None, kind="chain", name="root",
                  start_ns=START_NS, end_ns=START_NS + 10**9)]  # fmt: skip
    for index in range(2, random.randrange(2, 8)):
        parent = random.choice([span for span in spans if span.parent_span_id in (None, spans[0].span_id)])
        response = random.choice([None, *tokens])
        spans.append(Span(
            trace_id=trace_id, span_id=f"{index:016x}", parent_span_id=parent.span_id, kind="llm", name="call",
            start_ns=START_NS + index * 10**6, end_ns=START_NS + 10**9, response_id=response,
            input_tokens=tokens[response] if response else random.randrange(50, 99), output_tokens=1,
        ))  # fmt: skip
    return spans


def nodes(spans: list[Span]) -> list[Node]:
    """What the rule reads of spans."""
    return [
        Node(
            span.span_id, span.parent_span_id, span.start_ns, span.kind, span.response_id, span.input_tokens is not None
        )
        for span in spans
    ]


def paid(spans: list[Span]) -> int | None:
    """Input tokens by the rule."""
    counted = set(token_spans(nodes(spans)))
    figures = [span.input_tokens for span in spans if span.span_id in counted and span.input_tokens is not None]
    return sum(figures) if figures else None


def test_a_trace_without_a_decision_counts_by_the_rule(tmp_path: Path) -> None:
    """Nested calls with and without ids, repeated ids beside and in each other."""
    random = Random(36)
    traces = {f"{number:032x}": trace(number, random) for number in range(1, TRACES)}
    every = [span for spans in traces.values() for span in spans]
    store = EmbeddedStore(tmp_path / "t.duckdb", decode=lambda _: batch_of(every), clock=lambda: datetime(2026, 1, 1))
    with closing(store):
        body = RawBody(signal="traces", content_type="application/json", body=b"")
        store.submit(body).result(60)
        shown = dict(store.read("SELECT trace_id, input_tokens FROM traces WHERE NOT decided").rows)
    assert shown == {trace_id: paid(spans) for trace_id, spans in traces.items()}
    assert len({len(token_spans(nodes(spans))) for spans in traces.values()}) > 3


def test_the_sdk_counts_instrumented_clients_by_the_rule() -> None:
    """Calls without response ids, at any depth, some of them without usage."""
    random = Random(63)
    for _ in range(TRACES):
        parents: dict[int, int] = {number: random.randrange(number) for number in range(1, random.randrange(2, 9))}
        usage: dict[int, dict[str, Any]] = {
            number: {names.INPUT_TOKENS: random.randrange(9)} if random.random() < 0.6 else {} for number in parents
        }
        calls = {number: (parent, usage[number]) for number, parent in parents.items()}
        spans = [Node(str(n), str(p), n, "llm", has_usage=bool(usage[n])) for n, p in parents.items()]
        counted = [usage[int(span_id)][names.INPUT_TOKENS] for span_id in token_spans(spans)]
        assert instrumented_facts(calls).get(names.INPUT_TOKENS, 0) == sum(counted)
