"""Answers over HTTP: JSON, and errors as RFC 9457 problem details."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ragpulse_collector.refusals import FieldError, Refusal
from ragpulse_collector.store.connection import is_short_of_memory

_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_NAIVE_UTC | orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def dump(content: Any) -> bytes:
    """Encode an answer; NaN and infinities become null, a field `from_` becomes `from`."""
    try:
        body = _without_renaming(content)
        return body or orjson.dumps(content, default=_encode, option=_OPTIONS | orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:  # users' SQL gives integers beyond 64 bits, times with a zone, maps by lists, deep lists
        return orjson.dumps(_writable(content, _DEEPEST), default=_encode, option=_OPTIONS)


_DEEPEST = 200
"""Deeper values are written as text: orjson refuses those of 255 levels."""


def _writable(value: Any, levels: int) -> Any:
    """Return a value without what orjson refuses; integers stay exact numbers."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return orjson.Fragment(str(value))
    if isinstance(value, datetime.time) or (levels == 0 and isinstance(value, list | tuple | dict)):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name.rstrip("_"): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _writable(one, levels - 1) for key, one in value.items()}
    return [_writable(one, levels - 1) for one in value] if isinstance(value, list | tuple) else value


def _without_renaming(content: Any) -> bytes | None:
    """Encode what has no field `from_` at any depth, several times as fast; None for other answers."""
    if is_dataclass(content) and not isinstance(content, type) and _has_from(type(content)):
        return None
    body = orjson.dumps(content, default=_encode, option=_OPTIONS)
    return None if b'"from_":' in body else body


@cache
def _has_from(kind: Any) -> bool:
    return any(field.name == "from_" for field in fields(kind))


def plain(content: Any) -> Any:
    """Return an answer as its JSON holds it."""
    return orjson.loads(dump(content))


def _encode(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        body = _without_renaming(value)
        if body is not None:
            return orjson.Fragment(body)
        return {field.name.rstrip("_"): getattr(value, field.name) for field in fields(value)}
    if isinstance(value, BaseModel):
        return orjson.Fragment(value.model_dump_json())
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


@dataclass(frozen=True, slots=True)
class Problem:
    """An error (RFC 9457); `error` repeats `detail`, `errors` name each wrong parameter."""

    title: str
    status: int
    detail: str
    instance: str
    """The path of the request."""
    error: str
    errors: Sequence[FieldError] = ()
    type: str = "about:blank"


def problem(status: int, detail: str, *, instance: str = "", errors: Sequence[FieldError] = ()) -> bytes:
    """Return the body of an error."""
    return dump(Problem(HTTPStatus(status).phrase, status, detail, instance, detail, errors))


MAX_ANSWER_BYTES = 64 * 2**20
"""As much as one body may hold: a trace of one body can be read."""
NO_STORE = {"Cache-Control": "no-store"}
"""Answers hold prompts and documents: no browser or proxy keeps them."""


def json_response(content: Any) -> Response:
    """Answer JSON; raises Refusal for an answer that is too large."""
    body = dump(content)
    if len(body) > MAX_ANSWER_BYTES:
        raise Refusal(
            f"the answer has {len(body):,} bytes, at most {MAX_ANSWER_BYTES:,} are sent: narrow it with from, to, a "
            "filter or limit, or write a file with `ragpulse export`",
            status=413,
        )
    return Response(body, headers=NO_STORE, media_type="application/json")


def refusal(request: Request, error: Refusal) -> Response:
    """Answer an error of an operation."""
    return _problem(request, error.status, error.message, error.headers, error.errors)


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""A disk that is full, read-only or failing: not a bug of ours."""


def unexpected(error: Exception) -> Refusal:
    """Return the answer to an error that is no refusal: 503 where disk or memory is at fault, 500 for a bug."""
    if isinstance(error, OSError) and error.errno in _DISK:
        return Refusal(f"the disk refuses: {error.strerror}", retry_after_s=10, status=503)
    if is_short_of_memory(error):
        sentence = "the collector has too little memory for this: ask again, for a shorter time, or raise its limit"
        return Refusal(sentence, retry_after_s=10, status=503)
    return Refusal("the collector failed to answer; its log has the reason", status=500)


def http_refusal(request: Request, error: HTTPException) -> Response:
    """Answer an unknown path or method."""
    headers = dict(error.headers or {})
    detail = error.detail
    if error.status_code == 404:
        detail = f"there is nothing at {request.url.path}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(headers.get("Allow", "").split(", ")))
        detail = f"{request.url.path} does not answer {request.method}; possible: {headers['Allow']}"
    return _problem(request, error.status_code, detail, headers)


def _problem(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None, errors: Sequence[FieldError] = ()
) -> Response:
    content = problem(status, detail, instance=request.url.path, errors=errors)
    return Response(content, status, {**NO_STORE, **(headers or {})}, MEDIA_TYPE)
