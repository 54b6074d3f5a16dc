"""Queries and responses inside JSON: chat messages, arguments, wrapped outputs.

A value without a text for people is None and flagged: an object's repr, a generator, the state of a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ragpulse_collector.conventions import names
from ragpulse_collector.conventions.lifting import cut
from ragpulse_collector.conventions.rules import Read, Result, Span
from ragpulse_collector.conventions.values import dumped, is_repr, parsed, role_of, text_in

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
"""An object with one of these and no answer is the state of a graph, a tool call or a search."""
_ASSISTANT = frozenset({"assistant", "ai", "aimessage", "aimessagechunk", "model"})
_USER = frozenset({"user", "human", "humanmessage"})
_CALL_IDS = frozenset({"id", "call_id", "tool_call_id"})
_MESSAGE_KEYS = ("message", "kwargs", "data")
"""The keys of a message inside another object: a choice, a serialized constructor."""
_MAX_DEPTH = 6


def query_in(value: Any, _: Span) -> Result | None:
    """Read the query from JSON: a known key, the first argument, the last user message, the only value."""
    return _text_result("query", value, _pick_query)


def response_in(value: Any, _: Span) -> Result | None:
    """Read the response from JSON: a known key, the last message of the assistant, the only value."""
    return _text_result("response", value, _pick_response)


def wrapped_response(value: Any, _: Span) -> Result | None:
    """Read the response from messages or choices; other JSON is the model's answer itself."""
    content = parsed(value)
    if type(content) is str or _is_envelope(content):
        return _text_result("response", value, _pick_response) or _unreadable("response")
    return None


def last_user_text(value: Any, _: Span) -> Result | None:
    """Read the text of the last user message."""
    return _text_result("query", value, _pick_user)


def first_message_text(value: Any, span: Span) -> Result | None:
    """Read a model's answer: the first of several choices, the last message of an agent's run."""
    return _text_result("response", value, _pick_first if span.kind == "llm" else _pick_last)


def or_text(read: Read, *, field: str) -> Read:
    """Make a reader that returns a text that is no JSON as it is; an object's repr is read or refused."""

    def read_or_text(value: Any, span: Span) -> Any:
        result = read(value, span)
        if result is None and type(value) is str and value and parsed(value) is None:
            return plain(value, field)
        return result

    return read_or_text


def or_json(read: Read, *, field: str = "query") -> Read:
    """Make a reader that falls back to the JSON text itself if its shape is unknown.

    Refused are an object's repr and, for a response, the state of a graph or a tool call.
    """

    def read_or_json(value: Any, span: Span) -> Any:
        result = read(value, span)
        if result is not None:
            return result
        content = parsed(value)
        if _has_reprs(content) or (read is response_in and _is_program_state(content)):
            return _unreadable(field)
        return value if type(value) is str else dumped(value) if isinstance(value, (dict, list)) else None

    return read_or_json


query_of_input = or_text(or_json(query_in), field="query")
"""Reads the query from an input, JSON or text."""
_WITHOUT_RESPONSE = ("retriever", "reranker", "embedding")
_response_of_call = or_text(or_json(wrapped_response, field="response"), field="response")
_response_of_function = or_text(or_json(response_in, field="response"), field="response")


def response_of_output(value: Any, span: Span) -> Any:
    """Read the response from an output, JSON or text; a search or an embedder has none.

    A model call's JSON is its answer, unless it wraps the answer in messages or choices.
    """
    if span.kind in _WITHOUT_RESPONSE:
        return None
    return (_response_of_call if span.kind == "llm" else _response_of_function)(value, span)


def response_of_completion(value: Any, span: Span) -> Any:
    """Read the answer of a model or an agent: JSON is the answer itself, unless it wraps one."""
    return None if span.kind in _WITHOUT_RESPONSE else _response_of_call(value, span)


def plain(value: str, field: str) -> Result | None:
    """Return a text as it is, or the text in an object's repr; a repr without a text is refused."""
    if not is_repr(value):
        return Result(value, {"": {"$lifted": field}})
    text = text_in(value)
    return _unreadable(field) if text is None else Result(text)


def message_text(message: Any) -> str | None:
    """Return the text of one chat message in any of the usual shapes."""
    if not isinstance(message, dict):
        return _plain_text(message)
    for key in ("parts", "content", "contents", "blocks"):
        body = message.get(key)
        if type(body) is str and body:
            return body
        text = _parts_text(body) if type(body) is list else None
        if text is not None:
            return text
    inner = _message_key(message)
    return message_text(message[inner]) if inner else None


def is_message(item: Any) -> bool:
    """Return whether an item is a chat message, a choice or a tool call, and so no document."""
    if type(item) is str:
        return is_repr(item)
    if not isinstance(item, dict):
        return False
    is_call = "arguments" in item and not _CALL_IDS.isdisjoint(item)
    return is_call or _role(item) is not None or "tool_calls" in item or isinstance(item.get("message"), dict)


def _text_result(field: str, value: Any, pick: Callable[[Any], str | None]) -> Result | None:
    content = parsed(value)
    text = _plain_text(content) if type(content) is str else pick(content)
    if text is None:
        return _unreadable(field) if type(content) is str and content else None
    template = cut(value, [(text, {"$lifted": field})])
    return Result(text, {} if template is None else {"": template})


