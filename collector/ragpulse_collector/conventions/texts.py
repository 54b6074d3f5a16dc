"""Queries and responses inside JSON: chat messages, arguments, wrapped outputs.

What is no text for a person is None and flagged: an object's repr, a generator, the state of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ragpulse_collector.conventions import names, reprs
from ragpulse_collector.conventions.lifting import cut
from ragpulse_collector.conventions.rules import Found, Read, Span
from ragpulse_collector.conventions.values import dumped, parsed

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
_RESPONSE_KEYS = (
    "response",
    "answer",
    "output",
    "outputs",
    "result",
    "final_result",
    "generation",
    "answers",
    "text",
    "content",
    "parts",
    "messages",
    "message",
    "choices",
    "generations",
    "replies",
    "completion",
    "kwargs",
    "data",
    "return_value",
    "update",
    "raw",
)
_STATE_KEYS = frozenset({
    "messages", "generations", "choices", "replies", "tool_calls", "tasks_output", "update", "query", "question",
    "role", *names.DOCUMENT_LIST_KEYS,
})  # fmt: skip
"""An object that has one of these and no answer is the state of a graph, a call of a tool or a search."""
_ASSISTANT = frozenset({"assistant", "ai", "aimessage", "aimessagechunk", "model"})
_USER = frozenset({"user", "human", "humanmessage"})
_CALL_IDS = frozenset({"id", "call_id", "tool_call_id"})
_INNER = ("message", "kwargs", "data")
"""Where a message lies inside another object: a choice, a serialized constructor."""
_DEEPEST = 6


def query_in(value: Any, _: Span) -> Found | None:
    """Read the query out of JSON: a known key, the first argument, the last user message, the sole value."""
    return _found("query", value, _pick_query)


def response_in(value: Any, _: Span) -> Found | None:
    """Read the response out of JSON: a known key, the last message of the assistant, the sole value."""
    return _found("response", value, _pick_response)


def wrapped_response(value: Any, _: Span) -> Found | None:
    """Read the response out of what wraps it (messages, choices); other JSON is what the model said, as it stands."""
    content = parsed(value)
    if type(content) is str or _is_envelope(content):
        return _found("response", value, _pick_response) or _unreadable("response")
    return None


def last_user_text(value: Any, _: Span) -> Found | None:
    """Read the text of the last user message."""
    return _found("query", value, _pick_user)


def first_message_text(value: Any, span: Span) -> Found | None:
    """Read what a model said: the first of several choices, the last message of an agent's run."""
    return _found("response", value, _pick_first if span.kind == "llm" else _pick_last)


def or_text(read: Read, *, field: str) -> Read:
    """Make a reader that takes a text that is no JSON as it is; an object's repr is read or refused."""

    def read_or_text(value: Any, span: Span) -> Any:
        found = read(value, span)
        if found is None and type(value) is str and value and parsed(value) is None:
            return plain(value, field)
        return found

    return read_or_text


def or_json(read: Read, *, field: str = "query") -> Read:
    """Make a reader that falls back to the JSON text itself, where its shape says nothing.

    What cannot be one is refused: for a response the state of a graph or a call of a tool, for either an object's repr.
    """

    def read_or_json(value: Any, span: Span) -> Any:
        found = read(value, span)
        if found is not None:
            return found
        content = parsed(value)
        if _has_reprs(content) or (read is response_in and _is_machinery(content)):
            return _unreadable(field)
        return value if type(value) is str else dumped(value) if isinstance(value, (dict, list)) else None

    return read_or_json


query_of_input = or_text(or_json(query_in), field="query")
"""Reads the query out of an input, JSON or text."""
_WITHOUT_RESPONSE = ("retriever", "reranker", "embedding")
_response_of_call = or_text(or_json(wrapped_response, field="response"), field="response")
_response_of_function = or_text(or_json(response_in, field="response"), field="response")


def response_of_output(value: Any, span: Span) -> Any:
    """Read the response out of an output, JSON or text; what a search or an embedder returns is none.

    Of a model call only what wraps the answer is opened: other JSON is what the model said.
    """
    if span.kind in _WITHOUT_RESPONSE:
        return None
    return (_response_of_call if span.kind == "llm" else _response_of_function)(value, span)


def response_of_completion(value: Any, span: Span) -> Any:
    """Read what a model or an agent said: only what wraps the answer is opened."""
    return None if span.kind in _WITHOUT_RESPONSE else _response_of_call(value, span)


def plain(value: str, field: str) -> Found | None:
    """Return a text as it is, or what an object's repr says; an object that says nothing is refused."""
    if not reprs.is_repr(value):
        return Found(value, {"": {"$lifted": field}})
    words = reprs.text_in(value)
    return _unreadable(field) if words is None else Found(words)


def message_text(message: Any) -> str | None:
    """Return the text of one chat message in any of the usual shapes."""
    if not isinstance(message, dict):
        return _said(message)
    for key in ("parts", "content", "contents", "blocks"):
        body = message.get(key)
        if type(body) is str and body:
            return body
        found = _parts_text(body) if type(body) is list else None
        if found is not None:
            return found
    inner = _inner(message)
    return message_text(message[inner]) if inner else None


def is_message(item: Any) -> bool:
    """Return whether an item is a chat message, a choice or a call of a tool: no document."""
    if type(item) is str:
        return reprs.is_repr(item)
    if not isinstance(item, dict):
        return False
    is_call = "arguments" in item and not _CALL_IDS.isdisjoint(item)
    return is_call or _role(item) is not None or "tool_calls" in item or isinstance(item.get("message"), dict)


