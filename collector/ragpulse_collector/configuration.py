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
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ragpulse_collector.settings import Settings, SettingsError, message

_log = logging.getLogger(__name__)
_PREFIX = "RAGPULSE_"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets RAGPULSE_PORT=tcp://... in every pod beside a Service that is named `ragpulse`."""
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
        return Settings.model_validate(data if path is None else data | {"source": str(path)})
    except ValidationError as error:
        messages = [_explain(path, text, values, item) for item in error.errors()]
        raise SettingsError("\n".join(messages)) from error


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
    if variable is not None:
        return f"{variable.name}={values[variable]!r}: {message(error)}"
    prefix = f"{path}:{_line_of(text, location)}: " if path else ""
    if error["type"] == "extra_forbidden":
        from ragpulse_evaluators.errors import nearest

        names = sorted(_valid_names(location[:-1]))
        hint = nearest(str(location[-1]), names) or f"; valid: {', '.join(names)}"
        return f"{prefix}unknown key {dotted!r}{hint}"
    given = error["input"]
    is_private = isinstance(given, dict) or "://" in str(given)  # an address may hold a key
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


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """Find the line of a key: the most specific header of its table, then the innermost key below it; 1 at worst."""
    keys = [f"[\"']?{re.escape(part)}[\"']?" for part in location if isinstance(part, str)]
    index = next((part for part in location if isinstance(part, int)), 0)
    lines = text.splitlines()
    for depth in range(len(keys), 0, -1):
        header = re.compile(rf"\s*\[\[?\s*{'[.]'.join(keys[:depth])}\s*\]")
        if starts := [number for number, line in enumerate(lines, 1) if header.match(line)]:
            start = starts[min(index, len(starts) - 1)]
            table = list(takewhile(lambda line: not re.match(r"\s*\[", line), lines[start:]))
            return _line_of_key(table, keys[depth:], start) or start
    return _line_of_key(lines, keys, 0) or 1


def _line_of_key(lines: Sequence[str], keys: Sequence[str], start: int) -> int | None:
    """Return the number of the line that sets the innermost of the keys, counted from `start`."""
    for key in reversed(keys):
        for number, line in enumerate(lines, start + 1):
            if re.match(rf"\s*{key}\s*[=.]", line):
                return number
    return None


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
