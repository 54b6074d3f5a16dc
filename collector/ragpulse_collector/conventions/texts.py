"""Queries and responses inside JSON: chat messages, arguments, wrapped outputs.

The reader is the SDK's own (`ragpulse._reading.replies`), so that both sides read the same shapes by one rule; here the
repr of a message is one, too. A value without a text for people is None and flagged, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragpulse import shapes
from ragpulse._reading.endings import error_in, missing_reason
from ragpulse._reading.replies import last_question, question_in, said_in
from ragpulse._reading.turns import is_call, is_nothing, last_reply, message_fields, role_of
from ragpulse_collector.conventions.lifting import cut
from ragpulse_collector.conventions.rules import WITHOUT_RESPONSE, Read, Result, SpanView
from ragpulse_collector.conventions.values import (
    dumped,
    is_repr,
    may_be_repr,
    may_hold_repr,
    parsed,
    role_of_repr,
    text_in,
)

_ENVELOPE_KEYS = frozenset({
    *shapes.FINISH_KEYS, "usage", "usage_metadata", "usageMetadata", "token_usage", "ResponseMetadata", "done_reason",
    "prompt_feedback", "promptFeedback", "incomplete_details", "tool_calls", "source_nodes", "messages",
    "__interrupt__",
})  # fmt: skip
"""Keys of a provider's own reply, which a model does not write."""
_WITH_DATA = ("tool", "guardrail", "evaluator")
"""Kinds whose result may be any JSON."""
_MAX_DEPTH = 6
_ASKS_NOTHING = re.compile(r"(initialize|ping|(?!tools/call)[a-z]+/[A-Za-z_/]+)$")
"""Methods of MCP beside the call of a tool: `tools/list`."""
_USUAL_KEYS = frozenset({"role", "parts", "finish_reason"})


def query_in(value: Any, _: SpanView) -> Result | None:
    """Read the query from JSON: a known key, the first argument, the last user message, the only value."""
    content = parsed(value)
    text = question_in(_readable(value, content, of_user=True))
    if text is not None:
        return _lifted("query", value, text)
    return _unreadable("query") if type(content) is str and content else None


def last_user_text(value: Any, _: SpanView) -> Result | None:
    """Read the text of the last user message."""
    content = parsed(value)
    if type(content) is not list or not content:
        return None
    text = _usual_text(content[-1], shapes.USER) or last_question(_readable(value, content))
    return None if text is None else _lifted("query", value, text)


def first_message_text(value: Any, span: SpanView) -> Result | None:
    """Read a model's answer: the first of several choices, the last message of an agent's run."""
    if span.kind in WITHOUT_RESPONSE:
        return None
    content = parsed(value)
    text = _usual_text(content[0], shapes.ASSISTANT) if type(content) is list and len(content) == 1 else None
    if text is not None:
        return _lifted("response", value, text)
    content = _readable(value, content)
    if type(content) is list:
        messages = list(map(message_fields, content))
        assistants = [fields for fields in messages if role_of(fields) in (None, shapes.ASSISTANT)]
        last = None if span.kind == "llm" else last_reply(messages)
        content = last or next(iter(assistants), None)
    return None if content is None else _response_in(value, content)


def _usual_text(message: Any, role: str) -> str | None:
    """Return the text of a message as OpenTelemetry writes most of them; None where the rule must be asked."""
    if type(message) is not dict or message.get("role") != role or not _USUAL_KEYS.issuperset(message):
        return None
    parts = message.get("parts")
    part = parts[0] if type(parts) is list and len(parts) == 1 else None
    if type(part) is not dict or len(part) != 2 or part.get("type") != "text":
        return None
    text = part.get("content")  # not by `match`: it takes four times as long
    return text if type(text) is str and text and not may_be_repr(text) else None


def response_of_output(value: Any, span: SpanView) -> Any:
    """Read the response from an output, JSON or text; a search or an embedder has none.

    What a tool returned is any JSON. Of all else only an answer is read, of a model's call, too: no state, status, ids.
    """
    return _response_of(value, span, wraps=True)


def response_of_completion(value: Any, span: SpanView) -> Any:
    """Read the text that a model or an agent wrote: JSON is the answer itself, unless it wraps one."""
    return _response_of(value, span, wraps=False)


def _response_of(value: Any, span: SpanView, *, wraps: bool) -> Any:
    if span.kind in WITHOUT_RESPONSE:
        return None
    content = parsed(value)
    if content is None:
        return plain(value, "response") if type(value) is str and value else None
    may_be_empty = content in ({}, []) and (span.kind in _WITH_DATA or (span.kind == "llm" and not wraps))
    if is_nothing(content) and not may_be_empty:
        return Result(None, reason=missing_reason(content, ()) or shapes.NOTHING)
    if not wraps and type(content) is not str and not _is_envelope(content):
        return _json(value, content, "response")
    result = _response_in(value, _readable(value, content))
    is_data = span.kind in _WITH_DATA and result.value is None and result.reason != shapes.TOOL_CALLS
    return _json(value, content, "response") if is_data and type(content) is not str else result


def response_in(value: Any, _: SpanView) -> Result | None:
    """Read the response from JSON."""
    content = parsed(value)
    return None if content is None else _response_in(value, _readable(value, content))


