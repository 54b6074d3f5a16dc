"""Reads usual replies at little cost: those whose names leave the rules only one place to look.

No rules of its own: which of its names a rule asks for is kept for each set of names. Where more than one has a value,
or a value of an unusual kind, the rule is asked (`replies`).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ragpulse import shapes

from .openers import STRUCTURED, known_as
from .values import fields_of

Names = tuple[str, ...]
_SPEAKER_KEYS = frozenset({"role", "type"})
_SPEAKERS = frozenset({"assistant", "model", "ai", "AIMessageChunk", "message"})
"""Roles and types of a message with which it is the assistant's, or which say nothing about it."""
_TEXT = frozenset({"text"})
_CALL_LISTS = frozenset({shapes.CALLS_KEY, "tool_call_chunks"})
_ANSWERS = frozenset(shapes.ANSWER_KEYS) - shapes.WRAPPER_KEYS - {shapes.REFUSAL_KEY}
_CONTENTS = _ANSWERS & {*shapes.MESSAGE_KEYS}
_READ = frozenset((
    *shapes.ANSWER_KEYS, *shapes.MESSAGE_KEYS, *shapes.PART_TEXT_KEYS, *shapes.PART_TYPE_KEYS, *shapes.ROLE_KEYS,
    *shapes.CALL_KEYS, *_CALL_LISTS, shapes.THOUGHT_KEY,
))  # fmt: skip
_DECIDING = frozenset({STRUCTURED, "run_id", "snapshot", "contentBlockDelta", "arguments", "ns", "_raw_response"})
"""With one of these, fields may be read in another way."""
_MAX_NAMES = 50
_OTHER = (str, bytes, bytearray, list, tuple, int, float, type(None), Mapping)


def usual_text(value: Any) -> str | None:
    """The text of a usual reply or chunk, which the rule would find, too; None where the rule must be asked."""
    key = ""
    for _ in range(4):
        cls: Any = type(value)
        fields = value if cls is dict else fields_of(value) if _has_fields(cls) else {}
        key = _only_key(fields, key)
        value = fields.get(key)
        if type(value) is str:
            return None if value[:1] == "<" else value
        if type(value) is list:
            if not value or not (key == "choices" or (key == "content" and len(value) == 1)):
                return None
            value = value[0]
        elif key not in ("message", "delta") or type(next(iter(fields.values()))) is dict:
            return None  # mappings alone may be the outputs of a pipeline's parts
    return None


def _only_key(fields: Mapping[str, Any], above: str) -> str:
    """The only name whose value the rule reads in the fields under the key `above`; empty if it must be asked."""
    found, speaks, speakers = "", False, _TEXT if above == "content" else _SPEAKERS
    names = _names_read(tuple(fields)) if len(fields) < _MAX_NAMES else None
    for name in names or ():
        value = fields[name]
        if value is None or (name in _CALL_LISTS and value == []):
            continue
        if name in _SPEAKER_KEYS and type(value) is str and value in speakers:
            speaks = True
        elif found:
            return ""
        else:
            found = name
    if above == "content":
        return found if found == "text" else ""
    if speaks:
        is_part = above == "choices" or (above == "delta" and fields.get("type") is not None)
        return found if found in _CONTENTS and not is_part else ""
    if above == "choices":
        return found if (found in _ANSWERS or found == "delta") and not fields.get("index") else ""
    return found if found in _ANSWERS else ""


@lru_cache(maxsize=1024)
def _names_read(names: Names) -> Names | None:
    """Which of these names the rule asks for; None if one of them may change how the others are read."""
    return tuple([name for name in names if name in _READ]) if _DECIDING.isdisjoint(names) else None


@lru_cache(maxsize=1024)
def _has_fields(cls: type) -> bool:
    """Whether a class's objects are read by their attributes."""
    return not (issubclass(cls, _OTHER) or known_as(cls.__mro__) or cls.__module__ == "unittest.mock")