def _unreadable(field: str) -> Result:
    return Result(None, flag=f"{field}_is_no_text")


def _plain_text(value: Any) -> str | None:
    """Return a text as it is, or the text in an object's repr."""
    if type(value) is not str or not value:
        return None
    return text_in(value) if is_repr(value) else value


def _parts_text(parts: list[Any]) -> str | None:
    """Join the text parts of a message, without others (reasoning, tool calls, files)."""
    texts: list[str] = []
    for part in parts:
        if type(part) is str and part:
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text", "input_text"):
            key = "content" if type(part.get("content")) is str else "text"
            if type(part.get(key)) is str and part[key]:
                texts.append(part[key])
    return "\n".join(texts) if texts else None


def _pick_user(messages: Any) -> str | None:
    return _pick_role(messages, _USER)


def _pick_role(messages: Any, roles: frozenset[str]) -> str | None:
    """Return the text of the last message in one of these roles."""
    if not isinstance(messages, list):
        return None
    texts = (message_text(message) for message in reversed(messages) if _role(message) in roles)
    return next((text for text in texts if text is not None), None)


def _pick_first(messages: Any) -> str | None:
    """Return the first text of the assistant; of choices without roles the first text."""
    if not isinstance(messages, list):
        return message_text(messages) if isinstance(messages, dict) else None
    texts = (message_text(message) for message in messages if _role(message) in {None, *_ASSISTANT})
    return next((text for text in texts if text is not None), None)


def _pick_last(messages: Any) -> str | None:
    """Return the last text of the assistant; of messages without roles the first text."""
    return _pick_role(messages, _ASSISTANT) or _pick_first(messages)


def _pick_query(value: Any, depth: int = 0) -> str | None:
    if isinstance(value, list):
        return _pick_user(value) or _pick_first_item(value, _pick_query, depth)
    return _pick_key(value, _QUERY_KEYS, _pick_query, depth)


def _pick_response(value: Any, depth: int = 0) -> str | None:
    if not isinstance(value, list):
        return _pick_key(value, _RESPONSE_KEYS, _pick_response, depth)
    if any(map(is_message, value)):
        return _pick_last(value)
    if _has_documents(value) or (len(value) > 1 and all(type(item) is str for item in value)):
        return None  # several texts, or documents: the first is not the answer
    return _pick_first_item(value, _pick_response, depth)


def _pick_key(value: Any, keys: Iterable[str], pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for key in keys:
        if key in value:
            text = _pick_inside(value[key], pick, depth)
            if text is not None:
                return text
    if len(value) == 1:
        (key, item), *_ = value.items()
        if key not in names.DOCUMENT_LIST_KEYS or keys is not _RESPONSE_KEYS:
            return _pick_inside(item, pick, depth)
    elif all(isinstance(member, dict) for member in value.values()):  # inputs or outputs of the parts of a pipeline
        return next((text for member in value.values() if (text := pick(member, depth + 1))), None)
    return None


def _pick_first_item(value: list[Any], pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    """Pick from the first item: the first positional argument, the first of several generations."""
    return _pick_inside(value[0], pick, depth) if value and depth <= _MAX_DEPTH else None


def _pick_inside(value: Any, pick: Callable[[Any, int], str | None], depth: int) -> str | None:
    if type(value) is not str:
        return pick(value, depth + 1)
    if pick is _pick_query and is_repr(value) and role_of(value) not in _USER:
        return None  # a prompt template or a step of an agent has many texts, and none is the question
    return _plain_text(value)


def _is_envelope(content: Any) -> bool:
    """Return whether JSON wraps a model's answer: messages, choices, generations."""
    if isinstance(content, dict):
        return is_message(content) or any(map(_holds_messages, content.values()))
    return _holds_messages(content)


def _holds_messages(value: Any) -> bool:
    if isinstance(value, list):
        return any(is_message(item) or (isinstance(item, list) and _holds_messages(item)) for item in value)
    return isinstance(value, dict) and is_message(value)


def _is_program_state(content: Any) -> bool:
    """Return whether JSON is the state of a program (a graph, a call, documents) and no answer."""
    if isinstance(content, list):
        return _has_documents(content) or any(map(_is_program_state, content))
    return isinstance(content, dict) and (_is_envelope(content) or not _STATE_KEYS.isdisjoint(content))


def _has_reprs(content: Any, depth: int = 0) -> bool:
    if type(content) is str:
        return depth > 0 and is_repr(content)
    values = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return depth < _MAX_DEPTH and any(_has_reprs(value, depth + 1) for value in values)


def _has_documents(items: list[Any]) -> bool:
    return any(isinstance(item, dict) and ("page_content" in item or "score" in item) for item in items)


def _role(message: Any) -> str | None:
    """Return the role of a message, in lower case; None for anything else."""
    if type(message) is str:
        return role_of(message)
    if not isinstance(message, dict):
        return None
    role = message.get("role") or message.get("type")
    if role in (None, "constructor"):
        key = _message_key(message)
        return _role(message[key]) if key else None
    return role.lower() if isinstance(role, str) and role.lower() in _ROLES else None


_ROLES = _ASSISTANT | _USER | {"system", "developer", "tool", "function", "tool-call", "tool-response"}


def _message_key(message: dict[str, Any]) -> str | None:
    return next((key for key in _MESSAGE_KEYS if isinstance(message.get(key), dict)), None)
