"""Queries and responses inside JSON: chat messages, arguments, wrapped outputs.

A value without a text for people is None and flagged: an object's repr, a generator, the state of a graph.
"""

from __future__ import annotations

from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.lifting import cut
from ragpulse_collector.conventions.messages import (
    Said,
    error_in,
    is_call,
    last_question,
    last_reply,
    missing_reason,
    role_of,
    said_in,
)
from ragpulse_collector.conventions.rules import Read, Result, Span
from ragpulse_collector.conventions.values import dumped, is_repr, parsed, text_in

_QUERY_KEYS = (
    "query",
    "question",
    "query_str",
    "query_bundle",
    "input",
    "inputs",
    "user_input",
    "messages",
    "args",
    "kwargs",
    "prompt",
    "task",
    "text",
    "q",
    "content",
    "parts",
)
_STATE_KEYS = frozenset({"messages", "state", "ctx", *names.DOCUMENT_LIST_KEYS})
"""An input with one of these and no question is the state of a program."""
_MAX_DEPTH = 6


_ENVELOPE_KEYS = frozenset({
    *shapes.FINISH_KEYS, "usage", "usage_metadata", "usageMetadata", "token_usage", "ResponseMetadata", "done_reason",
    "prompt_feedback", "promptFeedback", "incomplete_details", "tool_calls", "source_nodes", "__interrupt__",
})  # fmt: skip
"""Keys of a provider's own reply, which a model does not write."""
_WITHOUT_RESPONSE = ("retriever", "reranker", "embedding")
_WITH_DATA = ("tool", "guardrail", "evaluator")
"""Kinds whose result may be any JSON."""


def query_in(value: Any, _: Span) -> Result | None:
    """Read the query from JSON: a known key, the first argument, the last user message, the only value."""
    content = parsed(value)
    text = _plain_text(content) if type(content) is str else _pick_query(content)
    if text is not None:
        return _lifted("query", value, text)
    return _unreadable("query") if type(content) is str and content else None


def last_user_text(value: Any, _: Span) -> Result | None:
    """Read the text of the last user message."""
    content = parsed(value)
    text = last_question(content) if type(content) is list else None
    return None if text is None else _lifted("query", value, text)


def first_message_text(value: Any, span: Span) -> Result | None:
    """Read a model's answer: the first of several choices, the last message of an agent's run."""
    content = parsed(value)
    if type(content) is list:
        assistants = [item for item in content if role_of(item) in (None, shapes.ASSISTANT)]
        content = (assistants or [None])[0] if span.kind == "llm" else last_reply(content) or (content or [None])[0]
    return None if content is None else _said_result(value, content, said_in(content))


def response_of_output(value: Any, span: Span) -> Any:
    """Read the response from an output, JSON or text; a search or an embedder has none.

    A model call's JSON is its answer, unless it wraps the answer in messages or choices. What a tool returned is any
    JSON. Of all else only an answer is read: no state, status or ids.
    """
    if span.kind in _WITHOUT_RESPONSE:
        return None
    content = parsed(value)
    if content is None:
        return plain(value, "response") if type(value) is str and value else None
    if span.kind == "llm" and type(content) is not str and not _is_envelope(content):
        return _json(value, content)
    said = said_in(content)
    if said.text is None and not said.calls and span.kind in _WITH_DATA:
        return _json(value, content)
    return _said_result(value, content, said)


def response_of_completion(value: Any, span: Span) -> Any:
    """Read the answer of a model or an agent: JSON is the answer itself, unless it wraps one."""
    content = parsed(value)
    if span.kind in _WITHOUT_RESPONSE or content in (None, ""):
        return None if content is not None or span.kind in _WITHOUT_RESPONSE else response_of_output(value, span)
    if type(content) is not str and not _is_envelope(content):
        return _json(value, content)
    return _said_result(value, content, said_in(content))


def response_in(value: Any, _: Span) -> Result | None:
    """Read the response from JSON."""
    content = parsed(value)
    return None if content is None else _said_result(value, content, said_in(content))


def or_text(read: Read, *, field: str) -> Read:
    """Make a reader that returns a text that is no JSON as it is; an object's repr is read or refused."""

    def read_or_text(value: Any, span: Span) -> Any:
        result = read(value, span)
        if result is None and type(value) is str and value and parsed(value) is None:
            return plain(value, field)
        return result

    return read_or_text


def or_json(read: Read) -> Read:
    """Make a reader of queries that falls back to the JSON text itself, unless it is an object's repr or a state."""

    def read_or_json(value: Any, span: Span) -> Any:
        result = read(value, span)
        if result is not None:
            return result
        content = parsed(value)
        if content is None:
            return None
        if _has_reprs(content) or (type(content) is dict and not _STATE_KEYS.isdisjoint(content)):
            return _unreadable("query")
        return _json(value, content, "query")

    return read_or_json


