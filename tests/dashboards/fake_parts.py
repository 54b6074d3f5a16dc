"""Parts of a trace for tests of single functions; what a test does not name is unknown."""

from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from ragpulse_collector.store.queries.trace_answers import ContextRow, SpanScore, SpanWhole
from ragpulse_collector.store.queries.traces import TraceRow

T = TypeVar("T")
START = datetime(2026, 11, 21, 10)


def _made(kind: type[T], known: dict[str, Any]) -> T:
    unknown = {field.name: None for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{**unknown, "start_time": START, **known} if "start_time" in unknown else {**unknown, **known})


def score(**known: Any) -> SpanScore:
    """A score of a trace."""
    return _made(SpanScore, known)


def context(text: str | None = None, **known: Any) -> ContextRow:
    """A retrieved context."""
    return _made(ContextRow, {"text": text, "superseded": False, **known})


def span(**known: Any) -> SpanWhole:
    """A span."""
    return _made(SpanWhole, known)


def trace(**known: Any) -> TraceRow:
    """A trace."""
    return _made(TraceRow, known)