def or_text(read: Read, *, field: str) -> Read:
    """Make a reader that returns a text that is no JSON as it is; an object's repr is read or refused."""

    def read_or_text(value: Any, span: SpanView) -> Any:
        result = read(value, span)
        if result is None and type(value) is str and value and parsed(value) is None:
            return plain(value, field)
        return result

    return read_or_text


def or_json(read: Read) -> Read:
    """Make a reader of queries that falls back to the JSON text itself, unless it is an object's repr or a state."""

    def read_or_json(value: Any, span: SpanView) -> Any:
        result, content = read(value, span), parsed(value)
        method = content.get("method") if type(content) is dict else None
        if type(method) is str and _ASKS_NOTHING.match(method):
            return None
        if result is not None or content is None or is_nothing(content, query=True):
            return result
        is_state = type(content) is dict and not shapes.STATE_KEYS.isdisjoint(content)
        return _unreadable("query") if is_state else _json(value, content, "query")

    return read_or_json


query_of_input = or_text(or_json(query_in), field="query")
"""Reads the query from an input, JSON or text."""


def said_before(attributes: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what user and assistant said before the last question, of the first attributes that hold a conversation.

    The attributes are as the client sent them; the messages have `role` and `content`.
    """
    flat: dict[str, dict[int, dict[str, str]]] = {}
    for name, value in attributes.items():
        if match := _FLAT.fullmatch(name):
            flat.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = value
    lists: list[Any] = [[messages[number] for number in sorted(messages)] for messages in flat.values()]
    for content in map(parsed, attributes.values()):
        inside = content.values() if type(content) is dict else [content]
        lists += [item for item in inside if type(item) is list and any(map(is_message, item))]
    for messages in (list(map(message_fields, items)) for items in lists):
        users = [number for number, fields in enumerate(messages) if role_of(fields) == shapes.USER]
        if len(users) > 1:
            texts = [(role_of(one), last_question([one]) or said_in(one).text) for one in messages[: users[-1]]]
            return [{"role": role, "content": text} for role, text in texts if role in _SPEAKERS and text]
    return []


_FLAT = re.compile(r"(llm\.input_messages|gen_ai\.prompt)\.(\d+)\.(?:message\.)?(role|content)")
"""The name of a part of a message that has an attribute of its own."""
_SPEAKERS = (shapes.USER, shapes.ASSISTANT)


def plain(value: str, field: str) -> Result:
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
    if any(role.lower() in shapes.ROLES for role in roles) or isinstance(item.get("message"), dict):
        return True
    is_serialized = any(isinstance(item.get(key), dict) and role_of(item[key]) for key in ("kwargs", "data"))
    return is_serialized or shapes.CALLS_KEY in item or is_call(item)


def _response_in(value: Any, content: Any) -> Result:
    """Return the text of a reply, else why it has none."""
    said = said_in(content)
    text = said.text
    if text:
        return _lifted("response", value, text, refused=said.refused)
    error = None if said.calls or type(content) is not dict else error_in(content)
    if error is not None:
        return Result(None, error=error)
    reason = missing_reason(content, said.calls)
    return Result("") if text is not None and reason in (None, shapes.CUT) else _unreadable("response", reason)


def _lifted(field: str, value: Any, text: str, *, refused: bool = False) -> Result:
    if text in shapes.WITHHELD_TEXTS:
        return Result(None, reason=shapes.WITHHELD)
    template = cut(value, [(text, {"$lifted": field})])
    flag = "response_is_refusal" if refused else None
    return Result(text, {} if template is None else {"": template}, flag=flag)


def _unreadable(field: str, reason: str | None = None) -> Result:
    return Result(None, flag=f"{field}_is_no_text", reason=reason or shapes.UNREAD if field == "response" else None)


def _json(value: Any, content: Any, field: str) -> Any:
    """Return JSON as a text, if no object's repr is in it."""
    if may_hold_repr(value) and _has_reprs(content):
        return _unreadable(field)
    return value if type(value) is str else dumped(value) if isinstance(value, (dict, list)) else None


def _readable(value: Any, content: Any, *, of_user: bool = False) -> Any:
    """Return the content of JSON with messages in place of their reprs, and without all other reprs."""
    return _without_reprs(content, of_user) if may_hold_repr(value) else content


def _without_reprs(content: Any, of_user: bool, depth: int = 0) -> Any:
    if type(content) is str and is_repr(content):
        role, text = role_of_repr(content), text_in(content)
        if role is not None:
            return {"role": role, "content": text}
        return None if of_user else text  # a template or a step of an agent has many texts; none is the question
    if depth < _MAX_DEPTH and isinstance(content, dict):
        return {key: _without_reprs(item, of_user, depth + 1) for key, item in content.items()}
    if depth < _MAX_DEPTH and isinstance(content, list):
        return [_without_reprs(item, of_user, depth + 1) for item in content]
    return content


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
        return role_of(message_fields(item)) is not None or _holds_messages(item)
    if not isinstance(item, dict):
        return False
    return item.get("type") in shapes.TEXT_PARTS or any(key in item for key in shapes.FINISH_KEYS)


def _has_reprs(content: Any, depth: int = 0) -> bool:
    if type(content) is str:
        return is_repr(content)
    values = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return depth < _MAX_DEPTH and any(_has_reprs(value, depth + 1) for value in values)
