"""Finds the answer in what a model or an application returned: its text, its tool calls, or why there is none.

One reader for objects and JSON, for whole replies and chunks of streams. Its rule is data, which the collector reads,
too: `ragpulse.shapes`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ragpulse import shapes

from .openers import STRUCTURED, opened, whole_result
from .turns import (
    MAX_DEPTH,
    Call,
    Fields,
    call_in,
    calls_of,
    is_call,
    is_text,
    last_reply,
    message_fields,
    role_of,
    type_of,
)
from .values import TEXT_IS_ODD, fields_of, is_repr, json_or_none, value_of

_SSE_KEYS = frozenset({"data", "event", "id", "retry", "comment", "sep"})
_UNSEEN = ("reasoning", "thinking", "tool", "argument", "audio", "input", "signature")
"""Parts of the types of events whose `delta` is hidden from the user."""
_PLAIN = (int, float, bytes, bytearray, type(None))
_ROLE_KEYS = frozenset(shapes.ROLE_KEYS)
_CONTINUES = re.compile(r"\s|[.,;:!?)\]\u3001\u3002\uff0c\uff01\uff1a\uff1b\uff1f](?!\S)")
_OF_CALLS = frozenset(("arguments", shapes.CALLS_KEY, *shapes.CALL_KEYS, *shapes.PART_TYPE_KEYS))
_OF_EVENTS = frozenset(("type", "delta", "contentBlockDelta", "data", STRUCTURED))
_PARTIAL = shapes.PART_LISTS | {"delta", "audio"}
_OF_CHUNKS = frozenset(("candidates", "done"))
_MAX_NAMES = 50


class Said:
    """What a reply says: the texts of its parts and its tool calls, in order; whether the text is a refusal."""

    __slots__ = ("_depth", "calls", "refused", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[Call] = []
        self.refused = False
        self._depth = 0

    @property
    def text(self) -> str | None:
        """The text; None where there is none. An empty text beside tool calls is none."""
        text = self.texts[0] if len(self.texts) == 1 else "".join(self.texts)
        return text if text or (self.texts and not self.calls) else None

    def adds(self, value: Any, key: str = "") -> bool:
        """Whether a value, which a reply has under this key, says anything; then it is added."""
        before = len(self.texts) + len(self.calls)
        if isinstance(value, str):
            if not is_repr(value):
                self.texts.append(value)
        elif isinstance(value, list):
            self._list(value, key)
        elif type(value) not in _PLAIN and self._depth < MAX_DEPTH:
            self._depth += 1
            self.adds_opened(opened(value), key)
            self._depth -= 1
        return len(self.texts) + len(self.calls) > before

    def adds_opened(self, value: Any, key: str = "") -> None:
        """Adds a value that `opened` returned."""
        if type(value) is dict:
            fields: Fields = value
        elif isinstance(value, (str, list)) or type(value) in _PLAIN:
            self.adds(value, key)
            return
        else:
            fields = fields_of(value)
        if key in _PARTIAL and role_of(fields) is None and (key == "audio" or type_of(fields) is not None):
            self._part(fields)
        else:
            self.adds_fields(fields)

    def _list(self, items: Sequence[Any], key: str) -> None:
        if key in shapes.CHOICE_KEYS:
            before = len(self.texts)
            self.adds(next((item for item in items if not fields_of(item).get("index")), None), key)
            if key == shapes.DERIVED_KEY and not any(self.texts[before:]):
                del self.texts[before:]
        elif key in shapes.PART_LISTS:
            self._parts(items)
        elif texts := _texts(items):
            self.texts.append(("" if _are_pieces(texts) else "\n").join(texts))
        elif items and all(map(_is_chunk, items)):
            for item in items:
                self.adds(item)
        elif items and type(items[-1]) is dict and (whole := whole_result(items[-1])) is not None:  # states of a graph
            self.adds(whole)
        else:
            self._messages([message_fields(item) for item in items], key)

    def _messages(self, messages: list[Fields], key: str) -> None:
        """A conversation, parts of a message, or the only one of several results."""
        calls = any(map(is_call, messages))
        if key in shapes.CONVERSATION_KEYS or (any(map(role_of, messages)) and not calls):
            self.adds_fields(last_reply(messages) or {})
        elif calls or any([type_of(fields) for fields in messages]):
            self._parts(messages)
        elif len(messages) == 1:
            self.adds_fields(messages[0])

    def _parts(self, parts: Iterable[Any]) -> None:
        for part in parts:
            if isinstance(part, str):
                self.adds(part)
            else:
                self._part(fields_of(part))

    def _part(self, fields: Fields) -> None:
        """One part of a message's content, by its type."""
        if is_call(fields):
            self.calls.append(call_in(fields))
        elif is_text(fields) and role_of(fields) in (None, shapes.ASSISTANT):
            key = next((key for key in shapes.PART_TEXT_KEYS if self.adds(fields.get(key), key)), None)
            self.refused |= key == shapes.REFUSAL_KEY

    def adds_fields(self, fields: Fields) -> None:
        """A reply, a message, an event of a stream, or an application's result, by its fields."""
        looks = (_looks if len(fields) < _MAX_NAMES else _looks.__wrapped__)(tuple(fields))
        if looks.plain:
            self._reply(fields, looks)
        elif STRUCTURED in fields:
            output = fields[STRUCTURED]
            if not self.adds(output) and (text := json_or_none(output)):
                self.texts.append(text)
        elif is_event(fields):
            self.refused |= self.adds(_visible(fields), "delta") and shapes.REFUSAL_KEY in str(fields.get("type"))
        elif isinstance(fields.get("data"), str) and _SSE_KEYS.issuperset(fields):
            self.adds(data_text(fields["data"]))
        else:
            self._reply(fields, looks)

    def _reply(self, fields: Fields, looks: "_Looks") -> None:
        role = role_of(fields) if looks.role else None
        if role in (shapes.USER, shapes.OTHER):
            return
        calls = calls_of(fields) if looks.calls else []
        texts = len(self.texts)
        for key in looks.of_message if role else looks.of_result:
            value = fields[key]
            if type(value) is str:
                if key in shapes.WRAPPER_KEYS:
                    continue
            elif value is None or key == "raw":  # LlamaIndex: the provider's own reply
                continue
            if type(value) is str and value and value[0] not in TEXT_IS_ODD:
                self.texts.append(value)
            else:
                before = len(self.calls)
                self.adds(value, key)
                if not any(self.texts[texts:]) and len(self.calls) == before:
                    continue
            self.refused |= key == shapes.REFUSAL_KEY
            break
        if calls:  # the parts of the content repeat them
            self.calls = calls


