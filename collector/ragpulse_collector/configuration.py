"""Reads `ragpulse.toml` and the environment; a mistake is refused with the line and the nearest valid name.

`RAGPULSE_<KEY>` is a key of `[collector]`, `RAGPULSE_<SECTION>_<KEY>` one of another table. Lists are separated by
commas; tables and lists of tables are JSON. The environment wins over the file, the command line over both.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragpulse_collector.settings import Location, Settings, SettingsError, message

_log = logging.getLogger(__name__)
_PREFIX = "RAGPULSE_"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets RAGPULSE_PORT=tcp://... in every pod beside a Service that is named `ragpulse`."""
_MAY_END = re.compile(r"#|[\]}]\s*$|\"{3}\s*$|'{3}\s*$")
"""A line that may end a statement of several lines: parsing each of its lines would take its length squared."""
_SECRET = frozenset((
    "headers", "query", "secret", "password", "pagerduty", "slack", "webhook", "judge", "api_keys", "db", "redact",
))  # fmt: skip
"""Keys and tables whose texts no message shows: people paste a key where its variable's name belongs."""
_KEY = re.compile(r"(?P<name>[^:,\s]+):(?P<scopes>[a-z+]+):(?P<sha256>[0-9a-f]{64})")


def source_line(settings: Settings, *location: str | int) -> str:
    """Return `file:line` of a key or entry; only the file where the key is not in it, "" for defaults."""
    path = settings.path()
    return f"{path}:{_line_of(_read(path)[0], location)}" if path else ""


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (None: defaults) and the environment, which wins.

    Raises SettingsError naming file, line and nearest valid name, or the variable.
    """
    text, data = ("", {}) if path is None else _read(path)
    try:
        values = read_environment(os.environ if environ is None else environ)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    for variable, value in values.items():
        *tables, key = variable.location
        target = data.setdefault(tables[0], {}) if tables else data
        target[key] = value
    try:
        settings = Settings.model_validate(data if path is None else data | {"source": str(path)})
        return settings.placed(_places(path, text, [*values]))
    except ValidationError as error:
        messages = [_explain(path, text, values, item) for item in error.errors()]
        raise SettingsError("\n".join(messages)) from error


def _places(path: Path | None, text: str, given: Iterable[Variable]) -> dict[Location, str]:
    """Return where each value was given: the line of the file, or the variable, which hides what it replaces."""
    places = {location: f"{path}:{line}" for location, line in lines_of(text).items()}
    for name, replaced, _ in given:
        places = {location: place for location, place in places.items() if location[: len(replaced)] != replaced}
        places[replaced] = name
    return places


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(f"{path}: {error}") from error


def _explain(path: Path | None, text: str, values: Mapping[Variable, Any], error: ErrorDetails) -> str:
    """Describe a mistake: the variable where the value is from the environment, else the line of the file."""
    location, dotted = error["loc"], ".".join(map(str, error["loc"]))
    variable = next((variable for variable in values if location[: len(variable.location)] == variable.location), None)
    given = error["input"]
    is_secret = not _SECRET.isdisjoint(location) and not re.fullmatch(r"-?[0-9.]+", str(given))
    if variable is not None:
        return f"{variable.name}{'' if is_secret else f'={values[variable]!r}'}: {message(error)}"
    prefix = f"{path}:{_line_of(text, location)}: " if path else ""
    if error["type"] == "extra_forbidden":
        from ragpulse_collector.refusals import nearest

        names = sorted(_valid_names(location[:-1]))
        hint = nearest(str(location[-1]), names) or f"; valid: {', '.join(names)}"
        return f"{prefix}unknown key {dotted!r}{hint}"
    is_private = is_secret or isinstance(given, dict) or "://" in str(given)  # an address may hold a key
    value = "" if is_private else f" (got {given!r})"
    return f"{prefix}{dotted}: {message(error)}{value}"


def _valid_names(location: Sequence[str | int]) -> list[str]:
    annotation: Any = Settings
    for part in location:
        if isinstance(part, int):  # an entry of a list
            annotation = get_args(annotation)[0]
        elif _is_table(annotation):
            annotation = annotation.model_fields[part].annotation
        else:  # a table whose keys are the user's own names
            annotation = get_args(annotation)[1]
        annotation = next(filter(_is_table, get_args(annotation)), annotation) if part == "judge" else annotation
    return [name for name in annotation.model_fields if name != "source"]


def _line_of(text: str, location: Location) -> int:
    """Return the line of a key, else that of the entry or table around it; 1 at worst."""
    lines = lines_of(text)
    known = (lines[location[:size]] for size in range(len(location), 0, -1) if location[:size] in lines)
    return next(known, 1)


def lines_of(text: str) -> dict[Location, int]:
    """Return the line of every table, entry and key of a TOML text: each statement is TOML of its own."""
    found: dict[Location, int] = {}
    arrays: dict[Location, int] = {}
    table: Location = ()
    statement = ""
    start = 1
    for number, line in enumerate(text.split("\n"), 1):
        parsed = None if statement and not _MAY_END.search(line) else _parsed(statement + line)
        if parsed is None:  # the statement goes on
            statement += f"{line}\n"
            continue
        if not statement and line.lstrip().startswith("["):
            table = _entered(parsed, arrays)
            locations = [table[:size] for size in range(1, len(table) + 1)]
        else:
            locations = [table + inner for inner in _locations(parsed)]
        for location in locations:
            found.setdefault(location, start)
        statement, start = "", number + 1
    return found


def _parsed(text: str) -> dict[str, Any] | None:
    """Return a TOML text as values; None where it is not whole."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _entered(header: Any, arrays: dict[Location, int]) -> Location:
    """Return the location of a table by its header; `arrays` holds the number of the last entry of each array."""
    location: Location = ()
    while header:
        ((name, header),) = header.items()
        location += (name,)
        if isinstance(header, list):
            arrays[location] = arrays.get(location, -1) + 1
            header = None
        if location in arrays:
            location += (arrays[location],)
    return location


