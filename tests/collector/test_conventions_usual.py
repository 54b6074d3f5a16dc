"""Values that are read in a short way are read as by the rules: usual messages, bare documents, whole columns."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from spans import spans_of
from wire_support import decode_json

from ragpulse._reading.parts import parts_of
from ragpulse_collector.conventions.documents import flattened
from ragpulse_collector.conventions.rules import BareSpan
from ragpulse_collector.conventions.texts import first_message_text, last_user_text

CONTENTS = (
    "An answer.",
    "",
    " ",
    '{"a": 1}',
    "<a.b object at 0x1f>",
    "ChatMessage(text='a')",
    "__REDACTED__",
    None,
    5,
    ["a"],
)
TYPES = ("text", "reasoning", "tool_call", None)
ROLES = ("user", "assistant", "system", "User", None)


def messages() -> list[list[dict[str, Any]]]:
    """Conversations whose last message has any of these roles, parts and contents."""
    parts = [{"type": kind, "content": content} for kind, content in product(TYPES, CONTENTS)]
    parts += [{"content": "a"}, {"type": "text", "text": "a"}, {"type": "text", "content": "a", "thought": True}]
    before: list[list[dict[str, Any]]] = [[], [{"role": "user", "parts": [{"type": "text", "content": "first"}]}]]
    contents: list[dict[str, Any]] = [{"parts": [part]} for part in parts]
    contents += [
        {"parts": []},
        {"parts": parts[:2]},
        {"content": "a"},
        {"parts": [parts[0]], "finish_reason": "length"},
    ]
    return [[*earlier, {"role": role, **content}] for earlier, role, content in product(before, ROLES, contents)]


@pytest.mark.parametrize("read", [last_user_text, first_message_text])
def test_a_usual_message_is_read_as_by_the_rule(read: Any) -> None:
    """A key that no rule knows ends the short way."""
    found = 0
    for conversation, kind in product(messages(), ("llm", "agent")):
        span = BareSpan(kind=kind)
        by_rule = read(json.dumps([{**message, "x": 1} for message in conversation]), span)
        result = read(json.dumps(conversation), span)
        assert (result is None) == (by_rule is None), conversation
        if result is not None:
            found += result.value is not None
            assert (result.value, result.flag, result.reason) == (by_rule.value, by_rule.flag, by_rule.reason)
    assert found > 20


def test_a_bare_document_is_read_as_by_the_rule() -> None:
    """Id, score and content alone, of every type that a sender writes."""
    found = 0
    for id_, score, text in product(
        ("doc-1", "", "7", None, 7), (0.5, 1, "0.5", float("nan"), None), ("a", "", None, 5)
    ):
        row = {key: value for key, value in (("id", id_), ("score", score), ("content", text)) if value is not None}
        result = flattened({f"0.document.{key}": value for key, value in row.items()}, BareSpan())
        if result is not None:
            expected = parts_of(row)
            score_read = expected[1] if expected[1] is not None and expected[1] == expected[1] else None
            (record,) = result.value
            assert (record.id, record.score, record.text) == (expected[0], score_read, expected[2] or None), row
            found += 1
    assert found > 20


VALUES = ("Plain text.", '{"answer": "a"}', "[1]", "", "<a.b object at 0x1f>", "assistant: a", "__REDACTED__", 5, None)
MIMES = (None, "text/plain", "application/json")


@pytest.mark.parametrize("kind", ["ragpulse.span.kind", "openinference.span.kind", "gen_ai.operation.name"])
def test_a_column_is_read_as_each_of_its_values(kind: str) -> None:
    """One value of another form beside the usual ones, and each span alone."""
    kinds = ("llm", "retriever", "embedding", "chain", "CHAIN", "chat", "retrieval", "no kind")
    spans = []
    for name, mime, value in product(kinds, MIMES, VALUES):
        attributes = {kind: name, "input.value": value, "output.value": value, "gen_ai.usage.input_tokens": value}
        if mime is not None:
            attributes |= {"input.mime_type": mime, "output.mime_type": mime}
        number = len(spans) + 1
        spans.append({"spanId": f"{number:016x}", "attributes": {k: v for k, v in attributes.items() if v is not None}})
    together = spans_of(decode_json(*spans))
    alone = [found for span in spans for found in spans_of(decode_json(span))]
    assert together == alone
