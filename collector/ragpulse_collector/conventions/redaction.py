"""Masks secrets: the `redact` patterns are applied to every text before it is stored.

JSON stays JSON: patterns are applied to the strings, numbers and keys inside it, never across its punctuation, and the
references of `conventions.lifting` do not change.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ragpulse_collector.records import Batch, Constant, ContextRecord, SpanBatch, Values
from ragpulse_collector.settings import SettingsError

MASK = "[redacted]"
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')
"""A string or a number in JSON text."""
_SPAN_TEXTS = (
    "name", "query", "response", "status_message", "error_type", "session_id", "user_id", "prompt_name",
    "prompt_version", "variant", "response_id", "service", "service_version", "environment", "model", "provider",
    "index_version",
)  # fmt: skip
_SPAN_JSON = ("attributes", "events", "links", "resource", "metadata", "mapped_from")


def masking(patterns: Sequence[str]) -> Callable[[str], str]:
    """Return the function that masks a text that a person typed; raises SettingsError for an invalid pattern."""
    redactor = Redactor.of(patterns)
    return str if redactor is None else redactor.text


@dataclass(frozen=True)
class Redactor:
    """Replaces the matches of a pattern by `[redacted]`, in place."""

    pattern: re.Pattern[str]

    @classmethod
    def of(cls, patterns: Sequence[str]) -> Redactor | None:
        """Return the redactor of all patterns, None where there are none; raises SettingsError for an invalid one."""
        if not patterns:
            return None
        try:
            return cls(re.compile("|".join(f"(?:{part})" for part in patterns)))
        except re.error as error:
            raise SettingsError(f"[collector] redact: {error}") from error

    def mask(self, batch: Batch) -> None:
        """Mask all texts of a batch."""
        for spans in batch.spans:
            self._spans(spans)
        for content in batch.contents:
            self._texts(content, ("query", "response"))
            self._contexts(content.contexts)
        for score in batch.scores:
            self._texts(score, ("name", "explanation", "label"))

    def _spans(self, spans: SpanBatch) -> None:
        for names, mask in ((_SPAN_TEXTS, self.text), (_SPAN_JSON, self.json), (("tags",), self.value)):
            for name in names:
                if name in spans.columns:
                    spans.columns[name] = _masked(spans.column(name), mask)
        for contexts in spans.contexts or ():
            self._contexts(contexts)

    def json(self, text: str) -> str:
        """Mask the strings, numbers and keys of a JSON text."""
        return orjson.dumps(self.value(orjson.loads(text))).decode()

    def text(self, text: str) -> str:
        """Mask one text; JSON is parsed first where its escapes could hide a match."""
        masked = self.pattern.sub(MASK, text)
        if "\\" not in text or text[:1] not in ("{", "["):
            return masked
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            return masked
        value = self.value(parsed)
        return masked if value == parsed else self.pattern.sub(MASK, orjson.dumps(value).decode())

    def value(self, value: Any) -> Any:
        """Mask the strings, numbers and keys of a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return self._mapping(value)
        if value is None or isinstance(value, bool):
            return value
        return MASK if self.pattern.search(str(value)) else value

    def _mapping(self, value: dict[str, Any]) -> Any:
        if "$lifted" in value or "$dropped" in value:
            return value
        if "$text" in value:
            return {"$text": [self._piece(piece) for piece in value["$text"]]}
        if "$bytes" in value:
            text = base64.b64decode(value["$bytes"]).decode("utf-8", "replace")
            return MASK if self.pattern.search(text) else value
        return {self.pattern.sub(MASK, key): self.value(item) for key, item in value.items()}

    def _piece(self, piece: Any) -> Any:
        """Mask the strings and numbers of a piece of JSON text, which is cut between them."""
        return _LITERAL.sub(self._literal, piece) if isinstance(piece, str) else piece

    def _literal(self, literal: re.Match[str]) -> str:
        try:
            value = orjson.loads(literal[0])
        except orjson.JSONDecodeError:
            return orjson.dumps(MASK).decode()
        masked = self.value(value)
        return literal[0] if masked == value else orjson.dumps(masked).decode()

    def _contexts(self, contexts: list[ContextRecord] | None) -> None:
        for context in contexts or ():
            self._texts(context, ("text", "id"))
            _replace(context, "metadata", self.json)

    def _texts(self, record: object, names: Sequence[str]) -> None:
        for name in names:
            _replace(record, name, self.text)


def _replace(record: object, name: str, mask: Callable[[str], str]) -> None:
    if text := getattr(record, name):
        setattr(record, name, mask(text))


def _masked(column: Values, mask: Callable[[Any], Any]) -> Values:
    if isinstance(column, Constant):
        return Constant(mask(column.value) if column.value else column.value, column.length)
    return [mask(value) if value else value for value in column]