class _Looks(NamedTuple):
    """What fields may be by their names alone, so that the rules ask no more of them; where their text may be."""

    plain: bool
    """Neither an event of a stream nor an output of the application's own type."""
    role: bool
    calls: bool
    of_message: tuple[str, ...]
    of_result: tuple[str, ...]


@lru_cache(maxsize=2048)
def _looks(names: tuple[str, ...]) -> _Looks:
    return _Looks(
        _OF_EVENTS.isdisjoint(names),
        not _ROLE_KEYS.isdisjoint(names),
        not _OF_CALLS.isdisjoint(names),
        tuple([key for key in shapes.MESSAGE_KEYS if key in names]),
        tuple([key for key in shapes.ANSWER_KEYS if key in names]),
    )


def said_in(result: Any) -> Said:
    """What a whole reply says, or one chunk of a stream."""
    return said_of(opened(result))


def said_of(reply: Any) -> Said:
    """As `said_in`, of a result that `opened` returned."""
    said = Said()
    if type(reply) is dict:
        said.adds_fields(reply)
    else:
        said.adds_opened(reply)
    return said


def reply_text(result: Any) -> str | None:
    """The text of a whole reply or of one chunk of a stream; None if it has none."""
    return result if isinstance(result, str) else said_in(result).text


# --- parts, calls, messages ------------------------------------------------------------------------------------------
def _texts(items: Sequence[Any]) -> list[str]:
    """A list of texts, or of LangChain's chunks with an `answer`; empty for any other."""
    chunks = [item.get("answer") for item in items if type(item) is dict and "answer" in item]
    texts = [text for text in (chunks if len(chunks) > 1 else items) if text is not None]
    is_pair = None in items and len(texts) < 2  # no answer, and an error
    return texts if not is_pair and all([isinstance(text, str) for text in texts]) else []


