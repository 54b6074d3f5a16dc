"""What answers share: they are frozen dataclasses, one for each object of JSON, beside the functions that make them.

A field `from_` is `from` in the JSON; times are UTC without a zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from ragpulse_evaluators.statistics import Uncertain

Answer = TypeVar("Answer")
GroupValue = str | int | float | bool | None
"""A value of a column that divides an answer into groups."""


class Place(NamedTuple):
    """A group in a bucket."""

    start: datetime | None
    """None is the whole range."""
    group: tuple[GroupValue, ...]


def uncertain(found: Uncertain | None) -> Uncertain:
    """Return the value and the interval alone of a figure; nothing for None."""
    return Uncertain() if found is None else Uncertain(found.value, found.lo, found.hi)


COUNTING = "counting"
"""The kind of the marker of an upgrade after which fewer roots count as requests."""


@dataclass(frozen=True, slots=True)
class Marker:
    """A time at which something began that may explain a change."""

    t: datetime
    kind: str
    """`prompt_version`, `version` of an evaluator, `lead`: another evaluator leads, or `counting` (COUNTING)."""
    text: str
    prompt: str | None = None
    """The name of the prompt."""
    services: Sequence[str] = ()
    """The services that use the version of a prompt; empty text for requests without one."""
    label: str = ""
    """The version in few letters."""


def flag(version: str | None) -> str:
    """Return a version in few letters: `v7`, the beginning of a hash."""
    text = (version or "")[:8]
    return f"v{text}" if text[:1].isdigit() else text


class _Part(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


def extended(kind: type[Answer], part: _Part, /, **more: Any) -> Answer:
    """Return an answer that has all fields of a part, such as an estimate, and more of its own."""
    return kind(**{field.name: getattr(part, field.name) for field in fields(part)}, **more)


@dataclass(frozen=True, slots=True)
class Done:
    """A finished change."""

    ok: bool = True
