"""What a reply in JSON says: its texts and tool calls, or why it has no text; the last question in messages.

The rule is data that the SDK reads, too: `ragpulse.shapes`. Here strings can also be reprs of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragpulse import shapes
from ragpulse_collector.conventions.values import is_repr, role_of_repr, text_in

Fields = Mapping[str, Any]
_MAX_DEPTH = 10
_DOCUMENT_KEYS = frozenset({"page_content", "score"})


class Said:
    """What a reply says: the texts of its parts in order, whether it calls tools, whether the text is a refusal."""

    __slots__ = ("_depth", "calls", "refused", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0
        self.refused = False
        self._depth = 0

    @property
    def text(self) -> str | None:
        """The text; None where there is none. An empty text beside tool calls is none."""
        text = self.texts[0] if len(self.texts) == 1 else "".join(self.texts)
        return text if text or (self.texts and not self.calls) else None

    def read(self, value: Any, key: str = "") -> bool:
        """Read a value, which a reply has under this key; return whether it says anything."""
        before = len(self.texts) + self.calls
        if type(value) is str:
            text = text_in(value) if is_repr(value) else None if value in shapes.WITHHELD_TEXTS else value
            self.texts += () if text is None else (text,)
        elif self._depth < _MAX_DEPTH:
            self._depth += 1
            if type(value) is list:
                self._list(value, key)
            elif type(value) is dict:
                self._mapping(value, key)
            self._depth -= 1
        return len(self.texts) + self.calls > before

    def _mapping(self, fields: Fields, key: str) -> None:
        is_part = key == "audio" or (key in shapes.PART_LISTS and type_of(fields) is not None)
        if is_part and _own_role(fields) is None:
            self._part(fields)
        else:
            self._reply(fields)

    def _list(self, items: Sequence[Any], key: str) -> None:
        if key in shapes.CHOICE_KEYS:
            texts = len(self.texts)
            self.read(next((item for item in items if type(item) is not dict or not item.get("index")), None), key)
            if key == shapes.DERIVED_KEY and not any(self.texts[texts:]):
                del self.texts[texts:]
        elif key in shapes.PART_LISTS:
            self._parts(items)
        elif items and all(type(item) is str and not is_repr(item) for item in items):
            self.texts.append("\n".join(items))
        else:
            self._messages(items, key)

    def _messages(self, items: Sequence[Any], key: str) -> None:
        """Read a conversation, parts of a message, or the only one of several results."""
        calls = any(map(is_call, items))
        if key == "messages" or (any(map(role_of, items)) and not calls):
            self.read(last_reply(items))
        elif calls or any(type_of(item) is not None for item in items):
            self._parts(items)
        elif len(items) == 1 and not has_documents(items):
            self.read(items[0])

    def _parts(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self._part(part) if type(part) is dict else self.read(part)

    def _part(self, fields: Fields) -> None:
        if is_call(fields):
            self.calls += 1
        elif is_text(fields) and _own_role(fields) in (None, shapes.ASSISTANT):
            key = next((key for key in shapes.PART_TEXT_KEYS if self.read(fields.get(key), key)), None)
            self.refused |= key == shapes.REFUSAL_KEY

    def _reply(self, fields: Fields) -> None:
        role = _own_role(fields)
        if role in (shapes.USER, shapes.OTHER):
            return
        calls, texts = len(fields.get(shapes.CALLS_KEY) or ()) or is_call(fields), len(self.texts)
        for key in shapes.MESSAGE_KEYS if role else shapes.ANSWER_KEYS:
            value, before = fields.get(key), self.calls
            if value is None or (type(value) is str and key in shapes.WRAPPER_KEYS):
                continue
            if key == "raw" and type(value) is not str:  # LlamaIndex: the provider's own reply
                continue
            self.read(value, key)
            if any(self.texts[texts:]) or self.calls > before:
                self.refused |= key == shapes.REFUSAL_KEY
                break
        if calls:
            self.calls = int(calls)
        elif len(self.texts) == texts and not self.calls and all(type(part) is dict for part in fields.values()):
            any(map(self.read, reversed(list(fields.values()))))  # of a pipeline's outputs the last that replies


def said_in(value: Any) -> Said:
    """Return what a reply says."""
    said = Said()
    said.read(value)
    return said


def type_of(fields: Any) -> str | None:
    """Return the type of a part of a message, in lower case."""
    for key in shapes.PART_TYPE_KEYS if type(fields) is dict else ():
        if type(fields.get(key)) is str:
            return str(fields[key]).lower()
    return None


def is_text(fields: Fields) -> bool:
    """Return whether a part of a message is text."""
    kind = type_of(fields)
    return (kind is None or kind in shapes.TEXT_PARTS) and not fields.get(shapes.THOUGHT_KEY)


def is_call(fields: Any) -> bool:
    """Return whether a part of a message is a tool call."""
    if type(fields) is not dict:
        return False
    if type_of(fields) in shapes.CALL_PARTS or ("arguments" in fields and any(map(fields.get, shapes.CALL_NAME_KEYS))):
        return True
    return any(fields.get(key) is not None for key in shapes.CALL_KEYS)


def role_of(message: Any, *, named: bool = False) -> str | None:
    """Return who says a message: ASSISTANT, USER, OTHER or unknown; in a conversation an agent may have a name."""
    if type(message) is str:
        return shapes.ROLES.get(role_of_repr(message) or "")
    if type(message) is list and len(message) == 2 and type(message[0]) is str:
        return shapes.ROLES.get(message[0].lower())
    if type(message) is not dict:
        return None
    return next((role for layer in _layers(message) if (role := _own_role(layer, named))), None)


def _own_role(fields: Fields, named: bool = False) -> str | None:
    for key in shapes.ROLE_KEYS:
        value = fields.get(key)
        name = value.get("role") or value.get("name") if type(value) is dict else value
        if type(name) is str:
            role = shapes.ROLES.get(name.lower()) or (named and key in shapes.NAME_KEYS and shapes.ASSISTANT)
            if role:
                return role
    return None


def _layers(message: Fields) -> Iterable[Fields]:
    """Yield a message and what it wraps: a choice has a message, which may be a serialized constructor."""
    layer: Any = message
    for _ in range(4):
        if type(layer) is not dict:
            break
        yield layer
        layer = next((inner for key in shapes.WRAPPED_MESSAGE_KEYS if type(inner := layer.get(key)) is dict), None)


def last_reply(messages: Sequence[Any]) -> Any:
    """Return the last message that the assistant said after the user's last one."""
    for message in reversed(messages):
        role = role_of(message, named=True)
        if role == shapes.ASSISTANT:
            return message[1] if type(message) is list else message
        if role == shapes.USER:
            break
    return None


