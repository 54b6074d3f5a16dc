"""Ids as OTLP allows them: 16 and 8 bytes in hex, not all zero."""

from __future__ import annotations

import re

_TRACE = re.compile(r"(?!0{32})[0-9a-f]{32}")
_SPAN = re.compile(r"(?!0{16})[0-9a-f]{16}")


def valid_trace_id(trace_id: str) -> bool:
    """Tell whether a trace id (lower-case hex) is one."""
    return _TRACE.fullmatch(trace_id) is not None


def valid_span_id(span_id: str) -> bool:
    """Tell whether a span id (lower-case hex) is one."""
    return _SPAN.fullmatch(span_id) is not None
