"""Does the answer keep a form: JSON, schema, regular expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragpulse_evaluators.entry import Entry
from ragpulse_evaluators.errors import ConfigurationError
from ragpulse_evaluators.evaluator import Evaluator, Function, Scale
from ragpulse_evaluators.structure import documents, patterns

__all__ = ("ENTRIES",)


def _format_adherence(
    *, pattern: str | None = None, schema: Mapping[str, Any] | str | None = None, fenced: bool = False
) -> Evaluator:
    """The whole answer against `pattern`, its JSON against `schema`, or, with neither, being JSON at all."""
    if pattern is not None and schema is not None:
        raise ConfigurationError("format_adherence takes a pattern or a schema, not both")
    if pattern is not None:
        return patterns.Regex(pattern=pattern, mode="fullmatch", name="format_adherence")
    if schema is not None:
        return documents.JsonSchema(schema=schema, fenced=fenced, name="format_adherence")
    return Function(documents.is_json, name="format_adherence", scale=Scale(), fenced=fenced)


ENTRIES: tuple[Entry, ...] = (
    *documents.ENTRIES,
    *patterns.ENTRIES,
    Entry(
        name="format_adherence",
        factory=_format_adherence,
        needs=("response",),
        scale=Scale(),
        source="LangSmith-style format check",
        description="Is the answer in the expected format: JSON, a schema, or a pattern as a whole?",
        example='get_evaluator("format_adherence", pattern=r"\\d+ (EUR|USD)")',
    ),
)
