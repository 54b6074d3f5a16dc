"""Refusals: what the collector answers on purpose. Every other exception is a bug: status 500, and a line in the log.

A refusal is raised where the reason is known, and becomes an answer at the edge (HTTP, pages, command line). Its
message is one sentence with the fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class Refusal(Exception):
    """A request that is refused; see the subclasses."""

    status: ClassVar[int] = 400
    """The HTTP status of the answer."""
    retry_after_s: int | None = None
    """When the same request may succeed, in seconds; None: not by waiting."""


class Invalid(Refusal, ValueError):
    """A value is wrong. It is a ValueError because pydantic turns those of its validators into mistakes of a field."""


class Forbidden(Refusal):
    """The caller may not do this."""

    status = 403


class NotFound(Refusal):
    """What the request names does not exist."""

    status = 404


class Conflict(Refusal):
    """The state does not allow it: the name is taken, or the thing belongs to the configuration file."""

    status = 409


class Busy(Refusal):
    """The queue or the memory is full, or the disk refuses: try again in `retry_after_s` seconds."""

    status = 503
    retry_after_s: int

    def __init__(self, reason: str, retry_after_s: int = 1) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class TooSlow(Refusal):
    """The answer takes longer than its time limit."""

    status = 504


@dataclass(frozen=True, slots=True)
class FieldError:
    """A wrong parameter."""

    name: str
    detail: str


class ApiError(Exception):
    """An operation failed or was refused; `status` is the HTTP status, `message` says what to do.

    `headers` are those of its answer: `Retry-After` with `retry_after_s`. `errors` name each wrong parameter.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        retry_after_s: int | None = None,
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = tuple(errors)
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