query_of_input = or_text(or_json(query_in), field="query")
"""Reads the query from an input, JSON or text."""


def plain(value: str, field: str) -> Result | None:
    """Return a text as it is, or the text in an object's repr; a repr without a text is refused."""
    if value in shapes.WITHHELD_TEXTS:
        return Result(None, reason=shapes.WITHHELD)
    if not is_repr(value):
        return Result(value, {"": {"$lifted": field}})
    text = text_in(value)
    return _unreadable(field) if text is None else Result(text)


def is_message(item: Any) -> bool:
    """Return whether an item is a chat message, a choice or a tool call, and so no document."""
    if type(item) is str:
        return is_repr(item)
    if not isinstance(item, dict):
        return False
    roles = [role for key in ("role", "_role", "type", "kind") if type(role := item.get(key)) is str]
    if any(role.lower() in shapes.ROLES for role in roles):
        return True
    return is_call(item) or shapes.CALLS_KEY in item or isinstance(item.get("message"), dict) or _is_serialized(item)


def _is_serialized(item: dict[str, Any]) -> bool:
    """Return whether an item is a message of LangChain: the constructor's arguments, or type and data."""
    return any(isinstance(item.get(key), dict) and role_of(item[key]) for key in ("kwargs", "data"))


def _said_result(value: Any, content: Any, said: Said) -> Result:
    """Return the text of a reply, else why it has none."""
    text = said.text
    reason = None if text else missing_reason(content, said)
    error = None if text or said.calls else error_in(content)
    if error is not None:
        return Result(None, error=error)
    if text is None or (not text and reason not in (None, shapes.CUT)):
        return _unreadable("response", reason)
    result = _lifted("response", value, text)
    result.flag = "response_is_refusal" if said.refused else None
    return result


def _lifted(field: str, value: Any, text: str) -> Result:
    template = cut(value, [(text, {"$lifted": field})])
    return Result(text, {} if template is None else {"": template})


def _unreadable(field: str, reason: str | None = None) -> Result:
    if field == "response" and reason is None:
        reason = shapes.UNREAD
    return Result(None, flag=f"{field}_is_no_text", reason=reason)


def _json(value: Any, content: Any, field: str = "response") -> Any:
    """Return JSON as a text, if no object's repr is in it."""
    if _has_reprs(content):
        return _unreadable(field)
    return value if type(value) is str else dumped(value) if isinstance(value, (dict, list)) else None


def _plain_text(value: Any) -> str | None:
    """Return a text as it is, or the text in an object's repr."""
    if type(value) is not str or not value:
        return None
    return text_in(value) if is_repr(value) else value


def _pick_query(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, list):
        return last_question(value) or (_pick_inside(value[0], depth) if value and depth <= _MAX_DEPTH else None)
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for key in _QUERY_KEYS:
        if key in value and (text := _pick_inside(value[key], depth)) is not None:
            return text
    if len(value) == 1:
        return _pick_inside(next(iter(value.values())), depth)
    if all(isinstance(member, dict) for member in value.values()):  # inputs of the parts of a pipeline
        return next((text for member in value.values() if (text := _pick_query(member, depth + 1))), None)
    return None


def _pick_inside(value: Any, depth: int) -> str | None:
    if type(value) is not str:
        return _pick_query(value, depth + 1)
    if is_repr(value) and role_of(value) != shapes.USER:
        return None  # a prompt template or a step of an agent has many texts, and none is the question
    return _plain_text(value)


def _is_envelope(content: Any) -> bool:
    """Return whether JSON wraps a model's answer: messages, choices, generations, a provider's own reply."""
    if isinstance(content, dict):
        if is_message(content) or any(map(_holds_messages, content.values())):
            return True
        is_error = error_in(content) is not None and (len(content) == 1 or type(content.get("error")) is dict)
        return is_error or not _ENVELOPE_KEYS.isdisjoint(content)
    return _holds_messages(content)


def _holds_messages(value: Any) -> bool:
    if isinstance(value, list):
        return any(is_message(item) or _is_choice(item) for item in value)
    return isinstance(value, dict) and is_message(value)


def _is_choice(item: Any) -> bool:
    if isinstance(item, list):
        return role_of(item) is not None or _holds_messages(item)
    return isinstance(item, dict) and any(key in item for key in shapes.FINISH_KEYS)


def _has_reprs(content: Any, depth: int = 0) -> bool:
    if type(content) is str:
        return depth > 0 and is_repr(content)
    values = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return depth < _MAX_DEPTH and any(_has_reprs(value, depth + 1) for value in values)