def _are_pieces(texts: Sequence[str]) -> bool:
    """Whether texts are pieces of one: those of a stream carry their own spaces and signs, items do not."""
    return any([_CONTINUES.match(text) for text in texts[1:]]) or any([text[-1:].isspace() for text in texts[:-1]])


def _is_chunk(item: Any) -> bool:
    """Whether an item is a chunk of a stream: OpenAI's, LangChain's, Google's, Ollama's, or an event with a delta."""
    fields = fields_of(item)
    return (
        is_event(fields)
        or not _OF_CHUNKS.isdisjoint(fields)
        or str(fields.get("object") or fields.get("type")).lower().endswith("chunk")
    )


def last_question(messages: Sequence[Any]) -> str | None:
    """The text of the user's last message; its parts are lines."""
    for fields in reversed([message_fields(item) for item in messages]):
        if role_of(fields) == shapes.USER:
            said = Said()
            key = next((key for key in (*shapes.PARTS_KEYS, "text") if said.adds(fields.get(key), key)), None)
            if key is not None and any(said.texts):
                return "\n".join(filter(None, said.texts))
    return None


def question_in(value: Any, depth: int = 0) -> str | None:
    """The question in arguments or a state: under a usual name, in the user's last message, or the only text."""
    if isinstance(value, str):
        return value if value and not is_repr(value) else None
    if isinstance(value, (list, tuple)):
        return last_question(value) or (question_in(value[0], depth + 1) if value and depth < MAX_DEPTH else None)
    fields = fields_of(opened(value)) if depth < MAX_DEPTH else {}
    keys = shapes.QUESTION_KEYS if len(fields) != 1 else (*shapes.QUESTION_KEYS, *fields)
    inside = [fields[key] for key in keys if fields.get(key) is not None]
    if not inside and all([isinstance(part, Mapping) for part in fields.values()]):  # inputs of a pipeline's parts
        inside = list(fields.values())
    return next((text for part in inside if (text := question_in(part, depth + 1))), None)


# --- events of streams ----------------------------------------------------------------------------------------------
def is_event(fields: Fields) -> bool:
    """Whether it is an event of a stream, in which at most a delta is new."""
    kind, delta = fields.get("type"), fields.get("delta")
    if isinstance(kind, str):
        is_kind = kind.startswith(("response.", "message_", "content_block_")) or kind.endswith(".done")
        return is_kind or delta is not None or "snapshot" in fields
    return isinstance(delta, str) or "contentBlockDelta" in fields


def _visible(fields: Fields) -> Any:
    """The delta of an event, unless it is hidden from the user."""
    delta, kind = fields.get("delta"), str(fields.get("type"))
    if "contentBlockDelta" in fields:  # Bedrock
        return value_of(fields["contentBlockDelta"], "delta")
    if not isinstance(delta, str):
        return delta
    if kind.startswith("response."):
        return delta if "output_text" in kind or "refusal" in kind else None
    return None if any([name in kind for name in _UNSEEN]) else delta


def data_text(data: str) -> str:
    """The text in the data of one event or line: the reply in it where it is JSON."""
    if data == "[DONE]":
        return ""
    if data[:1] not in ("{", '"'):
        return data
    try:
        value = json.loads(data)
    except ValueError:
        return data
    piece = piece_in(value) if isinstance(value, dict) else None
    return piece if piece is not None else reply_text(value) or ""


def piece_in(value: dict[str, Any]) -> str | None:
    """The text of a piece such as `{"token": "Pa"}`; None for anything else."""
    piece = value.get("token", value.get("chunk"))
    return piece if isinstance(piece, str) else None