def _locations(value: Any) -> Iterator[Location]:
    """Yield the location of every key and entry of a value, the outer ones first."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield (key,)
        yield from ((key, *inner) for inner in _locations(part))


class Variable(NamedTuple):
    """One environment variable and the setting that it gives."""

    name: str
    location: tuple[str, ...]
    """Table and key; a table alone for `[prices]` and lists of tables."""
    annotation: Any


def variables() -> Iterator[Variable]:
    """Yield every variable that gives a setting."""
    for table, field in Settings.model_fields.items():
        model: Any = field.annotation
        if _is_table(model):
            prefix = _PREFIX if table == "collector" else f"{_PREFIX}{table.upper()}_"
            for key, inner in model.model_fields.items():
                yield Variable(prefix + key.upper(), (table, key), inner.annotation)
        elif table != "source":
            yield Variable(_PREFIX + table.upper(), (table,), model)


def read_environment(environ: Mapping[str, str]) -> dict[Variable, Any]:
    """Return the settings that the environment gives; raises ValueError that names the variable and the form."""
    values: dict[Variable, Any] = {}
    for variable in variables():
        text = environ.get(variable.name, "")
        if _SERVICE_LINK.match(text):
            _log.warning("%s=%s is ignored: Kubernetes sets it for a Service named ragpulse", variable.name, text)
        elif text:
            values[variable] = _value(variable, text)
    return values


def _value(variable: Variable, text: str) -> Any:
    if variable.location == ("collector", "api_keys") and not text.startswith("["):
        return _api_keys(variable.name, text)
    if get_origin(variable.annotation) not in (tuple, dict):
        return text
    item = get_args(variable.annotation)[0]
    if get_origin(variable.annotation) is tuple and not _is_table(item) and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        example = "{...}" if get_origin(variable.annotation) is dict else "[{...}]"
        raise ValueError(f"{variable.name} is not JSON ({error}): write {example}") from error


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _api_keys(name: str, text: str) -> list[dict[str, Any]]:
    keys = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _KEY.fullmatch(part)
        if match is None:
            raise ValueError(
                f"{name}: {part[:40]!r} is not NAME:SCOPES:SHA256 (scopes joined by +, as in app:ingest+read:<64 hex>)"
            )
        keys.append({**match.groupdict(), "scopes": match["scopes"].split("+")})
    return keys
