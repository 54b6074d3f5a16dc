"""The operations as callers of a running collector know them: the command line, the client and MCP.

Importing the operations needs duckdb and takes over a second. Therefore `docs/generate.py` writes their signatures to
`interface.json`, which this module reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ragpulse_collector.refusals import Invalid, nearest
from ragpulse_collector.zones import DAYS

FILE = Path(__file__).with_name("interface.json")
_AGE = re.compile(r"-?(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Command:
    """How the command line asks an operation; the options are its parameters."""

    name: str
    arguments: Sequence[str] = ()
    """The parameters that are given without a name."""
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What is printed: tables by field of the answer, and the field of each column. Without them all fields are."""
    presets: Mapping[str, Any] = field(default_factory=dict)
    """Defaults other than those of the operation."""


@dataclass(frozen=True, slots=True)
class Tool:
    """How assistants ask an operation over MCP."""

    name: str
    takes: Sequence[str] = ()
    """Parameters, also as `words=q` under another name. Without them: those of the operation, `since` and `where`."""
    presets: Mapping[str, Any] = field(default_factory=dict)
    """Values that are always sent; of a parameter in `takes` it is the default."""
    text: str = ""
    """The description; without it the first line of the docstring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An operation that reads, as `interface.json` has it."""

    name: str
    """As in `GET traces/{trace_id}`."""
    function: str
    """The method of the client."""
    summary: str
    text: str
    """The docstring after its first line."""
    parameters: Mapping[str, Mapping[str, Any]]
    """Their JSON schemas, in the order of the operation; those of the filters are in the file once."""
    filters: Sequence[str]
    """The parameters that are filters."""
    required: Sequence[str]
    slashes: bool
    """Whether the placeholder of the address accepts slashes."""
    back: str | None
    """The length of the range without `from`; None where there is no range."""
    command: Command | None
    tools: Sequence[Tool]

    @property
    def own(self) -> list[str]:
        """The parameters that are no filters, those that are required first."""
        own = [name for name in self.parameters if name not in self.filters]
        return sorted(own, key=lambda name: name not in self.required)

    def request(self, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the address and the parameters of a request.

        `since` is an age and becomes `from`; a name that ends in `_` loses it. A name that the operation does not have
        is sent as it is: the collector refuses it. Raises Invalid.
        """
        params = {name.removesuffix("_"): value for name, value in values.items() if value not in (None, (), "")}
        if "since" in params and "from" in self.parameters:
            given = params.pop("since")
            since = [age(str(one)) for one in given] if isinstance(given, list | tuple) else age(str(given))
            params.setdefault("from", since)
        address = self.name
        for name in re.findall(r"\{(\w+)\}", self.name):
            value = str(params.pop(name, ""))
            if not value:
                raise Invalid(f"{name} is missing")
            if "/" in value and not self.slashes:
                raise Invalid(f"{name}: {value!r} has a slash, which no {name} has")
            address = address.replace(f"{{{name}}}", quote(value, safe=""))
        return address, params


def unknown_parameter(name: str, names: Sequence[str]) -> str:
    """Return the sentence about a parameter that an operation does not have."""
    possible = f"; possible: {', '.join(names)}" if names else "; this takes none"
    return f"unknown parameter {name[:80]!r}{nearest(name, names) or possible}"


def age(value: str) -> str:
    """Return the `from` of the API that an age such as `7d`, a day or a time means; raises Invalid."""
    if value in DAYS:
        return value
    since_time(value)
    return f"-{value.removeprefix('-')}" if _AGE.fullmatch(value) else value


def since_time(since: str) -> datetime:
    """Return the time that an age or ISO 8601 means, in UTC; raises Invalid."""
    try:
        if age := _AGE.fullmatch(since):
            return datetime.now(UTC) - timedelta(**{_UNITS[age[2]]: float(age[1])})
        time = datetime.fromisoformat(since)
        return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        fix = "write an age such as 30m, 6h, 7d, 2w, or a time such as 2026-11-21T14:00Z"
        raise Invalid(f"{since!r}: {fix}") from error


@cache
def signatures() -> Mapping[str, Signature]:
    """Return the operations that read, by name."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    return {one["name"]: _signature(one, content["filters"]) for one in content["operations"]}


def _signature(content: dict[str, Any], filters: Mapping[str, Any]) -> Signature:
    own, command = content["parameters"], content.pop("command")
    shared = filters if content.pop("filtered") else {}
    made = {"parameters": {**shared, **own}, "tools": [Tool(**one) for one in content["tools"]]}
    filtering = [name for name in shared if name not in own]
    return Signature(**content | made, filters=filtering, command=Command(**command) if command else None)
