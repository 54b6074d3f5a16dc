"""Errors as RFC 9457 problem details; `error` repeats `detail` for clients of earlier versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

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
