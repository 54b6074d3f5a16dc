"""Hostile texts and figures cost what ordinary ones cost: nothing here may take quadratic time or break a sum."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from wire_support import decode_json

from ragpulse_collector.conventions.rules import RuleBook
from ragpulse_collector.conventions.values import is_repr, text_in
from ragpulse_collector.store.rows import text_hash

LIMIT_S = 20.0
"""Of CPU time, and generous: each of these took minutes, or would not have ended before the next restart."""


def spanned(name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """A span with these attributes."""
    return {"name": name, "attributes": attributes}


def seconds(work: Callable[[], object]) -> float:
    """The CPU time that the work takes, whatever else the machine does."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


@pytest.mark.parametrize(
    "text",
    [
        "<" + "a." * 100_000,
        "<a" + " object at 0x" * 50_000,
        "a='" + r"\xaaaa" * 5_000,
        "answer='" + r"\uaaaa" * 5_000,
        "A(text='" + "Text(a='" * 5_000,
        "<A(" + ")>" * 50_000 + "x",
    ],
    ids=lambda text: text[:12],
)
def test_a_text_that_resembles_a_repr_is_read_quickly(text: str) -> None:
    """Python's `re` holds the interpreter: one such span would stop the whole collector."""
    assert seconds(lambda: (is_repr(text), text_in(text))) < LIMIT_S


def test_a_text_of_combining_marks_is_hashed_quickly() -> None:
    """NFKC sorts the marks behind a letter in quadratic time."""
    assert seconds(lambda: text_hash("a" + "\u0301" * 100_000 + "\u0323" * 100_000)) < LIMIT_S
    assert text_hash("e\u0301" * 100) == text_hash("é" * 100)
    assert text_hash("ﬁn") == text_hash("fin")


def test_documents_that_are_spelled_unusually_are_read_quickly() -> None:
    """A text that does not stand in the JSON as usual is searched for to the end of it."""
    documents = "[" + ",".join(f'{{"content": "\\u0041{n}", "page": 1}}' for n in range(20_000)) + "]"
    span = spanned("search", {"ragpulse.span.kind": "retriever", "gen_ai.retrieval.documents": documents})
    found: list[Any] = []
    assert seconds(lambda: found.append(decode_json(span))) < LIMIT_S
    assert [context.text for context in found[0].spans[0].contexts[0]][:2] == ["A0", "A1"]


def test_a_span_with_very_many_attributes_is_decoded_quickly() -> None:
    """Its attributes become one JSON text."""
    attributes = {f"key.{number}": "value" for number in range(40_000)}
    batches: list[Any] = []
    assert seconds(lambda: batches.append(decode_json(spanned("step", attributes)))) < LIMIT_S
    assert json.loads(batches[0].spans[0].value("attributes", 0)) == attributes


def test_figures_that_no_call_has_are_unknown() -> None:
    """They would make sums that fit no column, in everybody's lists."""
    attributes: dict[str, Any] = {
        "ragpulse.span.kind": "llm",
        "gen_ai.usage.input_tokens": 2**63 - 1,
        "gen_ai.usage.output_tokens": 12,
        "gen_ai.response.time_to_first_chunk": 1e300,
        "llm.cost.total": 1.7e308,
    }
    spans = decode_json(spanned("chat", attributes)).spans[0]
    names = ("input_tokens", "output_tokens", "ttft_ms", "cost_usd")
    assert [spans.value(name, 0) for name in names] == [None, 12, None, None]


def test_sets_of_names_that_come_once_do_not_fill_the_cache_for_good() -> None:
    """An application with attribute names of its own for every request must not slow down all others."""
    book = RuleBook([])
    for number in range(3_000):
        book.plan([f"name.{number}"])
    plan = book.plan(["input.value"])
    assert book.plan(["input.value"]) is plan


def test_deeply_nested_json_is_stored_with_its_kind() -> None:
    """It is read as far as a text can be found in it."""
    nested = '{"message":' * 900 + "1" + "}" * 900
    attributes = {"ragpulse.span.kind": "llm", "input.value": "[" * 900 + "]" * 900, "output.value": nested}
    batch = decode_json(spanned("chat", attributes))
    assert (batch.unmapped, batch.spans[0].value("kind", 0)) == (0, "llm")
    assert json.loads(batch.spans[0].value("attributes", 0))["output.value"] == nested
