"""Answers as JSON: instants as ISO 8601 with Z, ids as hex, not-a-number as null."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import orjson

_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def dump(content: Any) -> bytes:
    """Encode an answer; NaN and infinities become null."""
    return orjson.dumps(content, default=_encode, option=_OPTIONS)


def plain(content: Any) -> Any:
    """Return an answer as a reader of its JSON gets it."""
    return orjson.loads(dump(content))


def _encode(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
