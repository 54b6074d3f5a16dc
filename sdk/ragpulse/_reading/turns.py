"""Who says what in a list of messages; which parts of a message are text, calls of tools or their results.

Their shapes are data (`ragpulse.shapes`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragpulse import shapes

from .openers import opened
from .values import fields_of, is_repr, parsed

MAX_DEPTH = 10
_NO_ARGUMENTS = re.compile(r"(?:'(?:kw)?args':|[\[\](){},\s])*+")
_CALL_KEYS, _TYPE_KEYS, _ROLE_KEYS = map(frozenset, (shapes.CALL_KEYS, shapes.PART_TYPE_KEYS, shapes.ROLE_KEYS))
Fields = Mapping[str, Any]
Call = dict[str, Any]
"""A tool call: id, name, arguments."""


def type_of(fields: Fields) -> str | None:
    """The type of a part in lower case, under any name of a type."""
    if _TYPE_KEYS.isdisjoint(fields):
        return None
    kinds = [getattr(kind, "value", kind) for key in shapes.PART_TYPE_KEYS if (kind := fields.get(key)) is not None]
    return next((kind.lower() for kind in kinds if isinstance(kind, str)), None)


def is_text(fields: Fields) -> bool:
    """Whether a part of a message is text."""
    kind = type_of(fields)
    return (kind is None or kind in shapes.TEXT_PARTS) and not fields.get(shapes.THOUGHT_KEY)


def is_call(fields: Fields) -> bool:
    """Whether a part of a message is a tool call."""
    if "arguments" in fields and first_of(fields, shapes.CALL_NAME_KEYS):
        return True
    if type_of(fields) in shapes.CALL_PARTS:
        return True
    return not _CALL_KEYS.isdisjoint(fields) and first_of(fields, shapes.CALL_KEYS) is not None


def call_in(fields: Fields) -> Call:
    """One tool call; arguments in JSON are parsed."""
    inner = fields_of(first_of(fields, shapes.CALL_FORM_KEYS)) or fields
    identity = first_of(fields, shapes.CALL_ID_KEYS) or first_of(inner, shapes.CALL_ID_KEYS)
    name = first_of(inner, shapes.CALL_NAME_KEYS) or type_of(fields)
    return {"id": identity, "name": name, "arguments": parsed(first_of(inner, shapes.CALL_ARGUMENT_KEYS))}


def calls_of(fields: Fields) -> list[Call]:
    """The tool calls beside the content of a message."""
    calls = fields.get(shapes.CALLS_KEY)
    if isinstance(calls, (list, tuple)) and calls:
        return [call_in(fields_of(call)) for call in calls]
    return [call_in(fields)] if is_call(fields) else []


def first_of(fields: Fields, keys: Iterable[str]) -> Any:
    return next((fields[key] for key in keys if fields.get(key) is not None), None)


def role_of(fields: Fields, *, named: bool = False) -> str | None:
    """Who says a message: `ASSISTANT`, `USER`, `OTHER` or unknown; in a conversation an agent may have a name."""
    if _ROLE_KEYS.isdisjoint(fields):
        return None
    for key in shapes.ROLE_KEYS:
        value = fields.get(key)
        if value is None:
            continue
        name = value.get("role") or value.get("name") if isinstance(value, Mapping) else getattr(value, "value", value)
        if isinstance(name, str):
            role = shapes.ROLES.get(name.lower()) or (named and key in shapes.NAME_KEYS and shapes.ASSISTANT)
            if role:
                return shapes.OTHER if role == shapes.USER and _has_only_results(fields) else role
    return None


def _has_only_results(fields: Fields) -> bool:
    """Whether a message has results of tools, and nothing else."""
    parts = first_of(fields, shapes.PARTS_KEYS)
    return isinstance(parts, (list, tuple)) and bool(parts) and all([_is_result(fields_of(part)) for part in parts])


def _is_result(fields: Fields) -> bool:
    return type_of(fields) in shapes.RESULT_PARTS or first_of(fields, shapes.RESULT_KEYS) is not None


def message_fields(item: Any) -> Fields:
    """The fields of a message: of an object, a mapping, `("user", "Hi")`, or of what a serialized one wraps."""
    if isinstance(item, (tuple, list)) and len(item) == 2 and all([isinstance(part, str) for part in item]):
        return {"role": item[0], "content": item[1]}
    fields = fields_of(opened(item))
    if "from" in fields and "value" in fields:  # ShareGPT
        fields = {**fields, "content": fields["value"]}
    role = role_of(fields)
    inner = next((fields_of(fields[key]) for key in shapes.WRAPPED_MESSAGE_KEYS if fields_of(fields.get(key))), {})
    if role is None:
        return inner if role_of(inner) is not None else fields
    return fields if not inner or first_of(fields, shapes.PARTS_KEYS) is not None else {**inner, "role": role}


def last_reply(messages: Sequence[Fields]) -> Fields | None:
    """The last message that the assistant said after the user's last one."""
    said = [fields for fields in turn_of(messages) if role_of(fields, named=True) == shapes.ASSISTANT]
    return said[-1] if said else None


def turn_of(messages: Sequence[Fields]) -> Sequence[Fields]:
    """The messages after the user's last one."""
    users = [place for place, fields in enumerate(messages) if role_of(fields, named=True) == shapes.USER]
    return messages[users[-1] + 1 :] if users else messages


def is_nothing(value: Any, *, query: bool = False, depth: int = 0) -> bool:
    """Whether there is no value in plain values: only None, empty objects and lists, and texts that stand for nothing.

    Of a query the empty text and empty arguments are nothing, too.
    """
    if isinstance(value, str):
        return (query and _NO_ARGUMENTS.fullmatch(value) is not None) or (value[:1] != "<" and is_repr(value))
    if isinstance(value, (dict, list)) and depth < MAX_DEPTH:
        for item in value.values() if isinstance(value, dict) else value:
            if item is not None and not is_nothing(item, query=query, depth=depth + 1):
                return False
        return True
    return value is None
