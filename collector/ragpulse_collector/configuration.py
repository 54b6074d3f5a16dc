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
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ragpulse_collector.settings import Settings, SettingsError

_log = logging.getLogger(__name__)
_PREFIX = "RAGPULSE_"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets RAGPULSE_PORT=tcp://... in every pod beside a Service that is named `ragpulse`."""
_KEY = re.compile(r"(?P<name>[^:,\s]+):(?P<scopes>[a-z+]+):(?P<sha256>[0-9a-f]{64})")


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
        given = read_environment(os.environ if environ is None else environ)
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


def _explain_all(path: Path | None, text: str, given: Mapping[Variable, Any], error: Mapping[str, Any]) -> str:
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
    from ragpulse_evaluators.errors import nearest

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


class Variable(NamedTuple):
    """One environment variable and the setting that it gives."""

    name: str
    place: tuple[str, ...]
    """Table and key; a table alone for `[prices]` and lists of tables."""
    annotation: Any


def variables() -> Iterator[Variable]:
    """Yield every variable that gives a setting."""
    for table, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            prefix = _PREFIX if table == "collector" else f"{_PREFIX}{table.upper()}_"
            for key, inner in model.model_fields.items():
                yield Variable(prefix + key.upper(), (table, key), inner.annotation)
        elif table != "source":
            yield Variable(_PREFIX + table.upper(), (table,), model)


def read_environment(environ: Mapping[str, str]) -> dict[Variable, Any]:
    """Return the settings that the environment gives; raises ValueError that names the variable and the form."""
    found: dict[Variable, Any] = {}
    for variable in variables():
        text = environ.get(variable.name, "")
        if _SERVICE_LINK.match(text):
            _log.warning("%s=%s is ignored: Kubernetes sets it for a Service named ragpulse", variable.name, text)
        elif text:
            found[variable] = _value(variable, text)
    return found


def _value(variable: Variable, text: str) -> Any:
    if variable.place == ("collector", "api_keys") and not text.startswith("["):
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
