"""Settings from environment variables, so that a container needs no file.

`RAGPULSE_<KEY>` is a key of `[collector]`, `RAGPULSE_<SECTION>_<KEY>` one of another table. Lists are separated by
commas; tables and lists of tables are JSON. The environment wins over the file, the command line over both.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel

__all__ = ["Variable", "read", "variables"]

_log = logging.getLogger(__name__)
_PREFIX = "RAGPULSE_"
_SERVICE_LINK = re.compile(r"(tcp|udp|sctp)://")
"""Kubernetes sets RAGPULSE_PORT=tcp://... in every pod beside a Service that is named `ragpulse`."""
_KEY = re.compile(r"(?P<name>[^:,\s]+):(?P<scopes>[a-z+]+):(?P<sha256>[0-9a-f]{64})")


class Variable(NamedTuple):
    """One environment variable and the setting that it gives."""

    name: str
    place: tuple[str, ...]
    """Table and key; a table alone for `[prices]` and lists of tables."""
    annotation: Any


def variables(settings: type[BaseModel]) -> Iterator[Variable]:
    """Yield every variable that gives a setting."""
    for table, field in settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            prefix = _PREFIX if table == "collector" else f"{_PREFIX}{table.upper()}_"
            for key, inner in model.model_fields.items():
                yield Variable(prefix + key.upper(), (table, key), inner.annotation)
        elif table != "source":
            yield Variable(_PREFIX + table.upper(), (table,), model)


def read(environ: Mapping[str, str], settings: type[BaseModel]) -> dict[Variable, Any]:
    """Return the settings that the environment gives; raises ValueError that names the variable and the form."""
    found: dict[Variable, Any] = {}
    for variable in variables(settings):
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
