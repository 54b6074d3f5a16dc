"""Finds the calls of tools that a model asks for, in a whole reply or in the chunks of a stream."""

import json
from collections.abc import Mapping
from typing import Any

from .replies import last_said, opened
from .values import fields_of, parsed, read


def tool_calls(found: Any) -> list[dict[str, Any]]:
    """The calls of tools that an opened result asks for: id, name, arguments."""
    fields = fields_of(found)
    message: Mapping[str, Any] | None = fields
    if isinstance(fields.get("choices"), list) and fields["choices"]:
        message = fields_of(fields_of(fields["choices"][0]).get("message"))
    elif isinstance(fields.get("messages"), list):
        message = last_said(fields["messages"])
    elif fields.get("message") is not None:
        message = fields_of(opened(fields["message"]))
    return [] if message is None else calls_of_message(message)


def calls_of_message(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls of tools in one message: apart, or among the parts of its content."""
    calls = message.get("tool_calls")
    if not isinstance(calls, (list, tuple)) or not calls:
        parts = message.get("output") or message.get("content")
        calls = [part for part in parts if is_call(part)] if isinstance(parts, (list, tuple)) else []
    return [_call(fields_of(call)) for call in calls]


def is_call(part: Any) -> bool:
    """Whether a part of a message's content asks for a call of a tool."""
    return not isinstance(part, str) and read(part, "type") in ("tool_use", "function_call", "tool_call")


def _call(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One call; arguments that a provider sends as JSON text become the value."""
    inner = fields_of(fields.get("function")) or fields
    name = inner.get("name") or inner.get("tool_name")
    given = next((inner[key] for key in ("arguments", "args", "input") if inner.get(key) is not None), None)
    return {"id": fields.get("call_id") or fields.get("id"), "name": name, "arguments": parsed(given)}


def add_tool_calls(known: dict[Any, dict[str, Any]], chunk: Any) -> None:
    """Adds the parts of calls in one chunk of a stream: OpenAI's deltas, Anthropic's blocks, items of responses."""
    fields = fields_of(opened(chunk))
    choices = fields.get("choices")
    if isinstance(choices, list) and choices:
        for part in fields_of(fields_of(choices[0]).get("delta")).get("tool_calls") or ():
            part_of_call = fields_of(part)
            function = fields_of(part_of_call.get("function"))
            _grow(
                known,
                part_of_call.get("index"),
                part_of_call.get("id"),
                function.get("name"),
                function.get("arguments"),
            )
    elif fields.get("type") == "response.output_item.done" and is_call(fields.get("item")):
        call = _call(fields_of(fields["item"]))
        known[fields.get("output_index")] = {**call, "arguments": json.dumps(call["arguments"])}
    elif fields.get("type") == "content_block_start" and is_call(fields.get("content_block")):
        block = fields_of(fields["content_block"])
        _grow(known, fields.get("index"), block.get("id"), block.get("name"), None)
    elif fields.get("type") == "content_block_delta" and fields.get("index") in known:
        _grow(known, fields["index"], None, None, read(fields["delta"], "partial_json"))


def _grow(known: dict[Any, dict[str, Any]], at: Any, identity: Any, name: Any, arguments: Any) -> None:
    call = known.setdefault(at, {"id": None, "name": None, "arguments": ""})
    call["id"], call["name"] = identity or call["id"], name or call["name"]
    call["arguments"] += arguments or ""