def last_question(messages: Sequence[Any]) -> str | None:
    """Return the text of the user's last message."""
    for message in reversed(messages):
        if role_of(message) == shapes.USER:
            text = _message_text(message)
            if text:
                return text
    return None


def _message_text(message: Any) -> str | None:
    """Return the text of a message, whoever says it; the parts of a question are lines."""
    if type(message) is not dict:
        return said_in(message[1] if type(message) is list else message).text
    said = Said()
    for layer in _layers(message):
        if any(said.read(layer.get(key), key) for key in (*shapes.PARTS_KEYS, "text")):
            return "\n".join(filter(None, said.texts))
    return None


def has_documents(items: Iterable[Any]) -> bool:
    """Return whether a list is one of documents."""
    return any(type(item) is dict and not _DOCUMENT_KEYS.isdisjoint(item) for item in items)


def missing_reason(value: Any, said: Said) -> str | None:
    """Return why a reply in JSON has no text; None if it does not say so."""
    if said.calls:
        return shapes.TOOL_CALLS
    if type(value) is not dict:
        return shapes.WITHHELD if type(value) is str and value in shapes.WITHHELD_TEXTS else None
    for source in _endings(value):
        if any(map(source.get, shapes.BLOCK_KEYS)):
            return shapes.FILTERED
        ending = next(filter(None, map(source.get, shapes.FINISH_KEYS)), source.get("reason"))
        reason = shapes.MISSING_REASONS.get(str(ending).lower())
        if reason is not None:
            return reason
    is_empty = any(value.get(key) == [] for key in ("choices", "candidates", "generations"))
    return shapes.NO_CHOICE if is_empty else None


def _endings(reply: Fields) -> Iterable[Fields]:
    """Return where a reply says how it ended."""
    choices = reply.get("choices") or reply.get("candidates")
    inner = map(reply.get, ("incomplete_details", "promptFeedback", "prompt_feedback", "response_metadata"))
    sources = (*(choices[:1] if type(choices) is list else ()), reply, *inner)
    return [source for source in sources if type(source) is dict]


def error_in(value: Any) -> tuple[str | None, str] | None:
    """Return the type and message of an error that came as a reply with status 200."""
    if type(value) is not dict:
        return None
    choices = value.get("choices")
    for source in (value, value.get("response"), *(choices if type(choices) is list else ())):
        error = source.get("error") if type(source) is dict else None
        if type(error) is str and error:
            return None, error
        if type(error) is not dict and type(source) is dict and source.get("type") == "error":
            error = source
        if type(error) is dict and type(error.get("message")) is str:
            kind = error.get("type") or error.get("code")
            return None if kind in (None, "error") else str(kind), error["message"]
    return None
