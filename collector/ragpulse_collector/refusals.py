"""Refusals: what the collector answers on purpose. Every other exception is a bug: status 500, and a line in the log.

A refusal is raised where the reason is known, and becomes an answer at the edge (HTTP, pages, command line). Its
message is one sentence with the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean 'x'?`, or nothing when no name is close.

    That of the evaluators needs pydantic, which callers of a collector may lack.
    """
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]!r}?" if close else ""


@dataclass(frozen=True, slots=True)
class FieldError:
    """A wrong parameter."""

    name: str
    detail: str


class Refusal(Exception):
    """A request that is refused. The subclasses are those with a meaning of their own."""

    status: int = 400
    """The HTTP status of the answer."""
    retry_after_s: int | None = None
    """When the same request may succeed, in seconds; None: not by waiting."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: int | None = None,
        errors: Sequence[FieldError] = (),
        page: str = "",
    ) -> None:
        """`errors` name each wrong parameter; a browser is sent to `page`, if there is one."""
        super().__init__(message)
        self.status = status or self.status
        self.retry_after_s = retry_after_s or self.retry_after_s
        self.errors, self.page = tuple(errors), page

    @property
    def message(self) -> str:
        """What is wrong, with the fix."""
        return str(self)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


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
    retry_after_s: int = 1


class TooSlow(Refusal):
    """The answer takes longer than its time limit."""

    status = 504
