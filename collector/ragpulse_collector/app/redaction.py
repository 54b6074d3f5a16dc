"""Masks what must not be stored: the `redact` patterns, applied to every text before it reaches the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ragpulse_collector.records import Batch, ContextRecord, RawBody
from ragpulse_collector.settings import SettingsError

MASK = "[redacted]"
Decode = Callable[[RawBody], Batch]
_SPAN_TEXTS = (
    "name", "query", "response", "status_message", "attributes", "events", "resource", "metadata", "session_id",
    "user_id",
)  # fmt: skip


def redacting(decode: Decode, patterns: Sequence[str]) -> Decode:
    """Return a decoder whose texts are masked; raises SettingsError for a pattern that is none."""
    if not patterns:
        return decode
    try:
        pattern = re.compile("|".join(f"(?:{part})" for part in patterns))
    except re.error as error:
        raise SettingsError(f"[collector] redact: {error}") from error

    def decode_masked(body: RawBody) -> Batch:
        return _masked(decode(body), pattern)

    return decode_masked


def _masked(batch: Batch, pattern: re.Pattern[str]) -> Batch:
    for record in batch.spans:
        _mask(record, _SPAN_TEXTS, pattern)
        _mask_contexts(record.contexts, pattern)
    for content in batch.contents:
        _mask(content, ("query", "response", "attributes"), pattern)
        _mask_contexts(content.contexts, pattern)
    for score in batch.scores:
        _mask(score, ("explanation", "label"), pattern)
    return batch


def _mask_contexts(contexts: list[ContextRecord] | None, pattern: re.Pattern[str]) -> None:
    for context in contexts or ():
        _mask(context, ("text", "metadata", "id"), pattern)


def _mask(record: object, names: Sequence[str], pattern: re.Pattern[str]) -> None:
    for name in names:
        value = getattr(record, name)
        if value:
            setattr(record, name, pattern.sub(MASK, value))
