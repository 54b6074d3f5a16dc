"""Collects what the items of a stream say beside their texts: the whole reply, tool calls, and why there is no text."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ragpulse import shapes

from .endings import error_in, missing_reason
from .frames import piece
from .openers import opened
from .replies import Said, said_in
from .turns import Call, Fields, first_of, is_call
from .values import fields_of, parsed


class Pieces:
    """What a stream has said so far."""

    __slots__ = ("_calls", "_reason", "error", "said", "unread")

    def __init__(self) -> None:
        self.said = Said()
        """The whole reply, if an item was one; else the empty text, if an item had it."""
        self.error: tuple[str | None, str] | None = None
        self.unread: Any = None
        """The last item in which nothing was found."""
        self._calls: dict[Any, Call] = {}
        self._reason: str | None = None

    def add(self, item: Any) -> str | None:
        """Reads an item; returns its text."""
        said = piece(item)
        self.said.refused |= said.refused
        _add_calls(self._calls, item, said.calls)
        text = said.text
        if text is None:
            self.unread = item
        elif not text and not self.said.texts:
            self.said.texts.append(text)
        if not text:
            self._reason = self._reason or missing_reason(item, ())
            self.error = self.error or error_in(item)
        return text

    def add_whole(self, reply: Any) -> None:
        """Reads the reply at the end of a stream, or what it is so far: it wins over the pieces."""
        said = said_in(reply)
        if said.text is not None:
            self.said = said
        elif said.calls:
            _add_calls(self._calls, None, said.calls)
        else:
            self.unread = reply

    def reply(self, text: str) -> Said:
        """What the stream says, with this text of its pieces."""
        self.said.calls = [{**call, "arguments": parsed(call["arguments"])} for call in self._calls.values()]
        if text or self.unread is None:
            self.said.texts = [text]
        return self.said

    @property
    def reason(self) -> str | None:
        """Why there is no text, if an item says it."""
        return shapes.TOOL_CALLS if self._calls else self._reason


def _add_calls(calls: dict[Any, Call], chunk: Any, whole: Sequence[Call] = ()) -> None:
    """Adds the tool calls in one chunk of a stream: parts of calls, else those that it has whole."""
    parts = list(_call_parts(fields_of(opened(chunk))))
    for index, part in parts:
        call = calls.setdefault(index, {"id": None, "name": None, "arguments": ""})
        inner = fields_of(first_of(part, shapes.CALL_FORM_KEYS)) or part
        call["id"] = first_of(part, shapes.CALL_ID_KEYS) or first_of(inner, shapes.CALL_ID_KEYS) or call["id"]
        call["name"] = first_of(inner, shapes.CALL_NAME_KEYS) or call["name"]
        arguments = first_of(inner, shapes.CALL_ARGUMENT_KEYS) or ""  # {} at the beginning of Anthropic's
        call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)
    for call in () if parts else whole:
        calls[len(calls), "whole"] = {**call, "arguments": json.dumps(call["arguments"])}


def _call_parts(fields: Fields) -> Iterator[tuple[Any, Fields]]:
    """Parts of calls, each with the index of its call."""
    kind, choices = str(fields.get("type")), fields.get("choices")
    delta = fields_of(fields.get("delta"))
    if isinstance(choices, list):
        first = fields_of(next((choice for choice in choices if not fields_of(choice).get("index")), None))
        yield from _listed(fields_of(first.get("delta")).get(shapes.CALLS_KEY))
    elif fields.get("tool_call_chunks"):  # LangChain
        yield from _listed(fields["tool_call_chunks"])
    elif kind == "content_block_start" and is_call(block := fields_of(fields.get("content_block"))):
        yield fields.get("index"), block
    elif isinstance(delta.get("partial_json"), str):  # Anthropic
        yield fields.get("index"), {"arguments": delta["partial_json"]}
    elif kind == "response.output_item.done" and is_call(item := fields_of(fields.get("item"))):
        yield fields.get("output_index"), item
    elif kind.startswith("tool-call-"):  # Cohere
        yield fields.get("index"), fields_of(fields_of(delta.get("message")).get(shapes.CALLS_KEY))
    for key, inner in (("contentBlockStart", "start"), ("contentBlockDelta", "delta")):  # Bedrock
        block = fields_of(fields.get(key))
        if is_call(part := fields_of(block.get(inner))):
            yield block.get("contentBlockIndex"), part


def _listed(parts: Any) -> Iterator[tuple[Any, Fields]]:
    for position, part in enumerate(map(fields_of, parts or ())):
        index = part.get("index")
        yield position if index is None else index, part
