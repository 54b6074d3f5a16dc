"""How a reply ended: why it has no text, or the error that came in its place."""

from collections.abc import Iterator, Sequence
from typing import Any

from ragpulse import shapes

from .openers import opened
from .turns import Call, Fields, first_of, is_nothing
from .values import fields_of


def missing_reason(result: Any, calls: Sequence[Call]) -> str | None:
    """Why a reply has no text: it calls tools, was filtered, refused or cut, or has no choice; None if unknown."""
    if calls:
        return shapes.TOOL_CALLS
    fields = fields_of(opened(result))
    for source in _endings(fields):
        if first_of(source, shapes.BLOCK_KEYS) is not None:
            return shapes.FILTERED
        ending = first_of(source, shapes.FINISH_KEYS) or source.get("reason")
        reason = shapes.MISSING_REASONS.get(str(getattr(ending, "value", ending)).lower())
        if reason is not None:
            return reason
    is_empty = any([fields.get(key) == [] for key in ("choices", "candidates", "generations")])
    return shapes.NO_CHOICE if is_empty else None


def unsaid_reason(reply: Any, calls: Sequence[Call]) -> str | None:
    """As `missing_reason`, of a whole reply, whose answer may be null."""
    fields = fields_of(reply)
    answers = [fields[key] for key in shapes.ANSWER_KEYS if key in fields and key not in shapes.WRAPPER_KEYS]
    is_unsaid = is_nothing(answers) if answers else is_nothing(reply)
    return missing_reason(reply, calls) or (shapes.NOTHING if is_unsaid else None)


def _endings(fields: Fields) -> Iterator[Fields]:
    """Where a reply says how it ended."""
    choices = first_of(fields, ("choices", "candidates"))
    yield from map(fields_of, choices[:1] if isinstance(choices, list) else ())
    yield fields
    for key in ("incomplete_details", "promptFeedback", "prompt_feedback", "delta", "messageStop", "response_metadata"):
        yield fields_of(fields.get(key))


def error_in(result: Any) -> tuple[str | None, str] | None:
    """The type and message of an error that came as a reply with status 200, or as an event of a stream."""
    fields = fields_of(result)
    choices = fields.get("choices")
    sources = (fields, fields.get("response"), *(choices if isinstance(choices, list) else ()))
    for source in map(fields_of, sources):
        error = source.get("error")
        if isinstance(error, str) and error:
            return None, error
        error = fields_of(error) or (source if source.get("type") == "error" else {})
        if isinstance(error.get("message"), str):
            kind = first_of(error, ("type", "code"))
            return None if kind in (None, "error") else str(kind), error["message"]
    return None
