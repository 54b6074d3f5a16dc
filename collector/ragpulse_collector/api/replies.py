"""Answers as JSON, and errors as RFC 9457 problem details."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
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


MEDIA_TYPE = "application/problem+json"


def problem(
    status: int, detail: str, *, instance: str = "", errors: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Return the body of an error; `instance` is the path of the request, `errors` name each wrong parameter."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "error": detail,
    }
    return body | ({"errors": list(errors)} if errors else {})


def encoded(status: int, detail: str, *, instance: str = "") -> bytes:
    """Return the body of an error as bytes, for callers below the application."""
    return json.dumps(problem(status, detail, instance=instance)).encode()
