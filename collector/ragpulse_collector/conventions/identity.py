"""Ids as OTLP allows them: 16 and 8 bytes, here in hex, not all zero."""

from __future__ import annotations

_NO_TRACE = "0" * 32
_NO_SPAN = "0" * 16


def valid_trace_id(trace_id: str) -> bool:
    """Tell whether a trace id (in hex) is one."""
    return len(trace_id) == 32 and trace_id != _NO_TRACE


def valid_span_id(span_id: str) -> bool:
    """Tell whether a span id (in hex) is one."""
    return len(span_id) == 16 and span_id != _NO_SPAN
