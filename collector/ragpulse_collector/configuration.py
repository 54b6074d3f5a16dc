"""Reads `ragpulse.toml` and the environment; a mistake is refused with the line and the nearest valid name."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ragpulse_collector import environment
from ragpulse_collector.settings import Settings, SettingsError


def place(settings: Settings, *location: str | int) -> str:
    """Return `file:line` of a key or entry; only the file where it is not in there, "" for defaults."""
    path = settings.path()
    return f"{path}:{_line_of(_read(path)[0], location)}" if path else ""


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read the file (None: defaults) and the environment, which wins.

    Raises SettingsError naming file, line and nearest valid name, or the variable.
    """
    text, data = ("", {}) if path is None else _read(path)
    try:
        given = environment.read(os.environ if environ is None else environ, Settings)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    for variable, value in given.items():
        *tables, key = variable.place
        target = data.setdefault(tables[0], {}) if tables else data
        target[key] = value
    try:
        return Settings.model_validate(data if path is None else data | {"source": str(path)})
    except ValidationError as error:
        said = [_explain_all(path, text, given, dict(item)) for item in error.errors()]
        raise SettingsError("\n".join(said)) from error


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error


def _explain_all(
    path: Path | None, text: str, given: Mapping[environment.Variable, Any], error: Mapping[str, Any]
) -> str:
    """Name the variable where the value came from one, else the line of the file."""
    location = tuple(str(part) for part in error["loc"])
    variable = next((each for each in given if location[: len(each.place)] == each.place), None)
    if variable is not None:
        return f"{variable.name}={given[variable]!r}: {error['msg']}"
    return _explain(path, text, error) if path else f"{'.'.join(location)}: {error['msg']}"


def _explain(path: Path, text: str, error: Mapping[str, Any]) -> str:
    location: Sequence[str | int] = error["loc"]
    where = f"{path}:{_line_of(text, location)}"
    dotted = ".".join(str(part) for part in location)
    if error["type"] != "extra_forbidden":
        return f"{where}: {dotted}: {error['msg']} (got {error['input']!r})"
    from ragpulse_evaluators.registry import nearest

    known = sorted(_valid_names(location[:-1]))
    hint = nearest(str(location[-1]), known) or f"; valid: {', '.join(known)}"
    return f"{where}: unknown key {dotted!r}{hint}"


def _valid_names(location: Sequence[str | int]) -> list[str]:
    model: Any = Settings
    for part in location:
        if isinstance(part, int):
            continue
        model = _model_in(model.model_fields[part].annotation)
    return [name for name in model.model_fields if name != "source"]


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(found for found in map(_model_in, annotation.__args__) if found is not None)


def _line_of(text: str, location: Sequence[str | int]) -> int:
    """Find the line of a key: the table header first, then the key inside it (best effort, never raises)."""
    table = str(location[0])
    index = location[1] if len(location) > 1 and isinstance(location[1], int) else 0
    header = re.compile(rf"^\s*\[\[?\s*{re.escape(table)}\b")
    keys = [str(part) for part in location if isinstance(part, str)]
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines, 1) if header.match(line)]
    if not starts:
        return next((n for n, line in enumerate(lines, 1) if re.match(rf"^\s*{re.escape(table)}\b", line)), 1)
    start = starts[min(index, len(starts) - 1)]
    for number, line in enumerate(lines[start:], start + 1):
        if re.match(r"^\s*\[", line):
            break
        if re.match(rf'^\s*"?{re.escape(keys[-1])}"?\s*[=.]', line):
            return number
    return start
