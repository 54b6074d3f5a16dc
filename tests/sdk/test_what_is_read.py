"""The table of docs/results.md, executed row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from llama_index.core.schema import NodeWithScore, TextNode
from numpy import array
from pandas import DataFrame

import ragpulse
from ragpulse.testing import RecordedSpan, RecordedSpans, ragpulse_spans

__all__ = ["ragpulse_spans"]

GUIDE = Path(__file__).parents[2] / "docs" / "results.md"
_ROW = re.compile(r"\| `(?P<kind>[^`]+)` \| `(?P<result>.+?)`(?P<more>[^|]*) \| `(?P<recorded>\{.+\})` \|")
_KIND = re.compile(r"(\w+)(?:\(contexts=\"(\w+)\"\))?")
NAMES = {
    each.__name__: each
    for each in (AIMessage, AIMessageChunk, DataFrame, Document, HumanMessage, NodeWithScore, TextNode, array)
}
COUNTS = {"input_tokens": "gen_ai.usage.input_tokens", "output_tokens": "gen_ai.usage.output_tokens"}


def _rows() -> list[Any]:
    return list(_parsed())


def _parsed() -> Iterator[Any]:
    table = GUIDE.read_text().partition("| kind | returned")[2].partition("\n\n")[0]
    for line in table.splitlines():
        if line.startswith("| `"):
            row = _ROW.fullmatch(line)
            assert row is not None, f"a row that cannot be executed: {line}"
            yield pytest.param(row["kind"], row["result"], row["recorded"], id=f"{row['kind']} {row['result']}"[:70])


def _recorded(span: RecordedSpan) -> dict[str, Any]:
    unread = re.search(r"ragpulse finds ([\w ]+);", span.attributes.get("ragpulse.result.unread", ""))
    facts = {
        "response": span.response,
        "contexts": [{key: value for key, value in each.items() if value is not None} for each in span.contexts],
        "unread": unread and unread[1],
        "missing": span.attributes.get("ragpulse.response.missing_reason"),
        "error": span.error,
        "model": span.model,
        **{name: span.attributes.get(key) for name, key in COUNTS.items()},
    }
    return {name: fact for name, fact in facts.items() if fact not in (None, [])}


@pytest.mark.parametrize(("kind", "result", "recorded"), _rows())
def test_a_row_is_true(ragpulse_spans: RecordedSpans, kind: str, result: str, recorded: str) -> None:
    """What the row's function returns is recorded as the row says, and nothing else is."""
    match = _KIND.fullmatch(kind)
    assert match is not None
    options = {"contexts": match[2]} if match[2] else {}

    def step(query: str, documents: Any = ("A city.", "A town.")) -> Any:
        return eval(result, NAMES)

    returned = getattr(ragpulse, match[1])(name="step", **options)(step)("Where?")
    if result.startswith("iter("):
        list(returned)
    assert _recorded(ragpulse_spans.one("step")) == eval(recorded, {})


def test_the_table_has_every_part() -> None:
    """Responses, usage, contexts and streams."""
    kinds = [row.values[0] for row in _rows()]
    assert len(kinds) > 60
    assert {"rag", "llm", "agent", "retriever", "reranker", "embedding"} <= set(kinds)
