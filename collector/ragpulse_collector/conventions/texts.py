"""Queries and responses inside JSON: chat messages, arguments, wrapped outputs; each found together with its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ragpulse_collector.conventions.lifting import Path, lifted_json
from ragpulse_collector.conventions.rules import Found, Read, Span
from ragpulse_collector.conventions.values import dumped, parsed

Pick = tuple[str, Path | None]
"""A text and where it was; no path where it was put together from several."""

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
    "text",
    "content",
    "parts",
    "messages",
    "message",
    "choices",
    "generations",
    "completion",
    "kwargs",
    "return_value",
)
_DEEPEST = 6
_LONG, _SHARE = 2_000, 4
"""In a JSON text longer than this, a text of less than a quarter stays where it is: to take a short question out of a
prompt that repeats the documents would cost more than to store it twice."""


def query_in(value: Any, _: Span) -> Found | None:
    """Read the query out of JSON: a known key, the first argument, the last user message, the sole value."""
    return _found("query", value, _pick_query)


def response_in(value: Any, _: Span) -> Found | None:
    """Read the response out of JSON: a known key, the first message, the sole value."""
    return _found("response", value, _pick_response)


def last_user_text(value: Any, _: Span) -> Found | None:
    """Read the text of the last user message."""
    return _found("query", value, _pick_user)


def first_message_text(value: Any, _: Span) -> Found | None:
    """Read the text parts of the first message."""
    return _found("response", value, _pick_first)


def or_text(read: Read, *, field: str) -> Read:
    """Make a reader that takes a text that is no JSON as it is."""

    def read_or_text(value: Any, span: Span) -> Any:
        found = read(value, span)
        if found is None and type(value) is str and value and parsed(value) is None:
            return Found(value, {"": {"$lifted": field}})
        return found

    return read_or_text


def or_json(read: Read) -> Read:
    """Make a reader that falls back to the JSON text itself, where its shape says nothing."""

    def read_or_json(value: Any, span: Span) -> Any:
        found = read(value, span)
        if found is not None:
            return found
        return value if type(value) is str else dumped(value) if isinstance(value, (dict, list)) else None

    return read_or_json


def message_text(message: Any) -> Pick | None:
    """Return the text of one chat message in any of the usual shapes."""
    if not isinstance(message, dict):
        return (message, ()) if type(message) is str and message else None
    for key in ("parts", "content", "contents"):
        body = message.get(key)
        if type(body) is str and body:
            return body, (key,)
        if type(body) is list:
            found = _parts_text(body)
            if found is not None:
                return _below(key, found)
    inner = message.get("message")
    return _below("message", message_text(inner)) if isinstance(inner, dict) else None


def _found(field: str, value: Any, pick: Callable[[Any], Pick | None]) -> Found | None:
    content = parsed(value)
    picked = (content, ()) if type(content) is str and content else pick(content)
    if picked is None:
        return None
    words, path = picked
    is_part = type(value) is str and len(value) > _LONG and len(words) * _SHARE < len(value)
    template = None if path is None or is_part else lifted_json(value, content, path, {"$lifted": field})
    return Found(words, {} if template is None else {"": template})


def _parts_text(parts: list[Any]) -> Pick | None:
    """Join the text parts of a message; other parts (reasoning, tool calls, files) are not what was said."""
    found: list[Pick] = []
    for index, part in enumerate(parts):
        if type(part) is str and part:
            found.append((part, (index,)))
        elif isinstance(part, dict) and part.get("type", "text") in ("text", "output_text", "input_text"):
            key = "content" if type(part.get("content")) is str else "text"
            if type(part.get(key)) is str and part[key]:
                found.append((part[key], (index, key)))
    if not found:
        return None
    return found[0] if len(found) == 1 else ("\n".join(words for words, _ in found), None)


def _pick_user(messages: Any) -> Pick | None:
    if not isinstance(messages, list):
        return None
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, dict) and _role(message) in ("user", "human"):
            found = message_text(message)
            if found is not None:
                return _below(index, found)
    return None


def _pick_first(messages: Any) -> Pick | None:
    if not isinstance(messages, list):
        return message_text(messages) if isinstance(messages, dict) else None
    picks = ((index, message_text(message)) for index, message in enumerate(messages))
    return next((_below(index, found) for index, found in picks if found is not None), None)


def _pick_query(value: Any, depth: int = 0) -> Pick | None:
    if isinstance(value, list):
        return _pick_user(value) or _pick_sole(value, _pick_query, depth)
    return _pick_key(value, _QUERY_KEYS, _pick_query, depth)


def _pick_response(value: Any, depth: int = 0) -> Pick | None:
    if isinstance(value, list):
        return _pick_first(value) or _pick_sole(value, _pick_response, depth)
    return _pick_key(value, _RESPONSE_KEYS, _pick_response, depth)


def _pick_key(value: Any, keys: Iterable[str], pick: Callable[[Any, int], Pick | None], depth: int) -> Pick | None:
    if not isinstance(value, dict) or depth > _DEEPEST:
        return None
    for key in keys:
        if key in value:
            found = _pick_inside(value[key], pick, depth)
            if found is not None:
                return _below(key, found)
    if len(value) == 1:
        (key, sole), *_ = value.items()
        return _below(key, _pick_inside(sole, pick, depth))
    return None


def _pick_sole(value: list[Any], pick: Callable[[Any, int], Pick | None], depth: int) -> Pick | None:
    """Take the first item: the first positional argument, the first of several generations."""
    return _below(0, _pick_inside(value[0], pick, depth)) if value and depth <= _DEEPEST else None


def _pick_inside(value: Any, pick: Callable[[Any, int], Pick | None], depth: int) -> Pick | None:
    if type(value) is str:
        return (value, ()) if value else None
    return pick(value, depth + 1)


def _role(message: dict[str, Any]) -> str | None:
    role = message.get("role") or message.get("type")
    return role.lower() if isinstance(role, str) else None


def _below(key: Any, found: Pick | None) -> Pick | None:
    if found is None:
        return None
    words, path = found
    return words, None if path is None else (key, *path)