def _found(field: str, value: Any, pick: Callable[[Any], str | None]) -> Found | None:
    content = parsed(value)
    words = _said(content) if type(content) is str else pick(content)
    if words is None:
        return _unreadable(field) if type(content) is str and content else None
    template = cut(value, [(words, {"$lifted": field})])
    return Found(words, {} if template is None else {"": template})


def _unreadable(field: str) -> Found:
    return Found(None, flag=f"{field}_is_no_text")


def _said(value: Any) -> str | None:
    """Return a text as it is, or what an object's repr says."""
    if type(value) is not str or not value:
        return None
    return reprs.text_in(value) if reprs.is_repr(value) else value


def _parts_text(parts: list[Any]) -> str | None:
    """Join the text parts of a message; other parts (reasoning, tool calls, files) are not what was said."""
    found: list[str] = []
    for part in parts:
        if type(part) is str and part:
            found.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text", "input_text"):
            key = "content" if type(part.get("content")) is str else "text"
            if type(part.get(key)) is str and part[key]:
                found.append(part[key])
    return "\n".join(found) if found else None


def _pick_user(messages: Any) -> str | None:
    return _pick_role(messages, _USER)


def _pick_role(messages: Any, roles: frozenset[str]) -> str | None:
    """Take the text of the last message in one of these roles."""
    if not isinstance(messages, list):
        return None
    said = (message_text(message) for message in reversed(messages) if _role(message) in roles)
    return next((words for words in said if words is not None), None)


def _pick_first(messages: Any) -> str | None:
    """Take the first message of the assistant that holds a text, of choices without roles the first."""
    if not isinstance(messages, list):
        return message_text(messages) if isinstance(messages, dict) else None
    said = (message_text(message) for message in messages if _role(message) in {None, *_ASSISTANT})
    return next((words for words in said if words is not None), None)


def _pick_last(messages: Any) -> str | None:
    """Take the last message of the assistant; of messages without roles the first."""
    return _pick_role(messages, _ASSISTANT) or _pick_first(messages)


def _pick_query(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, list):
        return _pick_user(value) or _pick_sole(value, _pick_query, depth)
    return _pick_key(value, _QUERY_KEYS, _pick_query, depth)


def _pick_response(value: Any, depth: int = 0) -> str | None:
    if not isinstance(value, list):
        return _pick_key(value, _RESPONSE_KEYS, _pick_response, depth)
    if any(map(is_message, value)):
        return _pick_last(value)
    if _has_documents(value) or (len(value) > 1 and all(type(item) is str for item in value)):
        return None  # several texts, or documents: no one's answer is the first of them
    return _pick_sole(value, _pick_response, depth)


def _pick_key(value: Any, keys: Iterable[str], pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    for key in keys:
        if key in value:
            found = _pick_inside(value[key], pick, depth)
            if found is not None:
                return found
    if len(value) == 1:
        (key, sole), *_ = value.items()
        if key not in names.DOCUMENT_LIST_KEYS or keys is not _RESPONSE_KEYS:
            return _pick_inside(sole, pick, depth)
    elif all(isinstance(part, dict) for part in value.values()):  # what goes into, or comes out of, parts of a pipeline
        return next((found for part in value.values() if (found := pick(part, depth + 1))), None)
    return None


def _pick_sole(value: list[Any], pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    """Take the first item: the first positional argument, the first of several generations."""
    return _pick_inside(value[0], pick, depth) if value and depth <= _DEEPEST else None


def _pick_inside(value: Any, pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    if type(value) is not str:
        return pick(value, depth + 1)
    if pick is _pick_query and reprs.is_repr(value) and reprs.role_of(value) not in _USER:
        return None  # a prompt's template or a step of an agent holds many texts: none is the question
    return _said(value)


def _is_envelope(content: Any) -> bool:
    """Return whether JSON is what a client wraps around what a model said: messages, choices, generations."""
    if isinstance(content, dict):
        return is_message(content) or any(map(_holds_messages, content.values()))
    return _holds_messages(content)


def _holds_messages(part: Any) -> bool:
    if isinstance(part, list):
        return any(is_message(item) or (isinstance(item, list) and _holds_messages(item)) for item in part)
    return isinstance(part, dict) and is_message(part)


def _is_machinery(content: Any) -> bool:
    """Return whether JSON is what a program hands on (a state, a call, documents) and not what it answers."""
    if isinstance(content, list):
        return _has_documents(content) or any(map(_is_machinery, content))
    return isinstance(content, dict) and (_is_envelope(content) or not _STATE_KEYS.isdisjoint(content))


def _has_reprs(content: Any, depth: int = 0) -> bool:
    if type(content) is str:
        return depth > 0 and reprs.is_repr(content)
    values = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return depth < _DEEPEST and any(_has_reprs(value, depth + 1) for value in values)


def _has_documents(items: list[Any]) -> bool:
    return any(isinstance(item, dict) and ("page_content" in item or "score" in item) for item in items)


def _role(message: Any) -> str | None:
    """Return the role of a message, in lower case; None for anything that is no message."""
    if type(message) is str:
        return reprs.role_of(message)
    if not isinstance(message, dict):
        return None
    role = message.get("role") or message.get("type")
    if role in (None, "constructor"):
        inner = _inner(message)
        return _role(message[inner]) if inner else None
    return role.lower() if isinstance(role, str) and role.lower() in _ROLES else None


_ROLES = _ASSISTANT | _USER | {"system", "developer", "tool", "function", "tool-call", "tool-response"}


def _inner(message: dict[str, Any]) -> str | None:
    return next((key for key in _INNER if isinstance(message.get(key), dict)), None)
