"""Chat messages as attributes: what a model was asked, what it said, and a failure that it reported in its reply."""

from typing import Any

from ragpulse import _names as names
from ragpulse import shapes
from ragpulse._reading.openers import opened
from ragpulse._reading.replies import last_question, question_in, said_in
from ragpulse._reading.turns import Call, call_in, calls_of, is_call, is_nothing, is_text, role_of
from ragpulse._reading.values import fields_of, plain, to_json

from .recording import Recording

Part = dict[str, Any]
"""Of a message, or a message."""


class ErrorReply(Exception):
    """A failure that a provider reported in a reply with status 200."""

    __module__ = "ragpulse"


def fail_reply(recording: Any, kind: str | None, message: str) -> None:
    """Marks the call as failed, with the provider's own type of error where it names one."""
    recording.fail(ErrorReply(message))
    if kind is not None:
        recording.put(names.ERROR_TYPE, kind)


def put_output_messages(recording: Recording, text: str | None, calls: list[Call]) -> None:
    """Records the model's message in the shape of the conventions."""
    parts: list[Part] = [{"type": "text", "content": text}] if text else []
    parts += _calls(calls)
    if not parts:
        return
    message: Part = {"role": "assistant", "parts": parts}
    reasons = (recording.facts or {}).get(names.FINISH_REASONS)
    if reasons:
        message["finish_reason"] = reasons[0]
    recording.put_text(names.OUTPUT_MESSAGES, to_json([message]))


def put_question(recording: Recording, value: Any) -> None:
    """Records a query that is no text: the user's last message, the question in a state, else JSON of plain values."""
    if is_nothing(value, query=True):
        return
    messages = to_messages(value) if isinstance(value, list) else None
    if messages is not None:
        recording.put_text(names.INPUT_MESSAGES, to_json(messages))
        recording.query = last_question(value)
        return
    recording.query = question_in(value)
    is_plain = isinstance(value, (dict, list, tuple, int, float))
    if recording.query is None and is_plain and not (isinstance(value, dict) and value.keys() & shapes.STATE_KEYS):
        recording.query = to_json(value)


def to_messages(value: list[Any]) -> list[Part] | None:
    """Chat messages in any library's shape -> OpenTelemetry's `{"role", "parts"}`; None when these are no messages."""
    messages = []
    for item in value:
        message = fields_of(opened(item))
        named = [getattr(message.get(key), "value", message.get(key)) for key in ("role", "type")]
        role = next((name for name in named if isinstance(name, str)), None)
        content = next((message[key] for key in shapes.PARTS_KEYS if message.get(key) is not None), None)
        calls = calls_of(message)
        if role is None or (content is None and not calls):
            return None
        role = {shapes.ASSISTANT: "assistant", shapes.USER: "user"}.get(role_of(message) or "", role)
        messages.append({"role": role, "parts": [*_parts(content, calls), *_calls(calls)]})
    return messages or None


def _parts(content: Any, calls: list[Call]) -> list[Part]:
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    if not isinstance(content, list):
        return []
    parts: list[Part] = []
    for part in content:
        fields = {} if isinstance(part, str) else fields_of(part)
        if is_call(fields):
            parts += [] if calls else _calls([call_in(fields)])
            continue
        text = part if isinstance(part, str) else said_in([part]).text if is_text(fields) else None
        parts.append({"type": "other", "content": plain(part)} if text is None else {"type": "text", "content": text})
    return parts


def _calls(calls: list[Call]) -> list[Part]:
    return [{"type": "tool_call", **call} for call in calls]
